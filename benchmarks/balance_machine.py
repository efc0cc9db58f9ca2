"""A small simulated machine: models of any size on any number of cores, for tests and for what-if figures.

What is simulated: Amdahl's law for each model's threads, a loader with worker processes, the window (all trials keep
the slowest one's pace), cores that are shared (whoever runs has an equal part of the cores that it may use), and a
cost of sharing (`CROWDING`: caches and barriers). What is not: single batches, memory bandwidth, frequencies, GPUs.

    machine = Machine(8, (Model("small", 0.01), Model("large", 0.2)), Loader(0.03, workers=2))
    machine.run(Balancer(), 300.0)      # moves as the balancer decides; returns what happened
    machine.pace                        # batches/s now
    machine.best_split()                # of all ways to give everybody cores of its own, the best one's pace
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from tsnb.planners.balancing import Balancer
from tsnb.planners.parties import LOADER, Allot, Instruction, Measured, Moved, Observed, Party

__all__ = ["Happened", "Loader", "Machine", "Model"]

CROWDING = 0.05
"""Of its speed that a process loses for each further one that wants the same cores."""


@dataclass(frozen=True)
class Model:
    """A trial's training step."""

    name: str
    work_s: float
    """CPU seconds a batch, on one core."""
    parallel: float = 0.8
    """Share of them that runs on all threads."""
    blocked_s: float = 0.0
    """Seconds a batch that are no work of a core's: a GPU, a disk."""
    threads: int = 1
    """Torch threads that it begins with."""
    fixed: bool = False
    """Whether its threads are its user's choice."""
    weight: float = 1.0


@dataclass(frozen=True)
class Loader:
    """The shared loader."""

    work_s: float
    """CPU seconds a batch."""
    workers: int = 1


@dataclass(frozen=True)
class Happened:
    """One instruction of the balancer's, and the pace after it."""

    time_s: float
    made: Instruction
    pace: float


_COUNTERS = ("batches", "cpu_s", "computing_s", "waiting_s", "held_s")


@dataclass
class _Runner:
    """One party on the machine."""

    name: str
    work_s: float
    parallel: float
    blocked_s: float
    threads: int
    own_threads: int
    fixed: bool
    weight: float
    cores: tuple[int, ...]
    step_s: float = 0.0
    busy: float = 0.0
    counters: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_COUNTERS, 0.0))


