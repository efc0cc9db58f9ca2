"""Readings of trials that notebooks tell a stream: how they ended, which are to come, what a plan says of them.

`TrialsTold` is what an observer sends of them, the payload of the extension `tsnb.extensions.ends`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import msgspec

from tsnb.text.foreign import FEW, Logged, Number, Text, Whole

__all__ = [
    "END_STATES",
    "BesideReading",
    "EndReading",
    "LoggedReading",
    "OutcomeReading",
    "OutcomeTold",
    "PlanReading",
    "PlannedReading",
    "StreamsBeside",
    "TrialEnded",
    "TrialsPending",
    "TrialsPlanned",
    "TrialsTold",
    "fewer",
]

END_STATES = ("left", "done", "failed", "stopped", "interrupted", "pruned", "crashed")
"""left: a consumer detached, which is all that a stream knows; the others are a trial's ends, told by its notebook.
stopped: it was ended by hand; interrupted: its cell was interrupted; pruned: others of its sweep were better; crashed:
its process died."""


class LoggedReading(NamedTuple):
    """What a trial has logged under one name: one value, or several that are told as one.

    Values that are not finite count only as the last.
    """

    batch: Whole
    """The batch of its own at which the last of them was logged."""
    last: float | None
    """The last of them; None: it was not finite."""
    values: Whole = 1
    """How many of them are finite."""
    low: float | None = None
    """The lowest of them; None: there is but one."""
    high: float | None = None
    """The highest."""
    mean: float | None = None
    """Their mean."""

    @property
    def spread(self) -> tuple[float, float, float]:
        """Lowest, highest and mean of them; of none that is finite zeros."""
        if self.low is None or self.high is None or self.mean is None:
            return (self.last or 0.0,) * 3
        return self.low, self.high, self.mean

    def joined(self, later: LoggedReading) -> LoggedReading:
        """Return one that stands for this one and a later one."""
        values = self.values + later.values
        if not self.values:
            return later
        low, high, mean = self.spread
        if later.values:
            other_low, other_high, other_mean = later.spread
            mean += (other_mean - mean) * (later.values / values)
            low, high = min(low, other_low), max(high, other_high)
        return LoggedReading(later.batch, later.last, values, low, high, mean)


def fewer(logged: Sequence[LoggedReading], most: int) -> list[LoggedReading]:
    """Return readings of what was logged under one name, neighbours joined until there are no more than `most`."""
    width = -(-len(logged) // most)
    return [
        functools.reduce(LoggedReading.joined, logged[k : k + width])
        for k in range(0, len(logged), width or 1)
    ]


@dataclass(frozen=True)
class EndReading:
    """How one consumer or trial ended, and the last that it logged: what its own readings cannot say any more."""

    name: Text
    """The consumer's name; a trial's, where it never attached."""
    state: Text
    """One of `END_STATES`."""
    time_s: Number
    """When: wall clock, seconds since 1970. With the name it tells this end from any other."""
    pid: Whole = 0
    """Its process; 0 where it never had one."""
    error: Text = ""
    """What it failed of, one line; who stopped it, where it was stopped or pruned: "in the panel"."""
    metrics: Logged = field(default_factory=dict)
    """Last numbers given to `tsnb.log`, those of its last lines too."""
    cpu_s: Number | None = None
    """CPU seconds of its process and all below it since it attached; None: it could not tell, as it was killed, or
    never attached."""
    since_s: Number = 0.0
    """Since when: wall clock, seconds since 1970; 0: not known."""
    logged_at: Annotated[dict[Text, Whole], FEW] = field(default_factory=dict)
    """As `ConsumerReading.logged_at`: of a consumer that left."""
    sparse: Annotated[tuple[Text, ...], FEW] = ()
    """As `ConsumerReading.sparse`."""
    epochs: Whole = 0
    """Epochs that a consumer which left had begun, those that lay behind it when it came too."""
    batches: Whole = 0
    """Loader batches that it had taken, those that lay behind it when it came too."""
    logged: Annotated[dict[Text, Annotated[tuple[LoggedReading, ...], FEW]], FEW] = field(
        default_factory=dict
    )
    """As `ConsumerReading.logged`: what a consumer had logged in its last seconds."""
    samples: Whole = 0
    """Samples that a consumer which left had taken."""
    computing_s: Number = 0.0
    """As `ConsumerReading.computing_s`: of a consumer that left."""
    waiting_s: Number = 0.0
    """As `ConsumerReading.waiting_s`."""
    held_s: Number = 0.0
    """As `ConsumerReading.held_s`."""
    joining_s: Number = 0.0
    """As `ConsumerReading.joining_s`."""
    paused_s: Number = 0.0
    """As `ConsumerReading.paused_s`."""
    timed_out_s: Number = 0.0
    """As `ConsumerReading.timed_out_s`."""
    attached_s: Number = 0.0
    """Seconds for which it was attached: those above, and the rest between epochs; 0: not known."""


@dataclass(frozen=True)
class BesideReading:
    """Another stream with trials on this machine: when they end, their cores come free."""

    name: Text
    """The stream's name."""
    cores: Number
    """Cores that its trials and its loader keep busy."""
    end_s: Number | None = None
    """When its last trial ends, as it was estimated last: wall clock, seconds since 1970; None: not known."""


