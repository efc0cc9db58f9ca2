"""Charts of logged numbers over a trial's own batches: two side by side, a line a trial, how it ended at its end.

What a trial logged is known from the stream's readings. It is kept, smoothed and left as it is by the panel's own
functions (`telemetry.shown.curves`), so that a picture shows what a page shows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tsnb.records.scores import known_direction
from tsnb.reports.learned.ticks import is_share, texts_of, ticks
from tsnb.reports.logged import thinned
from tsnb.reports.ranges import DrawnLine, calm_extent, gave_up, in_range, padded
from tsnb.reports.svg import Picture, fitted, named, text_width
from tsnb.telemetry.lives.spent import Spent
from tsnb.telemetry.readings import ConsumerReading, EndReading, StreamReading
from tsnb.telemetry.shown import curves as shown
from tsnb.telemetry.shown.curves import Curve
from tsnb.telemetry.shown.ends import Ends
from tsnb.telemetry.shown.marks import Taken
from tsnb.telemetry.shown.rows import newly_logged
from tsnb.text.numbers import count

__all__ = ["Axes", "Curves", "curves_of", "draw_curves", "finite", "line_of"]

Point = tuple[float, float]
Curves = Mapping[str, Mapping[str, Curve]]
"""By logged name, then by trial."""

CHARTS = 2
HEIGHT = 170
POINTS = 100
"""Points of a line at most, and of the pale one behind it."""

COLOURED = 8
"""More lines than this, and all but the best are grey."""

NAMED = 2
"""More trials than this that leave a chart are counted."""

NAME = 108
"""Pixels of a name at most."""

GAP = 13
"""Pixels between two names."""


def curves_of(readings: Sequence[StreamReading]) -> Curves:
    """Return what trials logged, by logged name and then by trial.

    Args:
        readings: Oldest first, of runs that have names of their own (`runs_apart`).
    """
    kept, taken, ends = shown.Curves(), Taken(), Ends()
    lanes: dict[str, _Lane] = {}
    for reading in readings:
        taken.feed(reading)
        left = {name: end for name, end in ends.feed(reading).items() if name in lanes}
        told: list[ConsumerReading | EndReading] = [*reading.consumers]
        told += [replace(end, name=name) for name, end in left.items()]
        for its in told:
            lane = lanes.setdefault(its.name, _Lane(len(lanes)))
            if its.logged_at:
                lane.sparse = its.sparse
            for name, at, value, part in newly_logged(lane.values, lane.batches, its):
                batches = taken.batches(its.name) if at is None else taken.at(its.name, at)
                whole, epochs = reading.epoch_batches, taken.epochs(its.name)
                place = batches / whole if whole else -1.0 if math.isnan(epochs) else epochs
                metric = lane.places.setdefault(name, len(lane.places))
                at_all = reading.time_s - readings[0].time_s, batches, place
                kept.add(lane.number, metric, at_all, value, part)
    found: dict[str, dict[str, Curve]] = {}
    for trial, lane in lanes.items():
        for name, place in lane.places.items():
            found.setdefault(name, {})[trial] = Curve(kept.points(lane.number, place), name in lane.sparse)
    return found


@dataclass
class _Lane:
    """What one trial has logged so far."""

    number: int
    values: dict[str, float] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    sparse: tuple[str, ...] = ()


def finite(curve: Curve) -> Curve:
    """Return a curve without the points at which nothing finite was logged."""
    return curve._replace(points=[point for point in curve.points if math.isfinite(point[6])])


def _length(curve: Curve) -> int:
    """Return how many points are drawn; one that was logged before the first batch is none."""
    points = finite(curve).points
    return len(points) if len(points) > 1 or any(point[1] for point in points) else 0


def line_of(curve: Curve) -> list[Point]:
    """Return what is drawn of a curve: batches and smoothed value."""
    return list(zip((point[1] for point in curve.points), curve.smoothed(), strict=True))


def _fewer(points: Sequence[Point]) -> list[Point]:
    """Return no more points of a smooth line than a picture needs, its last one among them."""
    step = math.ceil(len(points) / POINTS)
    return list(points[::-1][::step][::-1])


@dataclass(frozen=True)
class Axes:
    """Where a chart's numbers lie in the picture."""

    left: float
    right: float
    top: float
    bottom: float
    xs: Point
    """First and last batch."""
    ys: Point
    """Lowest and highest value."""

    def x(self, batches: float) -> float:
        """Return where a batch is, pixels."""
        return self.left + (batches - self.xs[0]) / (self.xs[1] - self.xs[0]) * (self.right - self.left)

    def y(self, value: float) -> float:
        """Return where a value is, pixels; what is beyond the axis is at its edge."""
        share = (value - self.ys[0]) / (self.ys[1] - self.ys[0])
        return self.bottom - min(1.0, max(0.0, share)) * (self.bottom - self.top)


