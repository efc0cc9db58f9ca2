"""Rates: differences of counters, over long enough and no longer."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.panel.streams import Stream, Trial, three_models
from tsnb.telemetry.readings import ConsumerReading, HostReading, StreamReading
from tsnb.telemetry.shown.rates import PATIENCE_S, SPAN_S, RateWindow


def reading(time_s: float, batches: int = 0, consumers: tuple[ConsumerReading, ...] = ()) -> StreamReading:
    blank = three_models().reading()
    return replace(blank, time_s=time_s, batches=batches, consumers=consumers)


def consumer(batches: int, computing_s: float = 0.0, **fields: float) -> ConsumerReading:
    return ConsumerReading(
        name="cnn",
        pid=int(fields.get("pid", 1)),
        state="streaming",
        epoch=0,
        position=batches,
        fill=0,
        lag=0,
        batches=batches,
        samples=batches * 64,
        computing_s=computing_s,
        waiting_s=fields.get("waiting_s", 0.0),
        held_s=fields.get("held_s", 0.0),
    )


def test_samples_a_second_are_those_that_a_trial_was_given() -> None:
    """A part's: of ten batches of 64 a sixteenth."""
    window, later = RateWindow(), replace(consumer(10, 1.0), samples=40, passed=640)
    window.add(reading(0.0, 0, (consumer(0),)))
    window.add(reading(2.0, 10, (later,)))
    pace = window.pace(later)
    assert (pace.samples_per_s, pace.alone_per_s) == (20, 40)
    assert pace.step_s == pytest.approx(0.1), "of a loader batch, as before"


def test_one_reading_says_nothing_of_rates() -> None:
    """After a single reading every rate is unknown, not zero."""
    window, one = RateWindow(), consumer(5)
    window.add(reading(0.0, 10, (one,)))
    assert math.isnan(window.batches_per_s())
    assert math.isnan(window.pace(one).samples_per_s)
    assert window.span[0] is window.span[1]


def test_rates_look_back_about_two_seconds() -> None:
    """A loader that speeds up is seen within the span, whatever it did before."""
    window = RateWindow()
    for k in range(41):
        time_s = k * 0.25
        window.add(reading(time_s, int(10 * time_s if time_s < 5 else 50 + 40 * (time_s - 5))))
    assert window.batches_per_s() == pytest.approx(40)
    earlier, later = window.span
    assert later.time_s - earlier.time_s == pytest.approx(SPAN_S)


def test_a_slow_consumer_does_not_flicker() -> None:
    """With a step of three seconds the pace is never zero and never more than twice the truth."""
    window, seen = RateWindow(), []
    for k in range(120):
        taken = 1 + k // 12
        one = consumer(taken, computing_s=3.0 * (taken - 1))
        window.add(reading(k * 0.25, 0, (one,)))
        if k > 4 * PATIENCE_S:
            seen.append(window.pace(one).samples_per_s)
    truth = 64 / 3
    assert all(0.3 * truth < pace <= 2 * truth for pace in seen)


def test_a_consumer_that_stands_still_comes_to_zero() -> None:
    """After the stall timeout nothing is left of an old pace."""
    window = RateWindow()
    for k in range(80):
        one = consumer(min(k, 20))
        window.add(reading(k * 0.25, 0, (one,)))
    assert window.pace(one).samples_per_s == 0


def test_shares_are_of_wall_time_and_never_more_than_all_of_it() -> None:
    """Time booked late, at the end of a long step, does not push the shares past one."""
    window = RateWindow()
    window.add(reading(0.0, 0, (consumer(1),)))
    window.add(reading(2.0, 0, (consumer(3, computing_s=0.5, waiting_s=0.5, held_s=0.0),)))
    pace = window.pace(consumer(3, computing_s=0.5, waiting_s=0.5))
    assert (pace.computing, pace.waiting, pace.held) == (0.25, 0.25, 0.0)
    late = consumer(4, computing_s=6.0, held_s=2.0)
    window.add(reading(2.25, 0, (late,)))
    pace = window.pace(late)
    assert pace.computing + pace.waiting + pace.held == pytest.approx(1)


@pytest.mark.parametrize("again", [consumer(2, pid=1), consumer(30, pid=2)])
def test_a_name_attached_anew_starts_anew(again: ConsumerReading) -> None:
    """Fewer batches or another process: the old attachment's counters are not subtracted."""
    window = RateWindow()
    window.add(reading(0.0, 0, (consumer(20),)))
    window.add(reading(2.0, 0, (again,)))
    assert math.isnan(window.pace(again).samples_per_s)


