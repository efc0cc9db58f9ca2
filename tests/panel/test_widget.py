"""The widget: what it sends, what it answers, and what it says without a front end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.panel.streams import rebalanced, three_models
from tsnb.errors import TsnbError
from tsnb.panel import saved
from tsnb.panel.widget import Panel
from tsnb.planners import timeline
from tsnb.planners.timeline import PlannedTrial, Timeline, show
from tsnb.telemetry.readings import StreamReading


@pytest.fixture
def sent() -> list[tuple[dict[str, Any], list[bytes]]]:
    return []


@pytest.fixture
def panel(sent: list[tuple[dict[str, Any], list[bytes]]], monkeypatch: pytest.MonkeyPatch) -> Iterator[Panel]:
    panel = Panel("mnist")
    monkeypatch.setattr(panel, "send", lambda content, buffers=None: sent.append((content, buffers or [])))
    yield panel
    panel.close()


def fill(panel: Panel, seconds: float = 12) -> None:
    for reading in three_models().run(seconds):
        panel.feed(reading)


def test_each_reading_is_one_message(panel: Panel, sent: list[tuple[dict[str, Any], list[bytes]]]) -> None:
    """A tick a reading, numbered without a gap, each with one binary buffer."""
    fill(panel)
    assert [content["n"] for content, _ in sent] == list(range(1, 49))
    assert all(len(buffers) == 1 for _, buffers in sent)


def test_a_page_that_loads_gets_everything(panel: Panel) -> None:
    """The widget's state carries scene and history as of now; traits hold neither."""
    fill(panel)
    state = panel.get_state()
    assert state["scene"]["n"] == 48
    assert len(state["history"]) > 48 * 40
    assert panel.history == b""
    assert panel.get_state(key="layout").keys() == {"layout"}


def test_whoever_missed_something_gets_it_all(
    panel: Panel, sent: list[tuple[dict[str, Any], list[bytes]]]
) -> None:
    """The front end says which tick it knows; the answer is nothing, or everything."""
    fill(panel)
    sent.clear()
    panel._hear(panel, {"op": "hello", "n": 48}, [])
    assert sent == []
    panel._hear(panel, {"op": "hello", "n": 7}, [])
    (content, buffers), *_ = sent
    assert content["op"] == "all"
    assert buffers[0] == panel.get_state()["history"]


def test_a_stop_click_calls_back_off_the_shell_thread(panel: Panel) -> None:
    """The callback gets the name, on a thread of its own."""
    called: list[tuple[str, bool]] = []
    done = threading.Event()

    def steer(verb: str, name: str) -> None:
        assert verb == "stop"
        called.append((name, threading.current_thread() is threading.main_thread()))
        done.set()

    panel.steer = steer
    panel._hear(panel, {"op": "stop", "name": "resnet10"}, [])
    assert done.wait(60)
    assert called == [("resnet10", False)]


@pytest.mark.parametrize("op", ["stop", "interrupt", "pause", "resume"])
def test_what_fails_is_told_to_the_front_end(
    panel: Panel, sent: list[tuple[dict[str, Any], list[bytes]]], op: str
) -> None:
    """The button comes back, with the reason."""

    def fail(verb: str, name: str) -> None:
        assert verb == op
        raise LookupError(f"no trial {name}")

    panel.steer = fail
    panel._hear(panel, {"op": op, "name": "x"}, [])
    join(f"tsnb-{op}-x")
    assert sent[-1][0] == {"op": "refused", "what": op, "name": "x", "why": "no trial x"}


def test_a_clone_and_an_extension_are_made_by_the_notebook_that_has_the_trial(
    panel: Panel, sent: list[tuple[dict[str, Any], list[bytes]]]
) -> None:
    """The drawer's fields reach the source; what is refused, or cannot be read, is told."""
    told: list[Any] = []

    class Source:
        def steer(self, verb: str, name: str, content: dict[str, Any]) -> None:
            told.append((verb, name, content))
            if content.get("as") == "cnn":
                raise TsnbError("give the clone another name")

    wish = {"op": "clone", "name": "cnn", "as": "hot", "changes": [["lr", "0.03"]]}
    panel._hear(panel, wish, [])
    join("tsnb-clone-cnn")
    assert (
        sent[-1][0]["why"]
        == "this panel has no trials of its own, so it cannot clone cnn. Use the notebook that started it"
    )
    panel.logs.source = cast("Any", Source())
    for more in ({}, {"as": "cnn"}):
        panel._hear(panel, {**wish, **more}, [])
        join("tsnb-clone-cnn")
    assert told == [("clone", "cnn", wish), ("clone", "cnn", {**wish, "as": "cnn"})]
    refused = [message for message, _ in sent if message["op"] == "refused"]
    assert refused[1] == {
        "op": "refused",
        "what": "clone",
        "name": "cnn",
        "why": "give the clone another name",
    }
    assert len(refused) == 2
    panel._hear(panel, {"op": "extend", "name": "cnn", "epochs": 5}, [])
    join("tsnb-extend-cnn")
    assert told[-1] == ("extend", "cnn", {"op": "extend", "name": "cnn", "epochs": 5})
    panel._hear(panel, {"op": "rerun", "name": "cnn"}, [])
    join("tsnb-rerun-cnn")
    assert told[-1][:2] == ("rerun", "cnn")
    panel.logs.close()


