"""The live panel: which trial waits for which, drawn from readings only.

Never imports a producer, a consumer, an arena or torch: a recorded log draws the same panel as a live stream.
Readings come from `tsnb.telemetry`; what a stop button does and where logs come from is handed in by the layer above.

| module | what it does |
|---|---|
| `tape` | what the front end is told: words that have changed, a frame a tick, all of it to a page that opens |
| `logs` | logs in parts, and facts of trials, for the pages that watch them |
| `shown_stream` | one stream of a panel: what feeds it, and the messages about it |
| `saved` | what stays of a panel in a saved notebook |
| `widget` | the widget |
| `frontend/` | what the browser runs; bundled into `static/` by `hatch_build.py` |
"""

from __future__ import annotations

import threading

from tsnb.discovery import registry
from tsnb.errors import ProducerNotFound
from tsnb.native.forks import free_in_child
from tsnb.panel.widget import Panel
from tsnb.telemetry.watching import watched

__all__ = ["Panel", "dashboard", "served_here"]

_panels: list[Panel] = []
_ours: list[Panel] = []
"""Those that show all streams of this notebook, however many there will be."""
_lock = free_in_child(threading.Lock())


def dashboard(name: str | None = None, *more: str) -> Panel:
    """Return the live panel of a stream, or one of several streams together.

    A stream that is not served yet is not an error: the panel says so and fills in once it is there, and again
    when it comes back later. Asking twice for the same streams gives the same panel, so that running the cell
    again shows it with its history.

    Args:
        name: The stream; None: all streams of this notebook, those that it starts later too, else the one that is
            served, once there is exactly one.
        more: Other streams to show in the same panel, for example one for validation: a trial on several is one row.
    """
    with _lock:
        for those in (_panels, _ours):
            those[:] = [panel for panel in those if panel.comm is not None]
        return _panel_of((name, *more)) if name else _panel_of_all()


def served_here(name: str) -> None:
    """Show a stream that this notebook has begun to serve in the panels of all its streams."""
    with _lock:
        for panel in _ours:
            panel.join(name)


def _panel_of(names: tuple[str, ...]) -> Panel:
    """Return the panel of those streams; the lock is held."""
    wanted = tuple(dict.fromkeys(names))
    panel = next((panel for panel in _panels if panel.streams == wanted), None)
    return panel or _opened(*wanted)


def _panel_of_all() -> Panel:
    """Return the panel of this notebook's streams, or of the only one there is; the lock is held."""
    names = _own_streams()
    if _ours:
        for name in names:
            _ours[0].join(name)
        return _ours[0]
    panel = next((panel for panel in _panels if panel.streams == names), None) or _opened(*names)
    if panel.comm is not None:
        _ours.append(panel)
    return panel


def _opened(*names: str) -> Panel:
    panel = Panel(*names)
    panel.follow()
    if panel.comm is not None:
        _panels.append(panel)
    return panel


def _own_streams() -> tuple[str, ...]:
    """Return the streams of this notebook in the order in which they were started; of another's the only one."""
    own = [entry.name for entry in registry.entries() if registry.is_mine(entry)]
    if own:
        started = list(watched())
        return tuple(sorted(own, key=lambda name: started.index(name) if name in started else len(started)))
    try:
        return (registry.find(None).name,)
    except ProducerNotFound:
        return ()
