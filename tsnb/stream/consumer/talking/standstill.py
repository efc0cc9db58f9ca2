"""A producer that stands still: what a consumer that waits for it says of its processes."""

from __future__ import annotations

import warnings

from tsnb.machine.processes import children, is_stopped

__all__ = ["LOOK_AFTER_S", "Standstill"]

LOOK_AFTER_S = 3.0
"""Waiting for less is everyday; a look costs microseconds or more, and a quick stream should not pay them."""


class Standstill:
    """Looks at one producer's processes while a consumer waits for it.

    Args:
        name: The producer's name, for the message.
        pid: Its process.
    """

    def __init__(self, name: str, pid: int) -> None:
        self._name = name
        self._pid = pid
        self._told: tuple[int, ...] = ()

    def look(self, waited_s: float) -> None:
        """Warn if a process that must go on for a batch to come is stopped. Called now and then while waiting.

        Args:
            waited_s: Seconds since this wait began.
        """
        if waited_s < LOOK_AFTER_S:
            return
        stopped = tuple(pid for pid in (self._pid, *children(self._pid)) if is_stopped(pid))
        if stopped != self._told:
            self._told = stopped
            if stopped:
                warnings.warn(self._describe(stopped), RuntimeWarning, stacklevel=2)

    def _describe(self, stopped: tuple[int, ...]) -> str:
        if self._pid in stopped:
            who = f"The process that serves stream {self._name!r} (pid {self._pid})"
        else:
            pids = ", ".join(map(str, stopped))
            who = f"A process of the loader of stream {self._name!r} (pid {pids})"
        return (
            f"{who} is stopped by SIGSTOP, Ctrl-Z or a debugger, and this trial waits for it. Continue "
            f"it with `kill -CONT {stopped[0]}`, or end the wait with Ctrl-C."
        )
