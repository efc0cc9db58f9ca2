"""A gate: trials that start together wait for each other there, so that they begin with the same batch.

It is a file and a lock on it: the process that starts them (a sweep's, a plan's) holds the lock, and a trial's first
`tsnb.attach()` waits until it can have it (shared) too. That process may be killed: the lock goes with it, and the gate
is open.

    opened by        the last of its trials that has attached, or has ended; or WAITING_S after the first has attached
    while it waits   after SAID_S the missing trials are named, once
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterable
from pathlib import Path

__all__ = ["WAITING_S", "Gate", "pass_lock"]

WAITING_S = 600.0
"""How long the first to have attached waits for the last, as long as that one lives: code that prepares its own things
first may take minutes. One that has ended is not waited for."""

SAID_S = 20.0
"""After so long the missing trials are named."""


class Gate:
    """One gate, shut until all of its trials are there.

    Args:
        path: The file; made here, gone when the gate is open.
        names: The trials that it waits for.
    """

    def __init__(self, path: Path, names: Iterable[str]) -> None:
        self.path = path
        self._coming = set(names)
        self._first_s: float | None = None
        self._said = False
        self._lock: int | None = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        except OSError:  # a file system without locks cannot hold trials back
            os.close(self._lock)
            self._lock = None
            path.unlink()

    @property
    def shut(self) -> bool:
        """Whether it still holds trials back."""
        return self._lock is not None

    def arrived(self, name: str) -> None:
        """Note that a trial has attached; the last one opens the gate."""
        if self._first_s is None:
            self._first_s = time.monotonic()
        self.gone(name)

    def gone(self, name: str) -> None:
        """Note that a trial has ended: the gate no longer waits for it."""
        self._coming.discard(name)
        if not self._coming:
            self.open()

    def left_s(self) -> float | None:
        """Return in how many seconds the gate opens, even if some are missing; None before the first has attached."""
        if not self.shut or self._first_s is None:
            return None
        return max(0.0, self._first_s + WAITING_S - time.monotonic())

    def slow(self) -> list[str]:
        """Return the missing trials, once, when the others have waited long enough for a line about it."""
        if not self.shut or self._first_s is None or self._said or time.monotonic() - self._first_s < SAID_S:
            return []
        self._said = True
        return sorted(self._coming)

    def lapse(self) -> list[str]:
        """Open it although some are missing; return those: they begin with other batches."""
        missing = sorted(self._coming)
        self.open()
        return missing

    def open(self) -> None:
        """Let everybody pass, from now on."""
        if self._lock is not None:
            self.path.unlink(missing_ok=True)  # a trial that comes now finds no file and passes
            fcntl.flock(self._lock, fcntl.LOCK_UN)  # a process forked meanwhile has the descriptor too
            os.close(self._lock)
            self._lock = None


def pass_lock(path: Path, _stall_timeout_s: float) -> None:
    """Wait, in a trial, until its gate is open.

    The gate is a lock on a file, which goes with its holder: a gate whose notebook was killed is open.

    Args:
        path: The gate's file.
    """
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)
