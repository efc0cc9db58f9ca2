"""Telling how a trial ended to all who watch its stream.

Its producer tells every observer; this process's own panels and reports know at once.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping

from tsnb import registry
from tsnb.errors import TsnbError
from tsnb.telemetry.observer import Observer
from tsnb.telemetry.readings import EndReading
from tsnb.telemetry.watching import watched

__all__ = ["end_reading", "tell_end"]

MOST_LETTERS = 300
"""Letters of an error's line that are told."""


def end_reading(
    name: str, state: str, time_s: float, pid: int, failure: str, metrics: Mapping[str, float]
) -> EndReading:
    """Return how a trial ended, in short.

    Args:
        name: The trial's.
        state: One of `END_STATES`.
        time_s: When: wall clock, seconds since 1970.
        pid: Its process; 0: it never had one.
        failure: What went wrong: one line, then the traceback.
        metrics: The last numbers that it logged.
    """
    finite = {metric: value for metric, value in metrics.items() if math.isfinite(value)}
    return EndReading(name, state, time_s, pid, failure.partition("\n")[0][:MOST_LETTERS], finite)


def tell_end(end: EndReading, streams: str, producer: str | None) -> None:
    """Tell an end to the streams that the trial took. Never raises; takes milliseconds.

    Args:
        end: How it ended.
        streams: Those it attached to, as its report has them ("train, val"); empty: none.
        producer: The one that it was meant for; with neither, the one that is served, if it is the only one.
    """
    with contextlib.suppress(TsnbError, OSError):
        names = [name for name in streams.split(", ") if name] or [producer or registry.find(None).name]
        for name in names:
            if name in (watches := watched()):
                watches[name].tell_end(end)
            with contextlib.suppress(TsnbError, OSError), contextlib.closing(Observer(name)) as observer:
                observer.tell_end(end)
