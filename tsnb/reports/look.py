"""How the figures of `tsnb.plot` look on a page of whatever colour: a figure cannot know the notebook's theme.

Their ground is clear, so it is the page's own. What is grey is of a grey that stands out on white and on a dark theme's
ground alike (4:1 or more on both), or lets the ground through. Trials have the panel's colours.

    import plotly.graph_objects as go
    figure = go.Figure()
    figure.update_layout(template=look(), ...)
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tsnb.reports.svg import PART_COLOURS
from tsnb.show.words import COLOURS

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["CLEAR", "FAINT", "GREY", "HAZE", "LEGEND", "SPENT", "look", "since_start", "title_of"]

GREY = "#777D85"
"""Of text and lines."""

FAINT = "rgba(128,136,148,0.45)"
"""Of areas that say little: held back, or foretold."""

HAZE = "rgba(128,136,148,0.2)"
"""Of those that say next to nothing, and of the grid."""

CLEAR = "rgba(0,0,0,0)"

SPENT = {**PART_COLOURS, "held": FAINT, "between": HAZE}
"""What a trial's time goes to beside computing."""

LEGEND = {
    "orientation": "h",
    "yref": "container",
    "y": 0.0,
    "yanchor": "bottom",
    "x": 0.0,
    "xanchor": "left",
}
"""Below the figure: beside it a legend leaves nothing of a narrow page."""

_MIDNIGHT = dt.datetime(2000, 1, 1)  # noqa: DTZ001 (a time since the start belongs to no zone)

_CARD = {"bgcolor": "#F6F8FA", "bordercolor": "#D8DEE4", "font": {"color": "#1F2328"}}
"""What shows under the mouse lies above the curves, so it has a ground of its own."""


def look() -> go.layout.Template:
    """Return the template of all figures."""
    import plotly.graph_objects as go
    import plotly.io as pio

    axis = {"gridcolor": HAZE, "zerolinecolor": FAINT, "linecolor": FAINT}
    made = go.layout.Template(pio.templates["plotly_white"])
    made.layout.update(
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        font_color=GREY,
        colorway=COLOURS,
        hoverlabel=_CARD,
        xaxis=axis,
        yaxis=axis,
    )
    made.data.bar[0].update(marker_line_color=CLEAR)  # white there
    return made


def title_of(text: str) -> dict[str, Any]:
    """Return a title at the left top, above all that stands over the axes."""
    place = {"x": 0.01, "y": 1.0, "yref": "container", "yanchor": "top", "pad": {"t": 12}}
    return {"text": text, "font": {"size": 14}, **place}


def since_start(times_s: Iterable[float], begin_s: float) -> list[str]:
    """Return times as plotly's axis of dates takes them, as if the stream had started at midnight of some day.

    Not as milliseconds, which such an axis takes too: plotly reads numbers of four digits as years.
    """
    return [
        (_MIDNIGHT + dt.timedelta(seconds=time_s - begin_s)).isoformat(" ", "milliseconds")
        for time_s in times_s
    ]
