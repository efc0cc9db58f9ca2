"""A report's picture: the sentence, a row a trial, and a strip of time a trial.

```
● mnist   3 trials, 4:12 long, 12.3 passes; ...          2026-11-21, 15:03:12 to 15:07:24
┃ resnet18-wide sets the pace. cnn-small and resnet10 are held back 74 % and 54 % of their time
trial        where its time went        attached  computing  waiting  held back  samples/s  epochs  loss
■ cnn-small  ███▒░░░░░░░░░░░░░░░░░░         4:10       22 %      4 %       74 %        612    2.66  0.142
...
what each did over time: a strip a trial, marks above, min:s since the start below
```
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from tsnb.planners.timeline import HELD, Timeline
from tsnb.reports.learned.beside import draw_beside
from tsnb.reports.learned.curves import Curves, draw_curves
from tsnb.reports.learned.duelled import draw_duels
from tsnb.reports.plain import (
    attached,
    epochs,
    plain,
    subtitle,
    ticks_s,
    when,
)
from tsnb.reports.story import Story
from tsnb.reports.strips import COUNTED, Numbers, Strips
from tsnb.reports.svg import COMPUTING, Picture, colours_of, fitted, named, shapes_of, text_width, wrapped
from tsnb.show.words import PART_NAMES
from tsnb.telemetry.lives.runs import next_step
from tsnb.telemetry.lives.spent import Spent, parts_of
from tsnb.telemetry.shown.marks import Mark
from tsnb.telemetry.shown.outcome import MARKS, best_of, metrics_of, outcome
from tsnb.text.numbers import clock, count, metric, percent

__all__ = ["draw"]

WIDTH = 900
LEFT, RIGHT = 18, WIDTH - 18
BAR = (166, 440)
"""Where bars begin and end, pixels."""

GAP = 4
"""Pixels between a name and its bar, at least."""

COLUMNS = (
    ("attached", 490),
    ("computing", 560),
    ("waiting", 617),
    ("held back", 686),
    ("samples/s", 758),
    ("epochs", 811),
)
"""Columns of numbers: heading and right edge, beside one logged number."""

SECOND = 71
"""Pixels that a second logged number takes."""

INSET = 14
"""Pixels between the edge of the card and its sentence."""

ROW = 26
STRIP = 26
"""Pixels of a trial's row, and of its strip of time."""

END = 15
"""Pixels of the line that says how a trial ended."""

MARK_ORDER = (
    "restarted",
    "not finite",
    "round",
    "entered",
    "pacing",
    "workers",
    "cores",
    "set",
    "paused",
    "resumed",
    "timed out",
    "back",
    "skipped",
    "joined",
    "left",
)
"""Which marks get a place first where there is not room for all: the strips already show when trials came and went."""


def draw(story: Story, strips: Strips | None, curves: Curves, *, fluid: bool = False) -> str:
    """Return the picture as SVG text.

    Args:
        story: The story to draw.
        strips: What each trial did over time; None: too little was read for that.
        curves: What trials logged, the numbers first that are to be seen.
        fluid: As wide as its place, as cells want it.
    """
    picture = Picture(WIDTH)
    colours = colours_of([trial.name for trial in story.trials], story.lanes)
    y = _header(picture, story, colours)
    marks = {trial.name: MARKS[trial.state] for trial in story.trials if trial.state in MARKS}
    shapes = shapes_of([trial.name for trial in story.trials], story.lanes)
    y = draw_curves(picture, curves, _ranked(story), colours, shapes, marks, (LEFT, RIGHT), y)
    if story.trials:
        y = _table(picture, story, colours, shapes, y)
        y = _key(picture, story, y)
        said = next_step(story.latest, story.compared) if story.over else ""
        for number, spans in enumerate(wrapped("", said, RIGHT - LEFT, 11)):
            y += 16 if number else 20
            picture.spans(LEFT, y, spans, "soft", size=11)
    y = draw_duels(picture, story.duels, (LEFT, RIGHT), y)
    y = draw_beside(picture, story.beside, (LEFT, RIGHT), y)
    if story.trials and strips is not None:
        y = _strips(picture, story, strips, colours, y)
    if story.plan is not None:
        y = _plan(picture, story.plan, colours, y)
    if story.watched_late:
        y += 18
        note = "Not observed from the start, so earlier time between epochs is unknown."
        picture.text(LEFT, y, note, "soft", size=11)
    return picture.finished(y + 16, plain(story), fluid=fluid)


