"""Notices: a call of the user's own at each end of a trial of this process, `tsnb.records.notify`.

```
hub's thread   a trial has ended ──▶ tell(notice) ──▶ queue
notice thread                                          └──▶ the callable that was given, one notice after the other
```

The callable may be slow (a message over the network): neither trials nor the notebook wait for it. One that raises is
reported once, by the logger "tsnb". At the process's exit, notices that wait are given `LAST_S` seconds.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from tsnb.text.printable import one_line

__all__ = ["Notice", "notify", "tell"]

LAST_S = 5.0
"""A process that ends waits so long for a callable that is still busy."""

NUMBERS = 4
"""Last numbers that a notice's text has; all are in `metrics`."""

_log = logging.getLogger("tsnb")


@dataclass(frozen=True)
class Notice:
    """How one trial has ended; its text says it in a line."""

    name: str
    """The trial's."""
    state: str
    """How it ended: "done", "failed", "stopped", "interrupted", "pruned" or "crashed"."""
    error: str = ""
    """What it failed of, one line; empty: it did not fail."""
    took_s: float = 0.0
    """Seconds from its start to its end."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Its last logged numbers, by name."""

    @property
    def failed(self) -> bool:
        """Whether it failed, or its process died."""
        return self.state in ("failed", "crashed")

    def __str__(self) -> str:
        """Return it in a line: "trial cnn done after 12.3 s: loss 0.031"."""
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in list(self.metrics.items())[:NUMBERS])
        more = self.error or numbers
        return one_line(
            f"trial {self.name} {self.state} after {self.took_s:.1f} s" + (f": {more}" if more else "")
        )


_lock = threading.Lock()
_call: Callable[[Notice], object] | None = None
_reported: Callable[[Notice], object] | None = None
_waiting: queue.Queue[Notice] = queue.Queue()
_thread: threading.Thread | None = None


def _after_fork_in_child() -> None:
    """Begin anew (`native.forks`, 3): what waits for the thread that calls is the parent's."""
    global _lock, _waiting, _thread
    _lock, _waiting, _thread = threading.Lock(), queue.Queue(), None


os.register_at_fork(after_in_child=_after_fork_in_child)


def notify(call: Callable[[Notice], object] | None) -> None:
    """Call a function whenever a trial of this notebook or script ends.

    Example:
        >>> tsnb.records.notify(print)  # trial cnn done after 12.3 s: loss 0.031
        >>> tsnb.records.notify(None)  # no longer

    Args:
        call: Function of a notice (`name`, `state`, `error`, `took_s`, `metrics`, `failed`, and `str()` for one
            line). It is called on its own thread, one notice at a time, and replaces the one given before. None
            switches it off.

    Raises:
        TypeError: If `call` is not callable.
    """
    global _call
    if call is not None and not callable(call):
        raise TypeError(
            f"tsnb.records.notify takes a function of one argument, or None, not a {type(call).__name__}"
        )
    with _lock:
        _call = call


def tell(notice: Notice) -> None:
    """Call whoever asked for it, soon. Called on the hub's thread; returns at once and never raises."""
    global _thread
    with _lock:
        if _call is None:
            return
        _waiting.put(notice)
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_run, name="tsnb-notify", daemon=True)
            _thread.start()
            atexit.register(_finish)


def _run() -> None:
    while True:
        notice = _waiting.get()
        try:
            _say(notice)
        finally:
            _waiting.task_done()


def _say(notice: Notice) -> None:
    global _reported
    call = _call
    if call is None:
        return
    try:
        call(notice)
    except Exception:  # noqa: BLE001 (a user's function: trials go on)
        if _reported is not call:
            _reported = call
            _log.exception(
                "the function passed to tsnb.records.notify raised; tsnb calls it again when the next trial "
                "ends"
            )


def _finish() -> None:
    """Wait for what is still to be said."""
    done = threading.Thread(target=_waiting.join, daemon=True)
    done.start()
    done.join(LAST_S)
