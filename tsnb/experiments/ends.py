"""Telling the observers of a stream of trials: that some are about to attach, and how each ended."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from tsnb.discovery import registry
from tsnb.discovery.promises import promises
from tsnb.errors import TsnbError
from tsnb.telemetry.metrics import first_told
from tsnb.telemetry.observer import TOLD_S, Observer
from tsnb.telemetry.readings import EndReading
from tsnb.telemetry.watching import watch, watched

__all__ = ["end_reading", "follow_stream_for", "stream_for", "tell_end", "why_no_stream"]

MOST_LETTERS = 600
"""Letters of an error's line that are told."""


def end_reading(
    name: str,
    state: str,
    time_s: float,
    pid: int,
    failure: str,
    metrics: Mapping[str, float],
    report: Mapping[str, Any],
) -> EndReading:
    """Return how a trial ended, in short.

    Args:
        name: The trial's.
        state: One of `END_STATES`.
        time_s: When: wall clock, seconds since 1970.
        pid: Its process; 0: it never had one.
        failure: What went wrong: one line, then the traceback.
        metrics: The last numbers that it logged; a stream is told of the first 16 names, as while it ran.
        report: What its consumers did, as its process told last; with `cpu_s` and `since_s` if it could say at its end.
    """
    error = failure.partition("\n")[0][:MOST_LETTERS]
    cpu_s, since_s = report.get("cpu_s"), report.get("since_s", 0.0)
    here_s = {f"{what}_s": report.get(f"{what}_here_s", 0.0) for what in ("attached", "paused")}
    return EndReading(name, state, time_s, pid, error, first_told(metrics), cpu_s, since_s, **here_s)


def stream_for(producer: str | None) -> str:
    """Return the stream that a trial is for: the named one, else the one that is served; empty if there are others."""
    with contextlib.suppress(TsnbError, OSError):
        return producer or registry.away() or registry.find(None).name
    return ""


def why_no_stream(report: Mapping[str, Any], then: str) -> str:
    """Return that a stream which a trial took is neither served nor about to be, and what to do; empty: all are there.

    Args:
        report: What its consumers did, as its process told last.
        then: What to do once the stream is there, as "then extend the trial".
    """
    there = {entry.name for entry in registry.entries()} | {one.name for one in promises()}
    for name in report.get("stream", "").split(", "):
        if name and name not in there:
            return (
                f"trained on the stream {name!r}, which is no longer served. Start the stream again "
                f"(%tensorsocket start LOADER --name {name}), {then}"
            )
    return ""


def follow_stream_for(producer: str | None) -> None:
    """See to it that a trial's stream is followed here, and so told of trials that are not attached yet."""
    if name := stream_for(producer):
        watch(name)


def tell_end(end: EndReading, streams: str, producer: str | None) -> None:
    """Tell an end to the streams that the trial took. Never raises; takes milliseconds.

    What watches the stream in this process has heard of it then, and of all that the trial did before.

    Args:
        end: How it ended.
        streams: Those it attached to, as its report has them ("train, val"); empty: none.
        producer: The one that it was for; with neither, the one that is served, if it is the only one.
    """
    with contextlib.suppress(TsnbError, OSError):
        names = [name for name in streams.split(", ") if name] or [
            producer or registry.away() or registry.find(None).name
        ]
        for name in names:
            here = watched().get(name)
            if here is not None:
                here.tell_end(end)
            with contextlib.suppress(TsnbError, OSError), contextlib.closing(Observer(name)) as observer:
                told = observer.tell_end(end)
                if here is not None:
                    here.catch_up(TOLD_S, end if told else None)
