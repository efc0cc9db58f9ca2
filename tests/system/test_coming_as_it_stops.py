"""A consumer that comes in the very moment in which its stream stops: it is told so, or it gets the next one."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import tsnb
from tsnb.discovery.promises import FIRST, Promise
from tsnb.errors import ProducerGone, ProducerNotFound, TsnbError
from tsnb.stream.consumer import attaching
from tsnb.stream.consumer.attaching import detach_all
from tsnb.stream.consumer.attachment import rest_siblings
from tsnb.stream.producer.guard import Guard
from tsnb.stream.producer.server import Server

pytestmark = pytest.mark.system

POINTS: dict[str, tuple[type[Any], str, bool]] = {
    "before it is accepted": (Server, "_accept", False),
    "once it is accepted": (Guard, "enter", True),
    "as its first word is read": (Server, "_greet", True),
    "once it is welcomed": (Server, "_watch_process", True),
}
"""Where in the serving thread the stream is stopped, and whether that step is still done."""


def stop_at(
    point: str, monkeypatch: pytest.MonkeyPatch, reconnect_s: float = 0.0
) -> Callable[[tsnb.streams.Producer], None]:
    """Return what arms a stream: its core stops in its own serving thread, when a newcomer comes to that point."""
    owner, method, goes_on = POINTS[point]
    step = getattr(owner, method)

    def arm(producer: tsnb.streams.Producer) -> None:
        def stopping(one: Any, *arguments: Any) -> Any:
            if one._core is not producer.core or producer.core.stopping:
                return step(one, *arguments)
            producer.core.expect_successor(reconnect_s)
            producer.core.stop()
            producer.core.stop_asked.set()
            return step(one, *arguments) if goes_on else None

        monkeypatch.setattr(owner, method, stopping)

    return arm


def until_it_ends() -> None:
    """Attach and take epochs: what lay ready before the stop is still given."""
    consumer = tsnb.attach("late", "short")
    while True:
        list(consumer)


@pytest.mark.parametrize("kind", ["packets", "portable"])
@pytest.mark.parametrize("point", POINTS)
def test_who_comes_as_it_stops_is_told_that_it_has_gone(
    point: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `attach`, or by the first step of the loop; at once, and no word of the protocol is shown."""
    if kind == "portable":
        monkeypatch.setenv("TSNB_PORTABLE", "1")
    arm = stop_at(point, monkeypatch)
    with tsnb.serve([1, 2, 3], name="short") as producer:
        arm(producer)
        with pytest.raises(ProducerGone, match=r"'short' .* (has just ended|is being stopped|was stopped)\."):
            until_it_ends()
        assert producer.wait(60)
    detach_all()
    with pytest.raises(ProducerNotFound, match="No stream named 'short'"):
        tsnb.attach("later", "short")


@pytest.mark.parametrize("point", POINTS)
def test_who_comes_as_it_is_started_again_gets_the_next_one(
    point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the promised stream; whoever was welcomed reconnects, as all consumers do."""
    arm = stop_at(point, monkeypatch, reconnect_s=60)
    promise = Promise("short", FIRST)
    with tsnb.serve([1, 2, 3], name="short") as producer:
        arm(producer)
        got: list[Any] = []

        def come() -> None:
            while 5 not in got:
                try:
                    got.extend(tsnb.attach("late", "short"))
                except ProducerGone as error:
                    got.append(str(error))

        comes = threading.Thread(target=come)
        comes.start()
        assert producer.wait(60)
    with tsnb.serve([4, 5], name="short"):
        promise.close()
        comes.join(60)
        assert got[-2:] == [4, 5]
        told = [said for said in got if isinstance(said, str)]
        assert all("cannot repeat the rest of pass 1" in said for said in told)  # it was in its middle
        detach_all()


def test_a_stream_that_was_found_and_replaced_since_is_looked_up_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the look and the connection the name may have gone to the next stream."""
    producers = [tsnb.serve([1], name="short")]
    rest = rest_siblings

    def replaced(*names: str) -> None:
        if len(producers) == 1:
            producers[0].stop()
            producers.append(tsnb.serve([2], name="short"))
        rest(*names)

    monkeypatch.setattr(attaching, "rest_siblings", replaced)
    try:
        assert list(tsnb.attach("late", "short")) == [2]
    finally:
        detach_all()
        producers[-1].stop()


@pytest.mark.slow
def test_many_that_come_while_streams_stop_see_nothing_else() -> None:
    """Streams of a few milliseconds, and consumers that come and go all the time: no try takes long or fails oddly."""
    over, seen = threading.Event(), Counter[str]()

    def come(number: int) -> None:
        while not over.is_set():
            began = time.monotonic()
            try:
                with tsnb.attach(f"c{number}", "short") as consumer:
                    said = f"an epoch of {len(list(consumer))}"
            except (ProducerGone, ProducerNotFound) as error:
                said = type(error).__name__
            except (TsnbError, RuntimeError, OSError, ValueError) as error:
                said = f"{type(error).__name__}: {error}"
            seen[said if time.monotonic() - began < 60 else f"too late: {said}"] += 1

    threads = [threading.Thread(target=come, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    chance = random.Random(0)
    try:
        for _ in range(80):
            with tsnb.serve([1, 2, 3], name="short"):
                time.sleep(chance.random() * 0.01)
    finally:
        over.set()
        for thread in threads:
            thread.join(60)
        detach_all()
    assert set(seen) <= {"an epoch of 3", "StreamStopped", "ProducerGone", "ProducerNotFound"}, seen
    assert seen["ProducerGone"]
