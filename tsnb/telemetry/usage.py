"""What one process has used, straight from /proc: a few microseconds a process, where psutil takes ten times that.

Without /proc, psutil is asked all the same.

A panel asks for a dozen processes every two seconds, all day long, from the kernel of a notebook that should have
its time for itself.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

import psutil

from tsnb.native.processes import HAS_PROC
from tsnb.native.processes import started as started_when

__all__ = ["Use", "age_s", "children_of", "part_bytes", "use_of"]

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

# places in /proc/PID/stat, counted behind the name (which may hold spaces and parentheses)
_STATE, _UTIME, _CSTIME, _STARTED = 0, 11, 14, 19


class Use(NamedTuple):
    """One process at one moment."""

    started: int
    """When it started (`native.processes.started`): tells it from a later one of the same number."""
    cpu_s: float
    """CPU seconds so far, with those of its children that have ended and were waited for."""
    anonymous_bytes: int
    """Memory that belongs to no file; pages that a fork shares are counted in both processes."""


def use_of(pid: int) -> Use | None:
    """Return what a process has used; None where it has gone, or cannot be seen."""
    if not HAS_PROC:
        return _asked(pid)
    try:
        words = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        _, resident, shared = _read(f"/proc/{pid}/statm").split()[:3]
        cpu = sum(int(word) for word in words[_UTIME : _CSTIME + 1]) / _TICKS_PER_S
        pages = max(0, int(resident) - int(shared))
        return Use(int(words[_STARTED]), cpu, pages * _PAGE)
    except (OSError, ValueError, IndexError):
        return None


def age_s(started: int) -> float:
    """Return how long ago a process started, in seconds, from `Use.started`."""
    if not HAS_PROC:
        return time.time() - started / 1000
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / _TICKS_PER_S


def children_of(pid: int, apart: frozenset[int] | set[int] = frozenset()) -> list[int]:
    """Return the processes below one, of all generations.

    Args:
        pid: The process.
        apart: Processes that are left out, with all below them.
    """
    found: list[int] = []
    waiting = [pid]
    while waiting:
        for child in _direct(waiting.pop()):
            if child not in apart and child not in found:
                found.append(child)
                waiting.append(child)
    return found


def part_bytes(pid: int) -> int | None:
    """Return a process's part of its anonymous memory: pages that it shares with n others count as a share each.

    The kernel walks all its pages for that: some 10 ms for a process that has imported torch.

    Returns:
        Bytes; None where it cannot be told.
    """
    try:
        lines = _read(f"/proc/{pid}/smaps_rollup").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss_Anon:")), None)


def _asked(pid: int) -> Use | None:
    try:
        process = psutil.Process(pid)
        cpu, memory = process.cpu_times(), process.memory_info()
    except psutil.Error:
        return None
    started = started_when(pid)
    spent = cpu.user + cpu.system + getattr(cpu, "children_user", 0.0) + getattr(cpu, "children_system", 0.0)
    return Use(started, spent, memory.rss - getattr(memory, "shared", 0)) if started else None


def _direct(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208  # a Path a thread would cost more than the reading
        lists = [_read(f"/proc/{pid}/task/{thread}/children") for thread in threads]
    except FileNotFoundError:  # a thread has just ended, or this kernel keeps no such lists
        return _searched(pid)
    except OSError:
        return []
    return [int(child) for children in lists for child in children.split()]


def _searched(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.Error:
        return []


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 65536)
    finally:
        os.close(descriptor)
