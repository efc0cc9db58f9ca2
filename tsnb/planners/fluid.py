"""How fast trials go beside each other: a fluid model. Pure.

Between two events (a trial starts, has its first batch, or ends; a tenth more of the files is in memory) each goes at a
constant pace, in samples a second. Starts share the cores too: each has a second or more of imports, and the first on
a loader waits for that to start. With m the seconds of a trial's step, c its CPU seconds, t those of taking a sample,
and of the loader l its seconds a sample when nothing else limits it, p its CPU seconds, and e those in which it has
what one loader at a time can have:

    one stream      all at 1 / max(max(m + t), l, (p + sum(c + t)) / cores): one loader, and the slowest sets the pace
    a loader each   each at most at 1 / max(m + t, l); the cores are shared out evenly (water-filling) at a cost of
                    p + c + t a sample, and what one loader at a time can have at a cost of e

Work takes longer beside others (caches, the memory bus, two threads of one core), by what was measured: `Job.crowd`.

Files: a sample whose files are not in memory takes d longer, of which the disk is busy b for this loader alone. With a
share f in memory, l grows by (1 - f) d / workers and e by (1 - f) b. Every miss brings a sample into memory, for all
loaders, as long as there is room: so a trial that starts later finds what the first has read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

__all__ = ["Course", "Disk", "Job", "LoaderCost", "Resources", "bounds"]

SHARE = 0.1
"""The pace is found anew whenever so much more of the files is in memory."""


def bounds(steps: Iterable[float], loader_s: float, cpu_s: float, cores: float) -> dict[str, float]:
    """Return the seconds of a sample by each limit of a stream: the largest of them sets the pace of all its trials.

    Args:
        steps: Seconds a sample of each trial's own step, with what it takes to get the sample.
        loader_s: Seconds a sample of the loader, where nothing else limits it.
        cpu_s: CPU seconds a sample of all processes together.
        cores: CPU cores for these; 0: not known, so they are no limit.
    """
    return {
        "model": max(steps, default=0.0),
        "loader": loader_s,
        "cores": cpu_s / cores if cores > 0 else 0.0,
    }


@dataclass(frozen=True)
class Job:
    """One trial."""

    name: str
    """Its name."""
    samples: float
    """That it has to take."""
    step_s: float
    """Seconds a sample of its step, where it has the cores that it uses, and nothing else trains."""
    cpu_s: float
    """CPU seconds of its process per sample."""
    memory_bytes: float = 0.0
    """Its largest use of memory."""
    start_s: float = 0.0
    """Seconds from its start to its first batch, where it has a core when it needs one."""
    start_cpu_s: float = 0.0
    """CPU seconds of that: several that start together share the cores, and take them from those that train."""
    crowd: float = 1.0
    """How many times as much CPU time a sample takes beside `beside` others; on a GPU, how many times the step."""
    beside: int = 0
    """So many others trained when `crowd` was measured."""
    device: str = ""
    """The GPU that it computes on; empty: none."""
    device_bytes: float = 0.0
    """Its largest use of that GPU's memory."""
    device_room_bytes: float = math.inf
    """Memory of that GPU for all trials on it."""

    def started(self, before_s: float = math.inf) -> Job:
        """Return it as it begins where its process was started before: what that cost is in its samples.

        Args:
            before_s: So many seconds before; of a start that takes longer the rest is still to come.
        """
        left = max(0.0, 1 - before_s / self.start_s) if self.start_s else 0.0
        each_s = (1 - left) * self.start_cpu_s / max(1.0, self.samples)
        start_s, start_cpu_s = left * self.start_s, left * self.start_cpu_s
        return replace(self, start_s=start_s, start_cpu_s=start_cpu_s, cpu_s=self.cpu_s + each_s)

    def crowded(self, others: int) -> tuple[float, float]:
        """Return the seconds of its step and its CPU seconds, a sample, beside so many others.

        More than alone in proportion to their number, up to those that were measured. Where it waits for something else
        than a core, a crowd makes no difference.
        """
        more = (self.crowd - 1) * min(1.0, others / self.beside) if self.beside else 0.0
        slower_s = more * (self.step_s if self.device else min(self.step_s, self.cpu_s))
        return self.step_s + slower_s, self.cpu_s * (1 if self.device else 1 + more)


@dataclass(frozen=True)
class Disk:
    """What reading costs a loader that has `epoch_samples`, a sample whose files are not in memory."""

    wait_s: float
    """Seconds that a worker waits longer."""
    busy_s: float
    """Of these, seconds that the disk is busy for it alone."""
    workers: int
    """Of the loader: they wait at the same time."""
    cached: float = 0.0
    """Share of the samples whose files are in memory in the beginning, 0 to 1."""
    fits: float = 1.0
    """Share of the samples that fits into memory, 0 to 1."""


