"""Learning curves: what trials have logged, kept for screens that open later, as float32 numbers.

Each curve is bounded by itself. It has one point for every stretch of equal width, in loader batches. A full curve has
its stretches joined in pairs, so a day's first hour is as fine as its last. A page has the same function (`curves.js`).
So one that opens late, and goes on from what it is given, has the points of one that stayed open, to the last bit.

```
curves    = curve, curve, ...
curve     = lane, metric, width, points, then `POINT` of each
```
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import NamedTuple

from tsnb.telemetry.trial_readings import LoggedReading

__all__ = ["POINT", "SMOOTH", "Curve", "Curves", "bounded", "smoothed"]

At = tuple[float, float, float]
"""Time, batches and epochs, as `POINT` says."""

POINT = (
    "time_s",  # of its last value, since the tape's origin
    "batches",  # loader batches that the trial had taken by then
    "epochs",  # that it had taken by then
    "last",  # the last value of the stretch
    "low",  # the lowest of them
    "high",  # the highest
    "mean",
    "values",  # how many they are; 0: none was finite
)
"""What each number of a curve's point means. Values that are not finite count only as the last."""

_A_POINT = len(POINT)

POINTS = 512
"""Points of one curve at most..."""

FEWEST = 40
"""... and at least, however many curves there are."""

BUDGET = 60_000
"""Points of all curves: 2 MB, which a page is given as it opens."""


class Curves:
    """What trials have logged, by lane and metric: where each value was taken, and what it was. Bounded."""

    def __init__(self) -> None:
        self._curves: dict[tuple[int, int], _Kept] = {}
        self._room = POINTS

    def __len__(self) -> int:
        return len(self._curves)

    def add(self, lane: int, metric: int, at: At, value: float, part: LoggedReading | None = None) -> None:
        """Take in a value, or several.

        Args:
            lane: The trial's number.
            metric: Its place among the names that the lane has logged.
            at: Where it was taken.
            value: What was logged; of several the last.
            part: Those several.
        """
        curve = self._curves.get((lane, metric))
        if curve is None:
            curve = self._curves[lane, metric] = _Kept()
            self._share_room()
        last = value if (finite := -_MOST <= value <= _MOST) else bounded(value)
        alone = (last, last, last, 1.0 if finite else 0.0)
        curve.add(at, (last, *(alone if part is None else (*map(bounded, part.spread), float(part.values)))))
        if len(curve.points) > _A_POINT * self._room:
            curve.fit(self._room)

    def _share_room(self) -> None:
        """Settle how many points a curve may have, by how many curves there are."""
        self._room = max(FEWEST, min(POINTS, BUDGET // len(self._curves)))
        for each in self._curves.values():
            each.fit(self._room)

    def begin_anew(self, lane: int) -> None:
        """Keep what a lane has logged as its former run's, at -1 - lane: another run of its trial begins."""
        now, former = ([key for key in self._curves if key[0] == one] for one in (lane, -1 - lane))
        if now:
            for key in former:
                del self._curves[key]
            for _, metric in now:
                self._curves[-1 - lane, metric] = self._curves.pop((lane, metric))

    def points(self, lane: int, metric: int) -> list[tuple[float, ...]]:
        """Return a curve's points, oldest first."""
        points = self._curves[lane, metric].points if (lane, metric) in self._curves else array("f")
        return [tuple(points[k : k + _A_POINT]) for k in range(0, len(points), _A_POINT)]

    def to_bytes(self) -> bytes:
        """Return all curves, one after the other."""
        parts = []
        for (lane, metric), curve in self._curves.items():
            count = len(curve.points) // _A_POINT
            parts += [array("f", (lane, metric, curve.width, count)).tobytes(), curve.points.tobytes()]
        return b"".join(parts)


def bounded(value: float) -> float:
    """Return a number that float32 can hold: a larger one becomes infinite."""
    if -_MOST <= value <= _MOST:
        return value
    return math.nan if math.isnan(value) else math.copysign(math.inf, value)


_MOST = (2 - 2**-23) * 2.0**127  # the largest float of 32 bits


class _Kept:
    """One curve: a point for each stretch of `width` batches in which anything was logged.

    Without numpy: this runs on a watch's thread, and a notebook's main thread may import numpy at that very moment.
    """

    __slots__ = ("points", "width")

    def __init__(self) -> None:
        self.width = 1
        self.points = array("f")

    def add(self, at: At, told: tuple[float, ...]) -> None:
        """Take in what was logged; of several at one batch the last counts, until stretches are joined."""
        points = self.points
        before = points[-_A_POINT + 1] // self.width if points else -1.0
        points.extend((*at, *told))
        if points[-_A_POINT + 1] // self.width <= before:
            if self.width == 1:
                del points[-2 * _A_POINT : -_A_POINT]
            else:
                _join(points)

    def fit(self, most: int) -> None:
        """Join stretches in pairs until there are no more than `most` points."""
        while len(self.points) > _A_POINT * most:
            self.width *= 2
            points, self.points = self.points, array("f")
            before = -1.0
            for at in range(0, len(points), _A_POINT):
                self.points.extend(points[at : at + _A_POINT])
                place = points[at + 1] // self.width
                if place <= before:
                    _join(self.points)
                before = place


def _join(points: array[float]) -> None:
    """Make one of the last two points."""
    low, high, mean, count = points[-_A_POINT - 4 : -_A_POINT]
    new_low, new_high, new_mean, new_count = points[-4:]
    if count and new_count:
        points[-4] = min(low, new_low)
        points[-3] = max(high, new_high)
        points[-2] = (mean * count + new_mean * new_count) / (count + new_count)
        points[-1] = count + new_count
    elif count:
        points[-4:] = points[-_A_POINT - 4 : -_A_POINT]
    del points[-2 * _A_POINT : -_A_POINT]


SMOOTH = 22
"""Batches over which panels smooth curves where nobody has chosen otherwise."""


class Curve(NamedTuple):
    """What one trial has logged under one name."""

    points: Sequence[tuple[float, ...]]
    """As `POINT` says, oldest first."""
    sparse: bool = False
    """Whether it was logged about once an epoch, or less often: each value is a mean already, and is never smoothed."""

    def smoothed(self, constant: float = SMOOTH) -> list[float]:
        """Return its values as pages draw them, smoothed over so many batches."""
        return smoothed(self.points, 0 if self.sparse else constant)


def smoothed(points: Sequence[tuple[float, ...]], constant: float = SMOOTH) -> list[float]:
    """Return a curve's smoothed values, as pages draw them (`learning.js` has the same function).

    Each is the mean of the points before it, weighing less by the batches that lie between: after `constant` of them
    by e.

    Args:
        points: As `POINT` says, oldest first.
        constant: Batches; 0: the values as they are.
    """
    if not constant > 0:
        return [point[6] for point in points]
    total = part = 0.0
    found, before = [], points[0][1] if points else 0.0
    for _, batches, *_, mean, values in points:
        if not math.isfinite(mean):
            found.append(mean)
            continue
        kept = math.exp((before - batches) / constant)
        before, count = batches, values or 1.0
        total, part = kept * total + count * mean, kept * part + count
        found.append(total / part)
    return found
