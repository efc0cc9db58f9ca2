"""Processes of this user: whether they live, stand still, are about to end, which are below them, and their cores.

From /proc where there is one: a few microseconds a look. Else from psutil, which asks the system a hundred times as
long; it is imported then only.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from pathlib import Path
from typing import Any

__all__ = [
    "HAS_PROC",
    "children",
    "has_gone",
    "has_started_so",
    "has_told",
    "is_ending",
    "is_ours",
    "is_stopped",
    "started",
    "usable_cores",
    "watch",
]

HAS_PROC = Path("/proc/self/stat").exists()
"""Whether this system tells of processes in files."""

_PF_EXITING = 4
"""The kernel's flag of a task that is on its way out."""

_STOPPED = ("T", "t")
"""Stopped by a signal, stopped by a tracer; see proc(5)."""

_SLACK = 0 if HAS_PROC else 2000
"""How far two looks at the same start may differ. psutil works it out from the wall clock, in milliseconds here."""

_LOOK_S = 0.01


def started(pid: int) -> int:
    """Return when a process was started; 0 if it has gone.

    Returns:
        Ticks since boot, where there is /proc; else milliseconds since 1970.

    Raises:
        OSError: Nothing can be said, for want of descriptors.
    """
    if HAS_PROC:
        fields = _stat(pid)
        return 0 if not fields or fields[0] in "ZX" else int(fields[19])
    process = _process(pid)
    if process is None or _status(process) in {"", "zombie", "dead"}:
        return 0
    with contextlib.suppress(_psutil().Error):
        return int(process.create_time() * 1000)
    return 0


def has_started_so(pid: int, when: int) -> bool:
    """Return whether a live process has that number, and is the one that was started then.

    Args:
        pid: Its number.
        when: Its start, as `started` once gave it; 0: unknown.
    """
    now = started(pid)
    return now != 0 and (when == 0 or abs(now - when) <= _SLACK)


def has_gone(pid: int) -> bool:
    """Return whether a process has ended for certain; False where nothing can be said, for want of descriptors."""
    try:
        return started(pid) == 0
    except OSError:
        return False


def is_ending(pid: int, within_s: float = 0.0) -> bool:
    """Return whether a process has gone, or is about to: its sockets may be closed a moment before it is.

    Args:
        pid: The process.
        within_s: How long to wait for its end where the system does not tell that it is about to.
    """
    if HAS_PROC:
        try:
            fields = _stat(pid)
        except OSError:  # no descriptor left to look with: its sockets are all we know of
            return True
        return not fields or fields[0] in "ZX" or bool(int(fields[6]) & _PF_EXITING)
    deadline = time.monotonic() + within_s
    while started(pid):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_S)
    return True


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped, by a signal or a debugger."""
    if HAS_PROC:
        with contextlib.suppress(OSError):
            return next(iter(_stat(pid)), "") in _STOPPED
        return False
    process = _process(pid)
    return process is not None and _status(process) in {"stopped", "tracing-stop"}


def children(pid: int) -> list[int]:
    """Return a process's children, whichever of its threads started them; none where the system does not tell."""
    if not HAS_PROC:
        process = _process(pid)
        with contextlib.suppress(_psutil().Error):
            return sorted(child.pid for child in process.children()) if process else []
        return []
    found: list[int] = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, listed.read_text().split())
        except OSError:  # that thread has just ended
            continue
    return sorted(found)


def is_ours(pid: int) -> bool:
    """Return whether a process is this user's; False too where it has gone."""
    if HAS_PROC:
        try:
            return os.stat(f"/proc/{pid}").st_uid == os.getuid()  # noqa: PTH116  # a Path would cost more
        except OSError:
            return False
    process = _process(pid)
    with contextlib.suppress(_psutil().Error):
        return process is not None and process.uids().effective == os.getuid()
    return False


def watch(pid: int) -> int:
    """Return a descriptor that is readable once a process has ended; -1 where the system has none.

    The caller closes it. Without one, ask `has_gone` now and then.
    """
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):  # before Linux 5.3, in a sandbox, or it has just died
            return os.pidfd_open(pid)
    return -1


def has_told(descriptor: int) -> bool:
    """Return whether the process that a descriptor of `watch` tells of has ended."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _stat(pid: int) -> list[str]:
    """Return what the kernel says of a process, from its state (the third field) on; nothing if it has gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # any other error says nothing about that process
        return []
    return stat.rpartition(")")[2].split()  # what precedes is the command's name, which may hold anything


def _psutil() -> Any:
    import psutil

    return psutil


def _process(pid: int) -> Any:
    """Return psutil's view of a process; None if it does not exist."""
    psutil = _psutil()
    try:
        return psutil.Process(pid)
    except (psutil.Error, ValueError):
        return None


def _status(process: Any) -> str:
    try:
        return str(process.status())
    except _psutil().Error:
        return ""


def usable_cores(pid: int = 0) -> int:
    """Return how many cores a process may use: those of its affinity; all, where systems know no affinity.

    Args:
        pid: The process; 0: this one.

    Raises:
        OSError: It has gone.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(pid))
    return os.cpu_count() or 1