@dataclass(frozen=True)
class LoaderCost:
    """One loader, a sample."""

    wall_s: float
    """Seconds when nothing else limits it."""
    cpu_s: float
    """CPU seconds of its workers."""
    taking_s: float
    """CPU seconds of the trial that takes it, of each one."""
    memory_bytes: float = 0.0
    """What it needs itself: workers, batches."""
    lone_s: float = 0.0
    """Seconds in which it has what one loader at a time can have: a disk, a lock, the memory bus."""
    disk: Disk | None = None
    """What reading costs; None: nothing that is not in `wall_s`."""
    drag: float = 1.0
    """How many times as long a sample took with `drag_of` trials on this loader than their costs say."""
    drag_of: int = 1
    """So many took it when `drag` was measured."""
    epoch_samples: float = 0.0
    """Samples in an epoch, on one stream: a trial that comes in the middle of one waits for the next; 0: none waits."""
    fill_s: float = 0.0
    """Seconds until its first batches go at its pace: a start of workers, memory that is new. CPU time, too."""
    serve_s: float = 0.0
    """Seconds of that until there is a stream: of several loaders one after the other, as one process serves them."""

    def first_of(self, job: Job) -> Job:
        """Return a trial that is the first on a loader: its batches are there only when that has started."""
        return replace(job, start_s=job.start_s + self.fill_s, start_cpu_s=job.start_cpu_s + self.fill_s)

    def dragged(self, trials: int) -> float:
        """Return how many times as long a sample takes with so many trials: in proportion up to those measured."""
        return 1 + (self.drag - 1) * min(1.0, (trials - 1) / (self.drag_of - 1)) if self.drag_of > 1 else 1.0


@dataclass(frozen=True)
class Resources:
    """What trials have for their training, all together, and which of them have some of it already."""

    loader: LoaderCost
    """What a sample costs the loader; where it is not shared, each trial has one of its own."""
    cores: float
    """CPU cores."""
    memory_bytes: float = math.inf
    """Memory, the loader's included."""
    at_once: int | None = None
    """So many trials run at once at most, those that run already included; None: all."""
    running: Sequence[Job] = ()
    """Trials that have started before, with the samples that are left to them; they take places and memory."""


@dataclass
class Going:
    """A trial that runs."""

    job: Job
    left: float
    """Samples."""
    starting_s: float
    """What is left of its start, in seconds as if it had a core when it needs one."""
    begun_s: float = 0.0
    """When it began: those that begin together wait for each other before their first batch."""
    joined_s: float | None = None
    """Since when it takes batches; None: not yet. One that has run before: since ever."""

    @property
    def joined(self) -> bool:
        """Whether it takes batches."""
        return self.joined_s is not None


