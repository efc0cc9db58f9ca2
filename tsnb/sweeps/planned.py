"""The places of a planned sweep: which trials start now is found anew whenever one may start. Pure.

A list (`planners.scheduling`) says in which order the waiting trials are started and how many run at once, so that all
are done soonest. It is made again at every call of `start`, that is after each end, failure and early stop: from the
samples that those which run have taken so far, with their clones, and with the memory that they need.

With a time by which all must be done, only trials start that can be done by then, the slow end of the interval
included. The others wait: they may find time when one is stopped early or fails. When nothing runs any more and none
fits, the sweep is over and says of each when it would have been done.

Where a trial may be run with several strategies, the list says with which (`planners.strategies`), and where there are
several devices, on which. A trial that has started keeps both; those that wait may have others in the next list.

How fast the trials really go, against what was foretold, is followed: forecasts are stretched by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tsnb.planners.fluid import Job, Resources
from tsnb.planners.queueing import Leaver, Places
from tsnb.planners.scheduling import fit, left_after
from tsnb.planners.strategies import Jobs, Strategy, fitting, most_within, on_devices, soonest
from tsnb.planners.timeline import Span
from tsnb.text.words import clock_span, clock_time

__all__ = ["Conditions", "Foresight", "PlannedPlaces", "late_line"]

ROUNDS = 600
"""Lists that are tried each time: a tenth of a second for a dozen trials."""
LEAST_S = 1.0
"""A pace over a shorter time says nothing."""
MOST = 5.0
"""No more than so many times longer, or shorter, is believed."""
MOMENT_S = 1e-3
"""What is left of the start of one that has not had its first batch, and for all that is known could take it."""
TRUST = 0.5
"""How far a new pace moves the stretch, as a share of the way (of its logarithm)."""


@dataclass(frozen=True)
class Conditions:
    """What the trials of a sweep cost, and what there is for them."""

    jobs: Jobs
    """Each trial with each strategy that it may have; with one there is no choice."""
    resources: Resources
    """What they have; how many run at once, and which run already, the places know."""
    off: float
    """How far off a forecast may be, as a share, in four of five cases."""
    end_s: float = math.inf
    """By when all must be done, by the clock that is given."""
    stream: str = ""
    """The stream's name."""
    devices: Mapping[str, float] = field(default_factory=dict)
    """Memory for all trials of each device among which they are divided; none: they stay where they were seen."""


@dataclass(frozen=True)
class Foresight:
    """What a plan says at one moment."""

    order: tuple[str, ...]
    """Trials that have not started, the next one first."""
    at_once: int
    """How many run at once at most."""
    starts_s: Mapping[str, float]
    """When each of them starts, by the clock."""
    ends_s: Mapping[str, float]
    """When each of them and of those that run will be done, by the clock."""
    late_s: Mapping[str, float]
    """Of trials that cannot be done in time, when they would be if they were added."""
    strategies: Mapping[str, Strategy]
    """That of each of those that have not started."""
    made_s: float = 0.0
    """When it was made, by the clock."""


