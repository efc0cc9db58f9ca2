"""What stands beside an axis: few, round numbers, of which no two have the same text; as the panel has them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tsnb.text.numbers import is_accuracy

__all__ = ["is_share", "texts_of", "ticks"]

LARGE, TINY = 1e5, 1e-4
"""Beyond these a number is written with a power of ten."""


def ticks(low: float, high: float, most: int, least: float = 0.0) -> list[float]:
    """Return about `most` round numbers from `low` to `high`, none nearer than `least` to the next."""
    if not high > low:
        return [low]
    unit = 10.0 ** math.floor(math.log10((high - low) / most))
    steps = (many * unit for many in (1, 2, 5, 10))
    step = max(least, next(step for step in steps if len(_numbers(low, high, step)) <= most + 1))
    return [number * step for number in _numbers(low, high, step)]


def _numbers(low: float, high: float, step: float) -> range:
    return range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)


def texts_of(values: Sequence[float], *, share: bool = False) -> list[str]:
    """Return the texts of such numbers: as many decimals as tell them apart; `share`: as per cent."""
    unit, its = (" %", [value * 100 for value in values]) if share else ("", list(values))
    if len(its) < 2:
        return [f"{value:.12g}{unit}" for value in its]
    size = max(map(abs, its))
    power = math.floor(math.log10((its[1] - its[0]) * 1.0001))
    return [(_text(value, power, size) if value else "0") + unit for value in its]


def _text(value: float, power: int, size: float) -> str:
    if size < LARGE and size >= TINY:
        return f"{value:.{max(0, -power)}f}"
    figures, _, exponent = f"{value:.{max(0, math.floor(math.log10(size) + 1e-9) - power)}e}".partition("e")
    return f"{figures}e{int(exponent):+d}"


def is_share(name: str, low: float, high: float) -> bool:
    """Return whether numbers of that name are written as per cent on an axis from `low` to `high`."""
    return is_accuracy(name) and low >= -0.2 and high <= 1.2
