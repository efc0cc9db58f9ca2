"""The line that says what a cell or a terminal waits for, and how far that is.

Under a notebook's cell it is kept up to date, on a terminal it is written once.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable

from tsnb.kernels.output.outlets import CellOutlet, Outlet, outlet_here

__all__ = ["wait_and_tell"]

SILENT_S = 1.0
"""How long nothing is said: most waits are over by then."""
EVERY_S = 1.0
"""How often the line is brought up to date."""


def wait_and_tell(ended: threading.Event, label: str, text: Callable[[], str]) -> None:
    """Wait for an event. An interrupt ends the waiting.

    Args:
        ended: The event to wait for.
        label: What marks the line on a terminal.
        text: Returns the line.
    """
    if ended.wait(SILENT_S):
        return
    outlet = outlet_here(label)
    if not isinstance(outlet, CellOutlet):
        outlet.publish("stream", {"name": "stdout", "text": f"{text()}\n"})
        ended.wait()
        return
    place = f"tsnb-wait-{uuid.uuid4().hex}"
    _show(outlet, "display_data", place, text())
    try:
        while not ended.wait(EVERY_S):
            _show(outlet, "update_display_data", place, text())
    finally:
        _show(outlet, "update_display_data", place, text())


def _show(outlet: Outlet, kind: str, place: str, text: str) -> None:
    outlet.publish(kind, {"data": {"text/plain": text}, "metadata": {}, "transient": {"display_id": place}})
