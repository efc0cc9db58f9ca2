"""The machine, or the part of it that a container or control group leaves to us, and what single processes use of it.

`Machine` tells cores, CPU time and memory. What one process has used comes straight from /proc: a few microseconds a
process, where psutil takes ten times that. Without /proc, psutil is asked all the same. A panel asks for a dozen
processes every two seconds, all day long, from the kernel of a notebook that should have its time for itself.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from tsnb.native.processes import HAS_PROC, usable_cores
from tsnb.native.processes import started as started_when
from tsnb.telemetry.memory import Bounds, control_groups, memory_bounds, read_text

__all__ = ["Machine", "Use", "age_s", "children_of", "part_bytes", "use_of"]

_MICRO = 1e-6
_NANO = 1e-9


class _Quota(NamedTuple):
    """CPU time that a control group gives."""

    cores: float
    """Cores' worth of it."""
    usage: Path
    """The file that counts what was used."""
    word: str
    """The line of that file; empty: it holds the number alone."""
    unit_s: float
    """Seconds that one of that number is."""


class Machine:
    """Counts what this machine, container or control group does.

    Args:
        root: Where /proc and /sys are.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._quota = _quota(root)

    def cores(self) -> int:
        """Return how many cores this process may use; a part of one counts as one."""
        allowed = usable_cores()
        return min(allowed, max(1, round(self._quota.cores))) if self._quota else allowed

    @property
    def quota(self) -> float | None:
        """CPU time that a container or control group gives, in cores; None: as much as there is."""
        return self._quota.cores if self._quota else None

    def cpu_s(self) -> float:
        """Return the CPU seconds spent so far on those cores, by anybody; where there is a quota, by those under it."""
        if self._quota:
            used = _used(self._quota)
            if used is not None:
                return used
        if usable_cores() == os.cpu_count():
            return _busy(psutil.cpu_times())
        each = psutil.cpu_times(percpu=True)
        return sum(_busy(each[core]) for core in os.sched_getaffinity(0) if core < len(each))

    def memory(self) -> Bounds:
        """Return the memory in use and in all: the machine's, or the tightest control group's."""
        found = memory_bounds(self._root)
        if found is None:
            whole = psutil.virtual_memory()
            return Bounds(whole.total - whole.available, whole.total)
        return found


def _busy(times: object) -> float:
    """Return the seconds in which a core was not free: its own work, and what a host took from a virtual machine."""
    words = ("user", "nice", "system", "irq", "softirq", "steal")
    return float(sum(getattr(times, word, 0.0) for word in words))


def _quota(root: Path) -> _Quota | None:
    """Return the tightest CPU quota that holds here."""
    found = []
    for directory, version in control_groups(root, controller="cpu"):
        cores = _cores_v2(directory) if version == 2 else _cores_v1(directory)
        if cores is None:
            continue
        if version == 2:
            found.append(_Quota(cores, directory / "cpu.stat", "usage_usec", _MICRO))
        else:
            below = directory.relative_to(root / "sys/fs/cgroup/cpu")
            usage = root / "sys/fs/cgroup/cpuacct" / below / "cpuacct.usage"
            found.append(_Quota(cores, usage, "", _NANO))
    return min(found, default=None)


def _cores_v2(directory: Path) -> float | None:
    words = read_text(directory / "cpu.max").split()
    return int(words[0]) / int(words[1]) if len(words) == 2 and words[0].isdigit() else None


def _cores_v1(directory: Path) -> float | None:
    quota = read_text(directory / "cpu.cfs_quota_us").strip()  # -1: none
    period = read_text(directory / "cpu.cfs_period_us").strip()
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def _used(quota: _Quota) -> float | None:
    for line in read_text(quota.usage).splitlines():
        name, _, number = line.rpartition(" ")
        if name == quota.word and number.isdigit():
            return int(number) * quota.unit_s
    return None


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
