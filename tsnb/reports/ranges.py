"""The y-range of a chart of logged numbers. Pure.

It is the panel's rule (`calmExtent`, `inRange` and `padded` of its front end), for the report's charts and `tsnb.plot`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["DrawnLine", "calm_extent", "gave_up", "in_range", "padded"]

FAR = 3.0
"""Heights of what others draw, beyond which a trial's line does not count."""

SAMPLED = 2000
"""Values that tell how high a chart has to be."""

EARLY = frozenset({"pruned", "failed", "crashed"})
"""Ends of trials that nobody waits for."""


class DrawnLine(NamedTuple):
    """One line of a chart."""

    xs: Sequence[float]
    ys: Sequence[float]
    gave_up: bool = False
    """Whether its trial was pruned, has failed or diverged: see `gave_up`."""


def gave_up(state: str, ys: Sequence[float], way: int) -> bool:
    """Return whether nobody waits for a trial: by its end, or as its last number is none, or far worse than its first.

    Far worse: by more than the first number itself. A trial that learns nothing yet is no such one: its line stays.

    Args:
        state: How it ended, or its state.
        ys: What is drawn of it.
        way: 1 where much is good, -1 where little is, 0: nobody knows.
    """
    if state in EARLY or not ys or not math.isfinite(ys[-1]):
        return True
    first = next(value for value in ys if math.isfinite(value))
    return way * (ys[-1] - first) < -abs(first)


def calm_extent(lines: Sequence[DrawnLine]) -> tuple[float, float] | None:
    """Return the range without the wildest hundredth of noisy lines, so that one peak does not flatten all."""
    step = math.ceil(sum(len(line.ys) for line in lines) / SAMPLED) or 1
    drawn = sorted(value for line in lines for value in line.ys[::-1][::step] if math.isfinite(value))
    if len(drawn) < 200:
        every = [value for line in lines for value in line.ys if math.isfinite(value)]
        return (min(every), max(every)) if every else None
    cut = len(drawn) // 200
    return drawn[cut if cut > 2 else 0], drawn[-1 - cut]


def in_range(lines: Sequence[DrawnLine], way: int = 0) -> list[DrawnLine]:
    """Return what sets the range, of each line: all of it, unless its trial gave up.

    Of such a one counts what it logged before any other began, up to its best value. The rest counts if none of it lies
    further from the values of the others than three times the height of all that these draw. Where there are only such
    trials, or the others draw a flat line, all count.

    Args:
        lines: What is drawn.
        way: 1 where much is good, -1 where little is, 0: nobody knows.
    """
    others = [line for line in lines if not line.gave_up]
    found = calm_extent(others) if 0 < len(others) < len(lines) else None
    if found is None or found[0] == found[1]:
        return list(lines)
    reach, began = FAR * (found[1] - found[0]), min(line.xs[0] for line in others if line.xs)
    low, high = found[0] - reach, found[1] + reach
    return [_counting(line, (low, high), began, way) if line.gave_up else line for line in lines]


def _counting(line: DrawnLine, near: tuple[float, float], began: float, way: int) -> DrawnLine:
    """Return what counts of a trial that gave up."""
    far = [math.isfinite(value) and not near[0] <= value <= near[1] for value in line.ys]
    if not any(far):
        return line
    known = [k for k, value in enumerate(line.ys) if math.isfinite(value)]
    best = max(known, key=lambda k: way * line.ys[k]) if way else -1
    early = [k <= best and x < began for k, x in enumerate(line.xs)]
    rest = not any(too_far and not before for too_far, before in zip(far, early, strict=True))
    kept = [k for k, before in enumerate(early) if before or rest]
    return DrawnLine([line.xs[k] for k in kept], [line.ys[k] for k in kept], gave_up=True)


def padded(low: float, high: float) -> tuple[float, float]:
    """Return a range with air above and below, which ends at 0 where it is near that.

    What hardly changes has an axis as high as three figures tell.
    """
    size = abs(high)
    air = max((high - low or size or 1.0) * 0.06, (size * 1e-3 - (high - low)) / 2)
    return (0.0 if 0 <= low < high * 0.25 else low - air), high + air
