"""What a background kernel reports to its notebook: the numbers given to `tsnb.log`, and what it did.

Numbers go out a few times a second at most, all that were logged since the last time together: neither the
last value nor any in between is lost, and what is left goes out when the cell ends. Each message is one of our
own kinds on the kernel's output channel, which no front end shows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

__all__ = ["LOG_MESSAGE", "REPORT_MESSAGE", "SERVED_MESSAGE", "Reporter", "publish"]

LOG_MESSAGE = "tsnb_log"
"""Content: `rows`, a list of [step or None, seconds since 1970, {name: number, or "nan", "inf", "-inf"}]."""

REPORT_MESSAGE = "tsnb_report"
"""Content: what the trial's consumers did: stream, epochs, samples, samples_per_s."""

SERVED_MESSAGE = "tsnb_served"
"""Content: what a producer kernel's order is drawn from: seed (a number or None), and order, its identity."""

EVERY_S = 0.25
"""Four reports a second, as often as a stream's readings."""

Row = tuple["int | None", float, dict[str, float]]


def publish(kind: str, content: dict[str, Any]) -> None:
    """Send one message on this kernel's output channel. From any thread."""
    from IPython.core.getipython import get_ipython

    kernel: Any = get_ipython().kernel  # type: ignore[union-attr]
    kernel.session.send(kernel.iopub_socket, kind, content, ident=f"kernel.{kind}".encode())


class Reporter:
    """Collects logged numbers and sends them now and then, on a thread of its own.

    Args:
        send: Takes the rows; called on the reporter's thread or that of `flush`, never on both at once.
    """

    def __init__(self, send: Callable[[list[Row]], None]) -> None:
        self._send = send
        self._rows: list[Row] = []
        self._changing = threading.Lock()
        self._sending = threading.Lock()
        self._wanted = threading.Event()
        threading.Thread(target=self._run, name="tsnb-report", daemon=True).start()

    def take(self, step: int | None, numbers: dict[str, float]) -> None:
        """Take one row. Called on the thread that logs."""
        with self._changing:
            self._rows.append((step, time.time(), numbers))
        self._wanted.set()

    def flush(self) -> None:
        """Send what waits, at once."""
        with self._sending:
            with self._changing:
                rows, self._rows = self._rows, []
            if rows:
                self._send(rows)

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            self.flush()
            time.sleep(EVERY_S)
