"""Plotly figures of a stream, from its readings: one function a word that `tsnb.plot` takes.

| word | figure |
|---|---|
| lag | batches behind the fastest, a line a trial |
| fill | batches published and not yet taken, a line a trial |
| throughput | samples a second, a line a trial |
| loader | batches that the loader published a second, and the window's fill |
| share | share of all computing by trial, stacked: who gets the machine, and how that changed |
| computing, waiting, held | share of a trial's time that went there, a line a trial |
| spent | where each second of each trial went, a bar a trial |
| cpu, memory, gpu | cores busy, memory and GPU memory by trial and loader, where the machine was looked at |
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tsnb.errors import TsnbError
from tsnb.reports.charts import Chart
from tsnb.reports.colours import COMPUTING, PART_COLOURS, colours_of
from tsnb.reports.logged import POINTS, thinned
from tsnb.reports.spent import PARTS, spent
from tsnb.reports.strips import Strips, strips
from tsnb.reports.wording import PART_NAMES
from tsnb.telemetry.host_readings import HostReading, ProcessReading
from tsnb.telemetry.readings import ConsumerReading, StreamReading
from tsnb.telemetry.words import clock, percent

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["WORDS", "draw_logged", "draw_word", "logged_names"]

LOADER = "loader"
"""What the producer with its workers is called beside the trials."""

_LOADER_COLOUR = "#24292F"
"""No trial has it."""

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
            "too little of this stream is known for a figure over time: this process watches it only since now. "
            "Ask again in a few seconds."
        )
    return WORDS[word](readings)


def logged_names(readings: Readings) -> list[str]:
    """Return the numbers that trials logged while they were attached, in the order of first appearance."""
    return list(dict.fromkeys(name for r in readings for c in r.consumers for name in c.metrics))


def draw_logged(name: str, readings: Readings) -> go.Figure:
    """Draw a logged number over the stream's time, as far as readings have it: four values a second at most."""
    return _by_trial(readings, lambda consumer: consumer.metrics.get(name), name, rangemode="normal")


def _lag(readings: Readings) -> go.Figure:
    return _by_trial(readings, lambda consumer: consumer.lag, "lag, batches behind the fastest")


def _fill(readings: Readings) -> go.Figure:
    return _by_trial(readings, lambda consumer: consumer.fill, "fill, batches published and not taken")


def _by_trial(
    readings: Readings, number: Callable[[ConsumerReading], Any], title: str, rangemode: str = "tozero"
) -> go.Figure:
    """Draw one number of each trial; a line breaks where the trial was not attached."""
    chart = Chart(readings, title)
    for name, colour in _colours(readings).items():
        here = [{c.name: c for c in reading.consumers}.get(name) for reading in readings]
        values = [None if consumer is None else number(consumer) for consumer in here]
        times = [reading.time_s for reading in readings]
        chart.line(name, *_fewer(times, values), colour)
    chart.figure.update_yaxes(rangemode=rangemode)
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
        _LOADER_COLOUR,
        hovertemplate="%{y:.1f} batches/s",
    )
    filled = _fewer([r.time_s for r in readings], [r.window_fill for r in readings])
    chart.line(
        "window fill (right)",
        *filled,
        "#8C959F",
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
    chart.figure.update_layout(legend={"orientation": "h", "y": -0.22})
    return chart.figure


def _spent(readings: Readings) -> go.Figure:
    import plotly.graph_objects as go

    figure = go.Figure()
    trials = spent(readings)
    colours = colours_of(trial.name for trial in trials)
    # each trial computes in its own colour, so the legend's entry for it has none of them
    figure.add_bar(
        x=[None],
        y=[trial.name for trial in trials[:1]] or [""],
        orientation="h",
        marker_color=COMPUTING,
        name=PART_NAMES["computing"],
    )
    for part in PARTS:
        if part == "parked" and not any(trial.parked_s for trial in trials):
            continue
        figure.add_bar(
            orientation="h",
            y=[trial.name for trial in trials],
            x=[round(trial.seconds(part), 3) for trial in trials],
            marker_color=[colours[t.name] for t in trials] if part == "computing" else PART_COLOURS[part],
            name=PART_NAMES[part],
            showlegend=part != "computing",
            customdata=[
                f"{clock(t.seconds(part))}, {percent(t.seconds(part) / t.total_s if t.total_s else 0)}"
                for t in trials
            ],
            hovertemplate=f"%{{y}}: {PART_NAMES[part]} %{{customdata}}<extra></extra>",
        )
    figure.update_layout(
        template="plotly_white",
        barmode="stack",
        title={"text": f"{readings[-1].name}: where each second went", "x": 0.01, "font": {"size": 14}},
        xaxis={"title": "time of each trial, s"},
        yaxis={"type": "category", "autorange": "reversed"},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        margin={"l": 20, "r": 20, "t": 80, "b": 50},
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
        raise TsnbError("no GPU was seen while this stream was watched.")
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
        raise TsnbError(
            "the machine was not looked at while this stream was watched, so its use is not known."
        )
    chart = Chart(readings, title)
    times = [time_s for time_s, _ in hosts]
    for name, colour in {LOADER: _LOADER_COLOUR, **_colours(readings)}.items():
        uses = [host.producer if name == LOADER else host.consumers.get(name) for _, host in hosts]
        if any(uses):
            values = [number(use) if use else 0.0 for use in uses]
            stack: dict[str, Any] = {"stackgroup": "all", "line": {"width": 0.8}, "hovertemplate": "%{y:.2f}"}
            chart.line(name, times, values, colour, **stack)
    if limit is not None:
        dotted = {"width": 1.2, "dash": "dot"}
        chart.line(limit_name, times, [limit(host) for _, host in hosts], "#8C959F", line=dotted)
    return chart.figure


def _hosts(readings: Readings) -> list[tuple[float, HostReading]]:
    return [(reading.time_s, reading.host) for reading in readings if reading.host is not None]


def _strips(readings: Readings) -> Strips:
    cut = strips(readings)
    assert cut is not None, "two readings make a strip"
    return cut


def _colours(readings: Readings) -> dict[str, str]:
    here = (c.name for reading in readings for c in reading.consumers if c.state != "gone")
    return colours_of(dict.fromkeys(here))


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
