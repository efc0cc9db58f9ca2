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
4. Two questions are asked so, each with half of the error. The strict one: is the mean not 0? A trend over the whole
   window counts as correlation there: nobody can tell it from two equal trials that drift apart and together again.
   The plain one: is the mean more than `MARGIN` of what the two lose? Equal trials do not drift so far apart (up to
   0.1 on average over a window, in a few runs), so a trend in one direction is no correlation here.

Limit: equal trials whose losses wander slowly and each by its own are told apart too often. Of 150 simulated races at
an error of 0.01 none was wrong where they wander by 3 % of their level, 3.3 % at 5 %, and 12 % at 10 %.

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

HIGHEST = 0.9
"""More correlation than this is not believed: of few blocks it is a guess."""

SPREAD = 4.0
"""h, as a multiple of the mean square: evidence grows fastest where the mean is half of the spread."""


MARGIN = 0.25
"""A share of the two trials' level: equal ones that are drawn by their own random numbers wander less."""


class _Steps:
    """How far blocks are from those before them, some blocks back."""

    __slots__ = ("number", "squares", "total")

    def __init__(self) -> None:
        self.number = 0
        self.total = self.squares = 0.0

    def add(self, step: float) -> None:
        self.number += 1
        self.total += step
        self.squares += step * step

    @property
    def variance(self) -> float:
        return self.squares / self.number - (self.total / self.number) ** 2


class _Level:
    """Blocks of one length in one window."""

    __slots__ = ("_before", "_last", "number", "ones", "products", "squares", "total", "twos")

    def __init__(self) -> None:
        self.number = 0
        self.total = self.squares = self.products = 0.0
        self.ones, self.twos = _Steps(), _Steps()
        self._before = self._last = math.nan

    def add(self, mean: float) -> float | None:
        """Take a block's mean; return that of a block of twice the length, if this one completes it."""
        if self.number:
            self.products += self._last * mean
            self.ones.add(mean - self._last)
        if self.number > 1:
            self.twos.add(mean - self._before)
        self.number += 1
        self.total += mean
        self.squares += mean * mean
        self._before, self._last = self._last, mean
        return None if self.number % 2 else (self._before + mean) / 2

    @property
    def variance(self) -> float:
        """How much blocks differ; 0 where they differ by rounding only."""
        found = self.squares / self.number - (self.total / self.number) ** 2
        return 0.0 if found <= 1e-12 * self.squares / self.number else found

    def correlation(self) -> float:
        """Return how much neighbours are correlated, and half a standard error more."""
        if not self.variance:
            return 0.0
        found = (self.products / (self.number - 1) - (self.total / self.number) ** 2) / self.variance
        return max(0.0, found + 0.5 / math.sqrt(self.number))

    def untrended(self) -> float:
        """Return the same without what a trend does: independent blocks differ by as much from the next but one."""
        one, two = self.ones.variance, self.twos.variance
        if one <= 1e-12 * self.squares / self.number:
            return 0.0
        return max(0.0, two / one - 1 + 0.5 / math.sqrt(self.number))


class _Ladder:
    """Blocks of all lengths of one number in one window."""

    def __init__(self) -> None:
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

    def evidence(self, margin: float = 0.0) -> float:
        """Return the logarithm of the evidence that the mean is further than a margin from 0.

        Args:
            margin: 0: the strict question, to which a trend is correlation.

        Returns:
            -inf while there are too few blocks.
        """
        there = [level for level in self.levels if level.number >= LEAST and level.squares > 0.0]
        for at, level in enumerate(there):
            left = level.untrended() if margin else level.correlation()
            if left <= CORRELATED:
                weight = (1 - left) / (1 + left) if margin else _weight(there[at:])
                return _evidence(level.number, abs(level.total), level.squares, weight, margin)
        return -math.inf


def _weight(levels: Sequence[_Level]) -> float:
    """Return how many independent blocks each of the shortest stands for, as blocks of all these lengths show.

    A slow drift under much noise is no correlation of short blocks, and most of the spread of long ones.
    """
    sure = [level for level in levels if level is levels[0] or level.number >= 2 * LEAST]
    left = [min(level.correlation(), HIGHEST) for level in sure]
    spread = [
        level.variance * 2**at * (1 + own) / (1 - own)
        for at, (level, own) in enumerate(zip(sure, left, strict=True))
    ]
    return levels[0].variance / max(spread) if levels[0].variance else 1.0


def _evidence(number: int, total: float, squares: float, weight: float, margin: float) -> float:
    """Return the logarithm of the evidence of blocks that stand for so many independent ones each."""
    beyond = total - number * margin
    around = squares - 2 * margin * total + number * margin * margin
    if beyond <= 0.0 or around <= 0.0:
        return -math.inf
    h = SPREAD * around / number
    return beyond**2 * weight / (2 * (h + around)) - 0.5 * math.log1p(around / h)


class _Window:
    """All blocks since one moment: the differences, and each as a share of the two trials' level."""

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self.differences, self.shares = _Ladder(), _Ladder()

    def add(self, difference: float, share: float) -> None:
        self.differences.add(difference)
        self.shares.add(share)


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
        self._sum = self._level = 0.0
        self._leveled = True
        self._blocks = 0
        self._windows: list[_Window] = []

    def add(self, difference: float, level: float = 0.0) -> None:
        """Take the next batch's.

        Args:
            difference: inf or -inf counts as the largest seen so far; nan (both are no number) as 0.
            level: The mean of the two values without their sign; 0 where they have no common sign, so that a share
                of it says nothing.
        """
        if math.isnan(difference):
            difference = 0.0
        elif math.isinf(difference):
            difference = math.copysign(self._largest or 1.0, difference)
            level = abs(difference)
        self._largest = max(self._largest, abs(difference))
        self.batches += 1
        self._sum += difference
        self._level += level
        self._leveled = self._leveled and (level > 0.0 or difference == 0.0)
        if self.batches % BLOCK == 0:
            mean, self._sum = self._sum / BLOCK, 0.0
            level, self._level = self._level / BLOCK, 0.0
            self._take_block(mean, mean / level if level else 0.0)

    def _take_block(self, mean: float, share: float) -> None:
        self._blocks += 1
        for window in self._windows:
            window.add(mean, share)
        if self._windows and self._blocks >= 2 * self._windows[0].begin:
            self._judge(self._windows[0])
        if self._blocks & (self._blocks - 1) == 0:
            self._windows.append(_Window(self._blocks))
            while self._blocks >= 4 * self._windows[0].begin:
                self.means.append(self._windows.pop(0).differences.mean)

    def _judge(self, window: _Window) -> None:
        allowed = self._error * window_share(window.begin.bit_length() - 1) / 2
        for ladder, margin in ((window.differences, 0.0), (window.shares, MARGIN)):
            if (not margin or self._leveled) and ladder.evidence(margin) >= -math.log(allowed):
                self.ahead = 1 if ladder.mean > 0 else -1
                return
        side = 1 if window.differences.mean > 0 else -1
        if self.ahead == -side:
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
