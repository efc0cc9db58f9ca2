"""Clocks that other programs do not move: CPU time of processes, and the time that one waited for a core.

A shared machine makes every wall time longer. CPU time hardly changes, and Linux counts for each thread how long it was
ready to run and had no core (`/proc/PID/schedstat`, its second number): the rest is the time that a quiet
machine would have taken.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import psutil

from tsnb.native.processes import HAS_PROC, usable_cores

__all__ = ["available_cores", "below", "cpu_s", "machine_busy_s", "thread_cpu_s", "threads", "waited_s"]

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def below() -> set[int]:
    """Return the pids of all processes below this one."""
    return {process.pid for process in psutil.Process().children(recursive=True)}


def cpu_s(pid: int) -> float | None:
    """Return the CPU seconds of a process of this user, all its threads; None if it has gone."""
    if not HAS_PROC:
        return _asked(pid)
    try:
        return time.clock_gettime((~pid << 3) | 2)  # clock_getcpuclockid(3), which Python does not have
    except OSError:
        return None


def _asked(pid: int) -> float | None:
    try:
        spent = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return None
    return float(spent.user + spent.system)


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


def machine_busy_s() -> float | None:
    """Return how long the cores that this process may use have been busy, summed; None where it is not told."""
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    rows = [line.split() for line in lines if line.partition(" ")[0] in mine]
    # user, nice, system, idle, iowait, irq, softirq, steal
    return sum(sum(map(int, row[1:9])) - int(row[4]) - int(row[5]) for row in rows) * _TICK_S


def available_cores() -> float:
    """Return the cores that this process may use: those of its affinity, or less by its control group's quota."""
    cores = float(usable_cores())
    try:
        group = Path("/proc/self/cgroup").read_text(encoding="ascii").strip().rpartition("::")[2]
    except (OSError, UnicodeDecodeError):
        return cores
    for folder in (group, *(str(parent) for parent in Path(group).parents)):
        try:
            quota, period = Path(f"/sys/fs/cgroup{folder}/cpu.max").read_text(encoding="ascii").split()
        except (OSError, ValueError):
            continue
        if quota != "max":
            cores = min(cores, int(quota) / int(period))
    return cores
