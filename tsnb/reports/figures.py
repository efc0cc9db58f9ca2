"""Plotly figures of a stream, from its readings: one function a word that `tsnb.plot` takes.

| word | figure |
|---|---|
| lag | batches behind the fastest, a line a trial |
| fill | batches published and not yet taken, a line a trial |
| throughput | samples a second, a line a trial |
| loader | batches that the loader published a second, and the window's fill |
| share | share of all computing by trial, stacked: which trial gets the machine, and how that changed |
| computing, waiting, held | share of a trial's time that went there, a line a trial |
| spent | where each second of each trial went, a bar a trial |
| cpu, memory, gpu | cores busy, memory and GPU memory by trial and loader, where the machine was looked at |

What they share is a `Chart`: the axis of time, marks, colours, margins.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tsnb.errors import TsnbError
from tsnb.reports.learned.curves import curves_of
from tsnb.reports.logged import POINTS, thinned
from tsnb.reports.look import FAINT, GREY, LEGEND, SPENT, look, since_start, title_of
from tsnb.reports.strips import Strips, strips
from tsnb.reports.svg import COMPUTING, colours_of, text_width
from tsnb.show.words import PART_NAMES
from tsnb.telemetry.lives.runs import lanes_of, runs_apart
from tsnb.telemetry.lives.spent import parts_of, spent
from tsnb.telemetry.readings import ConsumerReading, HostReading, ProcessReading, StreamReading
from tsnb.telemetry.shown.marks import Mark, all_marks
from tsnb.text.names import shortened
from tsnb.text.numbers import clock, percent
from tsnb.text.words import short

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["WORDS", "Chart", "draw_logged", "draw_word", "logged_names"]

_HOUR_S = 3600.0

_PLACES = 10
"""Marks that are nearer to each other than this part of the axis are written as one, so that a phone has room."""

_DRAWN = 20
"""Lines of marks at most: more would cover what they explain."""

_WRITTEN = 28
"""Letters of what is written above a mark; all of it is in its tooltip."""

_NAME, _MARK_NAME = 18, 12
"""Letters of a name in a legend and beside a bar, and above a mark, unless more are needed to tell names apart."""

_LEGEND_ROW = 6
"""Pixels of height for each name in a legend: on a page of common width three share a row."""


class Chart:
    """A plotly figure over a stream's time; filled in by `tsnb.reports.figures`.

    Attributes:
        figure: The figure.
        names: What to write of each trial's name.

    Args:
        readings: The stream's readings, oldest first; not empty.
        title: What the y axis shows, with its unit.
    """

    def __init__(self, readings: Sequence[StreamReading], title: str) -> None:
        import plotly.graph_objects as go

        self.begin_s = readings[0].time_s
        seconds = readings[-1].time_s - self.begin_s
        names = dict.fromkeys(c.name for reading in readings for c in reading.consumers)
        self.names = shortened(list(names), _NAME)
        self._brief = shortened(list(names), _MARK_NAME)
        self._height = 400 + _LEGEND_ROW * len(names)
        self.figure: go.Figure = go.Figure()
        self.figure.update_layout(
            template=look(),
            title=title_of(readings[-1].name),
            xaxis={
                "type": "date",
                "title": "time since the start, min:s"
                if seconds < _HOUR_S
                else "time since the start, h:min:s",
                "tickformat": "%M:%S" if seconds < _HOUR_S else "%H:%M:%S",
                "hoverformat": "%H:%M:%S",
                "range": since_start([self.begin_s, self.begin_s + max(1.0, seconds)], self.begin_s),
            },
            yaxis={"title": title, "rangemode": "tozero"},
            hovermode="x unified",
            margin={"l": 60, "r": 20, "t": 50, "b": 50},
            legend=LEGEND,
            height=self._height,
        )
        self._mark(readings)

    def line(
        self, name: str, times_s: Iterable[float], values: Iterable[Any], colour: str, **more: Any
    ) -> None:
        """Add a line.

        Args:
            name: What the legend says.
            times_s: Wall clock, seconds.
            values: In the unit of the y axis; None breaks the line.
            colour: Of the line.
            more: As plotly's Scatter takes it.
        """
        line = {"color": colour, "width": 1.8, **more.pop("line", {})}
        x = since_start(times_s, self.begin_s)
        name = self.names.get(name, name)
        self.figure.add_scatter(x=x, y=list(values), mode="lines", name=name, line=line, **more)

    def _mark(self, readings: Sequence[StreamReading]) -> None:
        """Draw where something changed: a dotted line and a few words above, upright, so that none runs off an edge."""
        marks = all_marks(readings)
        near_s = (readings[-1].time_s - self.begin_s) / _PLACES
        groups: list[list[Mark]] = []
        for mark in marks:
            if groups and mark.time_s - groups[-1][0].time_s < near_s:
                groups[-1].append(mark)
            else:
                groups.append([mark])
        texts = [self._mark_one(group) for group in groups]
        dotted = {"color": GREY, "width": 1, "dash": "dot"}
        for x in since_start([mark.time_s for mark in marks[:_DRAWN]], self.begin_s):
            self.figure.add_shape(type="line", x0=x, x1=x, y0=0, y1=1, yref="paper", line=dotted)
        if texts:
            room = 12 + max(text_width(text, 10) for text in texts)
            self.figure.update_layout(margin={"t": 40 + room}, height=self._height + room - 10)

    def _mark_one(self, group: Sequence[Mark]) -> str:
        """Draw marks of about the same time as one; return what it says."""
        (x,) = since_start([group[0].time_s], self.begin_s)
        said = [mark.text for mark in group]
        first, name = said[0], group[0].consumer
        if name in self._brief and first.startswith(name):
            first = self._brief[name] + first[len(name) :]
        more = f", {len(said) - 1} more" if len(said) > 1 else ""
        text = short(first, _WRITTEN - len(more)) + more
        hover = "<br>".join(said)
        words = {"text": text, "hovertext": hover, "font": {"size": 10, "color": GREY}, "textangle": -90}
        place = {
            "x": x,
            "y": 1.0,
            "yref": "paper",
            "xanchor": "center",
            "yanchor": "bottom",
            "showarrow": False,
        }
        self.figure.add_annotation(**words, **place)
        return text


LOADER = "loader"
"""The name of the producer with its workers, beside the trials."""

_GIB = 1024.0**3

Readings = Sequence[StreamReading]


def draw_word(word: str, readings: Readings) -> go.Figure:
    """Draw one of `WORDS`.

    Args:
        word: Which.
        readings: Oldest first.

    Raises:
        TsnbError: There is too little to draw; says what would bring more.
    """
    if len(readings) < 2 and word != "spent":
        raise TsnbError(
            "This process has just started to observe this stream, so there is too little data for a figure "
            "over time. Try again in a few seconds."
        )
    return WORDS[word](runs_apart(readings))


def logged_names(readings: Readings) -> list[str]:
    """Return the numbers that trials logged while they were attached, in the order of first appearance."""
    return list(dict.fromkeys(name for r in readings for c in r.consumers for name in c.metrics))


def draw_logged(name: str, readings: Readings) -> go.Figure:
    """Draw a logged number over the stream's time: each value once, as soon as the stream was told of it."""
    its = runs_apart(readings)
    chart, curves = Chart(its, name), curves_of(its).get(name, {})
    for trial, colour in _colours(its).items():
        points = (
            [(its[0].time_s + point[0], point[6]) for point in curves[trial].points]
            if trial in curves
            else []
        )
        chart.line(trial, *_fewer([time_s for time_s, _ in points], [value for _, value in points]), colour)
    chart.figure.update_yaxes(rangemode="normal")
    return chart.figure