def _ranked(story: Story) -> list[Spent]:
    """Return the trials, the best one first."""
    best = best_of(story.latest, story.compared)
    return sorted(story.trials, key=lambda trial: best is None or trial is not best[0])


def _header(picture: Picture, story: Story, colours: dict[str, str]) -> float:
    state = "ended" if story.state == "gone" else f"{story.state} when this picture was made"
    # a ring: a picture is never live, and a page may keep it for good
    picture.ring(LEFT + 4.5, 21.5, 3.5, "bad-line" if story.failure else "soft-line", title=state)
    name = fitted(story.name, RIGHT - LEFT - 32 - text_width(when(story), 11), 15, bold=True)
    picture.spans(LEFT + 16, 27, [(name, True)], size=15, title=story.name)
    picture.text(RIGHT, 27, when(story), "soft", size=11, at="end")
    picture.text(LEFT, 48, fitted(subtitle(story), RIGHT - LEFT, 12), "soft")
    room, edge = RIGHT - LEFT - 2 * INSET, colours.get(story.pace, "held")
    lines = list(wrapped(story.lead, story.rest, room, 13))
    if story.kind in {"failed", "loader-bound"}:
        edge = "bad"
    lead, rest = outcome(story.latest, story.compared) if story.over else ("", "")
    if lead:
        lines = [*wrapped(lead, rest, room, 13), *wrapped("", f"{story.lead} {story.rest}", room, 13)]
        best = best_of(story.latest, story.compared)
        edge = colours[best[0].name] if best is not None else edge
    height = 14 + 18 * len(lines)
    picture.rect(LEFT, 60, RIGHT - LEFT, height, "card", rx=5)
    picture.rect(LEFT, 60, 3, height, edge)
    for number, spans in enumerate(lines):
        picture.spans(LEFT + INSET, 79 + 18 * number, spans, size=13)
    return 60.0 + height


def _table(
    picture: Picture, story: Story, colours: dict[str, str], shapes: dict[str, str], y: float
) -> float:
    y += 26
    logged = metrics_of(story.trials)[:2]
    moved = SECOND if len(logged) > 1 else 0
    picture.text(LEFT, y, "trial", "soft", size=11)
    picture.text(BAR[0], y, "where its time went", "soft", size=11)
    for heading, x in COLUMNS:
        picture.text(x - moved, y, heading, "soft", size=11, at="end")
    parts = parts_of(story.trials)
    best = {trial.name for found in [best_of(story.latest, story.compared)] if found for trial in found[:1]}
    for number, name in enumerate(logged):
        picture.text(
            RIGHT - moved * (len(logged) - 1 - number),
            y,
            fitted(name, SECOND - 6, 11),
            "soft",
            size=11,
            at="end",
            title=name,
        )
    y += 8
    scale = (BAR[1] - moved - BAR[0]) / max(1e-9, *(trial.total_s for trial in story.trials))
    names = _names([trial.name for trial in story.trials], LEFT + 17, best)
    for trial in story.trials:
        picture.line(LEFT, y, RIGHT, y)
        picture.text(LEFT + 17, y + 17, names[trial.name], title=trial.name, bold=trial.name in best)
        since = {
            mark.text[len(f"{trial.name}: ") :].rpartition(" became ")[0]: mark.text
            for mark in story.marks
            if mark.kind == "not finite" and mark.consumer == trial.name
        }
        picture.shape(shapes[trial.name], LEFT + 5, y + 13, 10, colours[trial.name])
        _row(picture, trial, colours[trial.name], y, scale, parts, logged, since)
        y += ROW
        if end := _end(trial):
            picture.text(LEFT + 17, y + 6, fitted(end, RIGHT - LEFT - 17, 11), "soft", size=11, title=end)
            y += END
    return y


def _names(names: Iterable[str], x: float, bold: Collection[str] = ()) -> dict[str, str]:
    """Return by name what to write of it from some place on, so that it ends before the bars; some are bold."""
    return named(names, BAR[0] - GAP - x, 12, bold)


def _end(trial: Spent) -> str:
    """Return how a trial ended that was not done: its state with its mark, and its error."""
    if trial.state not in MARKS:
        return ""
    return f"{MARKS[trial.state]} {trial.state}" + (f": {trial.error}" if trial.error else "")


