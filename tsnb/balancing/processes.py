"""One party's processes: whether they may be moved, what they have used, moving them and putting them back."""

from __future__ import annotations

from dataclasses import dataclass, field

from tsnb.balancing.affinity import Cores, cores_of, move, same_cpuset
from tsnb.native.processes import is_ours
from tsnb.telemetry.usage import children_of, use_of

__all__ = ["Held", "cpu_s", "hold", "workers_of"]


@dataclass
class Held:
    """A process that may be moved: a trial's, or one of the loader's workers."""

    pid: int
    started: int
    """Tells it from a later process of the same number."""
    home: Cores
    """What it may use when nobody moves it; its user's choice, where that is smaller than the machine."""
    cores: Cores
    """What it was given."""
    past: set[Cores] = field(default_factory=set)
    """All that it was ever given: stragglers among its threads are found by it."""
    seen: Cores = ()
    """What nobody here gave it, at the last look."""

    @property
    def alive(self) -> bool:
        """Whether it is still the process that was met."""
        use = use_of(self.pid)
        return use is not None and use.started == self.started

    def look(self) -> bool:
        """See whether somebody else has pinned it meanwhile: that is its home from then on.

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
        """Let it use what it could use before; what somebody else has pinned meanwhile stays."""
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
