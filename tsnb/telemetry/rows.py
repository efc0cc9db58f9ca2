"""A trial as screens show it: what was read of it last, and what follows from its readings."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tsnb.telemetry.eta import NO_ETA, Eta
from tsnb.telemetry.rates import UNKNOWN, Pace
from tsnb.telemetry.readings import ConsumerReading

__all__ = ["Row"]

_STEADY = 8
"""Ticks over which the most frequent of several passing states is shown: it agrees with the rates beside it."""


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
    last: dict[str, float] = field(default_factory=dict)
    """The last that it logged, once it has ended."""
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
    left: Callable[[str], Eta] = field(default=lambda _: NO_ETA, repr=False, compare=False)
    """Says how long the trial of a name still takes."""

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

    @property
    def waits(self) -> str:
        """What it waits for, in words: "queued: it needs ...", "waits for its turn"; empty: for batches at most."""
        if self.here:
            return f"waits for {self.reading.awaits}" if self.reading.awaits else ""
        return self.pending
