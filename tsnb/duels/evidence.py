"""The evidence that paired differences have a sign: it may be looked at after every block, and keeps its error.

A block is one seed. Both arms train from it, and the block gives one difference x_i. With n blocks, the sum S and the
sum of squares Q of the differences:

1. `log_ratio` is the likelihood ratio of the blocks' t statistic: the noncentral over the central t density, with the
   noncentrality d * sqrt(n) for a mean of d standard deviations. It needs no scale, because t has none. Written with
   q = S / sqrt(Q), the ratio is exp(-n * d**2 / 2) * E exp(d * q * Y), where Y is chi-distributed with n degrees of
   freedom. The effect is unknown, so the ratio is averaged over `EFFECTS` (Robbins, "Statistical methods related to
   the law of the iterated logarithm", 1970; Lai, "On confidence sequences", 1976; Perez-Ortiz, Lardy, de Heide and
   Grunwald, "E-statistics, group invariance and anytime-valid testing", 2024).
2. This ratio keeps its error where differences are normal. It does not where they are few steps of an accuracy: four
   blocks that differ by the same one image would decide. `Evidence` therefore asks of each block only for its sign,
   given its size and the blocks before it:

       e_i = 2 * ratio(x_1 .. x_i) / (ratio(x_1 .. x_i) + ratio(x_1 .. x_i-1, -x_i))

   If the change makes no difference, the two arms of a block may be exchanged, so x_i has either sign with the same
   chance, whatever its size. Then the product of all e_i passes 1 / a with a chance of at most a, however often one
   looks (Ville's inequality; Ramdas, Grunwald, Vovk and Shafer, "Game-theoretic statistics and safe anytime-valid
   inference", 2023; the bets on signs: Efron, "Student's t-test under symmetry conditions", 1969; de la Pena, "A
   general class of exponential inequalities for martingales and ratios", 1999). Ties, outliers and failures need no
   care.
3. `interval` has each shift of the candidate that the same test does not exclude (a confidence sequence).
4. `excluded` is the reverse of the ratio: how sure it is that no effect of one standard deviation is there. It takes
   differences as normal.
5. `level_in_series` is e-LOND, one error for a series of duels: the duel of number t has the level
   `error * share(t) * (kept + 1)`, where `kept` is how many before it said "better", and the shares sum up to 1. Then
   at most `error` of all that is kept is expected to be wrong (the false discovery rate), however the duels depend on
   each other and whenever each of them is looked at (Xu and Ramdas, "Online multiple testing with e-values", 2024;
   LOND: Javanmard and Montanari, "On online control of false discovery rate", 2015).

Pure.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["EFFECTS", "Evidence", "evidence_of", "excluded", "interval", "level_in_series", "log_ratio"]

EFFECTS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
"""Effects that the ratio is averaged over, in standard deviations of a block's difference."""

NODES = 200
"""Points of each integral."""

POINTS = 1001
"""Points of a table of the ratio, between which it is interpolated: its logarithm is exact to 1e-3."""

SHIFTS = 129
"""Shifts that an interval is looked for among, each time it is looked at more closely."""

_ZETA = 2.612375348685488
"""Sum of k**-1.5 over all k: the shares of a series sum up to 1."""

_Floats = npt.NDArray[np.float64]


def log_ratio(number: int, q: _Floats, effects: Sequence[float] = EFFECTS) -> _Floats:
    """Return the logarithm of the likelihood ratio of the t statistic, averaged over effects.

    Example:
        >>> round(float(log_ratio(1, np.array([0.0]), [1.0])[0]), 6)
        -0.5

    Args:
        number: Number of blocks, 1 or more.
        q: Sum of the differences over the root of their sum of squares, float64 [k], from -sqrt(number) to its reverse.
        effects: Means in standard deviations. Defaults to `EFFECTS`.

    Returns:
        float64 [k].
    """
    deltas = np.asarray(effects, dtype=np.float64)
    tilt = q[:, None] * deltas  # [k, effects]
    root = np.sqrt(tilt**2 + 4 * number)
    peak = np.where(tilt > 0, (tilt + root) / 2, 2 * number / (root - np.minimum(tilt, 0)))
    width = 1 / np.sqrt(peak**2 + number)
    low = np.maximum(8 * width, 36 / number)
    steps = np.linspace(0.0, 1.0, NODES)
    u = np.log(peak)[..., None] - low[..., None] + (low + 8 * width)[..., None] * steps
    y = np.exp(u)
    height = number * u - y**2 / 2 + tilt[..., None] * y
    top = height.max(axis=-1)
    area = np.exp(height - top[..., None]).sum(axis=-1) * (low + 8 * width) / (NODES - 1)
    whole = (number / 2 - 1) * math.log(2) + math.lgamma(number / 2)
    logs = top + np.log(area) - whole - number * deltas**2 / 2
    return np.asarray(np.logaddexp.reduce(logs, axis=1) - math.log(len(deltas)), dtype=np.float64)


@functools.lru_cache(maxsize=512)
def _table(number: int) -> tuple[_Floats, _Floats]:
    share = np.linspace(-1.0, 1.0, POINTS)
    return share, log_ratio(number, share * math.sqrt(number))


def _looked_up(number: int, total: _Floats, squares: _Floats) -> _Floats:
    """Return the ratio's logarithm from its table; 0 where all differences are 0."""
    share, logs = _table(number)
    there = squares > 0.0
    q = np.where(there, total / np.sqrt(np.where(there, number * squares, 1.0)), 0.0)
    return np.where(there, np.interp(q, share, logs), 0.0)


