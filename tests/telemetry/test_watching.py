"""Watching: one follower a stream, its history from the start on, an end with the stream."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.panel.streams import three_models
from tests.telemetry.test_following import FakeStream
from tests.telemetry.watches import forget_watches
from tsnb.errors import ProducerGone
from tsnb.reports import Report
from tsnb.telemetry.readings import EndReading, StreamReading
from tsnb.telemetry.shown.view import StreamNews
from tsnb.telemetry.watching import Watch, listen, unlisten, watch, watched

module = sys.modules["tsnb.telemetry.watching"]


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close every watch that a test started."""
    yield
    forget_watches()


def eventually(true: Callable[[], bool], timeout_s: float = 60.0) -> bool:
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


class Ear:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.heard: list[StreamReading] = []
        self.notes: list[str] = []

    def tell(self, tick: StreamNews) -> None:
        self.heard.append(tick.reading)

    def note(self, state: str, text: str, name: str) -> None:
        self.notes.append(state)


def heard() -> tuple[FakeStream, Ear, Watch, StreamReading]:
    """Return a stream, an ear that listens to its watch, the watch, and the reading that both have heard."""
    stream, ear = FakeStream(), Ear()
    watching = Watch("mnist", stream.connect)
    watching.listen(ear)
    reading = list(three_models().run(2.0))[-1]
    stream.readings.put(reading)
    stream.up = True
    assert watching.readings(60.0)
    return stream, ear, watching, reading


def test_whoever_listens_hears_all_of_it_over_one_connection() -> None:
    """What was before is returned, what comes is told, also of the next stream of that name, with a new history."""
    stream, early, late = FakeStream(), Ear(), Ear()
    watching = Watch("mnist", stream.connect, await_s=0.5)
    assert watching.listen(early).history.readings() == []
    readings = list(three_models().run(2.0))
    stream.up = True
    for reading in readings[:4]:
        stream.readings.put(reading)
    assert eventually(lambda: len(early.heard) == 4)
    known = watching.listen(late)
    assert known.history.readings() == readings[:4] and known.note is None
    stream.readings.put(readings[4])
    assert eventually(lambda: late.heard == readings[4:5])
    assert stream.opened == 1
    watching.unlisten(early)
    stream.up = False
    stream.readings.put(ProducerGone("gone"))
    assert eventually(
        lambda: watching.over
    )  # the history is complete, but somebody waits for the next stream
    assert late.notes[-1] == "gone" and early.heard == readings[:5]
    known = watching.listen(early)
    assert known.history.readings() == readings[:5] and known.note is not None and known.note[0] == "gone"
    other = replace(readings[5], pid=readings[5].pid + 1)
    stream.readings.put(other)
    stream.up = True
    assert eventually(lambda: watching.readings() == [other] and late.heard[-1] == other)
    assert not watching.over
    watching.close()
    assert watching.listened and watching._follower._thread.is_alive()
    watching.unlisten(early)
    watching.unlisten(late)
    assert not watching._follower._thread.is_alive()


def test_an_end_that_is_told_before_the_first_reading_comes_with_it() -> None:
    """A trial of a second may be over by then: its state and last number were on no screen until a later reading."""
    stream, ear = FakeStream(), Ear()
    watching = Watch("mnist", stream.connect)
    watching.listen(ear)
    end = EndReading("mlp", "done", 1.0, metrics={"loss": 0.125})
    watching.tell_end(end)
    assert watching.readings() == []
    reading = next(iter(three_models().run(1.0)))
    stream.readings.put(reading)
    stream.up = True
    assert watching.readings(60.0)[-1].ends == (end,)
    assert eventually(lambda: len(ear.heard) == 2) and ear.heard[0] == reading
    assert ear.heard[1].consumers == reading.consumers and ear.heard[1].ends == (end,)
    watching.unlisten(ear)
    watching.close()


