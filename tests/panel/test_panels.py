"""`dashboard()`: one panel a stream and process, whoever asks and however often."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch

import tsnb
from tests.telemetry.watches import forget_watches
from tsnb.panel import Panel, dashboard
from tsnb.telemetry.watching import watch, watched

package = sys.modules["tsnb.panel"]


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close every panel that a test opened."""
    yield
    for panel in package._panels:
        panel.close()
    package._panels.clear()
    package._ours.clear()
    forget_watches()


def test_asking_again_gives_the_same_panel() -> None:
    """Running the cell again shows the same panel with its history; another stream has its own."""
    one = dashboard("mnist")
    assert isinstance(one, Panel)
    assert dashboard("mnist") is one
    assert dashboard("other") is not one
    assert sum(t.name.startswith("tsnb-follow") for t in threading.enumerate()) == 2


def test_a_closed_panel_is_not_given_out_again() -> None:
    """After `close()` the next call makes a new one; both would have the same thread, which follows the stream."""
    one = dashboard("mnist")
    one.close()
    assert dashboard("mnist") is not one
    assert sum(t.name.startswith("tsnb-follow") for t in threading.enumerate()) == 1


def test_without_a_name_it_waits_for_whatever_comes() -> None:
    """No stream at all is no error: the panel says how to start one."""
    panel = dashboard()
    for _ in range(100):
        if "served" in panel._tape.sentence:
            break
        threading.Event().wait(0.05)
    assert "%tensorsocket start" in panel._tape.sentence
    assert panel.stream == ""
    assert panel.state == "absent"


@pytest.mark.system
def test_a_panel_and_a_report_follow_a_stream_together() -> None:
    """One connection for both; the panel knows what was read before it was opened, and the next stream of that name."""
    with tsnb.serve([torch.zeros(4, 2)] * 3, name="together"):
        known = watch("together")
        assert known.readings(20)
        panel = dashboard("together")
        assert panel.state == known.state != "absent"
        assert panel.get_state()["scene"]["n"] >= 1
        assert [t.name for t in threading.enumerate()].count("tsnb-follow-together") == 1
    assert _eventually(lambda: panel.state == "gone")
    first = known.readings()
    with tsnb.serve([torch.zeros(4, 2)] * 3, name="together"):
        assert _eventually(lambda: panel.state != "gone")
        panel._hear(panel, {"op": "stop stream"}, [])  # asked over the watch's connection
        assert _eventually(lambda: panel.state == "gone")
    assert len(first) >= 1
    panel.close()
    watch("together").close()
    assert not any(t.name == "tsnb-follow-together" for t in threading.enumerate())


@pytest.mark.system
def test_compute_is_divided_from_the_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream does as the panel was asked; what it cannot do is refused with the reason, where it was asked."""
    sent: list[dict[str, object]] = []
    with tsnb.serve([torch.zeros(4, 2)] * 3, name="divided"):
        panel = dashboard("divided")
        monkeypatch.setattr(panel, "send", lambda content, buffers=None: sent.append(content))
        assert _eventually(lambda: panel.state != "absent")
        panel._hear(panel, {"op": "balance", "pacing": "free"}, [])
        assert _eventually(lambda: tsnb.streams.status("divided").pacing == "free")
        assert _eventually(lambda: panel.get_state()["scene"]["stream"]["pacing"] == "free")
        panel._hear(panel, {"op": "balance", "pacing": "weights", "weights": {"cnn": 2.5}}, [])
        assert _eventually(lambda: tsnb.streams.status("divided").weights == {"cnn": 2.5})
        panel._hear(panel, {"op": "balance", "pacing": "together"}, [])
        assert _eventually(lambda: tsnb.streams.status("divided").pacing == "together")
        panel._hear(panel, {"op": "balance", "pacing": "weights", "weights": {"cnn": -1}}, [])
        assert _eventually(
            lambda: any("Pass a number above 0" in str(message.get("why")) for message in sent)
        )
        sent.clear()
        panel._hear(panel, {"op": "balance", "pacing": "fair"}, [])
        assert _eventually(lambda: any(message["op"] == "refused" for message in sent))
        (refused,) = (message for message in sent if message["op"] == "refused")
        assert refused["what"] == "balance" and "together, weights, free" in str(refused["why"])


@pytest.mark.system
def test_a_panel_without_a_name_finds_the_only_stream() -> None:
    """Opened before anything is served; once it knows the name, it has the same watch as everybody."""
    panel = dashboard()
    assert panel.stream == ""
    with tsnb.serve([torch.zeros(4, 2)] * 3, name="found"):
        assert _eventually(lambda: panel.stream == "found" and panel.state != "absent")
        assert _eventually(lambda: not any(t.name == "tsnb-follow-any" for t in threading.enumerate()))
        assert watched()["found"].listened
    panel.close()
    watch("found").close()


@pytest.mark.system
def test_streams_of_one_notebook_are_one_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a name all of them, later ones too; each message says of which it is, each click for which."""
    sent: list[dict[str, object]] = []
    with tsnb.serve([torch.zeros(4, 2)] * 3, name="train"), tsnb.serve([torch.zeros(4, 2)] * 3, name="val"):
        panel = dashboard()
        assert panel.streams == ("train", "val")
        assert dashboard() is panel and dashboard("train", "val") is panel
        monkeypatch.setattr(panel, "send", lambda content, buffers=None: sent.append(content))
        assert _eventually(
            lambda: {message.get("at", 0) for message in sent if message["op"] == "tick"} == {0, 1}
        )
        state = panel.get_state()
        assert [scene["stream"]["name"] for scene in state["scene"]["streams"]] == ["train", "val"]
        assert [sum(parts) for parts in zip(*state["scene"]["lengths"], strict=True)] == [
            len(state["history"]),
            len(state["curves"]),
        ]
        with tsnb.serve([torch.zeros(4, 2)] * 3, name="late"):
            package.served_here("late")
            assert list(panel.streams) == ["train", "val", "late"]
            assert _eventually(lambda: any(message.get("at") == 2 for message in sent))
        panel._hear(panel, {"op": "balance", "pacing": "fair", "at": 1}, [])
        assert _eventually(lambda: any(message["op"] == "refused" for message in sent))
        (refused,) = (message for message in sent if message["op"] == "refused")
        assert refused["at"] == 1
        panel._hear(panel, {"op": "stop stream", "at": 1}, [])
        assert _eventually(lambda: [channel.tape.state for channel in panel._channels][1] == "gone")
        assert panel.state != "gone"
        assert dashboard("train") is not panel
    panel.close()


def test_a_panel_of_all_streams_takes_the_first_that_starts() -> None:
    """It was opened before anything was served; a panel that was asked for by name stays as it is."""
    ours, named = dashboard(), dashboard("other")
    package.served_here("first")
    package.served_here("second")
    assert ours.streams == ("first", "second")
    assert named.streams == ("other",)
    assert _eventually(lambda: not any(t.name == "tsnb-follow-any" for t in threading.enumerate()))


def _eventually(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)
    return true()
