"""Where each second of each trial went: totals of a stream's life from its readings. Pure.

A trial's counters (`computing_s`, `waiting_s`, `held_s`) begin at its attachment and end with it, with its producer
or with its process. Each such *life* counts once, with its last counters; a trial's totals are the sum of its lives.
So a report is right about these even if it did not watch from the start.

What its counters do not tell of its time attached was spent between epochs. Readings of a stream that does not tell for
how long a trial was attached say so only while the stream was watched:

    between + paused + parked = (last - first reading of the life) - what its counters grew by meanwhile
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tsnb.telemetry.lives.cpu_time import cpu_until, stretches
from tsnb.telemetry.readings import EndReading, StreamReading
from tsnb.telemetry.shown.ends import Ends
from tsnb.telemetry.shown.marks import Taken
from tsnb.telemetry.shown.rates import alone
from tsnb.telemetry.shown.rows import Life, TimeSpent, life_of

__all__ = ["PARTS", "Spent", "lives", "parts_of", "spent"]

PARTS = ("computing", "waiting", "held", "joining", "between", "paused", "parked")
"""What a trial's time goes to, in the order in which it is drawn."""

_SELDOM = ("joining", "paused", "parked")
_LEAST_S, _LEAST = 0.5, 0.01
"""Of these a trial of a report has spent so many seconds, or that share of its time, or they are not named in it."""


@dataclass(frozen=True)
class Spent:
    """Where one trial's time went, in seconds, and what it did with it."""

    name: str
    """The trial's."""
    first_s: float
    """When it was first seen (wall clock, seconds since 1970)."""
    last_s: float
    """When it was last seen."""
    state: str
    """Its state then; once it has left how it ended, one of `END_STATES`, or "gone" if no end was reported."""
    computing_s: float
    """In the user's own code, inside epochs."""
    waiting_s: float
    """Waiting for the loader."""
    held_s: float
    """Held back by the slowest."""
    joining_s: float
    """Waiting for a pass that it could join."""
    between_s: float
    """Attached, outside epochs, in its own code."""
    paused_s: float
    """Paused."""
    parked_s: float
    """Timed out."""
    pace_s: float
    """Seconds in which it set the pace, as far as it was watched."""
    samples: int
    """Samples taken."""
    batches: int
    """Loader batches taken."""
    skipped: int
    """Loader batches given up."""
    epochs: float
    """Epochs taken, the one under way as a share where the loader has a length; those that it goes on from count, as
    in the panel."""
    metrics: dict[str, float]
    """Last logged numbers."""
    error: str = ""
    """What it failed of, one line."""
    cpu_s: float = math.nan
    """CPU seconds of its process and all below it since it attached, as it said at its end, else as far as it was
    watched; nan where neither is known."""

    @property
    def total_s(self) -> float:
        """All of it."""
        return sum(self.seconds(part) for part in PARTS)

    @property
    def inside_s(self) -> float:
        """Seconds inside epochs."""
        return self.computing_s + self.waiting_s + self.held_s

    @property
    def active_s(self) -> float:
        """Seconds attached, less pauses and time-outs: what shares and samples a second are of."""
        return self.inside_s + self.joining_s + self.between_s

    def seconds(self, part: str) -> float:
        """Return the seconds that went to one of `PARTS`."""
        return float(getattr(self, f"{part}_s"))

    def share(self, part: str) -> float:
        """Return what share of the time without pauses and time-outs went to one of `PARTS`; nan without any."""
        return self.seconds(part) / self.active_s if self.active_s > 0 else math.nan

    @property
    def step_s(self) -> float:
        """Seconds that it computed on one loader batch; nan where it took none."""
        return self.computing_s / self.batches if self.batches else math.nan

    @property
    def alone_per_s(self) -> float:
        """Its pace with a batch always ready and no other trial to wait for, in samples a second of computing."""
        return alone(self.samples, self.computing_s)

    @property
    def samples_per_s(self) -> float:
        """Samples a second of the attached time; nan without any."""
        return self.samples / self.active_s if self.active_s > 0 else math.nan


