"""Plotly figures from the project's records: one logged number of many trials; which trial is a clone of which."""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsnb.records.reading import RunRecord, history_of
from tsnb.records.scores import best_of, known_direction
from tsnb.records.selection import NoSuchRecord, check_metric, chosen_runs
from tsnb.records.tables import grouped
from tsnb.reports.look import GREY, look
from tsnb.reports.ranges import DrawnLine, calm_extent, gave_up, in_range, padded
from tsnb.show.words import COLOURS
from tsnb.telemetry.watching import watched

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["POINTS", "draw_lineage", "draw_records", "thinned"]

POINTS = 2_000
"""Points of a line at most: more than a screen has columns only make the notebook large."""

NAMED = 2
"""More trials than this whose lines leave the figure are counted."""

AXES = {"step": "step", "epoch": "epoch", "samples": "samples taken", "seconds": "seconds of training"}

Point = tuple[float, float]


@dataclass(frozen=True)
class _Line:
    """One run's line and how it differs from others."""

    run: RunRecord
    points: list[Point]
    colour: str
    group: str
    """What the legend says; lines of one group share an entry and a colour."""
    best: bool = False
    """Whether it is the line of the best trial."""


def draw_records(
    metric: str, *, by: str | None = None, x: str = "step", name: str | None = None, all_runs: bool = False
) -> go.Figure:
    """Draw one logged number of many trials, a line each; a figure to look into, save or change.

    Args:
        metric: A logged name ("loss").
        by: A parameter ("lr") or option: lines of one value share a colour. Left out: a colour a trial.
        x: "step", "epoch" (the last value of each), "samples" (taken by then), or "seconds" (since it ran).
        name: Only the trial of this name, or the sweep; left out: all of the project.
        all_runs: Former runs of each name too, not only the last.

    Returns:
        A plotly figure. Lines of more than 2,000 points show the lowest and highest of each stretch. The best trial's
        line is thicker and marked, where it is known whether a high or a low value is good.

    Raises:
        ValueError: `x` is not one of these.
        NoSuchRecord: No trial logged that, or has such a parameter; lists what there is.
        TsnbError: The project's records cannot be read.
    """
    if x not in AXES:
        raise ValueError(f"x={x!r} is invalid. Pass one of {', '.join(map(repr, AXES))}")
    directory, runs = chosen_runs(name, all_runs)
    check_metric(metric, runs)
    lines = list(_lines(directory, [run for run in runs if metric in run.metrics], metric, by, x))
    return _figure(lines, metric, by, x)


def _lines(
    directory: Path, runs: Sequence[RunRecord], metric: str, by: str | None, x: str
) -> Iterator[_Line]:
    scores = [(run.key, run.state, run.metrics[metric].last) for run in runs]
    mode = known_direction(metric)
    best = best_of(scores, mode) if mode is not None and len(runs) > 1 else None
    # a run's name alone, unless several runs of it are drawn
    several = len({run.name for run in runs}) < len(runs)
    colours: Iterator[str] = itertools.cycle(COLOURS)
    if by is None:
        numbers = _numbers(runs)
        colours = iter([COLOURS[numbers[run.key] % len(COLOURS)] for run in runs])
        groups = [(f"{run.name} run {run.number}" if several else run.name, [run]) for run in runs]
    else:
        groups = [(f"{by}={value}", members) for value, members in grouped(runs, by)]
    for (group, members), colour in zip(groups, colours, strict=False):
        for run in members:
            points = _points(run, history_of(directory, run.id, metric), x)
            yield _Line(run, thinned(points, POINTS), colour, group, run.key == best)


def _numbers(runs: Sequence[RunRecord]) -> dict[str, int]:
    """Return a number for each run, by its key: the last one of a name has that of its row in this notebook's panel."""
    last = {run.name: run.key for run in runs}
    shown: dict[str, int] = {}
    for known in watched().values():
        with known.view.lock:
            rows = {row.name: row.number for row in known.view.rows.values()}
        shown |= {last[name]: number for name, number in rows.items() if name in last}
    spare = itertools.filterfalse(frozenset(shown.values()).__contains__, itertools.count())
    return {run.key: shown[run.key] if run.key in shown else next(spare) for run in runs}


def _points(run: RunRecord, rows: Sequence[tuple[Any, ...]], x: str) -> list[Point]:
    """Return a run's points on an axis; what has no place on it (no epoch) is left out."""
    if x == "epoch":
        return list({epoch: (epoch, value) for _, epoch, *_, value in rows if epoch is not None}.values())
    if x == "seconds":
        origin_s = run.started_s if run.running_s is None else run.running_s
        return [(time_s - origin_s, value) for _, _, _, time_s, _, value in rows]
    return [(row[0] if x == "step" else row[2], row[-1]) for row in rows]


