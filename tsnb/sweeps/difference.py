"""The differences of two paired trials, batch by batch: whether their mean is not 0 may be asked after every batch.

1. Differences are averaged over blocks of 4 batches, and these again two by two. The shortest blocks whose neighbours
   are hardly correlated count; what correlation is left makes the evidence smaller.
2. The evidence over the blocks of a window is `sqrt(h / (h + V)) * exp(S**2 / (2 * (h + V)))` with their sum S and sum
   of squares V: while neither is ahead, it ever passes `1 / alpha` with a chance of at most alpha, if a difference
   is as often above 0 as below by as much (de la Pena 1999; Howard, Ramdas, McAuliffe and Sekhon, "Time-uniform
   Chernoff bounds via nonnegative supermartingales", 2020) and h is fixed. We take 4 times the mean square, which is
   not: that the error is kept all the same is shown by simulation (`tests/sweeps/test_racing.py`).
3. "Now" is the last half of the race at least: windows begin at block 1, 2, 4, 8..., and one is judged from when the
   race is twice as long until it is four times as long. Window j has `6 / pi**2 / (j + 1)**2` of the pair's error.

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["BLOCK", "Difference", "decided_by_seeds", "window_share"]

BLOCK = 4
"""Batches in the shortest block."""

LEAST = 8
"""So many blocks at least decide."""

CORRELATED = 0.5
"""Blocks whose neighbours are correlated more than this are too short."""

SPREAD = 4.0
"""h, as a multiple of the mean square: evidence grows fastest where the mean is half of the spread."""


class _Level:
    """Blocks of one length in one window."""

    __slots__ = ("_half", "_last", "number", "products", "squares", "total")

    def __init__(self) -> None:
        self.number = 0
        self.total = self.squares = self.products = 0.0
        self._last = self._half = math.nan

    def add(self, mean: float) -> float | None:
        """Take a block's mean; return that of a block of twice the length, if this one completes it."""
        if self.number:
            self.products += self._last * mean
        self.number += 1
        self.total += mean
        self.squares += mean * mean
        self._last = mean
        if self.number % 2:
            self._half = mean
            return None
        return (self._half + mean) / 2

    def correlation(self) -> float:
        """Return how much neighbours are correlated, and half a standard error more."""
        mean = self.total / self.number
        variance = self.squares / self.number - mean * mean
        if variance <= 1e-12 * self.squares / self.number:
            return 0.0
        found = (self.products / (self.number - 1) - mean * mean) / variance
        return max(0.0, found + 0.5 / math.sqrt(self.number))


class _Window:
    """All blocks since one moment."""

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self.levels = [_Level()]

    def add(self, mean: float) -> None:
        for level in self.levels:
            longer = level.add(mean)
            if longer is None:
                return
            mean = longer
        self.levels.append(_Level())
        self.levels[-1].add(mean)

    @property
    def mean(self) -> float:
        return self.levels[0].total / self.levels[0].number

    def evidence(self) -> float:
        """Return the logarithm of the evidence that the mean is not 0; -inf while there are too few blocks."""
        for level in self.levels:
            if level.number < LEAST or level.squares <= 0.0:
                return -math.inf
            left = level.correlation()
            if left <= CORRELATED:
                h = SPREAD * level.squares / level.number
                strength = level.total**2 * (1 - left) / (1 + left) / (2 * (h + level.squares))
                return strength - 0.5 * math.log1p(level.squares / h)
        return -math.inf


def window_share(window: int) -> float:
    """Return which part of an error the window of a number has, from 0; they sum up to 1."""
    return 6 / math.pi**2 / (window + 1) ** 2


class Difference:
    """The differences of one pair, in the order of their batches.

    Attributes:
        batches: How many there were.
        ahead: 1 if their mean is above 0 now, -1 if it is below, 0 while that is open.
        means: The mean of each window that has been judged to its end.

    Args:
        error: The chance to say either though the mean is 0.
    """

    def __init__(self, error: float) -> None:
        self.batches = 0
        self.ahead = 0
        self.means: list[float] = []
        self._error = error
        self._largest = 0.0
        self._sum = 0.0
        self._blocks = 0
        self._windows: list[_Window] = []

    def add(self, difference: float) -> None:
        """Take the next batch's.

        Args:
            difference: inf or -inf counts as the largest seen so far; nan (both are no number) as 0.
        """
        if math.isnan(difference):
            difference = 0.0
        elif math.isinf(difference):
            difference = math.copysign(self._largest or 1.0, difference)
        self._largest = max(self._largest, abs(difference))
        self.batches += 1
        self._sum += difference
        if self.batches % BLOCK == 0:
            mean, self._sum = self._sum / BLOCK, 0.0
            self._take_block(mean)

    def _take_block(self, mean: float) -> None:
        self._blocks += 1
        for window in self._windows:
            window.add(mean)
        if self._windows and self._blocks >= 2 * self._windows[0].begin:
            self._judge(self._windows[0])
        if self._blocks & (self._blocks - 1) == 0:
            self._windows.append(_Window(self._blocks))
            while self._blocks >= 4 * self._windows[0].begin:
                self.means.append(self._windows.pop(0).mean)

    def _judge(self, window: _Window) -> None:
        allowed = self._error * window_share(window.begin.bit_length() - 1)
        side = 1 if window.mean > 0 else -1
        if window.evidence() >= -math.log(allowed):
            self.ahead = side
        elif self.ahead == -side:
            self.ahead = 0  # it was ahead


def decided_by_seeds(means: Sequence[float], allowed: float) -> int:
    """Return 1 if the mean of a normal distribution, of which these are drawn, is above 0, -1 if below, 0 if open."""
    number, total, squares = len(means), sum(means), sum(mean * mean for mean in means)
    prior = 0.01
    if squares <= 0.0:
        return 0
    rest = max(1.0 - total**2 / ((number + prior) * squares), 1e-300)
    evidence = 0.5 * math.log(prior / (number + prior)) - number / 2 * math.log(rest)
    return 0 if evidence < -math.log(allowed) else (1 if total > 0 else -1)
