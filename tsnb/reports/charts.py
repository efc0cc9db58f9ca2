"""What all figures of a stream share: the axis of time, marks, colours, margins."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tsnb.telemetry.marks import Mark, Marker
from tsnb.telemetry.readings import StreamReading

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["Chart", "since_start"]

_HOUR_S = 3600.0

_MIDNIGHT = dt.datetime(2000, 1, 1)  # noqa: DTZ001 (a time since the start belongs to no zone)

_PLACES = 30
"""Marks that are nearer to each other than this share of the axis are written as one."""

_DRAWN = 20
"""Marks drawn at most: more would cover what they explain."""


def since_start(times_s: Iterable[float], begin_s: float) -> list[str]:
    """Return times as plotly's axis of dates takes them, as if the stream had started at midnight of some day.

    Not as milliseconds, which such an axis takes too: plotly reads numbers of four digits as years.
    """
    return [
        (_MIDNIGHT + dt.timedelta(seconds=time_s - begin_s)).isoformat(" ", "milliseconds")
        for time_s in times_s
    ]


class Chart:
    """A plotly figure over a stream's time; filled in by `tsnb.reports.figures`.

    Attributes:
        figure: The figure.

    Args:
        readings: What it is about, oldest first; not empty.
        title: What the y axis shows, with its unit.
    """

    def __init__(self, readings: Sequence[StreamReading], title: str) -> None:
        import plotly.graph_objects as go

        self.begin_s = readings[0].time_s
        seconds = readings[-1].time_s - self.begin_s
        self.figure: go.Figure = go.Figure()
        self.figure.update_layout(
            template="plotly_white",
            title={"text": readings[-1].name, "x": 0.01, "font": {"size": 14}},
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
            height=400,
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
        self.figure.add_scatter(x=x, y=list(values), mode="lines", name=name, line=line, **more)

    def _mark(self, readings: Sequence[StreamReading]) -> None:
        """Draw where something changed: a dotted line and a few words above, turned so that neighbours fit."""
        marker = Marker()
        marks = [mark for reading in readings for mark in marker.feed(reading)]
        near_s = (readings[-1].time_s - self.begin_s) / _PLACES
        groups: list[list[Mark]] = []
        for mark in marks:
            if groups and mark.time_s - groups[-1][0].time_s < near_s:
                groups[-1].append(mark)
            else:
                groups.append([mark])
        texts = [self._mark_one(group) for group in groups[:_DRAWN]]
        if texts:
            room = min(120, 30 + 3 * max(map(len, texts)))
            self.figure.update_layout(margin={"t": 20 + room}, height=380 + room)

    def _mark_one(self, group: Sequence[Mark]) -> str:
        """Draw marks of about the same time as one; return what it says."""
        (x,) = since_start([group[0].time_s], self.begin_s)
        dotted = {"color": "#59636e", "width": 1, "dash": "dot"}
        self.figure.add_shape(type="line", x0=x, x1=x, y0=0, y1=1, yref="paper", line=dotted)
        said = [mark.text for mark in group]
        text = ", ".join(said[:2]) + (f", {len(said) - 2} more" if len(said) > 2 else "")
        hover = "<br>".join(said)
        words = {"text": text, "hovertext": hover, "font": {"size": 10, "color": "#59636e"}, "textangle": -30}
        place = {
            "x": x,
            "y": 1.0,
            "yref": "paper",
            "xanchor": "left",
            "yanchor": "bottom",
            "showarrow": False,
        }
        self.figure.add_annotation(**words, **place)
        return text
