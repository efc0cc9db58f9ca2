"""A background kernel's output on its way to its outlet: live, in order, and not in crumbs.

Text that arrives in many small pieces (a progress bar, `print(..., flush=True)` in a loop) is joined: the
first piece goes out at once, what follows within `JOIN_S` goes out together. Everything else goes out when it
comes, after the text before it. A bounded record is kept for `logs`.

Everything here runs on the hub's thread, but `record`, which any thread may read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from tsnb.kernels.outlets import WIDGET, Outlet

__all__ = ["Relay"]

JOIN_S = 0.1
"""Ten updates a second look live, and a page copes with many trials at that rate."""

RECORD_CHARACTERS = 1_000_000
"""What `logs` can look back on."""

_SHOWN = {"display_data", "update_display_data", "execute_result", "clear_output", "error"}


class Relay:
    """Hands one kernel's output to one outlet.

    Args:
        loop: The hub's loop.
        outlet: Where it goes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, outlet: Outlet) -> None:
        self._loop = loop
        self._outlet = outlet
        self._pending: list[tuple[str, str]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._record: deque[str] = deque()
        self._recorded = 0

    @property
    def record(self) -> str:
        """What was printed, tracebacks included; the last million characters of it."""
        return "".join(self._record.copy())

    def feed(self, kind: str, content: dict[str, Any]) -> None:
        """Take one message of the kernel's; those that show nothing are ignored."""
        if kind == "stream":
            self.say(content["text"], content["name"])
        elif kind in _SHOWN:
            self.flush()
            if kind == "error":
                self._keep("\n".join(content["traceback"]) + "\n")
            self._outlet.publish(*_shown_as(kind, content))

    def say(self, text: str, name: str = "stdout") -> None:
        """Add text to the named stream."""
        self._keep(text)
        if self._pending and self._pending[-1][0] == name:
            text = self._pending.pop()[1] + text
        self._pending.append((name, text))
        if self._timer is None:
            self._send()
            self._timer = self._loop.call_later(JOIN_S, self._due)

    def _due(self) -> None:
        self._timer = None
        if self._pending:
            self._send()
            self._timer = self._loop.call_later(JOIN_S, self._due)

    def flush(self) -> None:
        """Send at once what waits to be joined."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._send()

    def _send(self) -> None:
        pending, self._pending = self._pending, []
        for name, text in pending:
            self._outlet.publish("stream", {"name": name, "text": text})

    def _keep(self, text: str) -> None:
        self._record.append(text)
        self._recorded += len(text)
        while self._recorded > RECORD_CHARACTERS and len(self._record) > 1:
            self._recorded -= len(self._record.popleft())


def _shown_as(kind: str, content: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the message as the launching cell shows it: a result is a display there, a widget its text."""
    if "data" not in content:
        return kind, content
    data = {mime: value for mime, value in content["data"].items() if mime != WIDGET}
    kind = "display_data" if kind == "execute_result" else kind
    return kind, {"data": data, "metadata": content["metadata"], "transient": content.get("transient", {})}
