"""How a consumer stands, as the watches of this process say: how long it still takes, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterable

from tsnb.registry import entries
from tsnb.telemetry.eta import NO_ETA, Eta
from tsnb.telemetry.watching import watch, watched

__all__ = ["awaits_of", "eta_of"]


def eta_of(consumer: str, streams: Iterable[str], pid: int | None) -> Eta:
    """Return how long a consumer still takes, as the watches of this process say.

    A stream that nobody here watches yet, as in a script without a panel, is watched from now on: the next question is
    answered. Of one that has not attached yet its plan speaks, if it has one.

    Args:
        consumer: Its name.
        streams: Those that it takes; of several estimates the longest counts.
        pid: Its process.
    """
    found = []
    for name in streams:
        there = watched().get(name)
        if there is None or (there.over and any(entry.name == name for entry in entries())):
            there = watch(name)
        if not there.over:
            view = there.view
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