def test_a_stream_that_is_known_to_be_there_is_looked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that begins and ends between two looks was never seen, with all that its trials logged."""
    monkeypatch.setattr("tsnb.telemetry.following._RETRY_S", 1000.0)
    stream, ear = FakeStream(), Ear()
    watching = Watch("mnist", stream.connect)
    watching.listen(ear)
    assert eventually(lambda: ear.notes == ["absent"] or watching.known.note is not None)
    stream.readings.put(next(iter(three_models().run(1.0))))
    stream.up = True
    watching.catch_up(60.0)
    assert len(watching.readings()) == 1
    watching.unlisten(ear)
    watching.close()
    watching.catch_up(1000.0)  # nobody follows it: there is nothing to wait for


def test_a_reading_that_comes_right_after_an_end_is_not_left_out() -> None:
    """Trials that end together leave within a millisecond: reports then lacked what the stream had counted of one."""
    stream, ear, watching, reading = heard()
    one, *rest = reading.consumers
    watching.tell_end(EndReading(one.name, "done", reading.time_s, one.pid))
    left = EndReading(one.name, "left", reading.time_s, one.pid, samples=one.samples)
    later = replace(reading, time_s=reading.time_s + 1e-4, consumers=tuple(rest), ends=(left,))
    stream.readings.put(later)
    assert eventually(lambda: len(ear.heard) == 3)
    assert [one.ends for one in watching.readings()[-2:]] == [
        (replace(left, state="done", samples=0),),
        (left,),
    ]
    watching.unlisten(ear)
    watching.close()


@pytest.mark.parametrize("leaves", [True, False])
def test_what_a_trial_logged_last_counts_though_its_end_is_told_before_it_leaves(leaves: bool) -> None:
    """With its stream's next reading, or with the stream's own end, after which no reading says that it has left."""
    stream, ear, watching, reading = heard()
    one = reading.consumers[0]
    end = EndReading(one.name, "done", reading.time_s, one.pid, metrics={"f1": 0.75})
    watching.tell_end(end)
    rest = tuple(c for c in reading.consumers if c is not one)
    if leaves:
        stream.readings.put(replace(reading, time_s=reading.time_s + 0.25, consumers=rest))
        assert eventually(lambda: len(ear.heard) == 3)
    else:
        stream.up = False
        stream.readings.put(ProducerGone("gone"))
        assert eventually(lambda: bool(ear.notes) and ear.notes[-1] == "gone")
    assert [c.name for c in watching.readings()[-1].consumers] == [c.name for c in rest]
    row = watching.view.rows[one.name]
    assert (row.here, row.state, row.end, row.metrics["f1"]) == (False, "done", "done", 0.75)
    watching.unlisten(ear)
    watching.close()


def test_an_end_stands_beside_readings_that_are_older_than_it() -> None:
    """On a busy machine the notebook knows of an end before it has heard the readings from before it."""
    readings = list(three_models().run(3.0))
    before, after = (
        [replace(r, time_s=r.time_s + late_s) for r in readings[k : k + 2]]
        for k, late_s in ((1, 0.0), (3, 10.0))
    )
    name, pid = before[0].consumers[0].name, before[0].consumers[0].pid
    first = replace(readings[0], consumers=tuple(c for c in readings[0].consumers if c.name != name))
    stream = FakeStream()
    watching = Watch("mnist", stream.connect)
    stream.readings.put(first)
    stream.up = True
    assert watching.readings(60.0)
    end = EndReading(name, "done", before[1].time_s + 1.0, pid=pid, metrics={"loss": 0.125})
    watching.tell_end(end)
    gone = [replace(r, consumers=tuple(c for c in r.consumers if c.name != name)) for r in after]
    for reading in (*before, *gone):
        stream.readings.put(reading)
    assert eventually(lambda: len(watching.readings()) == 6)
    row = watching.view.rows[name]
    assert (row.here, row.end, row.state, row.metrics["loss"]) == (False, "done", "done", 0.125)
    report = Report(watching.readings(), ended=True)
    (trial,) = [one for one in report.story.trials if one.name == name]
    assert trial.state == "done"
    for reading in after:  # its process goes on (`extend`)
        stream.readings.put(replace(reading, time_s=reading.time_s + 10.0))
    assert eventually(lambda: watching.view.rows[name].here)
    stream.readings.put(replace(gone[0], time_s=after[1].time_s + 30.0))
    assert eventually(lambda: not watching.view.rows[name].here)
    assert watching.view.rows[name].end == ""
    watching.close()


def test_an_end_stands_though_the_producer_hears_later_that_its_consumer_has_left() -> None:
    """Of a trial that is over before a reading says that it is there: the next one may, the one after has its end."""
    readings = list(three_models().run(3.0))[:4]
    one = readings[0].consumers[0]
    gone = [replace(r, consumers=tuple(c for c in r.consumers if c.name != one.name)) for r in readings]
    stream = FakeStream()
    watching = Watch("mnist", stream.connect)
    stream.readings.put(gone[0])
    stream.up = True
    assert watching.readings(60.0)
    end = EndReading(one.name, "done", readings[0].time_s + 0.1, pid=one.pid, metrics={"loss": 0.125})
    watching.tell_end(end)
    stream.readings.put(readings[1])
    stream.readings.put(replace(gone[2], ends=(EndReading(one.name, "left", gone[2].time_s, one.pid), end)))
    stream.readings.put(gone[3])
    assert eventually(lambda: len(watching.readings()) == 5)
    row = watching.view.rows[one.name]
    assert (row.here, row.end, row.state, row.metrics["loss"]) == (False, "done", "done", 0.125)
    (trial,) = [t for t in Report(watching.readings(), ended=True).story.trials if t.name == one.name]
    assert trial.state == "done"
    watching.close()


def test_a_stream_that_has_ended_is_waited_for_again_when_somebody_listens() -> None:
    """Its history is not lost by that, until another stream of its name begins one."""
    stream, ear = FakeStream(), Ear()
    stream.up = True
    reading = three_models().reading()
    stream.readings.put(reading)
    watching = Watch("mnist", stream.connect)
    assert watching.readings(10.0)
    watching.close()
    assert watching.listen(ear).history.readings() == [reading]
    other = replace(reading, pid=reading.pid + 1)
    stream.readings.put(other)
    assert eventually(lambda: watching.readings() == [other])
    assert ear.heard == [other]
    watching.unlisten(ear)
    watching.close()


def test_listeners_go_on_with_the_stream_that_has_the_name_next() -> None:
    """A stream that is started again has another watch; what is listened to is not forgotten."""
    ear = Ear()
    assert listen("mnist", ear).history.readings() == []
    one = watch("mnist")
    two = watch("mnist", anew=True)
    assert two is not one and two.listened and not one.listened
    assert eventually(lambda: "absent" in ear.notes)
    unlisten("mnist", ear)
    assert not two.listened
    unlisten("nobody", ear)


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