def _lag(readings: Readings) -> go.Figure:
    return _by_trial(readings, lambda consumer: consumer.lag, "lag, batches behind the fastest")


def _fill(readings: Readings) -> go.Figure:
    return _by_trial(readings, lambda consumer: consumer.fill, "fill, batches ready but not taken")


def _by_trial(readings: Readings, number: Callable[[ConsumerReading], Any], title: str) -> go.Figure:
    """Draw one number of each trial; a line breaks where the trial was not attached."""
    chart = Chart(readings, title)
    for name, colour in _colours(readings).items():
        here = [{c.name: c for c in reading.consumers}.get(name) for reading in readings]
        values = [None if consumer is None else number(consumer) for consumer in here]
        times = [reading.time_s for reading in readings]
        chart.line(name, *_fewer(times, values), colour)
    chart.figure.update_yaxes(rangemode="tozero")
    return chart.figure


def _fewer(times: Sequence[float], values: Sequence[Any]) -> tuple[list[float], list[Any]]:
    """Return no more points than a screen can show; gaps stay."""
    known = [(t, v) for t, v in zip(times, values, strict=True) if v is not None]
    if len(known) <= POINTS:
        # a gap needs one break only
        kept = [k for k, v in enumerate(values) if v is not None or (k and values[k - 1] is not None)]
        return [times[k] for k in kept], [values[k] for k in kept]
    few = thinned(known, POINTS)
    gaps = [
        (t, None)
        for k, (t, v) in enumerate(zip(times, values, strict=True))
        if v is None and k and values[k - 1]
    ]
    both = sorted([*few, *gaps], key=lambda point: point[0])
    return [t for t, _ in both], [v for _, v in both]


