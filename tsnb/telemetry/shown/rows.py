"""A trial as screens show it: what was read of it last, and what follows from its readings."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import astuple, dataclass, field, replace
from typing import Any

from tsnb.telemetry.forecast.eta import NO_ETA, Eta
from tsnb.telemetry.readings import ConsumerReading, EndReading
from tsnb.telemetry.shown.diagnosis import SMALL
from tsnb.telemetry.shown.rates import UNKNOWN, Pace
from tsnb.telemetry.trial_readings import LoggedReading

__all__ = [
    "Life",
    "Row",
    "TimeSpent",
    "life_of",
    "never_attached",
    "newly_logged",
    "not_finite",
    "taken",
]

_TAKEN = (
    "samples",
    "computing_s",
    "waiting_s",
    "held_s",
    "joining_s",
    "paused_s",
    "timed_out_s",
    "attached_s",
)
"""What an end tells of a consumer's time, under the names that its readings have."""

_PACED = frozenset({"streaming", "waiting", "held back", "sets the pace"})
"""States of a trial that takes batches as it can."""

_STEADY = 8
"""Ticks over which the most frequent of several passing states is shown: it agrees with the rates beside it."""


_TELLS_S = 2.0
"""A trial tells how it ended within so many seconds after it has left its stream."""


@dataclass(frozen=True)
class TimeSpent:
    """Where a trial's time went, in seconds, and how many samples it took. Sums by +.

    Its speed and the shares are of the time attached without pauses and time-outs, on each screen and in each report.
    """

    computing_s: float = 0.0
    waiting_s: float = 0.0
    held_s: float = 0.0
    joining_s: float = 0.0
    between_s: float = 0.0
    paused_s: float = 0.0
    parked_s: float = 0.0
    samples: int = 0

    def __add__(self, other: TimeSpent) -> TimeSpent:
        both = zip(astuple(self), astuple(other), strict=True)
        return TimeSpent(*(one + another for one, another in both))

    @property
    def active_s(self) -> float:
        """Seconds attached, less pauses and time-outs."""
        return self.computing_s + self.waiting_s + self.held_s + self.joining_s + self.between_s

    @property
    def pace(self) -> Pace:
        """How fast the trial was, and its shares; `UNKNOWN`: it was not attached, or always paused."""
        active_s = self.active_s
        if active_s <= 0:
            return UNKNOWN
        whole_s = active_s + self.paused_s + self.parked_s
        return Pace(
            self.samples / active_s,
            self.computing_s / active_s,
            self.waiting_s / active_s,
            self.held_s / active_s,
            joining=self.joining_s / active_s,
            paused=self.paused_s / whole_s,
            timed_out=self.parked_s / whole_s,
        )


@dataclass
class Life:
    """One attachment of a trial to one life of its producer."""

    name: str
    """The trial's."""
    first_s: float
    """When it was first seen (wall clock)."""
    start: ConsumerReading
    """How it was first seen."""
    last_s: float
    """When it was last seen (wall clock)."""
    last: ConsumerReading
    """How it was last seen."""
    states_s: dict[str, float] = field(default_factory=dict)
    """Seconds in each state, as far as it was watched."""
    fewer_s: float = -math.inf
    """When it was last seen with fewer batches than at last (wall clock)."""

    def extend(self, time_s: float, consumer: ConsumerReading) -> None:
        """Take in the next reading of it: up to then it was in the state of the one before."""
        state = self.last.state
        self.states_s[state] = self.states_s.get(state, 0.0) + time_s - self.last_s
        if consumer.batches > self.last.batches:
            self.fewer_s = self.last_s
        self.last_s, self.last = time_s, consumer

    def ended(self, end: EndReading) -> None:
        """Take in what its stream told of the whole of it as the trial left: who has watched late knows as much."""
        if end.attached_s and end.pid == self.last.pid and end.samples >= self.last.samples:
            self.last = replace(self.last, **taken(end))

    def continues(self, consumer: ConsumerReading) -> bool:
        """Return whether a reading is of this life: the same process, and no counter went back.

        One counter may: the seconds since its last batch are no computing any more once it is paused or timed out.
        """
        last = self.last
        since_s = self.last_s - self.fewer_s if last.batches else 0.0
        return (
            consumer.pid == last.pid
            and consumer.batches >= last.batches
            and consumer.computing_s >= last.computing_s - since_s - 1e-6
        )

    @property
    def parts(self) -> TimeSpent:
        """Where its time went: as its stream counted; readings that do not tell, as far as it was watched."""
        last = self.last
        inside = (last.computing_s, last.waiting_s, last.held_s)
        if last.attached_s:
            left_s = max(0.0, last.attached_s - last.paused_s - last.timed_out_s)
            counted = []  # never more than that: its stream counts from a moment before its process does
            for seconds in (*inside, last.joining_s):
                counted.append(min(seconds, left_s))
                left_s -= counted[-1]
            computing_s, waiting_s, held_s, joining_s = counted
            apart = last.paused_s, last.timed_out_s
            return TimeSpent(computing_s, waiting_s, held_s, joining_s, left_s, *apart, last.samples)
        before_s = self.start.computing_s + self.start.waiting_s + self.start.held_s
        rest_s = max(0.0, self.last_s - self.first_s - (sum(inside) - before_s))
        parked_s = min(rest_s, self.states_s.get("timed out", 0.0))
        paused_s = min(rest_s - parked_s, self.states_s.get("paused", 0.0))
        between_s = rest_s - parked_s - paused_s
        return TimeSpent(*inside, 0.0, between_s, paused_s, parked_s, last.samples)


