"""What streams that are watched together tell each other: which cores each keeps busy, and how long it still does.

When the last trial of one has ended, its cores come free for the others; `telemetry.eta` counts on that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tsnb.telemetry.view import StreamView

__all__ = ["busy_cores", "left_s"]


def busy_cores(views: Mapping[str, StreamView]) -> dict[str, float]:
    """Return the cores that trials and loader of each stream keep busy, by its name.

    A stream without trials, or whose processes cannot be seen from here, is not there.

    Args:
        views: The streams, by name.
    """
    found = {name: _busy(view) for name, view in views.items()}
    return {name: cores for name, cores in found.items() if cores is not None}


def left_s(views: Mapping[str, StreamView], names: Iterable[str]) -> dict[str, float]:
    """Return in how many seconds the last trial of each stream ends, by the stream's name, where that is known.

    Args:
        views: The streams, by name.
        names: Those that are asked for.
    """
    etas = {name: views[name].eta for name in names}
    return {name: eta.left_s for name, eta in etas.items() if eta.whole}


def _busy(view: StreamView) -> float | None:
    with view.lock:
        here, host = [row.reading for row in view.rows.values() if row.here], view.host
        if host is None or not here:
            return None
        # those of one process have the same numbers
        trials = {each.pid: host.consumers[each.name].cpu for each in here if each.name in host.consumers}
        workers = 0 if view.latest is None else view.latest.workers
    return sum(trials.values()) + host.loader_cpu(workers)
