"""Watching: one follower a stream, its history from the start on, an end with the stream."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.panel.streams import three_models
from tests.telemetry.test_following import FakeStream
from tests.telemetry.watches import forget_watches
from tsnb.errors import ProducerGone
from tsnb.telemetry.watching import Watch, watch, watched

module = sys.modules["tsnb.telemetry.watching"]


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close every watch that a test started."""
    yield
    forget_watches()


def eventually(true: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)
    return true()


def test_it_keeps_what_was_read_through_a_restart_of_the_producer() -> None:
    """The producer goes and comes back: one history; it stays away: the thread ends and the history stays."""
    stream = FakeStream()
    watching = Watch("mnist", stream.connect, await_s=1.5)
    assert watching.state == "absent"
    readings = list(three_models().run(1.5))
    for reading in readings[:3]:
        stream.readings.put(reading)
    stream.up = True
    assert watching.readings(10.0)
    stream.readings.put(ProducerGone("gone"))
    for reading in readings[3:]:
        stream.readings.put(reading)
    assert eventually(lambda: watching.readings() == readings)
    assert stream.opened == 2
    assert not watching.over
    stream.up = False
    stream.readings.put(ProducerGone("gone"))
    assert eventually(lambda: watching.over)
    assert watching.state == "gone"
    assert eventually(lambda: not watching._follower._thread.is_alive())
    assert watching.readings() == readings


def test_a_name_that_nobody_ever_serves_is_given_up() -> None:
    """Its thread does not look for it for good."""
    watching = Watch("nobody", FakeStream().connect, await_s=0.1)
    assert eventually(lambda: watching.over)
    assert watching.readings() == []


def test_one_watch_a_stream_until_another_stream_has_its_name() -> None:
    """Asking again gives the same one; `anew` begins a history; the oldest that have ended are forgotten."""
    one = watch("mnist")
    assert watch("mnist") is one
    two = watch("mnist", anew=True)
    assert two is not one
    assert one.over and not two.over
    for number in range(module.ENDED_KEPT + 2):
        watch(f"s{number}").close()
    watch("last")
    assert list(watched()) == ["mnist", *(f"s{number}" for number in range(2, module.ENDED_KEPT + 2)), "last"]
    assert sum(not there.over for there in watched().values()) == 2
    assert threading.active_count() < 20