class PlannedPlaces(Places):
    """Places whose trials start in the order of a plan.

    Attributes:
        foresight: What the last plan said; None before the first.
        firsts: When each trial starts and ends as planned first, by name and the clock: those of the first plan, and
            others from when they came.
        stretch: How many times longer it takes than was foretold from the costs, as far as has been seen.
        strategies: That of each trial, by name: what it has if it has started, else what the last plan gives it.
        devices: The device of each, by name; empty where there is no choice.

    Args:
        at_once: How many run at once at most.
        conditions: What they cost.
        clock: Seconds, of any clock that goes on.
        taken: How many samples each running trial has taken so far, by name; may lack some.
        clones: Trials that run beside those of the sweep as clones of them: of each its parent's name, and how many
            samples that had taken by then.
        left_s: In how many seconds running trials end, as they go now, by name; may lack some.
        say: Shows a line to the user.
        rounds: Lists that are tried each time.
    """

    def __init__(
        self,
        at_once: int,
        conditions: Conditions,
        *,
        clock: Callable[[], float],
        taken: Callable[[], Mapping[str, float]],
        clones: Callable[[], Mapping[str, tuple[str, float]]] = dict,
        left_s: Callable[[], Mapping[str, float]] = dict,
        say: Callable[[str], None] = lambda _: None,
        rounds: int = ROUNDS,
    ) -> None:
        super().__init__(at_once, clock=clock)
        self.foresight: Foresight | None = None
        self.firsts: dict[str, Span] = {}
        self.stretch = 1.0
        self.strategies: dict[str, Strategy] = {}
        self.devices: dict[str, str] = {}
        self._jobs: dict[str, Job] = {}
        self._conditions = conditions
        self._samples_taken = taken
        self._clones = clones
        self._left_s = left_s
        self._say = say
        self._known_late: frozenset[str] = frozenset()
        self._rounds = rounds
        self._stale = True
        self._samples: dict[str, float] = {}
        self._before: tuple[float, list[Job]] | None = None

    def add(self, names: Iterable[str]) -> None:
        """Let trials wait; those of which nothing is known are refused.

        Raises:
            KeyError: One is not among the conditions' jobs.
        """
        some, jobs = list(names), self._conditions.jobs
        for name in some:
            self.strategies[name], self._jobs[name] = next(iter(jobs[name].items()))
        super().add(some)
        self._stale = True

    def end(self, name: str) -> None:
        """Note that a trial has ended."""
        super().end(name)
        self._stale = True

    def changed(self) -> None:
        """Note that a clone has begun or ended."""
        self._stale = True

    def start(self) -> list[str]:
        """Return the trials that start now, together; the plan is made anew where something has happened since."""
        if self._leaving or not self._stale or not self._waiting:
            return []
        self._stale = False
        now_s = self._clock()
        running = self._running(now_s)
        self._follow(now_s, running)
        found = self._planned(now_s, running)
        self._before = now_s, running
        starting = super().start()
        if not starting and not running:
            self._give_up()
        self._before = now_s, [*running, *map(self._job, starting)]
        self._tell_times(found, starting, now_s)
        return starting

    def _tell_times(self, found: Foresight, starting: Sequence[str], now_s: float) -> None:
        """Say which trials have no time any more, or have time after all, once when a plan finds it."""
        before, self._known_late = self._known_late, frozenset(found.late_s)
        if late := self._known_late - before:
            late_s = {name: end_s for name, end_s in found.late_s.items() if name in late}
            self._say(late_line(late_s, now_s, self.off, self._conditions.end_s))
        if saved := [name for name in (*starting, *self.waiting) if name in before - self._known_late]:
            self._say(f"there is enough time for {', '.join(saved)} after all")

    def foretell(self) -> Foresight:
        """Return what the plan is now, without starting a trial; it says itself which have no time."""
        now_s = self._clock()
        found = self._planned(now_s, self._running(now_s))
        self._known_late = frozenset(found.late_s)
        return found

    @property
    def stream(self) -> str:
        """The name of the stream that the trials take."""
        return self._conditions.stream

    @property
    def off(self) -> float:
        """How far what it foretells may be off, as a share of the time until then, in four of five cases."""
        return self._conditions.off

    @property
    def first_s(self) -> float:
        """When the first plan began, by the clock."""
        return min((start_s for start_s, _ in list(self.firsts.values())), default=0.0)

    def ahead(self, now_s: float) -> dict[str, Span]:
        """Return what is still to come of each trial that runs or waits, as the last plan has it: start and end.

        Args:
            now_s: The time, by the clock.
        """
        if (found := self.foresight) is None:
            return {}
        starts = {name: max(now_s, found.starts_s.get(name, now_s)) for name in found.ends_s}
        return {name: (start_s, max(start_s, found.ends_s[name])) for name, start_s in starts.items()}

    def _job(self, name: str) -> Job:
        """Return a trial as it is with its strategy, where it is."""
        return self._jobs[name]

    def gives(self, name: str) -> dict[str, Any]:
        """Return the options and parameters that the plan has chosen for a trial, by their name.

        Args:
            name: The trial's.
        """
        device = {"device": self.devices[name]} if name in self.devices else {}
        return {**dict(self.strategies[name].gives), **device}

    def _running(self, now_s: float) -> list[Job]:
        """Return the trials that run, and clones of them, with the samples that are left."""
        parents = {name: name for name in self._taken}
        clones = self._clones()
        before = {clone: samples for clone, (_, samples) in clones.items()}
        for clone in clones:
            parents[clone] = _origin(clone, {name: parent for name, (parent, _) in clones.items()})
        self._samples |= self._samples_taken()
        found = []
        for name, parent in parents.items():
            if parent not in self._jobs:
                continue
            job, taken = self._job(parent), self._samples.get(name, 0.0) + before.get(name, 0.0)
            waited_s = now_s - self._began_s.setdefault(name, now_s)
            start_s = 0.0 if taken else max(MOMENT_S, job.start_s - waited_s)
            found.append(replace(job, name=name, samples=max(0.0, job.samples - taken), start_s=start_s))
        return found

    def _follow(self, now_s: float, running: Sequence[Job]) -> None:
        """Compare how far the trials have come with what was foretold."""
        if self._before is None or now_s - self._before[0] < LEAST_S:
            return
        then_s, jobs = self._before
        before = replace(self._conditions.resources, running=jobs)
        foretold = left_after(before, (now_s - then_s) / self.stretch)
        left = {job.name: job.samples for job in running}
        pairs = [  # those that were taking batches all the time
            (job.samples - foretold[job.name], job.samples - left[job.name])
            for job in jobs
            if job.name in left and job.start_s <= 0 and 0 < left[job.name] < job.samples
        ]
        hoped, done = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
        if hoped > 0 and done > 0:
            self.stretch = min(MOST, max(1 / MOST, self.stretch * (hoped / done) ** TRUST))

    def _planned(self, now_s: float, running: Sequence[Job]) -> Foresight:
        """Make the plan."""
        told = self._conditions
        gets, waiting = on_devices({name: told.jobs[name] for name in self._waiting}, told.devices, running)
        waiting = fitting(waiting, told.resources.memory_bytes)
        clones = sum(job.name not in self._taken for job in running)
        resources = replace(told.resources, at_once=self.at_once + clones, running=running)
        left_s = (told.end_s - now_s) / (self.stretch * (1 + told.off))
        late: Mapping[str, float] = {}
        if math.isinf(told.end_s):
            found = soonest(waiting, resources, rounds=self._rounds)
        else:
            found, late = most_within(waiting, resources, left_s, rounds=self._rounds)
        self.devices |= gets
        self.strategies |= found.strategies
        self._jobs |= {name: waiting[name][strategy] for name, strategy in found.strategies.items()}
        self.foresight = made = Foresight(
            found.order,
            found.at_once,
            {name: now_s + self.stretch * found.schedule.starts_s[name] for name in found.order},
            {name: now_s + self.stretch * end_s for name, end_s in found.schedule.ends_s.items()},
            {name: now_s + self.stretch * end_s for name, end_s in late.items()},
            found.strategies,
            now_s,
        )
        for name in (*made.order, *made.ends_s):
            self.firsts.setdefault(name, (made.starts_s.get(name, now_s), made.ends_s[name]))
        return made

    def _admits(self, name: str, beside: Sequence[str]) -> bool:
        """Return whether the plan has it start now: beside all that run, be it done but for its last steps."""
        assert self.foresight is not None
        assert self._before is not None
        found, there = self.foresight, [*self._before[1], *map(self._job, beside)]
        if found.starts_s[name] > found.made_s or len(there) >= found.at_once:
            return False
        return not there or fit([*there, self._job(name)], self._conditions.resources.memory_bytes)

    def _leavers(self) -> list[Leaver] | None:
        """Return when those that run end: as is seen of them, else as the plan has it, which may be a third off."""
        found, loader, now_s = self.foresight, self._conditions.resources.loader, self._clock()
        if found is None or not loader.epoch_samples:
            return None
        running = self._running(now_s)
        least_s = {job.name: job.samples * max(job.step_s, loader.wall_s) for job in running}
        left_s = {
            name: max(found.ends_s.get(name, math.inf) - now_s, each_s) for name, each_s in least_s.items()
        }
        left_s |= dict(self._left_s())
        leavers = [Leaver(job.name, left_s[job.name], job.samples / loader.epoch_samples) for job in running]
        over = max(0, len(leavers) - len(self._early) - found.at_once)  # the list has fewer at once than run
        return sorted(leavers, key=lambda leaver: leaver.left_s)[over:]

    def _in_line(self) -> list[str]:
        """Return those that wait and are in the list, in its order."""
        return (
            [] if self.foresight is None else [name for name in self.foresight.order if name in self._waiting]
        )

    def _start_s(self, name: str) -> float:
        """Return how long its start took when it was profiled."""
        return self._job(name).start_s

    def _fit(self, names: Sequence[str]) -> bool:
        """Return whether memory, and that of GPUs, holds these and all that run."""
        there = [*self._running(self._clock()), *map(self._job, names)]
        return fit(there, self._conditions.resources.memory_bytes)

    @property
    def late(self) -> dict[str, str]:
        """Of those that wait, the trials that cannot be done in time as far as is known now, and when they would be."""
        found, now_s = self.foresight, self._clock()
        late, told = {} if found is None else found.late_s, self._conditions
        return {
            name: f"it would be done at {clock_span(late[name], now_s, told.off, told.end_s)}"
            for name in list(self._waiting)
            if name in late
        }

    def _give_up(self) -> None:
        """Send away those that cannot be done in time: nothing is left that could end sooner."""
        why = self.late
        for name in self.clear():
            self.refused[name] = why[name]


def late_line(late_s: Mapping[str, float], now_s: float, off: float, end_s: float) -> str:
    """Return what is said of trials that are not started for want of time.

    Args:
        late_s: When each would be done, seconds since 1970; not empty.
        now_s: The time now, in seconds since 1970.
        off: How far that may be off, as a share of the time until then.
        end_s: By when it was wanted, in seconds since 1970.
    """
    late = ", ".join(f"{name} at {clock_span(each_s, now_s, off, end_s)}" for name, each_s in late_s.items())
    by = clock_time(end_s, now_s, min(late_s.values()))
    return f"not started, because too late for {by} (expected end): {late}"


def _origin(clone: str, clones: Mapping[str, str]) -> str:
    """Return the trial that a clone goes back to: its parent may be a clone itself."""
    name, seen = clone, set[str]()
    while name in clones and name not in seen:
        seen.add(name)
        name = clones[name]
    return name