def _sized(differences: Sequence[float]) -> _Floats:
    """Return the differences as numbers: an infinite one is as large as the largest before it."""
    largest, found = 0.0, []
    for difference in differences:
        found.append(math.copysign(largest or 1.0, difference) if math.isinf(difference) else difference)
        largest = max(largest, abs(found[-1]))
    return np.array(found, dtype=np.float64)


def _walk(rows: _Floats) -> tuple[_Floats, _Floats]:
    """Return the log evidence that the mean is above 0, and that it is below, after each block.

    Args:
        rows: Differences, [k, n].

    Returns:
        Two arrays, [k, n].
    """
    above, below = np.zeros_like(rows), np.zeros_like(rows)
    total, squares = np.zeros(len(rows)), np.zeros(len(rows))
    for at in range(rows.shape[1]):
        x = rows[:, at]
        squares = squares + x**2
        for sign, gains in ((1.0, above), (-1.0, below)):
            there = _looked_up(at + 1, sign * (total + x), squares)
            other = _looked_up(at + 1, sign * (total - x), squares)
            gains[:, at] = math.log(2) + there - np.logaddexp(there, other)
        total = total + x
    return np.cumsum(above, axis=1), np.cumsum(below, axis=1)


class Evidence:
    """The evidence after some blocks.

    Attributes:
        above: Logarithm of the evidence that the mean is above 0, after each block.
        below: That it is below 0.

    Args:
        differences: One of each block, in order. An infinite one says that one arm has failed.
    """

    def __init__(self, differences: Sequence[float]) -> None:
        above, below = _walk(_sized(differences)[None, :]) if differences else (np.zeros((1, 0)),) * 2
        self.above: list[float] = above[0].tolist()
        self.below: list[float] = below[0].tolist()

    def side(self, level: float) -> int:
        """Return 1 if the mean is above 0, -1 if it is below, 0 while that is open.

        Args:
            level: The chance to say either though the change makes no difference.
        """
        needed = math.log(2 / level)
        for above, below in zip(self.above, self.below, strict=True):
            if max(above, below) >= needed:
                return 1 if above > below else -1
        return 0


def evidence_of(differences: Sequence[float]) -> float:
    """Return the logarithm of the evidence for the side that has more of it, after the last block.

    Example:
        >>> round(evidence_of([0.0, 0.0]), 3)
        0.0

    Args:
        differences: One of each block.
    """
    found = Evidence(differences)
    return max(found.above[-1], found.below[-1]) if differences else 0.0


def excluded(differences: Sequence[float], effect: float = 1.0) -> float:
    """Return the logarithm of the evidence that no mean is as far from 0 as one standard deviation.

    The likelihood ratio of no effect over this one, for the direction in which it is less sure. It is valid at any time
    where differences are normal: of larger effects t is larger in every block, so they pass less often.

    Example:
        >>> excluded([0.0] * 6)
        3.0

    Args:
        differences: One of each block.
        effect: In standard deviations of a block's difference. Defaults to 1.
    """
    sized = _sized(differences)
    number, squares = len(sized), float((sized**2).sum())
    if not number:
        return 0.0
    if not squares:
        return number * effect * effect / 2
    q = float(sized.sum()) / math.sqrt(squares)
    return -float(log_ratio(number, np.array([q, -q]), [effect]).max())


def interval(differences: Sequence[float], level: float) -> tuple[float, float]:
    """Return the lowest and highest mean that the test does not exclude; valid however often one looks.

    Example:
        >>> interval([0.1, 0.2], 0.05)
        (-inf, inf)

    Args:
        differences: One of each block.
        level: The chance that the interval ever misses the centre of the differences.

    Returns:
        In the differences' unit; infinite where nothing can be excluded yet.
    """
    sized = _sized(differences)
    if 2 ** len(sized) < 2 / level:  # each block at most doubles the evidence
        return -math.inf, math.inf
    middle = float(np.median(sized))
    reach = float(np.ptp(sized))
    if not reach:  # all alike: every other shift is as far from them as the next
        alike = Evidence([1.0] * len(sized)).side(level)
        return (middle, middle) if alike else (-math.inf, math.inf)
    low, high = float(sized.min()) - 3 * reach, float(sized.max()) + 3 * reach
    ends = [_end(sized, level, middle, far) for far in (low, high)]
    return ends[0], ends[1]


def _end(sized: _Floats, level: float, near: float, far: float) -> float:
    """Return the furthest shift in one direction that is not excluded."""
    needed, bounds = math.log(2 / level), (near, far)
    for _ in range(3):
        shifts = np.linspace(*bounds, SHIFTS)
        above, below = _walk(sized[None, :] - shifts[:, None])
        open_ = np.flatnonzero(np.maximum(above, below).max(axis=1) < needed)
        if not open_.size:
            return near
        last = int(open_[-1])
        if last == SHIFTS - 1:
            return math.copysign(math.inf, far - near) if bounds[1] == far else bounds[1]
        bounds = float(shifts[last]), float(shifts[last + 1])
    return bounds[1]


def level_in_series(error: float, number: int, kept: int) -> float:
    """Return the level of a duel in a series that shares one error.

    Example:
        >>> round(level_in_series(0.05, 1, 0), 3), round(level_in_series(0.05, 10, 4), 4)
        (0.019, 0.003)

    Args:
        error: Of the series.
        number: Number of the duel in its series, from 1.
        kept: How many duels before it have said "better".
    """
    return min(error * math.pow(number, -1.5) / _ZETA * (kept + 1), 0.5)