def _throughput(readings: Readings) -> go.Figure:
    chart, cut = Chart(readings, "throughput, samples/s"), _strips(readings)
    for name, colour in _colours(readings).items():
        here_s = cut.here_s[name]
        rates = cut.samples[name] / np.where(here_s > cut.step_s / 2, here_s, np.nan)
        chart.line(name, cut.centres_s, _known(rates), colour, hovertemplate="%{y:.0f} samples/s")
    return chart.figure


def _share(readings: Readings) -> go.Figure:
    chart, cut = Chart(readings, "share of compute"), _strips(readings)
    for (name, shares), colour in zip(cut.compute_shares().items(), _colours(readings).values(), strict=True):
        values = np.nan_to_num(shares)
        chart.line(
            name,
            cut.centres_s,
            values,
            colour,
            stackgroup="all",
            line={"width": 0.8},
            hovertemplate="%{y:.0%}",
        )
    chart.figure.update_yaxes(range=[0, 1], tickformat=".0%")
    return chart.figure


def _part(part: str) -> Callable[[Readings], go.Figure]:
    def draw(readings: Readings) -> go.Figure:
        chart, cut = Chart(readings, f"{PART_NAMES[part]}, share of time"), _strips(readings)
        for name, colour in _colours(readings).items():
            here_s = cut.here_s[name]
            values = cut.parts[name][part] / np.where(here_s > cut.step_s / 2, here_s, np.nan)
            chart.line(name, cut.centres_s, _known(np.minimum(values, 1.0)), colour, hovertemplate="%{y:.0%}")
        chart.figure.update_yaxes(range=[0, 1.02], tickformat=".0%")
        return chart.figure

    return draw


def _loader(readings: Readings) -> go.Figure:
    chart = Chart(readings, "loader, batches/s")
    cut = _strips(readings)
    edges = cut.edges_s
    counted = np.cumsum(
        [0.0, *(max(0, after.batches - r.batches) for r, after in itertools.pairwise(readings))]
    )
    published = np.interp(edges, [r.time_s for r in readings], counted)
    chart.line(
        "published",
        cut.centres_s,
        np.diff(published) / cut.step_s,
        GREY,
        hovertemplate="%{y:.1f} batches/s",
    )
    filled = _fewer([r.time_s for r in readings], [r.window_fill for r in readings])
    chart.line(
        "window fill (right)",
        *filled,
        FAINT,
        yaxis="y2",
        line={"width": 1.2},
        hovertemplate="%{y} batches",
    )
    right = {
        "title": "window fill, batches",
        "overlaying": "y",
        "side": "right",
        "showgrid": False,
        "tickmode": "auto",
    }
    chart.figure.update_layout(yaxis2={**right, "range": [0, readings[-1].window * 1.02]}, margin={"r": 60})
    return chart.figure