def test_a_live_value_is_set_by_who_knows_the_trials(
    panel: Panel, sent: list[tuple[dict[str, Any], list[bytes]]]
) -> None:
    """The drawer's text reaches the source; a refusal, or nobody who knows, is told."""
    told: list[tuple[str, str, str]] = []

    class Source:
        def params(self) -> dict[str, list[list[str]]]:
            return {"cnn": [["lr", "0.1"]]}

        def verdicts(self) -> dict[str, str]:
            return {"mlp": "rank 2 of 2"}

        def sweeps(self) -> dict[str, str]:
            return {"mlp": "s"}

        def rules(self) -> dict[str, str]:
            return {"s": "accuracy"}

        def beside(self) -> list[dict[str, Any]]:
            return [{"name": "svm", "state": "done", "duration_s": 3.0, "error": "", "metrics": {}}]

        def duels(self) -> list[dict[str, Any]]:
            return [{"duel": "new-against-old", "state": "better"}]

        def changes(self) -> dict[str, list[list[Any]]]:
            return {"cnn": [[5.0, "lr 0.3 → 0.1"]]}

        def steer(self, verb: str, name: str, content: dict[str, Any]) -> None:
            assert verb == "set"
            told.append((name, content["value"], content["text"]))
            if content["text"] == "no":
                raise ValueError("give a number")

    content = {"op": "set", "name": "cnn", "value": "lr", "text": "0.1"}
    panel._hear(panel, content, [])
    join("tsnb-set-cnn")
    assert "this panel has no trials" in sent[-1][0]["why"]
    panel._hear(panel, {"op": "params"}, [])
    panel.logs.source = cast("Any", Source())
    panel._hear(panel, {"op": "params"}, [])
    assert sent[-1][0] == {
        "op": "params",
        "trials": {"cnn": [["lr", "0.1"]]},
        "verdicts": {"mlp": "rank 2 of 2"},
        "changes": {"cnn": [[5.0, "lr 0.3 → 0.1"]]},
        "sweeps": {"mlp": "s"},
        "rules": {"s": "accuracy"},
        "beside": [{"name": "svm", "state": "done", "duration_s": 3.0, "error": "", "metrics": {}}],
        "duels": [{"duel": "new-against-old", "state": "better"}],
        "plan": None,
    }
    panel._hear(panel, content, [])
    join("tsnb-set-cnn")
    panel._hear(panel, {**content, "text": "no"}, [])
    join("tsnb-set-cnn")
    assert told == [("cnn", "lr", "0.1"), ("cnn", "lr", "no")]
    assert sent[-1][0] == {"op": "refused", "what": "set", "name": "cnn", "why": "give a number"}


def join(name: str) -> None:
    """Wait for a thread of that name."""
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(120)


def test_interrupt_and_report_are_offered_where_somebody_does_them(
    panel: Panel, sent: list[tuple[dict[str, Any], list[bytes]]]
) -> None:
    """Handed in after the page was opened: it hears of it; taken away: likewise, and clicks do nothing."""
    done: list[str] = []
    panel._hear(panel, {"op": "interrupt", "name": "x"}, [])
    panel._hear(panel, {"op": "report"}, [])
    assert sent == []
    panel.steer = lambda verb, _: done.append(verb)
    panel.make_report = lambda: done.append("report")
    assert [content["can"] for content, _ in sent] == [
        {"interrupt": True, "report": False},
        {"interrupt": True, "report": True},
    ]
    panel._hear(panel, {"op": "interrupt", "name": "x"}, [])
    join("tsnb-interrupt-x")
    panel._hear(panel, {"op": "report"}, [])
    join("tsnb-report-")
    assert done == ["interrupt", "report"]
    panel.make_report = None
    assert panel.make_report is None
    assert panel.get_state()["scene"]["can"] == {"interrupt": True, "report": False}


def test_what_a_reader_chose_is_kept_for_the_page_that_loads_next(panel: Panel) -> None:
    """It comes as a message of its own; what is not a choice is not kept."""
    panel._hear(panel, {"op": "view", "view": {"learning": {"axis": "time"}}}, [])
    panel._hear(panel, {"op": "view", "view": "x"}, [])
    assert panel.get_state()["view"] == {"learning": {"axis": "time"}}


