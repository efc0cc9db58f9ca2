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

from tsnb.native.processes import is_ours
from tsnb.telemetry.machine import children_of, use_of

__all__ = [
    "Cores",
    "Held",
    "cores_in",
    "cores_of",
    "cpu_s",
    "hold",
    "move",
    "same_cpuset",
    "text_of",
    "workers_of",
]

Cores = tuple[int, ...]
"""Numbers of cores, in order."""

_LOOKS = 3
"""How often threads are looked for: each look finds those that the one before has missed."""


def cores_of(task: int) -> Cores | None:
    """Return the cores that a process (or thread, by its number) may use; None if that is unknown, or it has gone."""
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


@dataclass
class Held:
    """A process that may be moved: a trial's, or one of the loader's workers."""

    pid: int
    started: int
    """Tells it from a later process of the same number."""
    home: Cores
    """The cores it may use unmoved; its user's choice, where that is smaller than the machine."""
    cores: Cores
    """What it was given."""
    past: set[Cores] = field(default_factory=set)
    """All that it was ever given: stragglers among its threads are found by it."""
    seen: Cores = ()
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

    def allot(self, cores: Cores, apart: frozenset[int]) -> None:
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


def workers_of(thread: int) -> tuple[int, ...]:
    """Return the processes that a thread of this process has started: the loading thread's are the loader's workers."""
    try:
        with open(f"/proc/self/task/{thread}/children", encoding="ascii") as file:  # noqa: PTH123
            return tuple(map(int, file.read().split()))
    except (OSError, ValueError):
        return ()
