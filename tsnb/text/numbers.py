"""Numbers as every screen writes them. Pure.

The panel has them too (`panel/frontend/src/words.js`); a test runs both and compares.
"""

from __future__ import annotations

import math
import re

__all__ = [
    "DASH",
    "buffered",
    "clock",
    "count",
    "is_accuracy",
    "mebibytes",
    "metric",
    "milliseconds",
    "pace",
    "percent",
    "used_of",
]

DASH = "\u2013"
"""What is not known."""

LEAST_MIB = 0.095
"""Less would be 0.0 MiB, or 0.1 whatever it is."""

_ACCURACY = re.compile(
    r"(?:(?<![A-Za-z])[Aa]cc|(?<=[a-z0-9])Acc)(?:urac(?:y|ies))?(?![a-z])|(?<![A-Za-z])ACC(?:URACY)?(?![A-Za-z])"
)
"""An accuracy by a word of its name: "val_acc", "topAcc"; not "grad_accum", whose 1 is not 100 %. As `words.js`."""


def clock(seconds: float) -> str:
    """Write a duration: 72 as 1:12, 3700 as 1:01:40."""
    whole = max(0, math.floor(seconds + 0.5))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def count(value: float) -> str:
    """Write a number: 612.3 as 612, 9.63 as 9.6, 12345 as 12,345."""
    if not math.isfinite(value):
        return DASH
    return f"{value:,.1f}" if abs(value) < 9.95 and value != int(value) else f"{_half_up(value):,}"


def pace(value: float) -> str:
    """Write a rate with one decimal up to 100, so that its width stays the same."""
    return f"{value:.1f}" if math.isfinite(value) and value < 99.95 else count(value)


def percent(share: float) -> str:
    """Write a share of 0 to 1: 0.38 as 38 %."""
    # of the same share in 32 bits, as a page has it, the same: 0.37499999 is a half
    return f"{_half_up(round(share * 100, 4))} %" if math.isfinite(share) else DASH


def milliseconds(seconds: float) -> str:
    """Write a short time: 0.0123 as 12.3 ms, 1.234 as 1,234 ms."""
    if not math.isfinite(seconds):
        return DASH
    value = seconds * 1000
    return f"{value:.1f} ms" if value < 99.95 else f"{count(value)} ms"


def mebibytes(value: float) -> str:
    """Write a size in MiB for screens, where columns are narrow.

    212.4 as 212 MiB, 3200 as 3.1 GiB, 81920 as 80 GiB, 0.04 as 41 KiB.
    """
    if not math.isfinite(value):
        return DASH
    if 0 < value < LEAST_MIB:
        return f"{1024 * value:.1f} KiB" if 1024 * value < 9.95 else f"{_half_up(1024 * value)} KiB"
    if value >= 1000:
        return f"{_half_up(value / 1024)} GiB" if value >= 10189 else f"{value / 1024:.1f} GiB"
    return f"{value:.1f} MiB" if value < 9.95 else f"{_half_up(value)} MiB"


def used_of(used: float, total: float) -> str:
    """Write two sizes in MiB as "3.1 of 16 GiB": the unit is said once where both have the same."""
    part, whole = mebibytes(used), mebibytes(total)
    return f"{part.removesuffix(whole[-4:])} of {whole}"


def is_accuracy(name: str) -> bool:
    """Return whether a logged number is an accuracy by a word of its name."""
    return bool(_ACCURACY.search(name))


def metric(name: str, value: float | None) -> str:
    """Write a logged number: accuracies of 0 to 1 as per cent, others with two to four figures; None: a dash."""
    if value is None:
        return DASH
    if not math.isfinite(value):
        return repr(value)
    if is_accuracy(name) and 0 <= value <= 1:
        return f"{value * 100:.1f} %"
    size = abs(value)
    if value != 0 and (size >= 1e5 or size < 1e-5):
        digits, _, power = f"{value:.1e}".partition("e")
        return f"{digits}e{int(power):+d}"
    least = {100: 0, 10: 1, 1e-2: 3, 1e-3: 4, 1e-4: 5, 0: 6}  # 0.00078 below 0.039: a column is compared
    decimals = 3 if value == 0 else next(many for low, many in least.items() if size >= low)
    return f"{value:.{decimals}f}"


def buffered(fill: int, window: int) -> str:
    """Write how many batches are ready: of those that the window keeps, or more while they are kept for one that stops.

    Example:
        >>> buffered(3, 8), buffered(240, 8)
        ('3 of 8', '240')
    """
    return f"{count(fill)} of {count(window)}" if fill <= window else count(fill)


def _half_up(value: float) -> int:
    """Round as JavaScript does."""
    return math.floor(value + 0.5)
