"""Where a background kernel's output belongs: under the cell that started it, or on this process's terminal.

An outlet is made on the thread that runs the cell (it remembers the cell) and used on the hub's thread.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol

__all__ = ["CellOutlet", "Outlet", "TerminalOutlet", "outlet_here"]

WIDGET = "application/vnd.jupyter.widget-view+json"
"""A widget lives in the kernel that made it; without its model a page would show an error for it."""


class Outlet(Protocol):
    """Takes a kernel's output."""

    def publish(self, kind: str, content: dict[str, Any]) -> None:
        """Show one message. Called on the hub's thread, in order.

        Args:
            kind: "stream", "display_data", "update_display_data", "clear_output" or "error".
            content: As Jupyter's messaging protocol has it.
        """


class CellOutlet:
    """Re-publishes on the notebook kernel's own output channel, with the launching cell as parent.

    ipykernel's channel has a thread of its own, so this works while a cell runs; the session is ours, since
    the kernel's counts its messages without a lock.

    Args:
        kernel: The ipykernel of this process. Made while it runs the launching cell.
    """

    def __init__(self, kernel: Any) -> None:
        from jupyter_client.session import Session

        self._socket = kernel.iopub_socket
        self._parent = kernel.get_parent("shell") if hasattr(kernel, "get_parent") else kernel._parent_header
        theirs = kernel.session
        self._session = Session(
            key=theirs.key, signature_scheme=theirs.signature_scheme, username=theirs.username
        )

    def publish(self, kind: str, content: dict[str, Any]) -> None:
        """Show one message under the launching cell."""
        topic = f"kernel.tsnb.{kind}".encode()
        self._session.send(self._socket, kind, content, parent=self._parent, ident=topic)


class TerminalOutlet:
    """Writes to this process's standard streams, each line marked with its kernel's name.

    Args:
        label: The name.
    """

    capped = False
    """A terminal scrolls; under a cell all of it stays, so the relay shows so much and no more there."""

    def __init__(self, label: str) -> None:
        self._mark = f"[{label}] "

    def publish(self, kind: str, content: dict[str, Any]) -> None:
        """Write one message; rich output as its plain text."""
        stream = sys.stderr if kind == "error" or content.get("name") == "stderr" else sys.stdout
        if kind == "stream":
            text = content["text"]
        elif kind == "error":
            text = "\n".join(content["traceback"])
        else:
            text = content.get("data", {}).get("text/plain", "")
        marked = "".join(self._mark + line for line in text.splitlines(keepends=True))
        if marked:
            stream.write(marked if marked.endswith("\n") else marked + "\n")
            stream.flush()


def outlet_here(label: str) -> Outlet:
    """Return the outlet for what is started here and now: the running cell, or the terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    kernel = getattr(shell, "kernel", None)
    return TerminalOutlet(label) if kernel is None else CellOutlet(kernel)
