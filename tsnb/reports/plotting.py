"""`tsnb.plot`: one word, one figure. The stream's words are drawn from readings, logged names from the records."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tsnb.errors import TsnbError
from tsnb.planners.timeline import HELD, Timeline, newest
from tsnb.records.selection import NoSuchRecord, chosen_runs
from tsnb.reports.figures import WORDS, draw_logged, draw_word, logged_names
from tsnb.reports.logged import draw_lineage, draw_records
from tsnb.reports.look import FAINT, look
from tsnb.reports.sources import recorded, streamed
from tsnb.show.words import COLOURS
from tsnb.text.words import did_you_mean

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["draw_timeline", "plot"]


def plot(
    what: str,
    *,
    by: str | None = None,
    x: str | None = None,
    trial: str | None = None,
    all_runs: bool = False,
    stream: str | None = None,
    recording: str | os.PathLike[str] | None = None,
) -> go.Figure:
    """Draw a stream over time, or a logged number of many trials.

    Words for a stream: "lag", "fill", "throughput", "loader", "share", "computing", "waiting", "held", "spent",
    "cpu", "memory", "gpu" (docs/reports.md). "plan" draws the newest plan against what really happened. "lineage"
    draws which trial is a clone of which.

    Example:
        >>> tsnb.plot("loss", by="lr")

    Args:
        what: Word from the list above, or a logged name such as "loss".
        by: Parameter or option for a logged name. Lines of one value share a colour. Defaults to a colour per
            trial.
        x: Axis for a logged name: "step", "epoch" (the last value of each), "samples" or "seconds". Defaults to
            "step".
        trial: Name of one trial or sweep, for a logged name or "lineage". Defaults to all of the project.
        all_runs: Whether former runs of each name are drawn too. Defaults to False.
        stream: Name of the stream. With a logged name, the time of that stream. Defaults to the only one served.
        recording: Path of a recording (`tsnb.streams.record`) in place of a stream. Defaults to None.

    Returns:
        A plotly figure. Lines of more than 2,000 points show the lowest and highest of each stretch.

    Raises:
        ValueError: If `x` is unknown, an option does not go with the word, or the file is not a recording.
        NoSuchRecord: If `what` is neither a word for a stream nor a logged name.
        ProducerNotFound: If no stream has that name.
        TsnbError: If too little is known of the stream, or the recording or the records cannot be read.
    """
    if stream is not None and recording is not None:
        raise ValueError("Pass stream= or recording=, not both")
    others = {"by": by, "x": x, "stream": stream, "recording": recording}
    if what == "plan":
        return _plan({**others, "name": trial, "all_runs": all_runs or None})
    if what == "lineage":
        return _lineage(trial, all_runs, others)
    of_records = {"by": by, "x": x, "name": trial, "all_runs": all_runs or None}
    given = [option for option, value in of_records.items() if value is not None]
    of_stream = what in WORDS or stream is not None or recording is not None
    if not of_stream:
        if what not in _logged():
            raise NoSuchRecord(_unknown(what, _logged(), "by the project's trials"))
        return draw_records(what, by=by, x=x or "step", name=trial, all_runs=all_runs)
    if given:
        raise ValueError(f"{given[0]}= works for logged numbers, not for a stream's {what!r}. Remove it")
    readings = (streamed(stream) if recording is None else recorded(recording)).readings
    if what in WORDS:
        return draw_word(what, readings)
    if what not in logged_names(readings):
        raise NoSuchRecord(_unknown(what, logged_names(readings), f"on the stream {readings[-1].name!r}"))
    return draw_logged(what, readings)


def _plan(others: Mapping[str, object]) -> go.Figure:
    """Draw the newest plan of this process, which no option changes."""
    if given := [option for option, value in others.items() if value is not None]:
        raise ValueError(
            f"{given[0]}= does not work with 'plan', which shows this process's newest plan. Remove it"
        )
    if (found := newest()) is None:
        raise TsnbError(
            "This process has no plan. Create one with tsnb.plan(trials, loader=loader), or start a sweep "
            "with plan=True"
        )
    return draw_timeline(found)


def _lineage(name: str | None, all_runs: bool, others: Mapping[str, object]) -> go.Figure:
    """Draw which trial is a clone of which, without the options that say nothing there."""
    if given := [option for option, value in others.items() if value is not None]:
        raise ValueError(
            f"{given[0]}= does not work with 'lineage', which takes name= and all_runs=. Remove it"
        )
    return draw_lineage(name=name, all_runs=all_runs)


def _logged() -> list[str]:
    """Return every number that the project's trials logged."""
    _, runs = chosen_runs(None, all_runs=True)
    return list(dict.fromkeys(metric for run in runs for metric in run.metrics))


def _unknown(what: str, logged: list[str], where: str) -> str:
    hint = did_you_mean(what, [*WORDS, *logged])
    listed = ", ".join(logged[:20]) + (", ..." if len(logged) > 20 else "")
    return (
        f"No number is named {what!r}.{hint} Of a stream: {', '.join(WORDS)}. Logged {where}: "
        f"{listed or 'nothing yet'}."
    )


def draw_timeline(timeline: Timeline) -> go.Figure:
    """Draw when trials start and end: a bar each as planned first, below it what was, and what is still to come."""
    import plotly.graph_objects as go

    figure = go.Figure()
    told = timeline.trials
    # what was and what is still to come are one bar, beside the planned one
    for title, bar, colour, known in (
        ("planned", 0, COLOURS[0], [(trial.name, trial.planned) for trial in told]),
        ("actual", 1, COLOURS[1], [(trial.name, trial.actual) for trial in told]),
        ("predicted", 1, FAINT, [(trial.name, trial.ahead) for trial in told]),
    ):
        spans = [(name, span) for name, span in known if span is not None]
        if spans:
            figure.add_bar(
                y=[name for name, _ in spans],
                x=[end - start for _, (start, end) in spans],
                base=[start for _, (start, _) in spans],
                orientation="h",
                name=title,
                offsetgroup=str(bar),
                marker_color=colour,
                hovertemplate="%{y}: %{base:.3g} s, for %{x:.3g} s<extra>" + title + "</extra>",
            )
    for trial in told:
        if trial.held:
            figure.add_annotation(
                x=0, y=trial.name, text=HELD, showarrow=False, xanchor="left", yanchor="top"
            )
    figure.update_layout(
        title=timeline.title,
        barmode="group",
        xaxis_title="seconds",
        yaxis={
            "autorange": "reversed",
            "categoryorder": "array",
            "categoryarray": [each.name for each in told],
        },
        template=look(),
    )
    return figure