class Course:
    """Trials that run, moved through time.

    Attributes:
        going: Those that run now.
        now_s: Seconds since the beginning.

    Args:
        resources: The loader and cores, and the trials that run in the beginning.
        shared: Whether all are on one stream.
    """

    def __init__(self, resources: Resources, *, shared: bool) -> None:
        self.going: list[Going] = []
        self.now_s = 0.0
        loader = resources.loader
        self._loader, self._cores, self._shared = loader, resources.cores, shared
        self._cached = loader.disk.cached if loader.disk else 1.0
        self._epoch = loader.epoch_samples if shared else 0.0
        self._in_epoch = 0.0
        self._used = False  # whether a trial has been on the loader
        for job in resources.running:
            self.begin(job, running=True)

    def begin(self, job: Job, *, running: bool = False) -> None:
        """Start a trial, or take in one that has taken batches before."""
        if not running and not (self._shared and self._used):
            job = self._loader.first_of(job)
        self._used = True
        joined_s = -math.inf if running and not job.start_s else None
        self.going.append(Going(job, job.samples, job.start_s, self.now_s, joined_s))
        if self._epoch and self.going[-1].joined:
            self._in_epoch = -job.samples % self._epoch

    def _let_join(self) -> None:
        """Let those take batches that have started: all that began together at once, at the beginning of an epoch."""
        ready = [each for each in self.going if not each.joined and each.starting_s <= 0]
        if self._epoch:
            late = {each.begun_s for each in self.going if each.starting_s > 0}
            ready = [each for each in ready if each.begun_s not in late]
            if any(each.joined for each in self.going) and 1e-9 < self._in_epoch / self._epoch < 1 - 1e-9:
                return
            self._in_epoch = 0.0
        for each in ready:
            each.joined_s = self.now_s

    def go_on(self, most_s: float = math.inf) -> list[str]:
        """Let time pass until something changes; return the trials that have ended, which run no more.

        Args:
            most_s: So many seconds at most.
        """
        self._let_join()
        speeds = self._speeds()
        took_s = min(
            most_s,
            self._reading_s(speeds),
            self._epoch_s(speeds),
            *(
                (each.starting_s or each.left) / speed if speed else math.inf
                for each, speed in zip(self.going, speeds, strict=True)
            ),
        )
        self._read(speeds, took_s)
        if self._epoch:
            self._in_epoch = (self._in_epoch + self._rate(speeds) * took_s) % self._epoch
        for each, speed in zip(self.going, speeds, strict=True):
            if each.starting_s > 0:
                left = each.starting_s - speed * took_s
                each.starting_s = left if left > 1e-9 * each.job.start_s else 0.0
            else:
                left = each.left - speed * took_s
                each.left = left if left > 1e-9 * each.job.samples + 1e-12 else 0.0
        self.now_s += took_s
        ended = [each for each in self.going if not each.starting_s and not each.left]
        self.going = [each for each in self.going if each.starting_s or each.left]
        return [each.job.name for each in ended]

    def paces(self) -> list[float]:
        """Return samples/s of each as if all had started."""
        return self._paces(self.going, self._cores)

    def _speeds(self) -> list[float]:
        """Return the speed of each: samples/s of those that take batches; of those that start, seconds a second."""
        starts = [each for each in self.going if each.starting_s > 0]
        trains = [each for each in self.going if each.joined]
        wanted = sum(min(1.0, each.job.start_cpu_s / each.job.start_s) for each in starts)
        given = min(wanted, self._cores * len(starts) / max(1, len(self.going)))
        start = given / wanted if wanted else 1.0
        paces = iter(self._paces(trains, self._cores - given if trains else self._cores))
        return [start if each.starting_s > 0 else next(paces) if each.joined else 0.0 for each in self.going]

    def _epoch_s(self, speeds: Sequence[float]) -> float:
        """Return in how many seconds the epoch ends, if somebody may wait for that."""
        rate = self._rate(speeds)
        waits = self._epoch and rate and any(not each.joined for each in self.going)
        return (self._epoch - self._in_epoch) / rate if waits else math.inf

    def _paces(self, trains: Sequence[Going], cores: float) -> list[float]:
        """Return samples/s of each that takes batches."""
        if not trains:
            return []
        loader, others = self._loader, len(trains) - 1
        wall_s, lone_s = self._loader_s()
        crowded = [each.job.crowded(others) for each in trains]
        steps = [step_s + loader.taking_s for step_s, _ in crowded]
        spent = [cpu_s + loader.taking_s for _, cpu_s in crowded]
        if self._shared:
            found = bounds(steps, max(wall_s, lone_s), loader.cpu_s + sum(spent), cores)
            slowest_s = max(1e-12, *found.values())
            return [1 / (slowest_s * loader.dragged(len(trains)))] * len(trains)
        most = [1 / max(step_s, wall_s, 1e-12) for step_s in steps]
        costs = [max(loader.cpu_s + cpu_s, 1e-12) for cpu_s in spent]
        given = _water_filled([pace * cost for pace, cost in zip(most, costs, strict=True)], cores)
        paces = [share / cost for share, cost in zip(given, costs, strict=True)]
        return _water_filled(paces, 1 / lone_s) if lone_s > 0 else paces

    def _loader_s(self) -> tuple[float, float]:
        """Return the loader's own seconds a sample, and those in which no other loader gets on."""
        loader, disk = self._loader, self._loader.disk
        if disk is None:
            return loader.wall_s, loader.lone_s
        missed = max(0.0, 1 - min(1.0, self._cached + SHARE / 2)) if self._fills else 1 - self._cached
        wait_s, busy_s = missed * disk.wait_s / max(1, disk.workers), missed * disk.busy_s
        return loader.wall_s + wait_s, loader.lone_s + busy_s

    @property
    def _fills(self) -> bool:
        """Whether what is read stays in memory."""
        disk = self._loader.disk
        return disk is not None and self._cached < min(1.0, disk.fits)

    def _rate(self, speeds: Sequence[float]) -> float:
        """Return samples/s that are read, those in memory included."""
        paces = [speed for each, speed in zip(self.going, speeds, strict=True) if each.joined]
        return max(paces, default=0.0) if self._shared else sum(paces)

    def _reading_s(self, speeds: Sequence[float]) -> float:
        """Return in how many seconds so much more is in memory that the pace is another."""
        rate, disk = self._rate(speeds), self._loader.disk
        if disk is None or not self._fills or not rate:
            return math.inf
        missed, then = 1 - self._cached, max(1 - min(1.0, disk.fits), 1 - self._cached - SHARE)
        return self._loader.epoch_samples / rate * math.log(missed / max(then, missed * 1e-3))

    def _read(self, speeds: Sequence[float], seconds: float) -> None:
        """Note what came into memory."""
        disk = self._loader.disk
        if disk is not None and self._fills:
            missed = (1 - self._cached) * math.exp(-self._rate(speeds) * seconds / self._loader.epoch_samples)
            fits = min(1.0, disk.fits)
            self._cached = min(fits, 1 - missed)
            if fits - self._cached < 1e-3:
                self._cached = fits


def _water_filled(wanted: Sequence[float], capacity: float) -> list[float]:
    """Share a capacity out evenly, but for trials that want less: the others get what those leave."""
    given, left = [0.0] * len(wanted), capacity
    for done, trial in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        given[trial] = min(wanted[trial], left / (len(wanted) - done))
        left -= given[trial]
    return given