class Machine:
    """Simulates one stream on one machine.

    Args:
        cores: How many.
        models: The trials.
        loader: What feeds them.
        noise: Relative standard deviation of what is counted in two seconds.
        seed: Of the noise.
        pacing: As `tsnb.planners.parties.PACINGS`.
    """

    def __init__(
        self,
        cores: int,
        models: tuple[Model, ...],
        loader: Loader,
        *,
        noise: float = 0.0,
        seed: int = 0,
        pacing: str = "together",
    ) -> None:
        self.cores = tuple(range(cores))
        self.pacing = pacing
        self.time_s = 0.0
        self._loader = _Runner(
            LOADER, loader.work_s, 1.0, 0.0, loader.workers, loader.workers, True, 1.0, self.cores
        )
        self._trials: list[_Runner] = []
        self._state: object = None
        self._pace = 0.0
        for model in models:
            self.join(model)
        self._noise, self._random = noise, random.Random(seed)

    # -- what happens on it ------------------------------------------------------------------------------

    def join(self, model: Model) -> None:
        """Let a trial begin."""
        self._trials.append(
            _Runner(
                model.name, model.work_s, model.parallel, model.blocked_s, model.threads, model.threads,
                model.fixed, model.weight, self.cores,
            )
        )  # fmt: skip

    def leave(self, name: str) -> None:
        """Let a trial end."""
        self._trials = [trial for trial in self._trials if trial.name != name]

    def apply(self, made: Allot) -> None:
        """Do what a balancer said."""
        for runner in self._runners():
            if runner.name == made.name:
                runner.cores = made.cores
                if runner.name != LOADER:
                    runner.threads = made.threads

    def run(self, balancer: Balancer | None, seconds: float, tick_s: float = 2.0) -> list[Happened]:
        """Let time pass; return what the balancer did, but for the allotments themselves."""
        happened = []
        end_s = self.time_s + seconds
        while self.time_s < end_s:
            instructions = balancer.step(self.observe()) if balancer else []
            for made in instructions:
                if isinstance(made, Allot):
                    self.apply(made)
            pace = self.pace
            happened += [
                Happened(self.time_s, made, pace)
                for made in instructions
                if isinstance(made, Moved | Measured)
            ]
            self._pass(tick_s, pace)
        return happened

    def _pass(self, seconds: float, pace: float) -> None:
        factor = max(0.1, self._random.gauss(1.0, self._noise)) if self._noise else 1.0
        batches = pace * factor * seconds
        slack = "waiting_s" if self._loader.busy > 0.999 else "held_s"
        for runner in self._runners():
            count = runner.counters
            count["batches"] += batches
            count["cpu_s"] += batches * runner.work_s
            count["computing_s"] += runner.busy * seconds
            count[slack] += (1.0 - runner.busy) * seconds
        self.time_s += seconds

    # -- what can be seen of it --------------------------------------------------------------------------

    def observe(self) -> Observed:
        """Return what a balancer is told."""
        trials = tuple(self._party(runner) for runner in self._trials)
        return Observed(self.time_s, self.cores, self._party(self._loader), trials, self.pacing)

    def _party(self, runner: _Runner) -> Party:
        count = {**runner.counters, "batches": int(runner.counters["batches"])}
        return Party(
            name=runner.name, home=self.cores, cores=runner.cores, threads=runner.threads, weight=runner.weight,
            fixed=runner.fixed, own_threads=runner.own_threads, **count,  # type: ignore[arg-type]
        )  # fmt: skip

    def allotments(self) -> dict[str, tuple[int, int]]:
        """Return how many cores and threads each has."""
        return {runner.name: (len(runner.cores), runner.threads) for runner in self._runners()}

    @property
    def pace(self) -> float:
        """Batches a second that all trials keep, as everything is divided now."""
        state = tuple((r.name, r.cores, r.threads) for r in self._runners())
        if state == self._state:
            return self._pace
        low, high = 0.0, 1.0 / max(1e-9, min(self._fastest_s(r) for r in self._runners()))
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (middle, high) if self._can_keep(middle) else (low, middle)
        self._can_keep(low)
        slowest = max(self._runners(), key=lambda runner: runner.busy)
        slowest.busy = 1.0
        self._state, self._pace = state, low
        return low

    def best_split(self) -> float:
        """Return the best pace of all ways to give every trial and the loader cores of its own.

        Raises:
            ValueError: There are too few cores for that.
        """
        before = [(r.cores, r.threads) for r in self._runners()]
        if len(self.cores) < len(before):
            raise ValueError(
                f"{len(before)} parties cannot have cores of their own on {len(self.cores)} cores."
            )
        best = 0.0
        for numbers in _compositions(len(self.cores), len(before)):
            start = 0
            for runner, number in zip(self._runners(), numbers, strict=True):
                runner.cores = self.cores[start : start + number]
                if runner.name != LOADER and not runner.fixed:
                    runner.threads = number
                start += number
            best = max(best, self.pace)
        for runner, (cores, threads) in zip(self._runners(), before, strict=True):
            runner.cores, runner.threads = cores, threads
        return best

    def _runners(self) -> list[_Runner]:
        return [*self._trials, self._loader]

    def _fastest_s(self, runner: _Runner) -> float:
        return max(1e-6, runner.blocked_s + runner.work_s / max(1, len(self.cores)))

    def _can_keep(self, pace: float) -> bool:
        """Whether everybody can keep a pace; leaves in `busy` the share of time that each is at work."""
        for runner in self._runners():
            runner.busy = 0.5
        for _ in range(12):
            for runner in self._runners():
                runner.step_s = self._step_s(runner)
                runner.busy = (runner.busy + min(1.0, pace * runner.step_s)) / 2
        return all(pace * runner.step_s <= 1.0 for runner in self._runners())

    def _step_s(self, runner: _Runner) -> float:
        """Return how long a batch takes with what the others do now."""
        mine = len(runner.cores)
        others = sum(
            other.busy * self._wants(other) * len(set(other.cores) & set(runner.cores)) / len(other.cores)
            for other in self._runners()
            if other is not runner
        )
        used = min(runner.threads, mine)
        crowd = max(0.0, (others + runner.threads) / mine - 1.0)
        speed = min(1.0, mine / (others + runner.threads)) * runner.threads / used if used else 1.0
        speed = min(1.0, speed) / (1.0 + CROWDING * crowd)
        return runner.blocked_s + runner.work_s * ((1.0 - runner.parallel) + runner.parallel / used) / speed

    def _wants(self, runner: _Runner) -> float:
        """Return how many cores it keeps busy while it works: threads that have nothing to do sleep."""
        used = min(runner.threads, len(runner.cores))
        shrunk = (1.0 - runner.parallel) + runner.parallel / used
        working = runner.work_s * shrunk
        return (runner.work_s / max(1e-9, working + runner.blocked_s)) if working else 0.0


def _compositions(whole: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to write a number as a sum of so many parts of 1 or more."""
    for cuts in itertools.combinations(range(1, whole), parts - 1):
        yield tuple(b - a for a, b in itertools.pairwise((0, *cuts, whole)))