def test_a_producer_started_anew_starts_anew() -> None:
    """Counters that fall, or another process, make the window forget."""
    window = RateWindow()
    window.add(reading(0.0, 100))
    window.add(reading(1.0, 3))
    assert math.isnan(window.batches_per_s())
    window.add(replace(reading(2.0, 9), pid=7))
    assert math.isnan(window.batches_per_s())


def test_the_imagined_stream_behaves() -> None:
    """Rates add up over a stream computed step by step: nobody outruns the loader, the slowest never waits."""
    stream = Stream([Trial("fast", 0.01), Trial("slow", 0.1)], batch_s=0.02)
    window = RateWindow()
    for last in stream.run(20):
        window.add(last)
    paces = {c.name: window.pace(c) for c in last.consumers}
    assert paces["fast"].samples_per_s == pytest.approx(paces["slow"].samples_per_s, rel=0.15)
    assert paces["slow"].computing > 0.85
    assert paces["fast"].held > 0.6


def test_the_time_left_counts_down_with_the_epoch() -> None:
    """Ten batches a second, 40 of 63 published: 2.3 seconds; and never below zero at the epoch's end."""
    window = RateWindow()
    for k in range(21):
        window.add(replace(reading(k * 0.25, round(2.5 * k)), state="serving", published=40))
    assert window.left_s() == pytest.approx(2.3)
    window.add(replace(reading(5.25, 53), state="serving", published=63))
    assert window.left_s() == 0


@pytest.mark.parametrize("change", [{"epoch_batches": None}, {"state": "idle"}, {"batches": 0}])
def test_the_time_left_is_unknown_where_nothing_tells(change: dict[str, Any]) -> None:
    """A loader without a length, a stream at rest, no batch published lately."""
    window = RateWindow()
    window.add(replace(reading(0.0, 0), state="serving"))
    assert math.isnan(window.left_s()), "one reading"
    window.add(replace(reading(2.0, 20), **{"state": "serving", **change}))
    assert math.isnan(window.left_s())


def test_the_last_look_at_the_machine_is_kept_for_a_while() -> None:
    """Every eighth reading or so has one; those in between mean the same machine."""
    window, host = RateWindow(), HostReading(2, 1.0, 1, 2)
    window.add(reading(0.0, 0))
    assert window.host is None
    window.add(replace(reading(0.25, 1), host=host))
    window.add(reading(0.5, 2))
    assert window.host == host
    window.add(reading(20.0, 3))
    assert window.host is None


def test_a_batch_and_alone_are_of_the_time_it_computed() -> None:
    """Ten batches of 64 in one second of computing, whatever it waited: 100 ms a batch, 640 samples/s alone."""
    window = RateWindow()
    later = consumer(10, 1.0, waiting_s=0.5, held_s=0.5)
    window.add(reading(0.0, 0, (consumer(0),)))
    window.add(reading(2.0, 10, (later,)))
    pace = window.pace(later)
    assert pace.step_s == pytest.approx(0.1)
    assert pace.alone_per_s == pytest.approx(640)
    assert pace.samples_per_s == pytest.approx(320)


def test_who_took_nothing_is_not_told_what_it_would_do_alone() -> None:
    """No batch, no number: neither zero nor infinite."""
    window = RateWindow()
    later = consumer(0, 1.0)
    window.add(reading(0.0, 0, (consumer(0),)))
    window.add(reading(2.0, 10, (later,)))
    assert math.isnan(window.pace(later).step_s)
    assert math.isnan(window.pace(later).alone_per_s)


def test_the_loader_alone_gives_what_it_gave_and_what_it_stood_still() -> None:
    """Blocked half of the time it could give twice as much; blocked all of it, nobody knows."""
    window = RateWindow()
    window.add(replace(reading(0.0, 0), workers=0, blocked_s=0.0))
    window.add(replace(reading(2.0, 20), workers=0, blocked_s=1.0))
    assert window.loader_alone_per_s() == pytest.approx(20)
    window.add(replace(reading(4.0, 20), workers=0, blocked_s=3.0))
    assert math.isnan(window.loader_alone_per_s())


@pytest.mark.parametrize(("state", "batches"), [("idle", 20), ("idle", 23), ("serving", 20)])
def test_of_a_loader_that_rests_nothing_is_said_of_what_it_could_do(state: str, batches: int) -> None:
    """It said 0 batches a second at most, or what came before it came to rest."""
    window = RateWindow()
    window.add(reading(0.0, 20))
    window.add(replace(reading(2.0, batches), state=state))
    assert math.isnan(window.loader_alone_per_s())