def draw_curves(
    picture: Picture,
    curves: Curves,
    trials: Sequence[Spent],
    colours: Mapping[str, str],
    shapes: Mapping[str, str],
    marks: Mapping[str, str],
    span: tuple[float, float],
    y: float,
) -> float:
    """Draw the charts; return where they end.

    Args:
        picture: What to draw into.
        curves: The first of them are drawn: those with lines, then those with one point a trial.
        trials: The best first.
        colours: By trial.
        shapes: Outlines by trial.
        marks: How a trial ended, by its name, of those of which it is told.
        span: Left and right edge of all charts, pixels.
        y: Where they begin.
    """
    longest = {name: max(map(_length, its.values()), default=0) for name, its in curves.items()}
    drawn = sorted((name for name in longest if longest[name]), key=lambda name: longest[name] == 1)[:CHARTS]
    if not drawn:
        return y
    width, between = (span[1] - span[0] - 24 * (len(drawn) - 1)) / len(drawn), 24
    for number, name in enumerate(drawn):
        left = span[0] + number * (width + between)
        heading = fitted(name, width * 0.6, 13, bold=True)
        picture.spans(left, y + 24, [(heading, True)], size=13, title="" if heading == name else name)
        found = {trial.name: curves[name][trial.name] for trial in trials if trial.name in curves[name]}
        its = {trial: finite(curve) for trial, curve in found.items() if finite(curve).points}
        states = {trial.name: trial.state for trial in trials}
        ys, outside = _heights(name, {trial: found[trial] for trial in its}, states)
        beyond = f"{len(outside)} trials" if len(outside) > NAMED else ", ".join(outside)
        beside = 8 + text_width(heading, 13, bold=True)
        said = f"by batch; out of range: {beyond}" if outside else "by batch"
        said = fitted(said, width - beside, 11)
        picture.text(left + beside, y + 24, said, "soft", size=11, title=beyond)
        _chart(
            picture, name, its, colours, shapes, marks, ((left, left + width, y + 36, y + 36 + HEIGHT), ys)
        )
    return y + 36 + HEIGHT + 22


def _heights(name: str, its: Mapping[str, Curve], states: Mapping[str, str]) -> tuple[Point, list[str]]:
    """Return the range of a chart's y axis, and the trials that do not set it and end beyond it."""
    way = {"max": 1, "min": -1}.get(known_direction(name) or "", 0)
    lines = []
    for trial, curve in its.items():
        whole = [value for _, value in line_of(curve)]
        points = line_of(finite(curve))
        lines.append(
            DrawnLine([x for x, _ in points], [y for _, y in points], gave_up(states[trial], whole, way))
        )
    counted = in_range(lines, way)
    low, high = padded(*(calm_extent(counted) or (0.0, 1.0)))
    outside = [
        trial
        for trial, line, part in zip(its, lines, counted, strict=True)
        if len(part.ys) < len(line.ys) and not low <= line.ys[-1] <= high
    ]
    return (low, high), outside


def _chart(
    picture: Picture,
    name: str,
    its: Mapping[str, Curve],
    colours: Mapping[str, str],
    shapes: Mapping[str, str],
    marks: Mapping[str, str],
    box: tuple[tuple[float, float, float, float], Point],
) -> None:
    """Draw one chart; `box`: its edges, and the lowest and highest value of its y axis."""
    (left, right, top, bottom), ys = box
    lines = {trial: line_of(curve) for trial, curve in its.items()}
    first = list(its)[:COLOURED]
    names = {one: name for one, name in named(its, NAME, 11).items() if one in first}
    room = 22 + max(text_width(name, 11) for name in names.values())
    xs = 0.0, max(1.0, *(point[1] for curve in its.values() for point in curve.points))
    chart = Axes(left + 44, right - room, top, bottom, xs, ys)
    heights = ticks(*ys, 5)
    for value, text in zip(heights, texts_of(heights, share=is_share(name, *ys)), strict=True):
        picture.line(chart.left, chart.y(value), chart.right, chart.y(value))
        picture.text(chart.left - 6, chart.y(value) + 4, text, "soft", size=10.5, at="end")
    for batches in ticks(*xs, 4, least=1):
        at = "end" if batches == xs[1] else "middle"
        picture.text(chart.x(batches), bottom + 16, count(batches), "soft", size=10.5, at=at)
    for trial in [*reversed([one for one in its if one not in names]), *reversed(first)]:
        colour = colours[trial] if trial in names else "held-line"
        logged = [(point[1], point[6]) for point in its[trial].points]
        if trial in names and logged != lines[trial]:
            picture.stroke(_path(chart, thinned(logged, POINTS), 0), colour, 0.8, opacity=0.28)
        picture.stroke(_path(chart, _fewer(lines[trial])), colour, 1.8 if trial in names else 1.0)
        if len(logged) == 1 and trial not in names:  # the others have a mark at their last point
            batches, value = logged[0]
            picture.path(_round(chart.x(batches), chart.y(value), 2), colour)
    _names(picture, chart, {one: lines[one][-1] for one in first}, names, colours, shapes, marks)