@dataclass(frozen=True)
class PlannedReading:
    """When one trial ends that a plan has started, as the plan says."""

    name: Text
    """The trial's name."""
    start_s: Number
    """When it was started: wall clock, seconds since 1970."""
    end_s: Number
    """When it ends, in seconds since 1970."""
    off_s: Number
    """How far off that may be either way, four times in five, seconds."""


@dataclass(frozen=True)
class PlanReading:
    """What the plan of a notebook, or its planned sweep, says last of trials on the stream."""

    trials: Annotated[tuple[PlannedReading, ...], FEW] = ()
    """Those that it has started and that have not ended; 32 of them at most."""
    waiting: Whole = 0
    """How many it has not started."""
    end_s: Number = 0.0
    """When the last of these ends: wall clock, seconds since 1970."""
    off_s: Number = 0.0
    """How far off that may be either way, four times in five, seconds."""


@dataclass(frozen=True)
class OutcomeReading:
    """What notebooks know of how their trials compare, and of what limited them. No number of a trial says it."""

    decides: Annotated[tuple[Text, ...], FEW] = ()
    """Metrics by which rules of sweeps end their trials, of sweeps that have trials on the stream."""
    directions: Annotated[dict[Text, Text], FEW] = field(default_factory=dict)
    """"min" or "max" by metric, of logged metrics whose direction was declared."""
    limited: Text = ""
    """What limited the stream in all, once its trials have ended; empty: they have not."""
    duels: Text = ""
    """What the duels of its trials have found, or find so far; empty: there are none."""


class TrialEnded(msgspec.Struct, frozen=True, tag=True):
    """How a trial ended."""

    end: EndReading


class TrialsPending(msgspec.Struct, frozen=True, tag=True):
    """Which trials a notebook has for the stream that are not attached yet. It takes the place of the one before."""

    states: Annotated[dict[Text, Text], FEW]
    """State and reason of each, as `tsnb.trials` shows them, by name: "queued: it starts when 'a' is done"."""
    to_come: Whole = 0
    """Trials of sweeps that wait for a place, or have one and are not attached yet."""


class TrialsPlanned(msgspec.Struct, frozen=True, tag=True):
    """What the plan of a notebook says last of the trials of the stream. It takes the place of the one before."""

    plan: PlanReading | None
    """None: there is no plan any more."""


class StreamsBeside(msgspec.Struct, frozen=True, tag=True):
    """Which other streams have trials on this machine. It takes the place of the one before."""

    streams: Annotated[tuple[BesideReading, ...], FEW]


class OutcomeTold(msgspec.Struct, frozen=True, tag=True):
    """How a notebook compares the trials of the stream. It takes the place of the one before."""

    outcome: OutcomeReading


TrialsTold = TrialEnded | TrialsPending | TrialsPlanned | StreamsBeside | OutcomeTold
"""What a notebook tells a stream of trials. What an observer told goes with its connection, but for ends."""
