"""Clocks that other programs do not move: CPU time of processes, and the time that one waited for a core.

A shared machine makes every wall time longer. CPU time hardly changes, and Linux counts for each thread how long it was
ready to run and had no core (`/proc/PID/schedstat`, its second number): the rest is the time that a quiet
machine would have taken.
"""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from tsnb.machine.cores import cores_busy_s
from tsnb.machine.processes import HAS_PROC, children_of, use_of

__all__ = ["OthersClock", "cost_clock", "cpu_here_s", "cpu_s", "thread_cpu_s", "threads", "waited_s"]


def cpu_s(pid: int) -> float | None:
    """Return the CPU seconds of a process of this user, all its threads; None if it has gone."""
    if not HAS_PROC:
        use = use_of(pid)
        return use.cpu_s if use else None
    try:
        return time.clock_gettime((~pid << 3) | 2)  # clock_getcpuclockid(3), which Python does not have
    except OSError:
        return None


def cpu_here_s(below: Iterable[int] | None = None) -> float:
    """Return the CPU seconds of this process and of all below it, those that have ended and were waited for included.

    The same as `telemetry.host` counts from outside, without its steps of 10 ms in the process itself.

    Args:
        below: The processes below this one, where they are known.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    living = [use_of(pid) for pid in (children_of(os.getpid()) if below is None else below)]
    return time.process_time() + ended.ru_utime + ended.ru_stime + sum(use.cpu_s for use in living if use)


class OthersClock:
    """CPU seconds that other programs have on the cores that this process may use."""

    def __init__(self) -> None:
        self._others_s = 0.0
        self._seen: tuple[float, float, dict[int, float]] | None = None

    def look(self, ours: Iterable[int] = ()) -> float:
        """Return those since the first look, to some hundredths; always 0 where the system does not tell.

        Args:
            ours: Processes that are no others, with all below them, beside this process and all below it.
        """
        below = children_of(os.getpid())
        busy_s, here_s = cores_busy_s(), cpu_here_s(below)
        apart = {os.getpid(), *below}
        pids = {each for pid in set(ours) - apart for each in (pid, *children_of(pid, apart))}
        theirs = {pid: use.cpu_s for pid in pids if (use := use_of(pid))}
        if busy_s is not None and self._seen is not None:
            busy_before_s, here_before_s, before = self._seen
            theirs_s = sum(theirs[pid] - before.get(pid, theirs[pid]) for pid in theirs)
            self._others_s += busy_s - busy_before_s - (here_s - here_before_s) - theirs_s
        self._seen = None if busy_s is None else (busy_s, here_s, theirs)
        return self._others_s


def threads() -> set[int]:
    """Return the ids of this process's Python threads, as the system counts them."""
    return {thread.native_id for thread in threading.enumerate() if thread.native_id}


def thread_cpu_s(thread: int) -> float:
    """Return the CPU seconds of a thread of this process by its system's id; 0 if it has gone."""
    try:
        return time.clock_gettime(
            (~thread << 3) | 6
        )  # pthread_getcpuclockid(3), which must not be asked for one gone
    except OSError:
        return 0.0


def waited_s(pid: int | None = None) -> float:
    """Return how long a process's main thread (None: the calling thread) was ready and had no core; 0 if unknown."""
    path = f"/proc/{pid}/schedstat" if pid else "/proc/thread-self/schedstat"
    try:
        return int(Path(path).read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


_here = threading.local()


def cost_clock() -> float:
    """Return seconds that pass while this thread computes or waits for a disk, not while others have its core.

    Where the system does not tell how long the thread has waited for a core, all seconds count.
    """
    waited_s = _kept_waiting_s()
    while True:
        now_s, before_s = time.perf_counter(), waited_s
        waited_s = _kept_waiting_s()
        if waited_s == before_s:  # else it lost its core between the two, and they are of different moments
            return now_s - waited_s


def _kept_waiting_s() -> float:
    pid = os.getpid()
    if getattr(_here, "pid", 0) != pid:
        _here.pid, _here.fd = pid, -1
        with contextlib.suppress(OSError):
            _here.fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    if _here.fd < 0:
        return 0.0
    try:
        return int(os.pread(_here.fd, 64, 0).split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        return 0.0
