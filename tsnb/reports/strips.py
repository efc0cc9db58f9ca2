"""A stream's life in even steps of time: what each trial did in each of them. Pure.

Counters are differences between the readings around each step, interpolated, so that a thinned history and a
recording with gaps give even steps too. In a step in which a trial was not attached it has zero seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tsnb.telemetry.lives.spent import lives
from tsnb.telemetry.readings import StreamReading
from tsnb.telemetry.shown.rows import Life

__all__ = ["COUNTED", "Numbers", "Strips", "strips", "while_attached"]

Numbers = npt.NDArray[np.float64]

COUNTED = ("computing", "waiting", "held", "joining", "paused", "parked")
"""The counts of each step."""


@dataclass(frozen=True)
class Strips:
    """What each trial did in each step."""

    edges_s: Numbers
    """[steps + 1] Where steps begin and end: wall clock, seconds since 1970."""
    parts: dict[str, dict[str, Numbers]]
    """By trial, then each of `COUNTED`: seconds [steps] of each step."""
    here_s: dict[str, Numbers]
    """By trial: seconds [steps] in which it was attached."""
    samples: dict[str, Numbers]
    """By trial: samples [steps] taken."""

    @property
    def step_s(self) -> float:
        """Seconds of a step."""
        return float(self.edges_s[1] - self.edges_s[0])

    @property
    def centres_s(self) -> Numbers:
        """The middle [steps] of each step: wall clock."""
        return (self.edges_s[1:] + self.edges_s[:-1]) / 2

    def compute_shares(self) -> dict[str, Numbers]:
        """Return each trial's share [steps], 0 to 1, of all computing; NaN where no trial computed."""
        whole = sum((parts["computing"] for parts in self.parts.values()), np.zeros(len(self.edges_s) - 1))
        whole = np.where(whole > 1e-9, whole, np.nan)
        return {name: parts["computing"] / whole for name, parts in self.parts.items()}


def while_attached(readings: Sequence[StreamReading]) -> Sequence[StreamReading]:
    """Return the readings from just before the first trial attached to just after the last one had left."""
    there = [k for k, reading in enumerate(readings) if reading.consumers]
    return readings[max(0, there[0] - 1) : there[-1] + 2] if there else readings


def strips(readings: Sequence[StreamReading], most: int = 240, least_s: float = 0.5) -> Strips | None:
    """Cut a stream's life into even steps; None with fewer than two readings.

    Args:
        readings: Oldest first.
        most: Steps at most.
        least_s: Seconds of a step at least, unless the whole is shorter than four of them.
    """
    if len(readings) < 2 or readings[-1].time_s <= readings[0].time_s:
        return None
    begin_s, end_s = readings[0].time_s, readings[-1].time_s
    steps = max(4, min(most, int((end_s - begin_s) / least_s)))
    made = Strips(np.linspace(begin_s, end_s, steps + 1), {}, {}, {})
    seen = _seen(readings)
    for life in lives(readings):
        _add(made, life, seen[life.name])
    return made


def _seen(readings: Sequence[StreamReading]) -> dict[str, Numbers]:
    """Return by trial a row [time_s, seconds of each of `COUNTED`, samples] for each of its readings."""
    rows: dict[str, list[tuple[float, ...]]] = {}
    for reading in readings:
        for c in reading.consumers:
            apart_s = c.joining_s, c.paused_s, c.timed_out_s
            row = (reading.time_s, c.computing_s, c.waiting_s, c.held_s, *apart_s, c.samples)
            rows.setdefault(c.name, []).append(row)
    return {name: np.asarray(its, dtype=np.float64) for name, its in rows.items()}


def _add(made: Strips, life: Life, rows: Numbers) -> None:
    """Add one attachment of a trial."""
    steps = len(made.edges_s) - 1
    parts = made.parts.setdefault(life.name, {part: np.zeros(steps) for part in COUNTED})
    here = made.here_s.setdefault(life.name, np.zeros(steps))
    samples = made.samples.setdefault(life.name, np.zeros(steps))
    own = rows[(rows[:, 0] >= life.first_s) & (rows[:, 0] <= life.last_s)]
    if not len(own):  # a clock that was set back put its last reading before its first
        return
    here += np.diff(np.clip(made.edges_s, life.first_s, life.last_s))
    for column, part in enumerate(COUNTED, start=1):
        parts[part] += np.diff(np.interp(made.edges_s, own[:, 0], own[:, column]))
    samples += np.diff(np.interp(made.edges_s, own[:, 0], own[:, -1]))
