"""History: bounded, whole for the last minutes, and nothing that changed is lost from what is older."""

from __future__ import annotations

import itertools
import random
import struct

from tests.panel.streams import Stream, Trial, rebalanced, three_models
from tsnb.telemetry.readings import StreamReading
from tsnb.telemetry.shown.history import History
from tsnb.telemetry.shown.marks import Marker


def filled(readings: list[StreamReading], **limits: float) -> History:
    history = History(**limits)  # type: ignore[arg-type]
    for reading in readings:
        history.add(reading)
        assert len(history) <= limits["most"]
    return history


def marked(readings: list[StreamReading]) -> list[str]:
    marker = Marker()
    return [mark.text for reading in readings for mark in marker.feed(reading)]


def test_the_last_minutes_are_whole_and_the_rest_is_even() -> None:
    """However long a stream runs, its start is there, steps before the last minutes are even, nothing is twice."""
    readings = list(three_models().run(400))
    kept = filled(readings, most=200, full_s=10.0).readings()
    assert kept[0] is readings[0]
    assert kept[-40:] == readings[-40:]
    times = [reading.time_s for reading in kept]
    assert times == sorted(set(times))
    turns = len(marked(readings))
    # beside two readings for each change, no step is more than some times the even one (400 s over 80 readings)
    assert max(later - earlier for earlier, later in itertools.pairwise(times)) < 4 * 400 / 80
    assert len(kept) > 100 + turns


def test_what_changed_stays_however_old_it_is() -> None:
    """The marks of the thinned history are those of the whole stream."""
    random.seed(3)
    stream = Stream(
        [Trial("a", 0.05), Trial("b", 0.02, joins_s=3.0, leaves_s=7.5), Trial("c", 0.1, parks_s=9.0)]
    )
    readings = list(stream.run(300))
    kept = filled(readings, most=160, full_s=10.0).readings()
    assert marked(kept) == marked(readings) == ["b joined", "b left", "c timed out"]
    last = [c for r in readings for c in r.consumers if c.name == "b"][-1]
    assert [c for r in kept for c in r.consumers if c.name == "b"][-1] == last


def test_a_stream_that_never_rests_is_bounded_too() -> None:
    """Somebody joins or leaves at every reading: the latest are kept."""
    stream = Stream([Trial("a", 0.05), Trial("b", 0.05)])
    readings = list(stream.run(120))
    for number, reading in enumerate(readings):
        if number % 2:
            object.__setattr__(reading, "consumers", reading.consumers[:1])
    kept = filled(readings, most=100, full_s=5.0).readings()
    assert kept[-1] is readings[-1]


def test_a_clock_set_back_is_left_out_of_what_is_read_and_drawn_all_the_same() -> None:
    """Readings go on from where time was before; no frame is lost."""
    one, two, three = three_models().run(0.75)
    history = History(most=50)
    for number, reading in enumerate((one, three, two)):
        history.add(reading, bytes([number]))
    assert history.readings() == [one, three]
    assert history.frames() == bytes([0, 1, 2])
    assert history.frames(until=2) == bytes([0, 1])


def test_another_stream_of_the_name_begins_anew_for_reports_and_goes_on_for_screens() -> None:
    """A panel shows the trials of both; a report tells of the one that is there."""
    one, two = three_models().run(0.5)
    history = History()
    history.add(one, b"1")
    history.anew()
    assert history.readings() == []
    history.add(two, b"2")
    assert (history.readings(), history.frames(), history.added) == ([two], b"12", 2)


def test_a_page_is_given_what_it_can_carry() -> None:
    """However much there is: the newest minutes first, some of all before, looks at the machine rather than others."""
    history, readings = History(), list(rebalanced().run(600))
    for number, reading in enumerate(readings):
        history.add(reading, struct.pack("<f", number))
    for most_bytes in (10**6, 4000, 400):
        kept = [int(number) for (number,) in struct.iter_unpack("<f", history.frames(most_bytes=most_bytes))]
        assert kept[0] == 0 and kept[-1] == len(readings) - 1 and kept == sorted(set(kept))
        assert 4 * len(kept) <= most_bytes or most_bytes < 4 * len(readings)
        assert len(kept) >= min(len(readings), most_bytes // 8)
    assert history._turns and history._turns <= set(kept), "what changed, so that ends stay as they were"
    older = [number for number in kept if readings[number].time_s < readings[-1].time_s - 120][1:]
    older = [number for number in older if number not in history._turns]
    assert sum(readings[number].host is not None for number in older) > 0.8 * len(older)
