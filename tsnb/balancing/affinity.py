"""Which cores processes may use: reading it, and changing it for all threads of a process and those below it.

A thread is moved only if it may use just the cores that are named as known: one that was pinned from elsewhere is
left alone. Linux gives a new thread or process the cores of the thread that starts it, so after a process is moved
its threads are listed a second time, for those that were started meanwhile.

`Held` is one party of a stream: whether its processes may be moved, what they have used, and putting them back.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from tsnb.machine.cores import CoreSet, cores_of, same_cpuset
from tsnb.machine.processes import children_of, is_ours, use_of

__all__ = [
    "Held",
    "cpu_s",
    "hold",
    "move",
]

_LOOKS = 3
"""How often threads are looked for: each look finds those that the one before has missed."""


def move(pid: int, to: CoreSet, known: Iterable[CoreSet], apart: frozenset[int] = frozenset()) -> None:
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


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208  # a Path a thread costs more
    except OSError:
        return []


@dataclass
class Held:
    """A process that may be moved: a trial's, or one of the loader's workers."""

    pid: int
    started: int
    """Tells it from a later process of the same number."""
    home: CoreSet
    """The cores it may use unmoved; its user's choice, where that is smaller than the machine."""
    cores: CoreSet
    """What it was given."""
    past: set[CoreSet] = field(default_factory=set)
    """All that it was ever given: stragglers among its threads are found by it."""
    seen: CoreSet = ()
    """Cores that it got from elsewhere, at the last look."""

    @property
    def alive(self) -> bool:
        """Whether it is still the process that was met."""
        use = use_of(self.pid)
        return use is not None and use.started == self.started

    def look(self) -> bool:
        """See whether it was pinned from elsewhere meanwhile: that is its home from then on.

        It must have been so twice: libraries go from core to core for a moment, to learn what the machine is like.

        Returns:
            False where it has gone.
        """
        found = cores_of(self.pid) if self.alive else None
        if found is None:
            return False
        foreign = found not in (self.home, self.cores, *self.past)
        if foreign and found == self.seen:
            self.home = self.cores = found
        self.seen = found if foreign else ()
        return True

    def allot(self, cores: CoreSet, apart: frozenset[int]) -> None:
        """Let it, and all below it, use these cores."""
        if self.alive:
            move(self.pid, cores, {self.home, self.cores, *self.past}, apart)
            self.past |= {self.cores, cores}
            self.cores = cores

    def keep(self, apart: frozenset[int]) -> None:
        """Do the same to threads and processes that were started meanwhile from elsewhere."""
        if self.cores != self.home:
            self.allot(self.cores, apart)

    def give_back(self, apart: frozenset[int]) -> None:
        """Let it use the cores it could use before; any pinned from elsewhere meanwhile stay."""
        if self.past and self.alive:
            move(self.pid, self.home, self.past, apart)
        self.past.clear()
        self.cores = self.home


def hold(pid: int) -> Held | None:
    """Return a process as one that may be moved; None where it is not this user's, gone, or lives elsewhere."""
    use, cores = (use_of(pid), cores_of(pid)) if pid > 0 else (None, None)
    if use is None or cores is None or not is_ours(pid) or not same_cpuset(pid):
        return None
    return Held(pid, use.started, cores, cores)


def cpu_s(pid: int, apart: frozenset[int]) -> float:
    """Return the CPU seconds of a process and all below it, those that have ended included."""
    uses = (use_of(process) for process in (pid, *children_of(pid, apart)))
    return sum(use.cpu_s for use in uses if use is not None)
