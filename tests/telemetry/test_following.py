"""Following: waits for a producer, reads it, tells its end, and finds the next one."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tests.panel.streams import three_models
from tsnb.errors import ProducerGone, ProducerNotFound, RemoteProtocolError
from tsnb.telemetry.following import Follower
from tsnb.telemetry.observer import Observer
from tsnb.telemetry.readings import EndReading, HostReading, OutcomeReading, StreamReading


class FakeStream:
    """What a producer looks like from an observer: connections may be opened while it is up."""

    def __init__(self, name: str = "mnist") -> None:
        self.name = name
        self.up = False
        self.readings: queue.Queue[StreamReading | Exception] = queue.Queue()
        self.stopped: list[str] = []
        self.pending: list[dict[str, str]] = []
        self.room = True
        self.opened = 0

    def connect(self, name: str | None) -> FakeConnection:
        if not self.up or name not in (None, self.name):
            raise ProducerNotFound("nothing is served")
        self.opened += 1
        return FakeConnection(self)


class FakeConnection(Observer):
    peer_pid = 0

    def __init__(self, stream: FakeStream) -> None:
        self.stream = stream
        self.name = stream.name

    def read(self, timeout_s: float | None = None) -> StreamReading | None:
        try:
            found = self.stream.readings.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(found, Exception):
            raise found
        return found

    def request_stop(self, reconnect_s: float = 0.0) -> None:
        self.stream.stopped.append("")

    def request_consumer_stop(self, consumer: str) -> None:
        self.stream.stopped.append(consumer)

    def tell_pending(self, states: Mapping[str, str], to_come: int = 0) -> bool:
        if not self.stream.up:
            raise ProducerGone("it has just gone")
        if self.stream.room:
            self.stream.pending.append(dict(states))
        return self.stream.room

    def tell_outcome(self, _outcome: OutcomeReading) -> bool:
        return self.stream.room

    def close(self) -> None:
        pass


class Listener:
    """Collects what a follower says; `heard` waits for the next thing."""

    def __init__(self) -> None:
        self.said: queue.Queue[tuple[str, str, str]] = queue.Queue()

    def reading(self, reading: StreamReading) -> None:
        self.said.put(("reading", reading.name, ""))

    def note(self, state: str, text: str, name: str) -> None:
        self.said.put((state, text, name))

    def heard(self, timeout_s: float = 60.0) -> tuple[str, str, str]:
        return self.said.get(timeout=timeout_s)

    def heard_until(self, state: str) -> tuple[str, str, str]:
        while (said := self.heard())[0] != state:
            pass
        return said


@pytest.fixture
def stream() -> FakeStream:
    return FakeStream()


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def follower(stream: FakeStream, listener: Listener) -> Iterator[Follower]:
    follower = Follower(None, listener.reading, listener.note, stream.connect)
    follower.start()
    yield follower
    follower.close()


def test_it_waits_for_a_producer_and_says_what_to_do(
    stream: FakeStream, listener: Listener, follower: Follower
) -> None:
    """No producer is no error: it says how to start one, and fills in once it is there."""
    state, text, _ = listener.heard()
    assert state == "absent"
    assert "%tensorsocket start" in text
    stream.readings.put(three_models().reading())
    stream.up = True
    assert listener.heard_until("reading")[1] == "mnist"


def test_where_several_streams_run_it_says_which(listener: Listener) -> None:
    """A panel that names no stream does not say that none is served."""
    loader = DataLoader(TensorDataset(torch.arange(4)), 2)
    with tsnb.serve(loader, name="left"), tsnb.serve(loader, name="right"):
        follower = Follower(None, listener.reading, listener.note)
        follower.start()
        try:
            state, text, _ = listener.heard()
        finally:
            follower.close()
    assert state == "absent"
    assert re.match(r"Several streams are running: left .*, right .* Name one", text), text


@pytest.mark.slow
@pytest.mark.parametrize(
    "end", [ProducerGone("gone"), ConnectionResetError(), RemoteProtocolError("version 9")]
)
def test_it_tells_the_end_and_finds_the_next_producer(
    stream: FakeStream, listener: Listener, follower: Follower, end: Exception
) -> None:
    """Whatever ends a connection, the thread lives on and connects again by the name it knew."""
    stream.up = True
    stream.readings.put(end)
    _, text, name = listener.heard_until("gone")
    assert name == "mnist"
    assert "mnist" in text
    stream.readings.put(three_models().reading())
    listener.heard_until("reading")
    assert stream.opened >= 2


def test_what_a_queued_trial_waits_for_is_told_once_and_again_to_the_next_producer(
    stream: FakeStream, listener: Listener
) -> None:
    """Where there is no room for it, with the next reading; at the very end of a stream there is nobody to tell."""
    free = iter(range(1, 100))
    same = threading.Event()

    def reading(reading: StreamReading) -> None:
        mine.tell_pending({"a": f"queued: {next(free) if not same.is_set() else 0} GiB are free"}, 0)
        listener.reading(reading)

    mine = Follower("mnist", reading, listener.note, stream.connect)
    first = list(three_models().run(2.0))[-1]
    one = first.consumers[0]
    last = replace(first, ends=(EndReading(one.name, "done", first.time_s, one.pid),))
    stream.up, stream.room = True, False
    stream.readings.put(first)
    mine.start()
    try:
        listener.heard_until("reading")
        stream.room = True
        for _ in range(2):
            stream.readings.put(last)
            listener.heard_until("reading")
        assert [told["a"] for told in stream.pending] == ["queued: 2 GiB are free", "queued: 3 GiB are free"]
        stream.up = False
        stream.readings.put(ProducerGone("it ends"))
        assert "has ended" in listener.heard_until("gone")[1]
        same.set()
        stream.up = True
        for _ in range(2):
            stream.readings.put(first)
            listener.heard_until("reading")
        assert [told["a"] for told in stream.pending[2:]] == ["queued: 0 GiB are free"]
    finally:
        mine.close()


def test_who_had_ended_before_the_stream_did_is_told_to_have_left(stream: FakeStream) -> None:
    """A terminal or a recording has no other word of it: the trial would be shown as attached for good."""
    told: list[StreamReading] = []
    over = threading.Event()
    follower = Follower(
        None, told.append, lambda state, *_: over.set() if state == "gone" else None, stream.connect
    )
    reading = list(three_models().run(2.0))[-1]
    one = reading.consumers[0]
    stream.readings.put(replace(reading, ends=(EndReading(one.name, "done", reading.time_s, one.pid),)))
    stream.readings.put(ProducerGone("gone"))
    stream.up = True
    follower.start()
    assert over.wait(60.0)
    follower.close()
    assert [c.name for c in told[0].consumers if c not in told[1].consumers] == [one.name]
    assert told[1].ends == () and told[1].time_s > told[0].time_s and len(told) == 2


def test_after_the_end_it_stays_with_its_stream(stream: FakeStream, listener: Listener) -> None:
    """A panel opened without a name does not wander to another stream once it has shown one."""
    asked: list[str | None] = []

    def connect(name: str | None) -> FakeConnection:
        asked.append(name)
        return stream.connect(name)

    stream.up = True
    stream.readings.put(ProducerGone("gone"))
    follower = Follower(None, listener.reading, listener.note, connect)
    follower.start()
    listener.heard_until("gone")
    stream.up = False
    follower.close()
    assert asked[0] is None
    assert set(asked[1:]) <= {"mnist"}


def test_stops_go_to_the_producer(stream: FakeStream, listener: Listener, follower: Follower) -> None:
    """While connected, stop requests are sent; else they say that nobody is there."""
    with pytest.raises(ProducerGone):
        follower.request_stop()
    stream.up = True
    stream.readings.put(three_models().reading())
    listener.heard_until("reading")
    follower.request_consumer_stop("resnet10")
    follower.request_stop()
    assert stream.stopped == ["resnet10", ""]


def test_closing_ends_the_thread(stream: FakeStream, listener: Listener) -> None:
    """No thread outlives its panel."""
    follower = Follower("digits", listener.reading, listener.note, stream.connect)
    follower.start()
    assert any(t.name == "tsnb-follow-digits" for t in threading.enumerate())
    follower.close()
    assert not any(t.name == "tsnb-follow-digits" for t in threading.enumerate())


class FakeSampler:
    """Has looked at the machine every other time it is asked; or cannot."""

    def __init__(self, broken: bool) -> None:
        self.broken, self.asked = broken, 0

    def sample(self, reading: StreamReading) -> HostReading | None:
        self.asked += 1
        if self.broken:
            raise RuntimeError("an odd machine")
        return HostReading(2, 1.0, 1, 2) if self.asked % 2 == 0 else None


@pytest.mark.parametrize(
    ("peer", "broken", "hosts", "asked"),
    [
        ("same", False, [False, True, False], 3),
        ("same", True, [False] * 3, 1),
        ("other", False, [False] * 3, 0),
    ],
    ids=["seen", "odd machine", "another container"],
)
def test_readings_carry_the_machine_where_it_can_be_seen(
    stream: FakeStream, peer: str, broken: bool, hosts: list[bool], asked: int
) -> None:
    """Not of a producer whose process numbers mean others here; and no oddity of the machine ends the stream."""
    sampler = FakeSampler(broken)
    reading = three_models().reading()

    def connect(name: str | None) -> FakeConnection:
        connection = stream.connect(name)
        connection.peer_pid = reading.pid if peer == "same" else reading.pid + 1
        return connection

    stream.up = True
    heard: queue.Queue[StreamReading] = queue.Queue()
    follower = Follower("mnist", heard.put, lambda *said: None, connect, lambda: sampler)  # type: ignore[arg-type, return-value]
    follower.start()
    for _ in range(3):
        stream.readings.put(reading)
    assert [heard.get(timeout=60).host is not None for _ in range(3)] == hosts
    assert sampler.asked == asked
    follower.close()
