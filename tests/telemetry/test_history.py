"""History: bounded, whole for the last minutes, and nothing that changed is lost from what is older."""

from __future__ import annotations

import itertools
import random

from tests.panel.streams import Stream, Trial, three_models
from tsnb.telemetry.marks import Marker
from tsnb.telemetry.readings import StreamReading
from tsnb.telemetry.watching import History


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
    assert marked(kept) == marked(readings) == ["b joined", "b left", "c parked"]
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


def test_a_clock_set_back_is_left_out() -> None:
    """Time goes on from where it was before."""
    one, two, three = three_models().run(0.75)
    history = filled([one, three, two], most=50)
    assert history.readings() == [one, three]