def _spent(readings: Readings) -> go.Figure:
    import plotly.graph_objects as go

    figure = go.Figure()
    trials = spent(readings)
    names = shortened([trial.name for trial in trials], _NAME)
    colours = colours_of([trial.name for trial in trials], lanes_of(readings))
    # each trial computes in its own colour, so the legend's entry for computing has neither
    figure.add_bar(
        x=[None],
        y=[trial.name for trial in trials[:1]] or [""],
        orientation="h",
        marker_color=COMPUTING,
        name=PART_NAMES["computing"],
    )
    for part in parts_of(trials):
        figure.add_bar(
            orientation="h",
            y=[trial.name for trial in trials],
            x=[round(trial.seconds(part), 3) for trial in trials],
            marker_color=[colours[t.name] for t in trials] if part == "computing" else SPENT[part],
            name=PART_NAMES[part],
            showlegend=part != "computing",
            customdata=[
                f"{clock(t.seconds(part))}, {percent(t.seconds(part) / t.total_s if t.total_s else 0)}"
                for t in trials
            ],
            hovertemplate=f"%{{y}}: {PART_NAMES[part]} %{{customdata}}<extra></extra>",
        )
    figure.update_layout(
        template=look(),
        barmode="stack",
        title=title_of(f"{readings[-1].name}: where each second went"),
        xaxis={"title": "time of each trial, s"},
        yaxis={
            "type": "category",
            "autorange": "reversed",
            "tickvals": list(names),
            "ticktext": [*names.values()],
        },
        legend={**LEGEND, "traceorder": "normal"},
        margin={"l": 20, "r": 20, "t": 50, "b": 50},
        height=170 + 34 * max(2, len(trials)),
    )
    figure.update_yaxes(automargin=True)
    return figure


def _cpu(readings: Readings) -> go.Figure:
    return _by_process(readings, lambda use: use.cpu, "CPU, cores busy", lambda host: host.cores, "cores")


def _memory(readings: Readings) -> go.Figure:
    return _by_process(readings, lambda use: use.memory_bytes / _GIB, "own memory, GiB")


def _gpu(readings: Readings) -> go.Figure:
    if not any(host.gpus for _, host in _hosts(readings)):
        raise TsnbError("No GPU was seen while this stream was observed.")
    return _by_process(readings, lambda use: use.gpu_bytes / _GIB, "GPU memory, GiB")


def _by_process(
    readings: Readings,
    number: Callable[[ProcessReading], float],
    title: str,
    limit: Callable[[HostReading], float] | None = None,
    limit_name: str = "",
) -> go.Figure:
    """Draw one number of each process over the readings that carry the machine, stacked."""
    hosts = _hosts(readings)
    if not hosts:
        raise TsnbError("The machine was not measured while this stream was observed, so its use is unknown.")
    chart = Chart(readings, title)
    times = [time_s for time_s, _ in hosts]
    for name, colour in {LOADER: GREY, **_colours(readings)}.items():
        uses = [host.producer if name == LOADER else host.consumers.get(name) for _, host in hosts]
        if any(uses):
            values = [number(use) if use else 0.0 for use in uses]
            stack: dict[str, Any] = {"stackgroup": "all", "line": {"width": 0.8}, "hovertemplate": "%{y:.2f}"}
            chart.line(name, times, values, colour, **stack)
    if limit is not None:
        dotted = {"width": 1.2, "dash": "dot"}
        chart.line(limit_name, times, [limit(host) for _, host in hosts], FAINT, line=dotted)
    return chart.figure


def _hosts(readings: Readings) -> list[tuple[float, HostReading]]:
    return [(reading.time_s, reading.host) for reading in readings if reading.host is not None]


def _strips(readings: Readings) -> Strips:
    cut = strips(readings)
    assert cut is not None, "two readings make a strip"
    return cut


def _colours(readings: Readings) -> dict[str, str]:
    here = (c.name for reading in readings for c in reading.consumers if c.state != "gone")
    return colours_of(dict.fromkeys(here), lanes_of(readings))


def _known(values: Iterable[float]) -> list[float | None]:
    """Return numbers for plotly, which breaks a line at None."""
    return [None if np.isnan(value) else float(value) for value in values]


WORDS: dict[str, Callable[[Readings], go.Figure]] = {
    "lag": _lag,
    "fill": _fill,
    "throughput": _throughput,
    "loader": _loader,
    "share": _share,
    "computing": _part("computing"),
    "waiting": _part("waiting"),
    "held": _part("held"),
    "spent": _spent,
    "cpu": _cpu,
    "memory": _memory,
    "gpu": _gpu,
}
"""What `tsnb.plot` can draw of a stream."""
