"""How trials stand, as the watches of this process say: how long each still takes, and what it waits for.

A stream that nobody here watches yet, as in a script without a panel, is watched from now on: the next question is
answered.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tsnb.discovery.registry import entries
from tsnb.planners.queueing import Leaver
from tsnb.telemetry.forecast.eta import NO_ETA, Eta
from tsnb.telemetry.shown.view import StreamView
from tsnb.telemetry.watching import watch, watched

if TYPE_CHECKING:
    from tsnb.experiments.running.trial_life import TrialLife

__all__ = ["awaits_of", "eta_of", "leavers", "stream_of"]


def stream_of(life: TrialLife) -> str:
    """Return what a trial says that it takes, or was told to take before it has said so; empty: not known.

    Args:
        life: The trial's; of one that takes several streams it is all of them, "a, b".
    """
    return str(life.report.get("stream", "")) or life.plan.options.stream or ""


def _view(stream: str) -> StreamView | None:
    """Return a stream as it is watched here; None: it has ended."""
    there = watched().get(stream)
    if there is None or (there.over and any(entry.name == stream for entry in entries())):
        there = watch(stream)
    return None if there.over else there.view


def eta_of(consumer: str, streams: Iterable[str], pid: int | None) -> Eta:
    """Return how long a consumer still takes, as the watches of this process say.

    Of one that has not attached yet its plan speaks, if it has one.

    Args:
        consumer: Its name.
        streams: Those that it takes; of several estimates the longest counts.
        pid: Its process.
    """
    found = []
    for name in streams:
        if (view := _view(name)) is not None:
            with view.lock:
                row = view.rows.get(consumer)
                eta = (
                    row.eta
                    if row is not None and row.here and row.reading.pid == pid
                    else view.coming(consumer)
                )
            found += [eta] if eta.known else []
    # a validation stream ends with the training: of two that are as sure the longer
    return max(found, key=lambda eta: (eta.whole, eta.left_s), default=NO_ETA)


def leavers(streams: Mapping[str, str]) -> list[Leaver]:
    """Return what is still to come of consumers; of one that nothing is known of, that it never ends.

    Args:
        streams: Of each, by its name; of one that takes several nothing is known.
    """
    return [_leaver(name, stream) or Leaver(name, math.inf, math.inf) for name, stream in streams.items()]


def _leaver(name: str, stream: str) -> Leaver | None:
    if not stream or ", " in stream or (view := _view(stream)) is None:
        return None
    with view.lock:
        row, latest = view.rows.get(name), view.latest
        if row is None or latest is None or not (row.here and latest.epoch_batches and row.eta.whole):
            return None
        left_s, its, batches = row.eta.left_s, row.reading, latest.epoch_batches
    epochs = its.planned - its.epochs + max(0, batches - its.position) / batches
    return Leaver(name, max(0.0, left_s - (time.time() - latest.time_s)), epochs)


def awaits_of(consumer: str, pid: int | None) -> str:
    """Return what a consumer waits for beside batches, as the watches of this process say: "its turn"; empty: nothing.

    Args:
        consumer: Its name; that of a group for any of its ranks.
        pid: Its process.
    """
    for there in watched().values():
        latest = None if there.over else there.view.latest
        for one in () if latest is None else latest.consumers:
            if one.awaits and one.pid == pid and one.name.partition("[")[0] == consumer:
                return one.awaits
    return ""
