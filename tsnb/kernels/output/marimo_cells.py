"""A background kernel's output in a marimo notebook: below the cell that started it, as what that cell prints.

marimo takes what a cell prints while it runs. What other threads print, or what comes later, goes to the terminal of
its server. A message of marimo's own says which cell text belongs to, and so can be sent at any time. marimo has no
public name for that message: where a version has another one, the output goes to the terminal.

Pictures and markup are shown too. marimo cannot change what it has shown, so updates of a display are left out.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from tsnb.kernels.hub import the_hub

__all__ = ["MarimoOutlet", "marimo_outlet"]

_PICTURES = ("image/png", "image/jpeg", "image/gif")

Show = Callable[[str, str, str], None]
"""Shows something below a cell: where ("STDOUT", "STDERR" or "MEDIA"), its MIME type, and it."""


def marimo_outlet() -> MarimoOutlet | None:
    """Return the outlet for the marimo cell that runs on this thread; None where there is none."""
    marimo = sys.modules.get("marimo")
    if marimo is None:
        return None
    try:
        from marimo._messaging.cell_output import CellChannel, CellOutput
        from marimo._messaging.notification import CellNotification
        from marimo._messaging.notification_utils import broadcast_notification
        from marimo._runtime.context import get_context

        if not marimo.running_in_notebook() or get_context().cell_id is None:
            return None
        cell, stream = get_context().cell_id, get_context().stream
    except (AttributeError, ImportError):
        return None

    def show(where: str, mime: str, data: str) -> None:
        shown = CellOutput(channel=CellChannel[where], mimetype=mime, data=data)
        broadcast_notification(CellNotification(cell_id=cell, console=shown), stream)

    return MarimoOutlet(show)


class _Stream:
    """One kind of output, as a stream that takes text."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self.write = write


class MarimoOutlet:
    """Shows output below a marimo cell.

    A page that does not read holds up the terminal's thread only, as a pipe does.

    Args:
        show: As `Show` says. Called on the terminal's thread.
    """

    def __init__(self, show: Show) -> None:
        self._show = show

    def publish(self, kind: str, content: dict[str, Any]) -> None:
        """Show one message. Called on the hub's thread, in order."""
        if kind == "stream":
            self._write(content["name"].upper(), "text/plain", content["text"])
        elif kind == "error":
            self._write("STDERR", "text/plain", "\n".join([*content["traceback"], ""]))
        elif kind == "display_data":
            self._write(*_best_of(content["data"]))

    def _write(self, where: str, mime: str, data: str) -> None:
        the_hub().terminal.write(_Stream(partial(self._show, where, mime)), data)


def _best_of(data: dict[str, Any]) -> tuple[str, str, str]:
    """Return what a page shows best: where, its MIME type, and its data as marimo takes it."""
    for mime in _PICTURES:
        if mime in data:
            return "MEDIA", mime, f"data:{mime};base64,{data[mime].strip()}"
    if "text/html" in data:
        return "MEDIA", "text/html", data["text/html"]
    if "image/svg+xml" in data:
        coded = base64.b64encode(data["image/svg+xml"].encode()).decode()
        return "MEDIA", "image/svg+xml", f"data:image/svg+xml;base64,{coded}"
    return "STDOUT", "text/plain", f"{data.get('text/plain', '')}\n"
