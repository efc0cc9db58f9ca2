"""The machine, or the part of it that a container or control group leaves to us: cores, CPU time, memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import psutil

from tsnb.native.cores import usable_cores
from tsnb.telemetry.memory import Bounds, control_groups, memory_bounds, read_text

__all__ = ["Machine"]

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
