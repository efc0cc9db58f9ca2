"""Cores: which a process may use, what its container's quota leaves of them, and how busy they are.

`Machine` tells cores, CPU time and memory of this machine, or of the part of it that a container or control group
leaves to us.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tsnb.machine.memory import Bounds, control_groups, memory_bounds, read_text
from tsnb.machine.processes import HAS_PROC

__all__ = [
    "CoreSet",
    "Machine",
    "available_cores",
    "cores_busy_s",
    "cores_in",
    "cores_of",
    "same_cpuset",
    "text_of",
    "usable_cores",
]

CoreSet = tuple[int, ...]
"""Numbers of cores, in order."""

_MICRO = 1e-6
_NANO = 1e-9


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


def cores_of(task: int) -> CoreSet | None:
    """Return the cores that a process (or thread, by its number) may use; None if that is unknown, or it has gone."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    try:
        return tuple(sorted(os.sched_getaffinity(task)))
    except OSError:
        return None


def text_of(cores: Iterable[int]) -> str:
    """Write cores as the kernel does: 0-3,8."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def cores_in(text: str) -> CoreSet:
    """Read what `text_of` wrote.

    Raises:
        ValueError: It is not a list of cores.
    """
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        run = range(int(first), int(last or first) + 1)
        if len(run) > _MANY or run.stop > _MANY:
            raise ValueError(f"{text[:80]!r} names cores that no machine has")
        found.update(run)
    return tuple(sorted(found))


_MANY = 1 << 14
"""More cores than Linux can have."""


def same_cpuset(pid: int) -> bool:
    """Whether a process is in this one's control group for cores (as all of one container are)."""
    return _cpuset(pid) == _cpuset(os.getpid())


def _cpuset(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cpuset", encoding="utf-8") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return ""


def available_cores() -> float:
    """Return the cores that this process may use: those of its affinity, or less by its control group's quota."""
    quota = Machine().quota
    return float(usable_cores()) if quota is None else min(float(usable_cores()), quota)


def cores_busy_s() -> float | None:
    """Return how long the cores that this process may use have been busy, summed; None where it is not told.

    That is work of anybody, and what a host took from a virtual machine.
    """
    if not HAS_PROC:
        import psutil  # only where there is no /proc

        times = psutil.cpu_times()
        return float(sum(getattr(times, word, 0.0) for word in ("user", "nice", "system")))
    lines = read_text(Path("/proc/stat")).splitlines()
    mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    rows = [line.split() for line in lines if line.partition(" ")[0] in mine]
    # user, nice, system, idle, iowait, irq, softirq, steal
    ticks = sum(sum(map(int, row[1:9])) - int(row[4]) - int(row[5]) for row in rows)
    return ticks / os.sysconf("SC_CLK_TCK") if rows else None


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
        return cores_busy_s() or 0.0

    def memory(self) -> Bounds:
        """Return the memory in use and in all: the machine's, or the tightest control group's."""
        found = memory_bounds(self._root)
        if found is None:
            import psutil

            whole = psutil.virtual_memory()
            return Bounds(whole.total - whole.available, whole.total)
        return found


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
