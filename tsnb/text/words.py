"""What messages and tables of every part are made of: the nearest known word, sizes, times, rows as text or HTML."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any

from tsnb.text.printable import one_line

__all__ = [
    "FEATURES_KEPT",
    "FROZEN_LIMITS",
    "bytes_of",
    "clock_span",
    "clock_time",
    "did_you_mean",
    "duration",
    "first_numbers",
    "frozen_takes",
    "html_table",
    "is_now",
    "marked_html",
    "sentence",
    "short",
    "short_number",
    "size_text",
    "strict",
    "text_table",
]

FROZEN_LIMITS = 0.5
"""Share of a loader's time from which on it is the frozen part that limits it."""
FEATURES_KEPT = "and a cache of its features would spare that from the second pass on"

_PREFIXES = ["", "K", "M", "G", "T", "P"]
_SIZE = re.compile(
    r"(?P<number>(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?)\s*(?P<prefix>[kKMGTP])?(?P<binary>(?<=[kKMGTP])i)?(?P<letter>B)?(/s)?"
)


_NEAR_S = 120.0
"""Times of the clock that are closer than this are told with their seconds, so that they differ."""

_CODE = re.compile(r"`([^`\n]+)`")


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return " Did you mean 'start'?", or nothing where no known word is close.

    Args:
        word: What was given.
        known: What it may have meant.
    """
    near = difflib.get_close_matches(str(word), list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def sentence(text: str) -> str:
    """Return a text with a capital at its start, as a sentence has it."""
    return text[:1].upper() + text[1:]


def bytes_of(size: str | float) -> float:
    """Return a size in bytes: "8GiB" and "8G" count by 1024, "100MB" by 1000; a number is bytes already.

    Args:
        size: What was given; with "/s" behind it, bytes a second.

    Raises:
        ValueError: It is not a size above 0.
    """
    found = _SIZE.fullmatch(str(size).strip())
    if found is None or isinstance(size, bool) or not (number := float(found["number"])) > 0:
        raise ValueError(f"{size!r} is not a size. Write it as '8GiB', '100MB' or a number of bytes.")
    prefix = (found["prefix"] or "").upper()
    base = 1000 if prefix and found["letter"] and not found["binary"] else 1024
    return number * float(base) ** _PREFIXES.index(prefix)


def size_text(size: float) -> str:
    """Return bytes of memory as text, for sentences: "1.5 GiB", "300.0 MiB", "3 bytes".

    By 1024, as memory is counted, to a tenth: what is needed and what is free may differ by little. Screens have
    `text.numbers.mebibytes`, of fewer figures; what disks hold is counted by 1000 (`stalling.figures.size`).
    """
    if size >= 2**30:
        return f"{size / 2**30:,.1f} GiB"
    if size >= 2**20:
        return f"{size / 2**20:,.1f} MiB"
    return f"{size / 2**10:,.1f} KiB" if size >= 2**10 else f"{size:.0f} bytes"


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of equal length as lines with columns, the head among them; each cell is one printable line."""
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def html_table(rows: Sequence[Sequence[str]], style: str = "") -> str:
    """Return rows as a table for a notebook; the first is its head, and every cell is one printable line of text.

    Args:
        rows: Cells, one list a row.
        style: CSS of the table itself.
    """

    def line(cells: Sequence[str], tag: str) -> str:
        return "".join(f"<{tag} style='text-align:left'>{escape(one_line(cell))}</{tag}>" for cell in cells)

    head, *others = rows
    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in others)
    opening = f"<table style='{escape(style, quote=True)}'>" if style else "<table>"
    return f"{opening}<thead><tr>{line(head, 'th')}</tr></thead><tbody>{body}</tbody></table>"


def marked_html(text: str) -> str:
    """Return text for a notebook, what stands between backticks as code: its HTML shows them as they are.

    Args:
        text: As a terminal shows it.
    """
    return _CODE.sub(r"<code>\1</code>", escape(text))


def short(text: str, most: int) -> str:
    """Return a text, its end left out where it has more than so many characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def short_number(value: float) -> str:
    """Write a measured number with three digits, and a large one in full: 0.0431, 4.13, 1,153."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def first_numbers(
    numbers: Mapping[str, float], sign: str = " ", marks: Mapping[str, str] | None = None, most: int = 16
) -> list[str]:
    """Write logged numbers as tables show them: "loss 0.031"; of very many the first, and how many more there are.

    Args:
        numbers: By name, in the order in which they are shown.
        sign: Between name and number.
        marks: What stands behind a number, by name.
        most: Numbers that are written; any with a mark are written too.
    """
    marks = marks or {}
    shown = [name for place, name in enumerate(numbers) if place < most or name in marks]
    words = [f"{name}{sign}{numbers[name]:.4g}{marks.get(name, '')}" for name in shown]
    left = len(numbers) - len(shown)
    return [*words, f"{left:,} more"] if left else words


def strict(value: Any) -> Any:
    """Return a value as strict JSON has it, which has no nan and no inf: they become null."""
    if isinstance(value, Mapping):
        return {key: strict(its) for key, its in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(its) for its in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_VERBS = dict.fromkeys(("failed", "crashed"), "has") | dict.fromkeys(
    ("stopped", "interrupted", "pruned"), "was"
)
"""What stands before a state that is not simply what a trial is."""


def is_now(state: str) -> str:
    """Return a trial's state as the end of a sentence: "is running", "has failed", "was stopped"."""
    return f"{_VERBS.get(state, 'is')} {state}"


def clock_time(time_s: float, now_s: float, beside_s: float = math.inf) -> str:
    """Return a time of the wall clock as text: "18:05", with the day where that is not today's.

    Args:
        time_s: Seconds since 1970.
        now_s: The time now, in seconds since 1970.
        beside_s: A time that is shown next to it, in seconds since 1970. Where the two are close, seconds are shown.
    """
    when = datetime.fromtimestamp(time_s).astimezone()
    same = when.date() == datetime.fromtimestamp(now_s).astimezone().date()
    text = when.strftime("%H:%M" if same else "%Y-%m-%d %H:%M")
    return f"{text}:{when:%S}" if abs(time_s - beside_s) < _NEAR_S else text


def interval(value: float, off: float) -> tuple[float, float]:
    """Return what a value lies between that may be off by a share of it; however unsure, it is more than nothing.

    Args:
        value: As predicted.
        off: How far off it may be, as a share.
    """
    return value * (1 - min(off, 0.9)), value * (1 + off)


def clock_span(time_s: float, now_s: float, off: float, beside_s: float = math.inf) -> str:
    """Return a foretold time of the wall clock with its interval: "18:05 (17:50 to 18:20, four times in five)".

    Args:
        time_s: Seconds since 1970.
        now_s: The time now, in seconds since 1970.
        off: How far it may be off, as a share of the time until then.
        beside_s: As `clock_time` takes it.
    """
    low, high = (clock_time(now_s + each_s, now_s, beside_s) for each_s in interval(time_s - now_s, off))
    return f"{clock_time(time_s, now_s, beside_s)} ({low} to {high}, 80% interval)"


def duration(seconds: float) -> str:
    """Return a time as text: "48 s", "12 min", "3 h 05 min"."""
    if not math.isfinite(seconds):
        return "for ever"
    if seconds < 100:
        return f"{seconds:.3g} s"
    if seconds < 6000:
        return f"{seconds / 60:.3g} min"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def frozen_takes(name: str, share: str) -> str:
    """Say which share of a loader's time a frozen part computes."""
    return f"{name} takes {share} of the loader's time"