def _row(
    picture: Picture,
    trial: Spent,
    colour: str,
    y: float,
    scale: float,
    parts: Sequence[str],
    logged: Sequence[str],
    since: Mapping[str, str],
) -> None:
    """Draw a trial's row; `since`: since when a number of it is none, by the number's name."""
    base = y + 17
    x = float(BAR[0])
    for part in parts:
        width = trial.seconds(part) * scale
        if width >= 0.05:
            title = f"{trial.name}: {PART_NAMES[part]} {clock(trial.seconds(part))}"
            picture.rect(x, y + 7, width, 12, colour if part == "computing" else part, title=title)
        x += width
    shares = (percent(trial.share(part)) for part in ("computing", "waiting", "held"))
    values = [attached(trial), *shares, count(trial.samples_per_s), epochs(trial)]
    for value, (_, right) in zip(values, COLUMNS, strict=True):
        picture.text(right - (SECOND if len(logged) > 1 else 0), base, value, at="end")
    for number, name in enumerate(logged):
        if name in trial.metrics:
            right = RIGHT - SECOND * (len(logged) - 1 - number)
            last = trial.metrics[name]
            paint = "text" if math.isfinite(last) else "bad"
            picture.text(right, base, metric(name, last), paint, at="end", title=since.get(name, ""))


def _key(picture: Picture, story: Story, y: float) -> float:
    y += 18
    x: float = BAR[0]
    for part in parts_of(story.trials):
        wide = 32 + 6.2 * len(PART_NAMES[part])
        if x + wide > RIGHT:
            x, y = BAR[0], y + 18
        picture.rect(x, y - 9, 10, 10, COMPUTING if part == "computing" else part, rx=2)
        picture.text(x + 15, y, PART_NAMES[part], "soft", size=11)
        x += wide
    return y


def _strips(picture: Picture, story: Story, strips: Strips, colours: dict[str, str], y: float) -> float:
    y += 34
    picture.spans(LEFT, y, [("Over time", True)], size=13)
    picture.text(BAR[0], y, "what each trial did at each moment, and what changed", "soft", size=11)
    span = (float(strips.edges_s[0]), float(strips.edges_s[-1]))
    placed, rows = _placed(story, span, BAR[0], RIGHT)
    y += 8 + 14 * rows
    top = y
    names = _names([trial.name for trial in story.trials], LEFT)
    for trial in story.trials:
        picture.text(LEFT, y + 17, names[trial.name], title=trial.name)
        picture.rect(BAR[0], y + 3, RIGHT - BAR[0], STRIP - 4, "card")
        if trial.name in strips.parts:
            _strip(picture, strips, trial.name, colours[trial.name], y + 3)
        y += STRIP
    for mark, x, row, at in placed:
        label_y = top - 4 - 14 * (rows - 1 - row)
        picture.line(x, label_y + 3, x, y, paint="soft-line", dotted=True)
        picture.text(x + (3 if at == "start" else -3), label_y, mark.text, "soft", size=10.5, at=at)
    return _axis(picture, span[1] - span[0], y, span[0] - story.begin_s)


def _strip(picture: Picture, strips: Strips, name: str, colour: str, top: float) -> None:
    """Draw one trial's time as a stack of computing, waiting and held in each step, and a ground where it was there."""
    height = STRIP - 4.0
    xs = BAR[0] + (strips.edges_s - strips.edges_s[0]) / (strips.edges_s[-1] - strips.edges_s[0]) * (
        RIGHT - BAR[0]
    )
    here = strips.here_s[name] / strips.step_s
    low = np.zeros(len(here))
    parts = strips.parts[name]
    # a parked trial may be in the middle of a step of its own code, which counts as computing too
    whole = np.maximum(1.0, sum(parts[part] for part in COUNTED) / strips.step_s)
    _fill_between(picture, xs, low, here, top, height, "between")
    for part in COUNTED:
        high = low + parts[part] / strips.step_s / whole
        _fill_between(picture, xs, low, high, top, height, colour if part == "computing" else part)
        low = high


