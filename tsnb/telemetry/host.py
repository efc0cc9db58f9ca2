"""The machine seen from outside the stream: CPU, memory and GPU memory of the producer and of each trial.

A sampler is handed every reading and now and then gives a `HostReading` with it. Trials tell it nothing: it takes
the process numbers from the reading and looks at those processes and all below them, through /proc and NVML.

What it looks at, and how often:

| what | every | cost |
|---|---|---|
| CPU time and anonymous memory of each process; the machine's CPU; GPUs | 2 s | 20 us a process, NVML's calls |
| which processes are below them; the machine's memory | 6 s | 10 us a thread, 0.5 ms |
| what forks share with each other | once a process, then at leisure | about 10 ms for one with torch |

All of it together stays below 0.1 ms CPU a tick (a quarter of a second): a look that cost more delays the next one.

A process number alone proves nothing. A process counts only if it is this user's and older than the reading that
names it; a number that is given to another process while a trial holds it is left out from then on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tsnb.machine.clocks import waited_s
from tsnb.machine.cores import Machine, usable_cores
from tsnb.machine.energy import EnergyMeter
from tsnb.machine.gpus import Gpus
from tsnb.machine.processes import Use, age_s, children_of, is_ours, part_bytes, use_of
from tsnb.telemetry.readings import HostReading, ProcessReading, StreamReading

__all__ = ["EVERY_S", "HostSampler"]

EVERY_S = 2.0
"""Seconds between two looks: a share of CPU over less time than that flickers."""

_FIRST_S = 0.5
"""The first look comes this soon after a panel was opened, so that its host line does not stay empty."""

_SOON = 3
"""So many looks after a trial came or went are not delayed, whatever they cost."""

_SHARE = 0.0003
"""Of one core for looking: 0.075 ms in each quarter of a second. The rest of the 0.1 ms is for the shared pages."""

_SHARE_PAGES = 0.0001
"""Of one core for looking at shared pages again, once every process has been looked at."""

_LATEST_S = 30.0
"""And so often at least, whatever it costs."""

_SLOWLY = 3
"""What changes slowly is looked at every so many looks."""

_BORN_S = 0.05
"""Clock ticks are 10 ms: a process that seems this much younger than the reading that names it may still be it."""


@dataclass
class _Watched:
    """One process named in a reading, with all below it."""

    pid: int
    started: int
    """Of the process itself: `Use.started`."""
    below: dict[int, int] = field(default_factory=dict)
    """Processes below it and when they started, as of the last search."""
    others: set[int] = field(default_factory=set)
    """Those below it that are not its stream's, as far as that is known."""
    cpu_s: dict[int, float] = field(default_factory=dict)
    """CPU seconds of each at the last look."""
    waited_s: dict[int, float] = field(default_factory=dict)
    """Seconds that it, or each of its stream's workers, had waited for a core by then."""
    looked_s: float = 0.0
    """When that was."""

    def kept_waiting_s(self, pids: Iterable[int]) -> float:
        """Return how long some of the processes have been ready and had no core since the last look, in all."""
        before_s, self.waited_s = self.waited_s, {pid: waited_s(pid) for pid in pids}
        return sum(now_s - before_s.get(pid, now_s) for pid, now_s in self.waited_s.items())


