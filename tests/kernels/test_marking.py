"""The output of many trials under one cell: whole lines, each with its trial, whatever the pieces they come in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.conftest import Page
from tsnb.kernels.output.capping import SHOWN_CHARACTERS, Budget, Cap
from tsnb.kernels.output.marking import Marked, marked, marked_beside
from tsnb.kernels.output.outlets import Outlet, TerminalOutlet
from tsnb.kernels.output.transcript import Transcript


def say(outlet: Any, text: str, name: str = "stdout") -> None:
    outlet.publish("stream", {"name": name, "text": text})


@given(st.lists(st.tuples(st.booleans(), st.text("ab\n", max_size=6)), max_size=30))
def test_no_line_is_cut_or_mixed(pieces: list[tuple[bool, str]]) -> None:
    """Two trials write in turns, in pieces: every line that is shown is one of one trial, complete, in its order."""
    page = Page()
    outlets = {False: Marked(page, "one"), True: Marked(page, "two")}
    written = {False: "", True: ""}
    for which, text in pieces:
        say(outlets[which], text)
        written[which] += text
    for which, mark in ((False, "[one] "), (True, "[two] ")):
        complete = [line for line in written[which].split("\n")[:-1] if line]
        assert [line[6:] for line in page.text.splitlines() if line.startswith(mark)] == complete


def test_of_a_progress_bar_its_last_state_is_shown() -> None:
    """It writes one line again and again; under many trials' output each would be a line of its own."""
    page = Page()
    outlet = Marked(page, "cnn")
    for text in ("\r 0%", "\r 50%", "\r100%", "\n", "done\r\n"):
        say(outlet, text, "stderr")
    assert page.of("stream") == [
        {"name": "stderr", "text": "[cnn] 100%\n"},
        {"name": "stderr", "text": "[cnn] done\n"},
    ]


def test_rich_output_stands_below_its_mark() -> None:
    """After what was printed before it, also where that line was not complete; clearing would clear the others'."""
    page = Page()
    outlet = marked(page, "cnn")
    say(outlet, "half a line")
    outlet.publish("display_data", {"data": {}})
    outlet.publish("clear_output", {"wait": False})
    outlet.publish("update_display_data", {"data": {}})
    kinds = [kind for _, kind, _ in page.shown]
    assert page.text == "[cnn] half a line\n[cnn] \n"
    assert kinds == ["stream", "stream", "display_data", "update_display_data"]


def test_on_a_terminal_every_trial_has_its_own_mark(capsys: Any) -> None:
    """Where the outlet marks lines itself they are not marked twice."""
    say(marked(TerminalOutlet("sweep"), "cnn"), "line\n")
    assert capsys.readouterr().out == "[cnn] line\n"


def test_all_trials_of_a_cell_share_its_bound() -> None:
    """Fifty trials under one cell show as much text as one would, and one line says where the rest is."""
    page = Page()
    budget = Budget()
    line = "x" * 99 + "\n"
    for number in range(10):
        outlet = marked(page, f"trial-{number}", budget)
        cap = Cap(rest=f"%trials logs trial-{number}", budget=outlet.budget)  # type: ignore[attr-defined]
        for message in (kind for _ in range(200) for kind in cap.text("stdout", line)):
            outlet.publish(*message)
        assert cap.rich("clear_output", {"wait": False}) == [], "others' output stays"
    told = [content["data"]["text/plain"] for content in page.of("display_data")]
    assert len(told) == 1 and "Some output is not shown" in told[0]
    assert 0.9 * SHOWN_CHARACTERS < page.text.count("x") < 1.1 * SHOWN_CHARACTERS


@pytest.mark.parametrize("place", ["cell", "terminal"])
def test_a_traceback_of_many_trials_is_shown_once(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The others name the error, and the trial that has shown the rest; addresses and names do not make it another."""
    page, budget = Page(), Budget()
    here: Outlet = TerminalOutlet("sweep") if place == "terminal" else page

    def fail(name: str, error: str) -> None:
        lines = [
            "Traceback",
            f"in 1 # %%trial {name[:2]}",
            f"  in {name}, <net at 0x7f{len(name)}a>",
            f"\x1b[31mValueError\x1b[0m: {error}",
        ]
        content = {"ename": "ValueError", "evalue": error, "traceback": lines}
        marked(here, name, budget).publish("error", content)

    for name, error in (("one", "bad"), ("two", "bad"), ("three", "worse"), ("one", "bad")):
        fail(name, error)
    shown = [line for content in page.of("error") for line in content["traceback"]]
    if place == "terminal":
        shown = [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()]
    assert [line for line in shown if "Error" not in line and "in " not in line] == ["Traceback"] * 3
    assert "ValueError: bad (the traceback is that of one)" in shown


def test_in_the_cell_of_another_a_trial_is_marked_and_does_not_run_on_its_line() -> None:
    """The other's lines are as they were; clones of a sweep's trials are marked as those are, within their budget."""
    page, printed = Page(), Transcript()
    outlet = marked_beside(page, page, "two", lambda: printed.open if printed.in_a_line else "")
    for begun, line in (("batch 3: ", "loss 0.5\n"), ("", "loss 0.4\n"), ("loss 0.3\n", "loss 0.2\n")):
        printed.feed(begun)
        say(page, begun)
        say(outlet, line)
    assert page.text.splitlines() == [
        "batch 3: ",
        "[two] loss 0.5",
        "[two] loss 0.4",
        "loss 0.3",
        "[two] loss 0.2",
    ]
    others = Marked(page, "one", Budget())
    clones = marked_beside(others, others, "two", str)
    assert isinstance(clones, Marked) and clones.beneath is page and clones.budget is others.budget
    assert marked_beside(Page(), page, "two", str) is not page
    terminal = TerminalOutlet("one")
    assert isinstance(marked_beside(terminal, terminal, "two", str), TerminalOutlet)
    assert marked_beside(others, page, "two", str) is others, "it has its marks"