def never_attached(end: EndReading) -> ConsumerReading:
    """Return a reading of a trial that ended without ever having been a consumer."""
    return ConsumerReading(end.name, end.pid, "gone", -1, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, dict(end.metrics))


def taken(end: EndReading) -> dict[str, Any]:
    """Return what a trial took of its stream, and where its time went, by the names of a consumer's fields."""
    return {name: getattr(end, name) for name in _TAKEN}


def life_of(end: EndReading) -> Life:
    """Return the attachment of a trial that nobody saw while it was there, as far as its end tells of it."""
    nothing = never_attached(end)
    attached_s = end.attached_s or end.computing_s + end.waiting_s + end.held_s
    last = replace(nothing, batches=end.batches, **taken(end) | {"attached_s": attached_s})
    return Life(end.name, end.time_s - attached_s, nothing, end.time_s, last)


@dataclass
class Row:
    """One trial."""

    number: int
    """In the order of first appearance: its lane, and so its colour."""
    reading: ConsumerReading
    """The last that was heard of it."""
    here: bool = False
    """Whether it is attached."""
    pace: Pace = UNKNOWN
    """Of the last seconds."""
    told: Pace = UNKNOWN
    """Its pace when the sentence was said last: the shares of its time that are shown beside it, so that both say the
    same."""
    state: str = "joining"
    """What to show: one of `CONSUMER_STATES`, of `END_STATES`, or that of a trial that is not attached yet."""
    since_s: float = 0.0
    """Since when it is in that state; wall clock."""
    came_s: float = 0.0
    """When it came, or left; wall clock."""
    end: str = ""
    """How it ended, one of `END_STATES`; empty while it is here, or if that is unknown."""
    pending: str = ""
    """State and reason of a trial that is not attached yet, as its notebook says: "queued: it needs 2.1 GiB ..."."""
    error: str = ""
    """What it failed of, one line."""
    epochs: float = math.nan
    """Epochs that it has taken."""
    batches: int = 0
    """Loader batches that it has taken."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The last of each number that it has logged, in the order of first appearance."""
    logged_at: dict[str, int] = field(default_factory=dict)
    """The batches of its own at which they were logged, as its readings count."""
    sparse: tuple[str, ...] = ()
    """Names of those that are logged about once an epoch, or less often: curves of them are never smoothed."""
    places: dict[str, int] = field(default_factory=dict)
    """The place of each of those names, which stays when another run of the trial begins anew."""
    run: int = 0
    """How many runs of its name came before this one: another process, another curve."""
    states: deque[str] = field(default_factory=lambda: deque(maxlen=_STEADY))
    """Its states of the last ticks."""
    life: Life | None = None
    """Its last attachment."""
    producer: int = 0
    """The process id of the producer that it was attached to last."""
    away: bool = False
    """Whether that is over."""
    before: TimeSpent = TimeSpent()
    """Where its time went in those before."""
    left: Callable[[str], Eta] = field(default=lambda _: NO_ETA, repr=False, compare=False)
    """Says how long the trial of a name still takes."""

    def lives(self, time_s: float, consumer: ConsumerReading, producer: int) -> None:
        """Take in a reading of it while it is attached to a producer of that process id."""
        goes_on = self.life is not None and not self.away and self.producer == producer
        if goes_on and self.life is not None and self.life.continues(consumer):
            self.life.extend(time_s, consumer)
            return
        self.before, self.life = self.whole, None
        self.producer, self.away = producer, False
        self.life = Life(consumer.name, time_s, consumer, time_s, consumer)

    def leaves(self) -> None:
        """Its next reading is of another attachment; what is told of the end of this one still counts."""
        self.away = True

    def agree(self, pace: str | None) -> None:
        """Show no other trial as the one that sets the pace than the sentence names: with each batch that may change.

        Args:
            pace: The one that it names; None: it names none.
        """
        if self.state in _PACED:
            other = "held back" if self.told.held >= SMALL else "streaming"
            self.state = "sets the pace" if self.name == pace else other

    @property
    def whole(self) -> TimeSpent:
        """Where all its time went."""
        return self.before if self.life is None else self.before + self.life.parts

    @property
    def eta(self) -> Eta:
        """How long it still takes; reckoned when somebody asks: most ticks nobody does."""
        return self.left(self.name)

    @property
    def name(self) -> str:
        """Its consumer's name."""
        return self.reading.name

    @property
    def unknown(self) -> bool:
        """Whether nothing is to be told of it: it was pending, and is not attached yet."""
        never = self.reading.state == "gone" and not self.reading.pid
        return never and not (self.here or self.end or self.pending)

    def left_at(self, now_s: float) -> bool:
        """Return whether it has left so lately that how it ended may still be told.

        Args:
            now_s: Wall clock.
        """
        untold = self.end in ("", "left") and not (self.here or self.unknown or self.pending)
        return untold and 0.0 <= now_s - self.came_s < _TELLS_S

    @property
    def waits(self) -> str:
        """What it waits for, in words: "queued: it needs ...", "waits for its turn"; empty: for batches at most."""
        if self.here:
            return f"waits for {self.reading.awaits}" if self.reading.awaits else ""
        return self.pending