def thinned(points: list[Point], at_most: int) -> list[Point]:
    """Return no more than so many points: the lowest and the highest of each stretch, so that no peak is lost."""
    if len(points) <= at_most:
        return points
    stretches = at_most // 2
    kept: list[Point] = []
    for number in range(stretches):
        part = points[number * len(points) // stretches : (number + 1) * len(points) // stretches]
        # nan is neither: it may stand for a stretch only where there is nothing else
        known = [place for place, (_, value) in enumerate(part) if not math.isnan(value)] or [0]
        low = min(known, key=lambda place: part[place][1])
        high = max(known, key=lambda place: part[place][1])
        kept += [part[place] for place in sorted({low, high})]
    return kept


def _figure(lines: Sequence[_Line], metric: str, by: str | None, x: str) -> go.Figure:
    import plotly.graph_objects as go

    figure = go.Figure()
    entered: set[str] = set()
    for line in lines:
        figure.add_scatter(
            x=[point[0] for point in line.points],
            y=[point[1] for point in line.points],
            mode="lines+markers" if len(line.points) < 30 else "lines",
            line={"color": line.colour, "width": 3.4 if line.best else 1.8},
            name=line.group,
            legendgroup=line.group,
            showlegend=line.group not in entered,
            hovertemplate=f"{line.run.name} ({line.run.state})<br>{AXES[x]} %{{x}}<br>{metric} %{{y}}<extra></extra>",
        )
        entered.add(line.group)
        if line.best and line.points:
            x_last, y_last = line.points[-1]
            figure.add_annotation(x=x_last, y=y_last, text=f"best: {line.run.name}", font={"color": GREY})
    figure.update_layout(
        template=look(),
        xaxis_title=AXES[x],
        yaxis=_heights(lines, metric),
        legend_title=by or "trial",
        margin={"l": 60, "r": 20, "t": 30, "b": 50},
        height=420,
    )
    return figure


def _heights(lines: Sequence[_Line], metric: str) -> dict[str, Any]:
    """Return the y axis: its title, and its range where lines leave it that would flatten the others."""
    way = {"max": 1, "min": -1}.get(known_direction(metric) or "", 0)
    drawn = []
    for line in lines:
        ys = [value for _, value in line.points]
        drawn.append(DrawnLine([x for x, _ in line.points], ys, gave_up(line.run.state, ys, way)))
    counted = in_range(drawn, way)
    both = zip(lines, drawn, counted, strict=True)
    outside = [line.run.name for line, whole, part in both if len(part.ys) < len(whole.ys)]
    found = calm_extent(counted)
    if not outside or found is None:
        return {"title": metric}
    beyond = ", ".join(outside) if len(outside) <= NAMED else f"{len(outside)} trials"
    return {"title": f"{metric}; out of range: {beyond}", "range": padded(*found)}


def draw_lineage(*, name: str | None = None, all_runs: bool = False) -> go.Figure:
    """Draw which trial is a clone of which: a line each, over the samples that it has seen, from where it branched.

    A clone stands below its parent. Trials without clones or parents are left out, unless they belong to the sweep that
    is asked for.

    Args:
        name: Only the trial of this name, or the sweep; left out: all of the project.
        all_runs: Former runs of each name too, not only the last.

    Returns:
        A plotly figure.

    Raises:
        NoSuchRecord: There are no clones.
        TsnbError: The project's records cannot be read.
    """
    import plotly.graph_objects as go

    _, runs = chosen_runs(name, all_runs)
    by_name = {(run.name, run.number): run for run in runs}
    parents = {id(run): _parent_of(run, by_name) for run in runs}
    cloned = {id(parent) for parent in parents.values() if parent is not None}
    shown = [run for run in runs if name is not None or run.parent is not None or id(run) in cloned]
    if not any(run.parent is not None for run in shown):
        raise NoSuchRecord(
            "No trial is a clone. Create one with trial.clone(), or many with tsnb.search.population"
        )
    ordered = _families(shown, parents)
    rows = {id(run): row for row, run in enumerate(ordered)}
    figure = go.Figure()
    for run, colour in zip(ordered, itertools.cycle(COLOURS)):
        start, row, parent = _branched(run), rows[id(run)], parents[id(run)]
        if parent is not None and id(parent) in rows:
            figure.add_scatter(
                x=[start, start],
                y=[rows[id(parent)], row],
                mode="lines",
                line={"color": colour, "width": 1, "dash": "dot"},
                hoverinfo="skip",
            )
        figure.add_scatter(
            x=[start, max(start, run.report.get("samples", 0))],
            y=[row, row],
            mode="lines+markers",
            line={"color": colour, "width": 5},
            hovertemplate=f"{_told(run)}<br>%{{x}} samples<extra></extra>",
        )
    figure.update_layout(
        template=look(),
        showlegend=False,
        xaxis_title=AXES["samples"],
        yaxis={
            "tickvals": list(range(len(ordered))),
            "ticktext": [run.name for run in ordered],
            "autorange": "reversed",
        },
        margin={"l": 60, "r": 20, "t": 30, "b": 50},
        height=120 + 26 * len(ordered),
    )
    return figure


def _parent_of(run: RunRecord, by_name: Mapping[tuple[str, int], RunRecord]) -> RunRecord | None:
    return None if run.parent is None else by_name.get((run.parent.name, run.parent.number))


def _branched(run: RunRecord) -> int:
    """Return how many samples a run had seen when it began: of a clone those of its parent."""
    return 0 if run.parent is None else run.parent.samples


def _families(runs: Sequence[RunRecord], parents: Mapping[int, RunRecord | None]) -> list[RunRecord]:
    """Return runs with clones below their parents, the one that branched last nearest, so that no lines cross."""
    ordered: list[RunRecord] = []
    there = {id(run) for run in runs}

    def enter(run: RunRecord) -> None:
        ordered.append(run)
        own = [other for other in runs if parents[id(other)] is run]
        for clone in sorted(own, key=_branched, reverse=True):
            enter(clone)

    for run in runs:
        parent = parents[id(run)]
        if parent is None or id(parent) not in there:
            enter(run)
    return ordered


def _told(run: RunRecord) -> str:
    """Return what is said of a run where the mouse is: its state, whose clone it is, its last values."""
    live = {change.name: change.value for change in run.changes}
    said = [
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in live.items()
    ]
    origin = [] if run.parent is None else [str(run.parent)]
    return "<br>".join(html.escape(part) for part in [f"{run.name} ({run.state})", *origin, *said])
