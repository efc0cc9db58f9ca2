"""Readings of plans: what one says last of the trials of a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tsnb.foreign import FEW, Number, Text, Whole

__all__ = ["PlanReading", "PlannedReading"]


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