def parts_of(trials: Sequence[Spent]) -> list[str]:
    """Return those of `PARTS` that a report of the trials names."""

    def told(trial: Spent, part: str) -> bool:
        return trial.seconds(part) >= min(_LEAST_S, max(_LEAST * trial.total_s, 1e-3))

    return [p for p in PARTS if p not in _SELDOM or any(told(trial, p) for trial in trials)]


def lives(readings: Iterable[StreamReading]) -> list[Life]:
    """Return every attachment of every trial, in the order of first appearance."""
    found: list[Life] = []
    open_: dict[str, Life] = {}
    producer = None
    for reading in readings:
        if reading.pid != producer:
            producer, open_ = reading.pid, {}
        here = reading.attached
        for name, consumer in here.items():
            life = open_.get(name)
            if life is not None and life.continues(consumer):
                life.extend(reading.time_s, consumer)
            else:
                open_[name] = Life(name, reading.time_s, consumer, reading.time_s, consumer)
                found.append(open_[name])
        open_ = {name: life for name, life in open_.items() if name in here}
    return found


def spent(readings: Sequence[StreamReading], ends: Ends | None = None) -> list[Spent]:
    """Return where the time of each trial went, in the order of first appearance.

    Args:
        readings: Oldest first.
        ends: New; takes in the readings on the way. Left out: nobody asks for them later.
    """
    by_name: dict[str, list[Life]] = {}
    for life in lives(readings):
        by_name.setdefault(life.name, []).append(life)
    used = stretches(readings)
    here = {c.name: c.state for c in readings[-1].consumers} if readings else {}
    ends, taken = Ends() if ends is None else ends, Taken()
    for reading in readings:
        ends.feed(reading)
        taken.feed(reading)
        for end in reading.ends:
            _close(by_name.get(end.name, ()), end)
    for name, end in ends.by_name.items():
        _close(by_name.get(name, ()), end)
        if name not in by_name:  # it ended without ever having attached
            by_name[name] = [replace(life_of(end), name=name)]
    sums = [_sum(its, here.get(name, "gone"), taken.epochs(name)) for name, its in by_name.items()]
    sums = [_ended(one, ends.by_name.get(one.name)) for one in sums]
    return [replace(one, cpu_s=_known(cpu_until(used.get(one.name, ())))) for one in sums]


def _close(its: Sequence[Life], end: EndReading) -> None:
    """Have the attachment that ended so take in what was told of it."""
    own = [life for life in its if life.first_s <= end.time_s and life.last.pid == end.pid]
    if own:
        own[-1].ended(end)


def _known(cpu_s: float | None) -> float:
    return math.nan if cpu_s is None else cpu_s


def _ended(trial: Spent, end: EndReading | None) -> Spent:
    """Return what a trial spent with how it ended, and the last that it logged."""
    if end is None or trial.state != "gone":
        return trial
    return replace(trial, state=end.state, error=end.error, metrics={**trial.metrics, **end.metrics})


def _sum(its: Sequence[Life], state: str, epochs: float) -> Spent:
    parts = sum((life.parts for life in its), TimeSpent())
    last = its[-1].last
    batches = sum(life.last.batches for life in its)
    return Spent(
        name=last.name,
        first_s=its[0].first_s,
        last_s=its[-1].last_s,
        state=state,
        computing_s=parts.computing_s,
        waiting_s=parts.waiting_s,
        held_s=parts.held_s,
        joining_s=parts.joining_s,
        between_s=parts.between_s,
        paused_s=parts.paused_s,
        parked_s=parts.parked_s,
        pace_s=sum(life.states_s.get("sets the pace", 0.0) for life in its),
        samples=parts.samples,
        batches=batches,
        skipped=sum(life.last.skipped for life in its),
        epochs=0.0 if math.isnan(epochs) else epochs,
        metrics=last.metrics,
    )
