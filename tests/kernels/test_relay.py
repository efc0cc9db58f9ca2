"""Output on its way to the page: in order, joined where it comes in crumbs, kept for the logs."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.conftest import Page
from tsnb.kernels.output import capping, relay, transcript
from tsnb.kernels.output.outlets import WIDGET, TerminalOutlet
from tsnb.kernels.output.relay import Relay


class Loop:
    """A loop's timers, run by hand."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def call_later(self, _delay_s: float, call: Callable[[], None]) -> Any:
        self.due.append(call)

        class Handle:
            def cancel(inner) -> None:  # noqa: N805
                self.due.remove(call)

        return Handle()

    def tick(self) -> None:
        due, self.due = self.due, []
        for call in due:
            call()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def feeding(loop: Loop, page: Any) -> Relay:
    return Relay(loop, page)  # type: ignore[arg-type]


def test_the_first_text_goes_out_at_once_and_crumbs_together(feeding: Relay, loop: Loop, page: Any) -> None:
    """A lone line is live; a thousand dots become two messages."""
    for _ in range(1000):
        feeding.feed("stream", {"name": "stdout", "text": "."})
    assert [c["text"] for c in page.of("stream")] == ["."]
    loop.tick()
    assert [len(c["text"]) for c in page.of("stream")] == [1, 999]
    loop.tick()
    assert not loop.due, "a quiet relay sets no timer"


def test_order_is_kept_across_streams_and_kinds(feeding: Relay, page: Any) -> None:
    """What was printed before a figure stands above it, and stderr between stdout stays between."""
    for name, text in (("stdout", "a"), ("stdout", "b"), ("stderr", "e"), ("stdout", "c")):
        feeding.feed("stream", {"name": name, "text": text})
    feeding.feed("display_data", {"data": {"text/plain": "fig"}, "metadata": {}, "transient": {}})
    assert [(k, c.get("text")) for _, k, c in page.shown] == [
        ("stream", "a"),
        ("stream", "b"),
        ("stream", "e"),
        ("stream", "c"),
        ("display_data", None),
    ]


def test_a_result_is_shown_as_a_display_and_a_widget_as_text(feeding: Relay, page: Any) -> None:
    """The launching cell has its own result; a widget's model lives in the other kernel."""
    content = {"data": {"text/plain": "7", WIDGET: {"model_id": "x"}}, "metadata": {}, "execution_count": 3}
    feeding.feed("execute_result", content)
    assert page.of("display_data") == [{"data": {"text/plain": "7"}, "metadata": {}, "transient": {}}]


def test_messages_that_show_nothing_are_dropped(feeding: Relay, page: Any) -> None:
    """Comm traffic, inputs and states of the other kernel are not the page's business."""
    for kind in ("comm_open", "execute_input", "iopub_welcome", "status"):
        feeding.feed(kind, {"data": {}})
    assert not page.shown


