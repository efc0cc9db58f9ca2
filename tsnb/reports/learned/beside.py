"""Trials that take batches of no stream, as a picture of the notebook's panel has them: a row each. Pure."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tsnb.reports.svg import Picture, fitted, named
from tsnb.telemetry.lives.runs import trial_of
from tsnb.telemetry.lives.spent import Spent
from tsnb.telemetry.shown.outcome import MARKS
from tsnb.text.numbers import clock, metric

__all__ = ["Beside", "beside_lines", "draw_beside", "told_beside"]

ROW, WORDS = 26, 15
"""Pixels of a row, and of the line below it that says how the trial ended."""

STATE, RAN, NUMBERS = 166, 400, 420
"""Where the columns are, pixels; that of times has its right edge there."""

GAP = 6
"""Pixels between two columns at least."""

MOST_NUMBERS = 4


@dataclass(frozen=True)
class Beside:
    """One trial without a stream."""

    name: str
    """The trial's."""
    state: str
    """Its state, or how it ended."""
    started_s: float
    """When it started: wall clock, seconds since 1970."""
    duration_s: float
    """Seconds since the command that started it, until its end: as in `tsnb.results`."""
    error: str
    """What it failed of, or who ended it; one line."""
    metrics: Mapping[str, float]
    """The last of each number that it has logged."""

    @property
    def numbers(self) -> str:
        """Those numbers in words."""
        return ", ".join(
            f"{name} {metric(name, value)}" for name, value in list(self.metrics.items())[:MOST_NUMBERS]
        )

    @property
    def when(self) -> str:
        """How long it ran, and from when on."""
        return f"{clock(self.duration_s)} from {time.strftime('%H:%M:%S', time.localtime(self.started_s))}"


def told_beside(
    rows: Iterable[Mapping[str, Any]], trials: Sequence[Spent], pending: Collection[str]
) -> tuple[Beside, ...]:
    """Return the rows of trials without a stream.

    A trial that the stream knows has its row there and none here. An earlier run of its name is another trial.

    Args:
        rows: What a notebook says of those trials, as its panel gets it.
        trials: The stream's.
        pending: Names of trials that are still to attach to the stream.
    """
    last_s: dict[str, float] = {}
    for trial in trials:
        name = trial_of(trial.name)
        last_s[name] = max(trial.last_s, last_s.get(name, 0.0))
    made = [
        Beside(
            row["name"],
            row["state"],
            row["started_s"],
            row["duration_s"],
            row["error"],
            {name: float(value) for name, value in row["metrics"].items()},
        )
        for row in rows
    ]
    return tuple(one for one in made if one.name not in pending and last_s.get(one.name, 0.0) < one.started_s)


def beside_lines(rows: Sequence[Beside]) -> Iterator[str]:
    """Give them as lines of text, a heading first; none where there is none."""
    if rows:
        yield ""
        yield "Trials without a stream:"
    wide = max([20, *(len(one.name) for one in rows)])
    state = max([11, *(len(one.state) for one in rows)])
    for one in rows:
        yield f"{one.name:<{wide}} {one.state:<{state}} {one.when}  {one.numbers}".rstrip()
        if one.error:
            yield f"{'':<{wide}} {one.state}: {one.error}"


def draw_beside(picture: Picture, rows: Sequence[Beside], span: tuple[float, float], y: float) -> float:
    """Draw them; return where the picture goes on.

    Args:
        picture: Where to draw.
        rows: The trials.
        span: Left and right edge.
        y: Below what is drawn already.
    """
    if not rows:
        return y
    left, right = span
    y += 34
    picture.spans(left, y, [("Trials without a stream", True)], size=13)
    y += 8
    names = named([one.name for one in rows], STATE - left - GAP, 12)
    for one in rows:
        picture.line(left, y, right, y)
        picture.text(left, y + 17, names[one.name], title=one.name)
        picture.text(STATE, y + 17, f"{MARKS.get(one.state, '')} {one.state}".strip())
        picture.text(RAN, y + 17, one.when, at="end")
        picture.text(NUMBERS, y + 17, fitted(one.numbers, right - NUMBERS, 12), title=one.numbers)
        y += ROW
        if one.error:
            words = f"{one.state}: {one.error}"
            picture.text(left, y + 6, fitted(words, right - left, 11), "soft", size=11, title=words)
            y += WORDS
    return y
