"""Which cores processes may use: reading it, and changing it for all threads of a process and those below it.

A thread is moved only if it may use just the cores that are named as known: one that somebody else has pinned is
left alone. Linux gives a new thread or process the cores of the thread that starts it, so whoever moves a process
looks twice: for those that were started meanwhile.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from tsnb.telemetry.usage import children_of

__all__ = ["Cores", "cores_in", "cores_of", "move", "same_cpuset", "text_of"]

Cores = tuple[int, ...]
"""Numbers of cores, in order."""

_LOOKS = 3
"""How often threads are looked for: each look finds those that the one before has missed."""


def cores_of(task: int) -> Cores | None:
    """Return the cores that a process (or thread, by its number) may use; None where nobody knows, or it has gone."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    try:
        return tuple(sorted(os.sched_getaffinity(task)))
    except OSError:
        return None


def move(pid: int, to: Cores, known: Iterable[Cores], apart: frozenset[int] = frozenset()) -> None:
    """Let all threads of a process and of those below it use these cores from now on.

    Args:
        pid: The process.
        to: The cores; those that do not exist are left out by the system.
        known: Threads that may use just one of these are moved, no others.
        apart: Processes that are left out, with all below them.
    """
    before = {tuple(sorted(cores)) for cores in known} - {to}
    for _ in range(_LOOKS):
        moved = False
        for process in (pid, *children_of(pid, apart)):
            for thread in _threads(process):
                if cores_of(thread) in before:
                    with contextlib.suppress(OSError):  # it has ended, or the machine has lost these cores
                        os.sched_setaffinity(thread, to)
                        moved = True
        if not moved:
            return


def same_cpuset(pid: int) -> bool:
    """Whether a process is in this one's control group for cores (as all of one container are)."""
    return _cpuset(pid) == _cpuset(os.getpid())


def text_of(cores: Iterable[int]) -> str:
    """Write cores as the kernel does: 0-3,8."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def cores_in(text: str) -> Cores:
    """Read what `text_of` wrote.

    Raises:
        ValueError: It is no list of cores.
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


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208  # a Path a thread costs more
    except OSError:
        return []


def _cpuset(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cpuset", encoding="utf-8") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return ""