class HostSampler:
    """Looks at the machine for one follower of a stream.

    Not for several threads at once.

    Args:
        machine: Counts cores, CPU and memory.
        gpus: Counts GPUs.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        machine: Machine | None = None,
        gpus: Gpus | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._machine = machine or Machine()
        self._gpus = gpus or Gpus()
        self._energy = EnergyMeter(self._gpus)
        self._clock = clock
        self._named: dict[tuple[str, int], _Watched | None] = {}
        self._pages = _SharedPages(clock)
        self._memory = self._machine.memory()
        self._gpus.look()  # the first time takes NVML long, and nothing waits for it here
        self._looks = 0
        self._soon = _SOON
        self._spent_s: deque[float] = deque(maxlen=_SLOWLY)
        self._looked_s = clock()
        self._busy_s = self._machine.cpu_s()
        self._next_s = self._looked_s + _FIRST_S

    def sample(self, reading: StreamReading) -> HostReading | None:
        """Look at the machine, if it is time to.

        Called by a follower with each reading, in its thread.

        Returns:
            What the machine does; None if it was looked at not long ago.
        """
        now_s = self._clock()
        self._meet(reading)
        if now_s < self._next_s:
            return None
        before_s = time.thread_time()
        found = self._look(reading, now_s)
        self._spent_s.append(time.thread_time() - before_s)
        mean_s = sum(self._spent_s) / len(self._spent_s)
        self._next_s = now_s + (EVERY_S if self._soon else min(max(EVERY_S, mean_s / _SHARE), _LATEST_S))
        self._soon = max(0, self._soon - 1)
        self._pages.look([w for w in self._named.values() if w])
        return found

    def _meet(self, reading: StreamReading) -> None:
        """Note the processes named for the first time, so that the next look has something to compare with."""
        named = [("", reading.pid), *((name, c.pid) for name, c in reading.attached.items())]
        if list(self._named) == named:
            return
        # what each of them does from now on is known soon
        self._next_s, self._soon = min(self._next_s, self._clock() + _FIRST_S), _SOON
        known = self._named
        apart = {pid for _, pid in named}
        self._named = {key: known[key] for key in named if key in known}
        for key in named:
            if key not in known:
                self._named[key] = self._met(key[1], reading, apart)
        self._named = {key: self._named[key] for key in named}

    def _met(self, pid: int, reading: StreamReading, apart: set[int]) -> _Watched | None:
        """Begin to watch a process; None where it is not the one that the reading means, or not for us to see."""
        use = use_of(pid)
        if use is None or not is_ours(pid):
            return None
        if age_s(use.started) + _BORN_S < time.time() - reading.time_s:
            return None
        for other in self._named.values():  # it serves and trains, or trains twice
            if other and (other.pid, other.started) == (pid, use.started):
                return other
        watched = _Watched(pid, use.started)
        self._search(watched, apart, reading)
        watched.cpu_s = {p: u.cpu_s for p, u in (self._uses(watched) or {pid: use}).items()}
        watched.kept_waiting_s(reading.worker_pids if pid == reading.pid else [pid])
        watched.looked_s = self._clock()
        return watched

    def _look(self, reading: StreamReading, now_s: float) -> HostReading:
        slowly = self._looks % _SLOWLY == 0
        self._looks += 1
        if slowly:
            self._memory = self._machine.memory()
        gpu_bytes = self._gpus.by_process_and_gpu()
        apart = {w.pid for w in self._named.values() if w}
        seen: dict[int, ProcessReading | None] = {}
        for watched in self._named.values():
            if watched and watched.pid not in seen:
                workers = reading.worker_pids if watched.pid == reading.pid else ()
                new = any(pid not in watched.below for pid in workers)
                if slowly or new or any(use_of(pid) is None for pid in watched.below):
                    self._search(watched, apart, reading)
                seen[watched.pid] = self._process(watched, now_s, gpu_bytes, reading)
        by_name = {name: seen.get(w.pid) for (name, _), w in self._named.items() if w and name}
        cores, busy_s = self._machine.cores(), self._machine.cpu_s()
        cpu = (busy_s - self._busy_s) / max(now_s - self._looked_s, 1e-3)
        self._busy_s, self._looked_s = busy_s, now_s
        return HostReading(
            cores=cores,
            cpu=round(min(max(cpu, 0.0), float(cores)), 3),
            memory_used_bytes=self._memory.used_bytes,
            memory_total_bytes=self._memory.total_bytes,
            producer=seen.get(reading.pid),
            consumers={name: process for name, process in by_name.items() if process},
            gpus=self._gpus.look(),
            energy_j={source: round(joules, 3) for source, joules in self._energy.spent().items()},
        )

    def _process(
        self,
        watched: _Watched,
        now_s: float,
        gpu_bytes: dict[int, dict[int, int]],
        reading: StreamReading,
    ) -> ProcessReading | None:
        """Return what a process and all below it did since the last look; None where that is not to be said."""
        uses = self._uses(watched)
        seconds = now_s - watched.looked_s
        if uses is None:
            return None
        spent_s = {
            # one that is older than the last look and was not known then did the most of it before
            pid: use.cpu_s
            - watched.cpu_s.get(pid, use.cpu_s if age_s(use.started) > seconds + _BORN_S else 0.0)
            for pid, use in uses.items()
        }
        # what ended meanwhile has handed its seconds on to the process above it
        spent_s[watched.pid] -= sum(before_s for pid, before_s in watched.cpu_s.items() if pid not in uses)
        watched.cpu_s = {pid: use.cpu_s for pid, use in uses.items()}
        watched.looked_s = now_s
        mine = uses.keys() - watched.others
        serves = watched.pid == reading.pid
        workers = uses.keys() & reading.worker_pids if serves else set[int]()
        kept_waiting_s = watched.kept_waiting_s(workers if serves else [watched.pid])
        try:
            cores = usable_cores(watched.pid)
        except OSError:
            return None
        if seconds < _FIRST_S / 2:
            return None  # just met: too little time to tell
        own = sum(self._pages.own(watched, pid, uses[pid].anonymous_bytes) for pid in mine)
        return ProcessReading(
            cpu=round(max(0.0, sum(spent_s[pid] for pid in mine)) / seconds, 3),
            memory_bytes=own,
            cores=min(cores, self._machine.cores()),
            gpu_bytes=sum(sum(gpu_bytes.get(pid, {}).values()) for pid in mine),
            gpus=tuple(sorted({index for pid in mine for index in gpu_bytes.get(pid, {})})),
            workers=round(sum(spent_s[pid] for pid in workers) / seconds, 3),
            kept_waiting=round(kept_waiting_s / seconds, 3),
        )

    def _uses(self, watched: _Watched) -> dict[int, Use] | None:
        """Look at a process and those below it; None if its number is free or belongs to another one now."""
        own = use_of(watched.pid)
        if own is None or own.started != watched.started:
            return None
        below = {pid: (use_of(pid), started) for pid, started in watched.below.items()}
        living = {pid: use for pid, (use, started) in below.items() if use and use.started == started}
        return {watched.pid: own, **living}

    def _search(self, watched: _Watched, apart: set[int], reading: StreamReading) -> None:
        """Look for the processes below one.

        Below a producer are also the workers and trials of other streams that its process serves.
        """
        found = {pid: use_of(pid) for pid in children_of(watched.pid, apart)}
        watched.below = {pid: use.started for pid, use in found.items() if use}
        if watched.pid == reading.pid and reading.worker_pids:
            ours = {each for pid in reading.worker_pids for each in (pid, *children_of(pid, apart))}
            watched.others = watched.below.keys() - ours


class _SharedPages:
    """Knows how much of its anonymous memory a process shares with those it was forked from, or that were from it.

    Loader workers, and trials from the fork server, begin with all pages of their parent; counted in full in each
    of them they would be several times what they take. So each gets its part (PSS). How much that is takes the
    kernel long to tell and changes slowly: it is asked once for each process named in a reading and once for those
    below it (workers are forked alike), one process a look, and again only as the budget allows.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._others: dict[tuple[int, int, bool], tuple[int, float]] = {}
        self._next_s = 0.0

    def own(self, watched: _Watched, pid: int, anonymous_bytes: int) -> int:
        """Return a process's own memory, in bytes."""
        others, _ = self._others.get(_key(watched, pid), (0, 0.0))
        return max(0, anonymous_bytes - others)

    def look(self, all_watched: list[_Watched]) -> None:
        """Look at one process: one that is not known yet, or, if it is time, the one looked at longest ago."""
        candidates = {_key(w, pid): pid for w in all_watched for pid in (w.pid, *w.below)}
        self._others = {key: known for key, known in self._others.items() if key in candidates}
        if not candidates:
            return
        key = min(candidates, key=lambda k: self._others.get(k, (0, -1.0))[1])
        if key in self._others and self._clock() < self._next_s:
            return
        before_s = time.thread_time()
        use, part = use_of(candidates[key]), part_bytes(candidates[key])
        if use is not None:
            self._others[key] = (use.anonymous_bytes - part if part is not None else 0, self._clock())
        self._next_s = self._clock() + (time.thread_time() - before_s) / _SHARE_PAGES


def _key(watched: _Watched, pid: int) -> tuple[int, int, bool]:
    return watched.pid, watched.started, pid == watched.pid
