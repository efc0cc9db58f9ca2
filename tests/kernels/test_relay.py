"""Output on its way to the page: in order, joined where it comes in crumbs, kept for the logs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tsnb.kernels import relay
from tsnb.kernels.outlets import WIDGET, TerminalOutlet
from tsnb.kernels.relay import Relay


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
    monkeypatch.setattr(relay, "RECORD_CHARACTERS", 100)
    feeding.feed("error", {"traceback": ["line 3", "boom"], "ename": "E", "evalue": ""})
    assert feeding.record == "line 3\nboom\n"
    for number in range(1000):
        feeding.say(f"{number}\n")
    assert len(feeding.record) <= 100
    assert feeding.record.endswith("999\n")


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


def test_a_relay_works_on_a_real_loop(page: Any) -> None:
    """The timers are asyncio's own."""

    async def play() -> None:
        feeding = Relay(asyncio.get_running_loop(), page)
        feeding.say("a")
        feeding.say("b")
        await asyncio.sleep(3 * relay.JOIN_S)

    asyncio.run(play())
    assert page.text == "ab"
