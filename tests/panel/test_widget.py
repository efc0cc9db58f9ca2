"""The widget: what it sends, what it answers, and what it says without a front end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.panel.streams import three_models
from tsnb.panel import widget as module
from tsnb.panel.widget import Panel


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

    def stop(name: str) -> None:
        called.append((name, threading.current_thread() is threading.main_thread()))
        done.set()

    panel.stop_consumer = stop
    panel._hear(panel, {"op": "stop", "name": "resnet10"}, [])
    assert done.wait(5)
    assert called == [("resnet10", False)]


def test_a_stop_that_fails_is_told_to_the_front_end(
    panel: Panel, sent: list[tuple[dict[str, Any], list[bytes]]]
) -> None:
    """The button comes back, with the reason."""

    def stop(name: str) -> None:
        raise LookupError(f"no trial {name}")

    panel.stop_consumer = stop
    panel._hear(panel, {"op": "stop", "name": "x"}, [])
    for thread in threading.enumerate():
        if thread.name == "tsnb-stop-x":
            thread.join(5)
    assert sent[-1][0] == {"op": "refused", "name": "x", "why": "no trial x"}


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
    assert max(map(len, text.splitlines())) < 140


def test_an_empty_panel_says_so(panel: Panel) -> None:
    """Before any reading the text is one honest line."""
    bundle = panel._repr_mimebundle_()
    formats = bundle[0] if isinstance(bundle, tuple) else bundle
    assert formats["text/plain"] == "tsnb panel of the stream mnist: absent"


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
    monkeypatch.setattr(module, "__file__", str(tmp_path / "panel.py"))
    with pytest.raises(ImportError, match=r"pip install -e \.") as caught:
        module._bundle("panel.js")
    assert "hatch_build.py" in str(caught.value)
