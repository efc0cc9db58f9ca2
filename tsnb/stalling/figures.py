"""Figures as text: paces, gains, sizes, cores, and what they lie between. Pure."""

from __future__ import annotations

from collections.abc import Callable

from tsnb.text.words import short_number

__all__ = ["Interval", "between", "number_of", "percent", "plain", "rate", "size", "times"]

Interval = tuple[float, float]
"""What a figure lies between in 80 of 100 cases, in its own unit."""


def size(count: float) -> str:
    """Return bytes in files, or that a disk gives, as text: by 1000, as disks are sold and their paces told.

    Sizes of memory are `words.size_text`.
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{short_number(count)} {unit}"
        count /= 1000
    return f"{short_number(count)} TB"


def rate(samples_per_s: float) -> str:
    """Return samples a second as text."""
    return f"{samples_per_s:,.0f}" if samples_per_s >= 10 else f"{samples_per_s:.2g}"


def times(gain: float) -> str:
    """Return how many times as fast, as text."""
    return f"{gain:.2f}x" if gain < 2 else f"{gain:.1f}x"


def percent(share: float) -> str:
    """Return a share as text."""
    return f"{share:.0%}"


def number_of(cores: float) -> str:
    """Return cores as text; a broken number only where it is one."""
    return f"{cores:g}"


def plain(interval: Interval | None) -> list[float] | None:
    """Return an interval as JSON has it; None: not known."""
    return None if interval is None else list(interval)


def between(
    interval: Interval | None, written: Callable[[float], str] = rate, *, brackets: bool = False
) -> str:
    """Return an interval as text: "180 to 220"; empty where none is known.

    Args:
        interval: The two bounds; None: not known.
        written: Writes one of them.
        brackets: Write it behind a figure, as " (180 to 220)"; nothing where both bounds are the same.
    """
    if interval is None or (brackets and interval[0] == interval[1]):
        return ""
    text = " to ".join(map(written, interval))
    return f" ({text})" if brackets else text
