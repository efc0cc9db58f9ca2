"""The live panel: which trial waits for which, drawn from readings only.

Never imports a producer, a consumer, an arena or torch: a recorded log draws the same panel as a live stream.
Readings come from `tsnb.telemetry`; what a stop button does and where logs come from is handed in by the layer above.

| module | what it does |
|---|---|
| `tape` | what the front end is told: words that have changed, a frame a tick, all of it to a page that opens |
| `logs` | logs in parts, and facts of trials, for the pages that watch them |
| `widget` | the widget |
| `frontend/` | what the browser runs; bundled into `static/` by `hatch_build.py` |
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tsnb import registry
from tsnb.errors import ProducerNotFound
from tsnb.panel.widget import Panel

__all__ = ["Panel", "dashboard"]

_panels: list[Panel] = []
_lock = threading.Lock()


def dashboard(
    name: str | None = None,
    *,
    stop_consumer: Callable[[str], None] | None = None,
    interrupt_consumer: Callable[[str], None] | None = None,
    make_report: Callable[[], None] | None = None,
) -> Panel:
    """Return the live panel of a stream.

    A stream that is not served yet is not an error: the panel says so and fills in once it is there, and again
    when it comes back later. Asking twice for the same stream gives the same panel, so that running the cell
    again shows it with its history.

    Args:
        name: The stream; None: the one that is served, once there is exactly one.
        stop_consumer: Called with a consumer's name when its stop button is clicked, on a thread of its own;
            None: the stream is asked to end that consumer's loop at its next step.
        interrupt_consumer: Called likewise for its interrupt button; None: there is no such button.
        make_report: Called when the report button is clicked, on a thread of its own; None: there is no such button.
    """
    with _lock:
        _panels[:] = [panel for panel in _panels if panel.comm is not None]
        stream = name or _only_stream()
        panel = next((panel for panel in _panels if panel.stream == stream), None)
        if panel is None:
            panel = Panel(stream or None)
            panel.follow()
            if panel.comm is not None:
                _panels.append(panel)
        if stop_consumer is not None:
            panel.stop_consumer = stop_consumer
        if interrupt_consumer is not None:
            panel.interrupt_consumer = interrupt_consumer
        if make_report is not None:
            panel.make_report = make_report
        return panel


def _only_stream() -> str:
    try:
        return registry.find(None).name
    except ProducerNotFound:
        return ""