def _names(
    picture: Picture,
    chart: Axes,
    ends: Mapping[str, Point],
    names: Mapping[str, str],
    colours: Mapping[str, str],
    shapes: Mapping[str, str],
    marks: Mapping[str, str],
) -> None:
    """Write names beside the ends of their lines, and how a trial ended on the line."""
    beside = sorted(ends, key=lambda one: chart.y(ends[one][1]))
    for y, trial in zip(_apart([chart.y(ends[one][1]) for one in beside], chart.bottom), beside, strict=True):
        x, own = chart.x(ends[trial][0]), chart.y(ends[trial][1])
        if trial in marks:
            _mark(picture, marks[trial], x, own, colours[trial])
        else:
            picture.shape(shapes[trial], x, own, 8, colours[trial])
        picture.shape(shapes[trial], chart.right + 12, y, 9, colours[trial])
        picture.text(chart.right + 20, y + 4, names[trial], size=11, title=trial)


def _apart(heights: Sequence[float], bottom: float) -> list[float]:
    """Return where names stand that want to be at these heights, from above: a gap apart, and none below the chart."""
    found: list[float] = []
    for height in heights:
        found.append(max(height, found[-1] + GAP if found else -math.inf))
    for k in reversed(range(len(found))):  # only those move up that are in the way
        found[k] = min(found[k], found[k + 1] - GAP if k + 1 < len(found) else bottom)
    return found


def _mark(picture: Picture, mark: str, x: float, y: float, colour: str) -> None:
    """Draw how a trial ended: a cross, a square, or a ring with a bar through it."""
    cross = f"M{x - 4.5:.1f} {y - 4.5:.1f}l9 9m-9 0l9 -9"
    shapes = {"✕": cross, "■": _square(x, y, 4), "⊘": f"{_round(x, y, 4.5)}M{x - 3:.1f} {y + 3:.1f}l6 -6"}
    picture.stroke(shapes[mark], colour, 2)


def _square(x: float, y: float, half: float) -> str:
    return f"M{x - half:.1f} {y - half:.1f}h{2 * half:g}v{2 * half:g}h{-2 * half:g}Z"


def _round(x: float, y: float, radius: float) -> str:
    half = f"a{radius:g} {radius:g} 0 1 0"
    return f"M{x - radius:.1f} {y:.1f}{half} {2 * radius:g} 0{half} {-2 * radius:g} 0Z"


def _path(chart: Axes, points: Sequence[Point], digits: int = 1) -> str:
    """Return a line through these points, without what lies beyond the y axis."""
    said = [f"M{chart.x(points[0][0]):.{digits}f} {chart.y(points[0][1]):.{digits}f}"]
    at = points[0]
    for before, after in itertools.pairwise(points):
        if (found := _inside(before, after, chart.ys)) is None:
            continue
        for command, (x, value) in zip("ML", found, strict=True):
            if command == "L" or (x, value) != at:
                said.append(f"{command}{chart.x(x):.{digits}f} {chart.y(value):.{digits}f}")
        at = found[1]
    return "".join(said)


def _inside(before: Point, after: Point, ys: Point) -> tuple[Point, Point] | None:
    """Return the part of a straight line with values of a range; None: there is none."""
    low, high = sorted((before[1], after[1]))
    if low >= ys[0] and high <= ys[1]:
        return before, after
    if high < ys[0] or low > ys[1]:
        return None

    def cut(point: Point) -> Point:
        value = min(ys[1], max(ys[0], point[1]))
        share = (value - before[1]) / (after[1] - before[1])
        return before[0] + share * (after[0] - before[0]), value

    return cut(before), cut(after)