def _fill_between(
    picture: Picture, xs: Numbers, low: Numbers, high: Numbers, top: float, height: float, paint: str
) -> None:
    """Fill the area between two stairs, 0 to 1 from the bottom up."""
    for begin, end in _runs((high - low > 0.004).tolist()):
        there = [f"V{_y(high[k], top, height)}H{xs[k + 1]:.1f}" for k in range(begin, end)]
        back = [f"V{_y(low[k], top, height)}H{xs[k]:.1f}" for k in range(end - 1, begin - 1, -1)]
        start = f"M{xs[begin]:.1f} {_y(low[begin], top, height)}"
        picture.path("".join([start, *there, *back, "Z"]), paint)


def _y(share: float, top: float, height: float) -> str:
    return f"{top + height * (1 - share):.1f}"


def _runs(true: Iterable[bool]) -> Iterator[tuple[int, int]]:
    """Give begin and end of each run of steps that are true."""
    begin = None
    for k, value in enumerate([*true, False]):
        if value and begin is None:
            begin = k
        elif not value and begin is not None:
            yield begin, k
            begin = None


def _placed(
    story: Story, span_s: tuple[float, float], left: float, right: float
) -> tuple[list[tuple[Mark, float, int, str]], int]:
    """Return the marks that have room (with x, row of labels, and where the label is anchored), and how many rows."""
    first_s, last_s = span_s
    taken: list[list[tuple[float, float]]] = [[], []]
    found = []
    for mark in sorted(story.marks, key=lambda mark: (MARK_ORDER.index(mark.kind), mark.time_s)):
        if not first_s <= mark.time_s <= last_s:
            continue
        x = left + (mark.time_s - first_s) / max(1e-9, last_s - first_s) * (right - left)
        width = text_width(mark.text, 10.5) + 10
        at = "start" if x + width < right else "end"
        own = (x, x + width) if at == "start" else (x - width, x)
        if own[0] < LEFT:
            continue
        for row, its in enumerate(taken):
            if all(own[1] < other[0] or own[0] > other[1] for other in its):
                its.append(own)
                found.append((mark, x, row, at))
                break
    rows = 2 if taken[1] else 1 if taken[0] else 0
    return found, rows


def _axis(picture: Picture, seconds: float, y: float, begin_s: float = 0.0) -> float:
    """Draw an axis of so many seconds; `begin_s`: of the time since the start, where it begins."""
    y += 1
    picture.line(BAR[0], y, RIGHT, y)
    ticks = list(ticks_s(seconds, 8))
    step_s = ticks[1] - ticks[0] if len(ticks) > 1 else max(1.0, seconds)
    for number in range(math.ceil(begin_s / step_s), math.floor((begin_s + seconds) / step_s) + 1):
        tick = number * step_s
        x = BAR[0] + (tick - begin_s) / max(1e-9, seconds) * (RIGHT - BAR[0])
        picture.line(x, y, x, y + 4)
        at = "start" if x < BAR[0] + 1 else "end" if x > RIGHT - 14 else "middle"
        picture.text(x, y + 16, clock(tick), "soft", size=10.5, at=at)
    picture.text(LEFT, y + 16, "min:s since the start", "soft", size=10.5)
    return y + 18


def _plan(picture: Picture, plan: Timeline, colours: dict[str, str], y: float) -> float:
    """Draw when each trial was to run, and below it when it did, and what is still to come."""
    y += 34
    picture.spans(LEFT, y, [(plan.title[:1].upper() + plan.title[1:], True)], size=13)
    words = "grey: planned; below in colour: actual; pale: predicted"
    picture.text(BAR[0], y, words, "soft", size=11)
    y += 8
    scale = (RIGHT - BAR[0]) / max(1e-9, plan.end_s)
    names = _names([trial.name for trial in plan.trials], LEFT)
    for trial in plan.trials:
        picture.text(LEFT, y + 17, names[trial.name], title=trial.name)
        colour = colours.get(trial.name, COMPUTING)
        for title, span, top, paint in (
            ("planned", trial.planned, 4, "held"),
            ("actual", trial.actual, 14, colour),
            ("predicted", trial.ahead, 14, "between"),
        ):
            if span is not None:
                what = f"{trial.name}: {title} {clock(span[0])} to {clock(span[1])}"
                width = max(1.0, (span[1] - span[0]) * scale)
                picture.rect(BAR[0] + span[0] * scale, y + top, width, 9, paint, title=what)
        if trial.held:
            picture.text(BAR[0], y + 22, HELD, "soft", size=10)
        y += STRIP
    return _axis(picture, plan.end_s, y)