def newly_logged(
    values: dict[str, float], batches: dict[str, int], its: ConsumerReading | EndReading
) -> list[tuple[str, int | None, float, LoggedReading | None]]:
    """Return name, batch (None: not known), last value, and the values that it stands for, of what a trial has logged.

    That is, since it was looked at last, oldest first. Without the values it stands for itself alone.

    Args:
        values: Its numbers then; brought up to date.
        batches: The batches at which they were logged then; brought up to date.
        its: What is known of it now.
    """
    found: list[tuple[str, int | None, float, LoggedReading | None]] = []
    logged, logged_at = its.logged, its.logged_at
    for name, value in its.metrics.items():
        before, at, known = values.get(name), logged_at.get(name) if logged_at else None, batches.get(name)
        # nan is what differs from itself
        same = value == before or (before is not None and value != value and before != before)  # noqa: PLR0124
        if same and (at is None or at == known):
            continue
        values[name] = value
        parts: list[LoggedReading] = []
        if logged and name in logged:  # not of most: a tick of fifty trials has a hundred numbers
            anew = known is None or (at is not None and at < known)  # another producer counts from 0
            parts = [part for part in logged[name] if anew or part.batch > (known or 0)]
        for part in parts:
            last = value if part.batch == at else math.nan if part.last is None else part.last
            found.append((name, part.batch, last, part if part.values > 1 or part.low is not None else None))
        if not parts or parts[-1].batch != at:
            found.append((name, at, value, None))
        if at is not None or parts:
            batches[name] = parts[-1].batch if at is None else at
    return found


def not_finite(before: ConsumerReading | None, after: ConsumerReading) -> list[tuple[str, str]]:
    """Return kind and text of a mark for each number of a consumer that has become nan or infinite."""
    found, known = [], before.metrics if before is not None and before.pid == after.pid else {}
    for name, value in after.metrics.items():
        if math.isfinite(value) or not math.isfinite(known.get(name, 0.0)):
            continue
        at = after.logged_at.get(name)
        for part in reversed(after.logged.get(name, ())):
            if part.last is not None:
                break
            at = part.batch
        said = f"{after.name}: {name} became {value}" + ("" if at is None else f" at batch {at:,}")
        found.append(("not finite", said))
    return found
