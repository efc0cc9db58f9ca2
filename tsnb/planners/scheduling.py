"""How long several unequal trials take, together or one after the other, and in which order they end soonest. Pure.

A fluid model: between two events (a trial starts, has its first batch, or ends) each goes at a constant pace, in
samples a second. Starts share the cores too: each has a second or more of imports.
With m the seconds of a trial's step, c its CPU seconds, t those of taking a sample, and of the loader l its seconds a
sample when nothing else limits it and p its CPU seconds:

    one stream      all at 1 / max(max(m + t), l, (p + sum(c + t)) / cores): one loader, and the slowest sets the pace
    a loader each   each at most at 1 / max(m + t, l); the cores are shared out evenly (water-filling) at a cost of
                    p + c + t a sample

Trials that wait for a place start in a given order as soon as places and memory allow. Which order, and how many at
once: an annealed search over both, with the fluid model as its judge (Saturn, Nagrecha and Kumar 2023, solves a mixed
integer program for it; the list of a dozen trials needs no solver). Slow trials on one stream hold fast ones up, so
good lists put equals together.

The same for trials of which some run already (`running`: jobs with the samples that are left): a list is made anew
whenever a trial ends, fails or is stopped. With a time by which all must be done, `within` finds the most that can be.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = [
    "Job",
    "Listed",
    "LoaderCost",
    "Schedule",
    "annealed",
    "apart",
    "in_turn",
    "left_after",
    "listed",
    "within",
]

ROUNDS = 1500
"""Lists that are tried; a dozen trials take a quarter of a second."""
MANY = 12
"""With more trials each list takes longer to play, so fewer are tried."""


@dataclass(frozen=True)
class Job:
    """One trial."""

    name: str
    """Its name."""
    samples: float
    """That it has to take."""
    step_s: float
    """Seconds a sample of its step, where it has the cores that it uses."""
    cpu_s: float
    """CPU seconds a sample of its process."""
    memory_bytes: float = 0.0
    """Its largest use of memory."""
    start_s: float = 0.0
    """Seconds from its start to its first batch, where it has a core when it needs one."""
    start_cpu_s: float = 0.0
    """CPU seconds of that: several that start together share the cores, and take them from those that train."""


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


@dataclass(frozen=True)
class Schedule:
    """When each trial starts and ends."""

    starts_s: Mapping[str, float]
    """By name, from the beginning."""
    ends_s: Mapping[str, float]
    """The same."""

    @property
    def makespan_s(self) -> float:
        """When the last one ends."""
        return max(self.ends_s.values(), default=0.0)


@dataclass(frozen=True)
class Listed:
    """An order, and how many run at once."""

    order: tuple[str, ...]
    """Names: the next starts as soon as it may."""
    at_once: int
    """So many at most."""
    schedule: Schedule = field(compare=False)
    """Its predicted course."""


@dataclass
class _Going:
    """A trial that runs."""

    job: Job
    left: float
    """Samples."""
    starting_s: float
    """What is left of its start, in seconds as if it had a core when it needs one."""


def _begun(job: Job) -> _Going:
    return _Going(job, job.samples, job.start_s)


def _speeds(going: Sequence[_Going], feed: LoaderCost, cores: float, *, shared: bool) -> list[float]:
    """Return how fast each goes: samples/s of those that take batches, seconds of its start in a second of others."""
    starts = [each for each in going if each.starting_s > 0]
    trains = [each for each in going if each.starting_s <= 0]
    wanted = sum(min(1.0, each.job.start_cpu_s / each.job.start_s) for each in starts)
    given = min(wanted, cores * len(starts) / max(1, len(going)))
    start = given / wanted if wanted else 1.0
    paces = iter(_paces(trains, feed, cores - given if trains else cores, shared=shared))
    return [start if each.starting_s > 0 else next(paces) for each in going]


def _next_s(going: Sequence[_Going], speeds: Sequence[float]) -> float:
    """Return in how many seconds the first has started, or has taken all its samples."""
    return min((each.starting_s or each.left) / speed for each, speed in zip(going, speeds, strict=True))


def _pass(going: Sequence[_Going], speeds: Sequence[float], seconds: float) -> None:
    """Let so much time pass, in which none of them comes further than to the end of what it does."""
    for each, speed in zip(going, speeds, strict=True):
        if each.starting_s > 0:
            left = each.starting_s - speed * seconds
            each.starting_s = left if left > 1e-9 * each.job.start_s else 0.0
        else:
            left = each.left - speed * seconds
            each.left = left if left > 1e-9 * each.job.samples + 1e-12 else 0.0


def _paces(going: Sequence[_Going], feed: LoaderCost, cores: float, *, shared: bool) -> list[float]:
    """Return samples/s of each that takes batches."""
    if not going:
        return []
    if shared:
        cpu_s = feed.cpu_s + sum(each.job.cpu_s + feed.taking_s for each in going)
        slowest_s = max(each.job.step_s + feed.taking_s for each in going)
        return [1 / max(slowest_s, feed.wall_s, cpu_s / cores, 1e-12)] * len(going)
    most = [1 / max(each.job.step_s + feed.taking_s, feed.wall_s, 1e-12) for each in going]
    costs = [max(feed.cpu_s + feed.taking_s + each.job.cpu_s, 1e-12) for each in going]
    wanted = [pace * cost for pace, cost in zip(most, costs, strict=True)]
    return [given / cost for given, cost in zip(_even(wanted, cores), costs, strict=True)]


def _even(wanted: Sequence[float], cores: float) -> list[float]:
    """Share cores out: no trial gets more than it wants, and the others get what it leaves."""
    given = [0.0] * len(wanted)
    left, rest = cores, sorted(range(len(wanted)), key=wanted.__getitem__)
    while rest:
        first, share = rest[0], left / len(rest)
        given[first] = min(wanted[first], share)
        left -= given[first]
        rest = rest[1:]
    return given


def listed(
    jobs: Sequence[Job],
    feed: LoaderCost,
    cores: float,
    *,
    at_once: int | None = None,
    memory_bytes: float = math.inf,
    shared: bool = True,
    running: Sequence[Job] = (),
) -> Schedule:
    """Play a list of trials: each starts, in this order, as soon as there is a place and memory for it.

    Args:
        jobs: In their order.
        feed: The loader; each has one of its own where it is not shared.
        cores: For all of it.
        at_once: How many run at once at most; by default all.
        memory_bytes: For all of it. A trial that is larger than this runs alone.
        shared: Whether all are on one stream.
        running: Trials that have started before, with the samples that are left to them; they take places and memory.
    """
    waiting, going = list(jobs), [_begun(job) for job in running]
    places = at_once or max(1, len(jobs) + len(running))
    starts: dict[str, float] = {job.name: 0.0 for job in running}
    ends: dict[str, float] = {}
    now_s = 0.0
    while waiting or going:
        while waiting and len(going) < places and _fits(waiting[0], going, feed, memory_bytes, shared=shared):
            job = waiting.pop(0)
            starts[job.name] = now_s
            going.append(_begun(job))
        speeds = _speeds(going, feed, cores, shared=shared)
        took_s = _next_s(going, speeds)
        _pass(going, speeds, took_s)
        now_s += took_s
        for each in [each for each in going if not each.starting_s and not each.left]:
            ends[each.job.name] = now_s
            going.remove(each)
    return Schedule(starts, ends)


def _fits(job: Job, going: Sequence[_Going], feed: LoaderCost, memory_bytes: float, *, shared: bool) -> bool:
    loaders = 1 if shared else len(going) + 1
    used = sum(each.job.memory_bytes for each in going) + job.memory_bytes + loaders * feed.memory_bytes
    return not going or used <= memory_bytes


def in_turn(jobs: Sequence[Job], feed: LoaderCost, cores: float) -> Schedule:
    """Return one after the other, each with a loader of its own and all cores."""
    return listed(jobs, feed, cores, at_once=1, shared=False)


def apart(jobs: Sequence[Job], feed: LoaderCost, cores: float, memory_bytes: float = math.inf) -> Schedule:
    """Return all at once, as far as memory allows, with a loader each."""
    return listed(jobs, feed, cores, memory_bytes=memory_bytes, shared=False)


def annealed(
    jobs: Sequence[Job],
    feed: LoaderCost,
    cores: float,
    *,
    memory_bytes: float = math.inf,
    rounds: int = ROUNDS,
    seed: int = 0,
    running: Sequence[Job] = (),
    most: int | None = None,
) -> Listed:
    """Return a good list of trials on one stream: its order, and how many run at once.

    Args:
        jobs: The trials.
        feed: The shared loader.
        cores: For all of it.
        memory_bytes: For all of it.
        rounds: Lists that are tried; more find the last per cent.
        seed: Of the search: the same gives the same.
        running: Trials that have started before, with the samples that are left to them.
        most: How many run at once at most, those included; by default all.
    """
    luck = random.Random(seed)
    places = max(1, min(len(jobs) + len(running), most or len(jobs) + len(running)))
    rounds = max(1, round(rounds * min(1.0, (MANY / max(1, len(jobs))) ** 2)))

    def judged(order: Sequence[Job], at_once: int) -> Listed:
        found = listed(order, feed, cores, at_once=at_once, memory_bytes=memory_bytes, running=running)
        return Listed(tuple(job.name for job in order), at_once, found)

    def worth(one: Listed) -> float:  # of equal lists the one whose trials end sooner, on average
        ends = one.schedule.ends_s.values()
        return one.schedule.makespan_s + 1e-3 * sum(ends) / max(1, len(ends))

    by_name = {job.name: job for job in jobs}
    starts = [
        sorted(jobs, key=lambda job: -job.samples * max(job.step_s, job.cpu_s)),  # the longest first
        sorted(jobs, key=lambda job: -job.step_s),  # equals together
        list(jobs),
    ]
    tried_at_once = sorted({1 + (places - 1) * k // MANY for k in range(MANY + 1)})
    now = min((judged(order, k) for order in starts for k in tried_at_once), key=worth)
    best = now
    for number in range(rounds if len(jobs) > 1 else 0):
        heat = 0.05 * worth(best) * (1 - number / rounds)
        order, at_once = [by_name[name] for name in now.order], now.at_once
        if luck.random() < 0.15:
            at_once = min(places, max(1, at_once + luck.choice((-1, 1))))
        elif luck.random() < 0.5:
            a, b = luck.sample(range(len(order)), 2)
            order[a], order[b] = order[b], order[a]
        else:
            order.insert(luck.randrange(len(order)), order.pop(luck.randrange(len(order))))
        tried = judged(order, at_once)
        worse = worth(tried) - worth(now)
        if worse <= 0 or luck.random() < math.exp(-worse / max(heat, 1e-12)):
            now = tried
        best = min(best, now, key=worth)
    return best


def left_after(running: Sequence[Job], feed: LoaderCost, cores: float, seconds: float) -> dict[str, float]:
    """Return how many samples are left to each of some trials on one stream after a while, by name.

    Args:
        running: The trials, with the samples that are left now.
        feed: The shared loader.
        cores: For all of it.
        seconds: From now.
    """
    going = [_begun(job) for job in running]
    now_s = 0.0
    while now_s < seconds and (there := [each for each in going if each.starting_s or each.left]):
        speeds = _speeds(there, feed, cores, shared=True)
        took_s = min(seconds - now_s, _next_s(there, speeds))
        _pass(there, speeds, took_s)
        now_s += took_s
    return {each.job.name: each.left for each in going}


def within(
    jobs: Sequence[Job],
    feed: LoaderCost,
    cores: float,
    limit_s: float,
    *,
    memory_bytes: float = math.inf,
    rounds: int = ROUNDS,
    running: Sequence[Job] = (),
    most: int | None = None,
) -> tuple[Listed, dict[str, float]]:
    """Return a list of the most trials that are done by a time, and of the others when they would be.

    The shortest are taken first, as long as all that were taken still end in time, and so do those that run, unless
    they would not anyhow.

    Args:
        jobs: The trials.
        feed: The shared loader.
        cores: For all of it.
        limit_s: By when, in seconds from now.
        memory_bytes: For all of it.
        rounds: As `annealed` takes it, for the final list.
        running: Trials that have started before, with the samples that are left to them.
        most: How many run at once at most, those included.

    Returns:
        The list of those that are done in time, and the seconds from now at which each of the others would be done if
        it were added to them.
    """

    def best(some: Sequence[Job], rounds: int) -> Listed:
        return annealed(
            some, feed, cores, memory_bytes=memory_bytes, rounds=rounds, running=running, most=most
        )

    late = listed([], feed, cores, running=running).ends_s
    taken: list[Job] = []
    left: dict[str, float] = {}
    for job in sorted(
        jobs, key=lambda job: job.samples * max(job.step_s + feed.taking_s, feed.wall_s, job.cpu_s)
    ):
        ends = best([*taken, job], max(1, rounds // 20)).schedule.ends_s
        if all(end_s <= max(limit_s, late.get(name, 0.0)) for name, end_s in ends.items()):
            taken.append(job)
        else:
            left[job.name] = ends[job.name]
    wanted = [job for job in jobs if job in taken]
    found = best(wanted, rounds)
    if any(end_s > max(limit_s, late.get(name, 0.0)) for name, end_s in found.schedule.ends_s.items()):
        found = best(taken, max(1, rounds // 20))  # the list by which they were taken
    return found, left
