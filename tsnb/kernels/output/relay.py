"""A background kernel's output on its way to its outlet: live, in order, and not in crumbs.

Text that arrives in many small pieces (a progress bar, `print(..., flush=True)` in a loop) is joined: the
first piece goes out at once, what follows within `JOIN_S` goes out together. Everything else goes out when it
comes, after the text before it. Three keep it, each with a bound of its own:

| where | what | bound |
|---|---|---|
| the outlet | what the cell shows (`capping`) | 100,000 characters of text |
| the log file | all text, tracebacks included (`logfile`) | 16 MiB |
| the transcript (`transcript`) | the same, for `logs` and the panel's log pane | a million characters |

Everything here runs on the hub's thread, but `record` and `transcript`, which any thread may read.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tsnb.kernels.output.capping import Cap
from tsnb.kernels.output.logfile import LogFile
from tsnb.kernels.output.outlets import WIDGET, Outlet
from tsnb.kernels.output.transcript import Transcript
from tsnb.text.masks import masked_text

__all__ = ["Relay"]

JOIN_S = 0.1
"""Ten updates a second look live, and a page copes with many trials at that rate."""

_SHOWN = {"display_data", "update_display_data", "execute_result", "clear_output", "error"}


class Relay:
    """Hands one kernel's output to one outlet.

    Attributes:
        transcript: The end of it, for `logs` and the log pane.

    Args:
        loop: The hub's loop.
        outlet: Where it goes.
        log_path: The file that gets all of the text, `LOG_BYTES` of it at most; None: no file.
        rest: Where else the output is, a sentence for a cell that cannot show all of it.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, outlet: Outlet, log_path: Path | None = None, rest: str = ""
    ) -> None:
        self._loop = loop
        self._log = log_path, rest
        self._go_to(outlet)
        self._file = LogFile(log_path) if log_path is not None else None
        self._pending: list[tuple[str, str]] = []
        self._timer: asyncio.TimerHandle | None = None
        self.transcript = Transcript()
        self._unwritten: list[str] = []

    def _go_to(self, outlet: Outlet) -> None:
        self._outlet = outlet
        budget = getattr(outlet, "budget", None)  # of a cell with the output of many
        self._cap = Cap(*self._log, budget) if getattr(outlet, "capped", True) else None

    def move(self, outlet: Outlet, before: str, farewell: str) -> None:
        """Hand all that comes from now on to another outlet.

        Args:
            outlet: Where it goes.
            before: A line to show there first.
            farewell: A line to show last where the output went until now.
        """
        self.flush()
        self._outlet.publish("stream", {"name": "stdout", "text": farewell})
        self._go_to(outlet)
        self._outlet.publish("stream", {"name": "stdout", "text": before})

    @property
    def record(self) -> str:
        """What was printed, tracebacks included; the last million characters of it."""
        return self.transcript.text

    def feed(self, kind: str, content: dict[str, Any]) -> None:
        """Take one message of the kernel's; those that show nothing are ignored."""
        if kind == "stream":
            content = {**content, "text": masked_text(content["text"])}
            self._keep(content["text"])
            self._join(content["text"], content["name"])
        elif kind in _SHOWN:
            self.flush()
            if kind == "error":
                lines = [masked_text(line) for line in content["traceback"]]
                content = {**content, "evalue": masked_text(content.get("evalue", "")), "traceback": lines}
                self._keep(self._on_a_new_line("\n".join(content["traceback"]) + "\n"))
                self._write()
            shown = _shown_as(kind, content)
            for message in [shown] if self._cap is None else self._cap.rich(*shown):
                self._outlet.publish(*message)

    def say(self, text: str, name: str = "stdout") -> None:
        """Add a line of our own, on the named stream; it is shown whatever was shown before."""
        text = self._on_a_new_line(text)
        self._keep(text)
        self.flush()
        self._outlet.publish("stream", {"name": name, "text": text})

    def _on_a_new_line(self, text: str) -> str:
        return "\n" + text if self.transcript.in_a_line else text

    def _join(self, text: str, name: str) -> None:
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
            as_it_is = [("stream", {"name": name, "text": text})]
            for message in as_it_is if self._cap is None else self._cap.text(name, text):
                self._outlet.publish(*message)
        self._write()

    def _keep(self, text: str) -> None:
        self._unwritten.append(self.transcript.feed(text))

    def _write(self) -> None:
        if self._file is not None and self._unwritten:
            self._file.write("".join(self._unwritten), self.transcript.open)
        self._unwritten.clear()


def _shown_as(kind: str, content: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the message as the launching cell shows it: a result is a display there, a widget its text."""
    if "data" not in content:
        return kind, content
    data = {
        mime: masked_text(value) if isinstance(value, str) and mime.startswith("text/") else value
        for mime, value in content["data"].items()
        if mime != WIDGET
    }
    kind = "display_data" if kind == "execute_result" else kind
    return kind, {"data": data, "metadata": content["metadata"], "transient": content.get("transient", {})}
