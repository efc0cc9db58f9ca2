"""An estimate of how long something still takes, with its interval, and what a plan says of that. Pure.

A plan has measured each trial before, and knows who will end when. So its word stands alone in a trial's first moments;
later both words are weighed by how far off each may be:

    left = (seen / s^2 + planned / p^2) / (1 / s^2 + 1 / p^2)

s and p are what the two are off four times in five, in seconds; s with what a machine's pace drifts, `DRIFT` of what is
left in the beginning, and less the more has been seen. Towards a trial's end s is small, and what was seen counts
nearly alone. Where the two contradict each other, by more than twice what both are off, something has happened that no
plan knew of, and what was seen counts alone.

When all are done, those that the plan has not started say as well: as many times later as those that run end later than
was planned.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tsnb.telemetry.readings import PlannedReading, StreamReading

__all__ = ["LEAST_OFF", "NO_ETA", "Eta", "all_left", "last_of", "planned_left", "weighed"]

LEAST_OFF = 0.05
"""No interval is closer than this, either way: the rest of a training is not like the part before."""
DRIFT = 0.15
"""What is left of a trial of which nothing has been seen is off by so much, however steady its first batches were."""
MOST_LATER = 2.0
"""So many times later at most, or sooner, the trials are taken to end that the plan has not started."""


@dataclass(frozen=True)
class Eta:
    """How long something still takes."""

    left_s: float
    """Seconds; NaN: not known."""
    low_s: float
    """Not less than this, four times in five with the next; seconds."""
    high_s: float
    """Nor more than this, seconds."""
    epochs: int = 0
    """Epochs that it takes in all, those too that a clone goes on from; 0: not known, and `left_s` goes to the end of
    its epoch only."""

    @property
    def known(self) -> bool:
        """Whether anything is."""
        return math.isfinite(self.left_s)

    @property
    def whole(self) -> bool:
        """Whether it goes to the end of the training, rather than to that of an epoch."""
        return self.known and self.epochs > 0


NO_ETA = Eta(math.nan, math.nan, math.nan)
"""Nothing is known."""


def last_of(etas: Iterable[Eta]) -> Eta:
    """Return when the last of several ends; `NO_ETA` unless that is known of each."""
    several = list(etas)
    if not several or not all(eta.whole for eta in several):
        return NO_ETA
    return Eta(
        max(eta.left_s for eta in several),
        max(eta.low_s for eta in several),
        max(eta.high_s for eta in several),
        max(eta.epochs for eta in several),
    )


def planned_left(told: PlannedReading, now_s: float, epochs: int = 1) -> Eta:
    """Return how long a trial still takes as its plan says; `NO_ETA` where it should have ended.

    Args:
        told: What the plan says.
        now_s: The time, seconds since 1970; less those in which the trial stood still since then.
        epochs: That it takes in all.
    """
    return _within(told.end_s - now_s, told.off_s, epochs)


def weighed(seen: Eta, planned: Eta, whole_s: float) -> Eta:
    """Return how long a trial still takes, by what was seen of it and by its plan.

    Args:
        seen: As it goes; `NO_ETA`: nothing is known yet.
        planned: As its plan says; `NO_ETA`: nothing.
        whole_s: How long it takes in all as its plan says, seconds.
    """
    if not seen.known or not planned.known:
        return seen if seen.known else planned
    drift_s = DRIFT * seen.left_s * min(1.0, seen.left_s / max(whole_s, 1e-3))
    seen_off, planned_off = math.hypot(_off(seen), drift_s), _off(planned)
    if not seen.whole or abs(seen.left_s - planned.left_s) > 2 * math.hypot(seen_off, planned_off):
        return seen
    one, other = seen_off**-2, planned_off**-2
    left_s = (one * seen.left_s + other * planned.left_s) / (one + other)
    wide = max((one + other) ** -0.5, LEAST_OFF * left_s) / _off(seen)
    low_s, high_s = (left_s + wide * (bound_s - seen.left_s) for bound_s in (seen.low_s, seen.high_s))
    return Eta(left_s, max(0.0, low_s), high_s, seen.epochs)


def _off(eta: Eta) -> float:
    return max((eta.high_s - eta.low_s) / 2, LEAST_OFF * eta.left_s, 1e-3)


def all_left(here: Mapping[str, Eta], reading: StreamReading, met: Collection[str]) -> Eta:
    """Return how long all trials of a stream still take; `NO_ETA` where that of one is not known.

    Those that are still to attach are known only where a plan has them.

    Args:
        here: How long each that is there takes, by name.
        reading: The last one of the stream.
        met: Trials that a plan has started and that have been there since.
    """
    now_s = reading.time_s
    started = {each.name: each for plan in reading.plans for each in plan.trials}
    coming = {name: each for name, each in started.items() if name not in met}
    waiting = sum(plan.waiting for plan in reading.plans)
    # those of a planned sweep that wait for a place are told by name, and the plan counts them
    named = len(reading.pending.keys() - started)
    if named > min(waiting, reading.to_come) or reading.to_come > waiting + len(coming):
        return NO_ETA
    etas = [*here.values(), *(planned_left(each, now_s) for each in coming.values())]
    if waiting:
        later = _later(here, started, now_s)
        with_some = [plan for plan in reading.plans if plan.waiting]
        etas += [_within(later * (plan.end_s - now_s), later * plan.off_s, 1) for plan in with_some]
    return last_of(etas)


def _within(left_s: float, off_s: float, epochs: int) -> Eta:
    """Return so many seconds, so far off either way, as an estimate; `NO_ETA` where they have passed."""
    return Eta(left_s, max(0.0, left_s - off_s), left_s + off_s, epochs) if left_s > 0 else NO_ETA


def _later(here: Mapping[str, Eta], started: Mapping[str, PlannedReading], now_s: float) -> float:
    """Return how many times as long those that run take from now on as was planned."""
    pairs = [
        (eta.left_s, started[name].end_s - now_s)
        for name, eta in here.items()
        if name in started and eta.whole and started[name].end_s > now_s
    ]
    is_s, was_s = (sum(column) for column in zip(*pairs, strict=True)) if pairs else (1.0, 1.0)
    return min(MOST_LATER, max(1 / MOST_LATER, is_s / was_s)) if was_s > 0 else 1.0