def test_the_record_holds_text_and_tracebacks_and_is_bounded(
    feeding: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial that prints for a week does not fill the notebook's memory."""
    monkeypatch.setattr(transcript, "TRANSCRIPT_CHARACTERS", 100)
    feeding.feed("error", {"traceback": ["line 3", "boom"], "ename": "E", "evalue": ""})
    assert feeding.record == "line 3\nboom\n"
    for number in range(1000):
        feeding.say(f"{number}\n")
    assert len(feeding.record) <= 100
    assert feeding.record.endswith("999\n")


def printed(feeding: Relay, text: str, name: str = "stdout") -> None:
    feeding.feed("stream", {"name": name, "text": text})


def test_a_cell_shows_so_much_and_then_says_where_the_rest_is(
    loop: Loop, page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line with the log's path, once; the traceback and the last line of state still come."""
    monkeypatch.setattr(capping, "SHOWN_CHARACTERS", 1000)
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "logs" / "cnn-1.log"
    log.parent.mkdir()
    feeding = Relay(loop, page, log, "%trials logs cnn shows its end.")  # type: ignore[arg-type]
    for number in range(10_000):
        printed(feeding, f"line {number}\n")
        if number % 100 == 0:
            loop.tick()
    feeding.feed("error", {"traceback": ["\x1b[31mboom\x1b[0m"], "ename": "E", "evalue": ""})
    feeding.say("trial 'cnn' failed\n", "stderr")
    text = "".join(c["text"] for c in page.of("stream"))
    assert len(text) < 2500
    assert text.endswith("trial 'cnn' failed\n")
    (notice,) = page.of("display_data")
    assert str(log) in notice["data"]["text/plain"]
    assert notice["data"]["text/plain"].endswith("%trials logs cnn shows its end.")
    assert 'href="logs/cnn-1.log"' in notice["data"]["text/html"]
    assert [c["traceback"] for c in page.of("error")] == [["\x1b[31mboom\x1b[0m"]]
    whole = "".join(f"line {number}\n" for number in range(10_000))
    assert log.read_text() == whole + "boom\ntrial 'cnn' failed\n", "the file has all, and no colours"


def test_a_log_that_no_server_gives_out_is_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hidden folder's file would be a dead link: its path can be copied."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(capping, "SHOWN_CHARACTERS", 0)
    _, (_, notice) = capping.Cap(tmp_path / ".tsnb" / "a.log").text("stdout", 20_000 * "x" + "\n" * 20)
    assert f"<code>{tmp_path}/.tsnb/a.log</code>" in notice["data"]["text/html"]


def test_a_progress_bar_counts_once_and_clear_output_frees_everything(
    feeding: Relay, loop: Loop, page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts is what stays under the cell, so a bar of an hour does not silence its trial."""
    monkeypatch.setattr(capping, "SHOWN_CHARACTERS", 500)
    for number in range(1000):
        printed(feeding, f"\r{number / 10:5.1f} % " + 40 * "#", "stderr")
        loop.tick()
    for number in range(50):
        feeding.feed("clear_output", {"wait": True})
        printed(feeding, f"epoch {number}\n" + 100 * "x" + "\n")
    assert not page.of("display_data")
    assert page.text.count("%") == 1000
    assert "epoch 49" in page.text


def test_figures_without_end_are_capped_by_their_size(
    feeding: Relay, page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A picture a batch does not make a notebook of a gigabyte; updates in place go on."""
    monkeypatch.setattr(capping, "SHOWN_RICH_CHARACTERS", 1000)
    for _ in range(100):
        feeding.feed("display_data", {"data": {"image/png": 99 * "x"}, "metadata": {}, "transient": {}})
    shown = page.of("display_data")
    assert sum("image/png" in c["data"] for c in shown) == 10
    assert len(shown) == 11
    feeding.feed("update_display_data", {"data": {"text/plain": "new"}, "metadata": {}, "transient": {}})
    assert len(page.of("update_display_data")) == 1


def test_a_line_of_state_never_stands_behind_a_broken_off_line(feeding: Relay, page: Any) -> None:
    """A trial that is stopped in the middle of a bar: its end stands on a line of its own."""
    printed(feeding, "\r 50 % ####")
    feeding.say("trial 'cnn' stopped\n")
    assert feeding.record == " 50 % ####\ntrial 'cnn' stopped\n"
    assert page.text.endswith("####\ntrial 'cnn' stopped\n")


def test_a_log_is_read_in_parts(feeding: Relay) -> None:
    """Each part goes on where the one before ended; a bar is in none of them twice."""
    got, position, bar = "", 0, ""
    for number in range(300):
        printed(feeding, f"line {number}\n\r")
        printed(feeding, f"bar {number}\r")
        if number % 7 == 0:
            part = feeding.transcript.since(position)
            assert part.start == position
            got, position, bar = got + part.text, part.start + len(part.text), part.open
    part = feeding.transcript.since(position)
    assert got + part.text + part.open == feeding.record
    assert "bar 294" in bar
    assert feeding.transcript.since(10**9).text == ""


def test_a_part_of_what_is_forgotten_starts_later(feeding: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes late gets the end, and is told where it starts."""
    monkeypatch.setattr(transcript, "TRANSCRIPT_CHARACTERS", 500)
    for number in range(1000):
        printed(feeding, f"line {number:03}\n")
    part = feeding.transcript.since(0)
    assert part.start > 8000
    assert len(part.text) <= 500
    assert (part.text + part.open).endswith("line 999\n")
    assert (
        feeding.transcript.since(0, most=18).text
        == feeding.transcript.since(part.start + len(part.text) - 18).text
    )


def test_a_terminal_is_not_capped(
    loop: Loop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal scrolls: a script's trials print as much as they like."""
    monkeypatch.setattr(capping, "SHOWN_CHARACTERS", 100)
    feeding = Relay(loop, TerminalOutlet("cnn"))  # type: ignore[arg-type]
    for number in range(100):
        printed(feeding, f"line {number}\n")
        loop.tick()
    assert capsys.readouterr().out.endswith("[cnn] line 99\n")


def test_a_terminal_marks_each_line_with_its_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a notebook several trials share one terminal."""
    outlet = TerminalOutlet("cnn")
    outlet.publish("stream", {"name": "stdout", "text": "one\ntwo\n"})
    outlet.publish("display_data", {"data": {"text/plain": "<Figure>"}, "metadata": {}})
    outlet.publish("stream", {"name": "stderr", "text": "careful\n"})
    outlet.publish("error", {"traceback": ["boom"]})
    shown = capsys.readouterr()
    assert shown.out == "[cnn] one\n[cnn] two\n[cnn] <Figure>\n"
    assert shown.err == "[cnn] careful\n[cnn] boom\n"


@pytest.mark.parametrize("kind", ["stream", "display_data", "error"])
def test_what_a_trial_prints_does_not_steer_the_terminal(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Colours stay; a title, the clipboard, a cursor that moves, a line that is forged by a rare line break do not."""
    reader, writer = os.openpty()
    stream = os.fdopen(writer, "w")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    bad = (
        "\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b]52;c;AAAA\x07\x1b[2J\x1b[3A\x9b5A\x08end\x85[other] forged\n"
    )
    contents: dict[str, dict[str, Any]] = {
        "stream": {"name": "stdout", "text": bad},
        "display_data": {"data": {"text/plain": bad}},
        "error": {"traceback": [bad]},
    }
    TerminalOutlet("cnn").publish(kind, contents[kind])
    stream.flush()
    shown = os.read(reader, 10_000).decode().replace("\r\n", "\n")
    stream.close()
    os.close(reader)
    assert shown.startswith("[cnn] \x1b[31mred\x1b[0m")
    assert not set(shown.replace("\x1b[31m", "").replace("\x1b[0m", "")) & set("\x1b\x07\x08\x85\x9b"), repr(
        shown
    )
    assert all(line.startswith("[cnn] ") for line in shown.splitlines() if line)


@pytest.mark.parametrize("kind", ["stream", "display_data", "error"])
def test_a_file_or_pipe_gets_no_colours(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A program that reads them, and a log, would have their sequences in its text."""
    red = "\x1b[31mValueError\x1b[39;49m: \x1b[1;31mbad\x1b[0m"
    contents: dict[str, dict[str, Any]] = {
        "stream": {"name": "stderr", "text": red},
        "display_data": {"data": {"text/plain": red}},
        "error": {"traceback": ["Traceback", red]},
    }
    TerminalOutlet("cnn").publish(kind, contents[kind])
    shown = "".join(capsys.readouterr())
    assert shown.endswith("[cnn] ValueError: bad\n") and "\x1b" not in shown


def test_a_progress_bar_in_a_terminal_is_drawn_over(capsys: pytest.CaptureFixture[str]) -> None:
    """A return to the start of the line stays, each state marked; what nested bars send beside it is dropped."""
    TerminalOutlet("cnn").publish("stream", {"name": "stdout", "text": "\r10%\r20%\x1b[K\n\x1b[A\rdone\r\n"})
    assert capsys.readouterr().out == "[cnn] \r[cnn] 10%\r[cnn] 20%\n[cnn] \r[cnn] done\n"


def test_the_bound_holds_however_the_text_is_cut_into_pieces() -> None:
    """A large piece behind a large piece: what is shown of it is what there is room for."""
    line = "x" * 99 + "\n"
    for first in (0, 1, 500, 999, 1000):
        cap = capping.Cap()
        shown = [
            *cap.text("stdout", line * first),
            *cap.text("stdout", line * 3000),
            *cap.text("stdout", line),
        ]
        text = "".join(content["text"] for kind, content in shown if kind == "stream")
        assert len(text.rstrip()) == capping.SHOWN_CHARACTERS - 1
        assert [kind for kind, _ in shown].count("display_data") == 1


def test_output_moves_to_another_cell_without_a_gap(loop: Loop) -> None:
    """What waits to be joined still goes to the former one, which is told; the bound of a cell begins anew."""
    former, other = Page(), Page()
    feeding = Relay(loop, former)  # type: ignore[arg-type]
    printed(feeding, "one\n")
    printed(feeding, "two\n")
    feeding.move(other, "so far\n", "elsewhere\n")
    printed(feeding, "three\n")
    loop.tick()
    assert former.text == "one\ntwo\nelsewhere\n"
    assert other.text == "so far\nthree\n"


def test_a_relay_works_on_a_real_loop(page: Any) -> None:
    """The timers are asyncio's own."""

    async def play() -> None:
        feeding = Relay(asyncio.get_running_loop(), page)
        for text in "ab":
            feeding.feed("stream", {"name": "stdout", "text": text})
        await asyncio.sleep(3 * relay.JOIN_S)

    asyncio.run(play())
    assert page.text == "ab"