def test_a_recording_is_all_there_and_promises_nothing() -> None:
    """Every reading is in it; the text says what it is."""
    panel = Panel.of_recording(rebalanced().run(20))
    state = panel.get_state()
    assert state["scene"]["recorded"]
    assert state["scene"]["n"] == 80
    assert state["scene"]["can"] == {"interrupt": False, "report": False}
    bundle = panel._repr_mimebundle_()
    formats = bundle[0] if isinstance(bundle, tuple) else bundle
    assert formats["text/plain"].startswith("tsnb panel of the stream mnist: a recording, pass ")
    panel.close()


def test_without_widgets_it_says_in_text_what_it_shows(panel: Panel) -> None:
    """GitHub, a terminal and a diff show the last numbers instead of an object's address."""
    fill(panel)
    bundle = panel._repr_mimebundle_()
    formats = bundle[0] if isinstance(bundle, tuple) else bundle
    text = formats["text/plain"]
    assert text.startswith("tsnb panel of the stream mnist: ")
    assert "window" in text
    for word in ("cnn-small", "resnet10", "samples/s", "waiting", "loss"):
        assert word in text
    assert max(map(len, text.splitlines())) < 156  # a row has all its shares, and two metrics


def test_an_empty_panel_says_so(panel: Panel) -> None:
    """Before any reading the text is one honest line."""
    bundle = panel._repr_mimebundle_()
    formats = bundle[0] if isinstance(bundle, tuple) else bundle
    assert formats["text/plain"] == "tsnb panel of the stream mnist: absent"


def test_a_panels_text_beside_its_picture_says_of_when_it_is() -> None:
    """A saved notebook keeps it as it was: "No trial is attached" below a picture of three trials would be wrong."""

    class Picture:
        mark = "still"

        def news(self, reading: StreamReading | None = None, stream: str = "") -> None:
            """Take note of nothing."""

        def again(self) -> None:
            """Give nothing."""

    panel = Panel("mnist")
    panel.picture = Picture()
    bundle = panel._repr_mimebundle_()
    formats = bundle[0] if isinstance(bundle, tuple) else bundle
    assert formats["text/plain"] == "tsnb panel of the stream mnist"
    panel.close()


def test_clicks_reach_a_busy_kernel_where_ipykernel_lets_them() -> None:
    """Messages stay on the subshell that they were sent to; without ipykernel's hook nothing happens."""

    class Comm:
        def _reply_subshell_for(self, data: object, default: str) -> str | None:
            return None

    comm = Comm()
    routed = SimpleNamespace(comm=comm)
    Panel._answer_while_busy(cast("Panel", routed))
    assert comm._reply_subshell_for({}, "subshell-1") == "subshell-1"
    Panel._answer_while_busy(cast("Panel", SimpleNamespace(comm=None)))


def test_a_missing_bundle_says_how_to_build_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """In a checkout that was never installed the import names the command."""
    monkeypatch.setattr(saved, "__file__", str(tmp_path / "panel.py"))
    with pytest.raises(ImportError, match=r"pip install -e \.") as caught:
        saved.bundle("panel.js")
    assert "hatch_build.py" in str(caught.value)


def test_a_plan_is_told_as_it_is_by_then_where_its_trials_take_a_stream_that_is_shown(
    panel: Panel, sent: list[tuple[dict[str, Any], list[bytes]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers that report and plot draw; none before a reading, of another stream, or of another time."""
    monkeypatch.setattr(timeline, "_newest", [])

    def told() -> Any:
        panel._hear(panel, {"op": "params"}, [])
        return sent[-1][0]["plan"]

    panel.logs.source = cast(
        "Any",
        SimpleNamespace(
            params=dict, verdicts=dict, sweeps=dict, rules=dict, changes=dict, beside=list, duels=list
        ),
    )
    trials = (PlannedTrial("cnn", (0.0, 10.0), (1.0, 5.0), (5.0, 12.0)),)
    began_s = next(iter(three_models().run(12))).time_s
    show(lambda: Timeline("sweep 's'", trials, ("mnist",), began_s))
    assert told() is None, "the stream has no reading yet"
    fill(panel)
    found = timeline.newest()
    assert found is not None and told() == found.to_dict()
    trials = (PlannedTrial("cnn", (0.0, 10.0), (1.0, 13.0)),)
    assert told()["trials"][0]["actual"] == (1.0, 13.0) and told()["trials"][0]["ahead"] is None
    show(lambda: Timeline("plan", trials, ("other",), began_s))
    assert told() is None
    show(lambda: Timeline("plan", trials, ("mnist",), began_s - 1000))
    assert told() is None
