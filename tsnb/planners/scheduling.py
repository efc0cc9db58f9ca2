"""How long several unequal trials take, together or one after the other, and in which order they end soonest. Pure.

How fast they go beside each other is `fluid`'s.

Trials that wait for a place start in a given order as soon as places and memory allow. Which order, and how many at
once: an annealed search over both, with the fluid model as its judge (Saturn, Nagrecha and Kumar 2023, solves a mixed
integer program for it; the list of a dozen trials needs no solver). Slow trials on one stream hold fast ones up, so
good lists put equals together.

The same for trials of which some run already (`running`: jobs with the samples that are left): a list is made anew
whenever a trial ends, fails or is stopped. With a time by which all must be done, `within` finds the most that can be.

How good a list is, two bounds say, before which no order can have all done: `soonest_s`, by what the trials cost, and
`proven_s`, by a solver. On one stream all trials that train go at one pace, r(S), which depends on which they are, S
(`fluid`). Whatever the order, each moment has such a set, so the seconds d(S) that each of them has in any schedule
satisfy

    for each trial     sum of r(S) d(S) over the sets that it is in >= its samples

and the least sum of all d(S) under these is a bound of every makespan. Only sets that fit the memory, and that of the
GPUs, are there; one trial that is larger than all of it runs alone. Starts, waits for an epoch and files that are not
in memory yet make a schedule only longer, so of these no more than the first start is in it. What the bound allows and
no list can do: break a trial off and go on with it later.

`scipy.optimize.milp` solves it, where scipy is installed: 0.1 s for a dozen trials. Saturn (Nagrecha and Kumar 2023)
solves a mixed integer program for the order itself.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tsnb.planners.fluid import Course, Going, Job, LoaderCost, Resources

__all__ = [
    "Listed",
    "Schedule",
    "annealed",
    "apart",
    "first_batch_s",
    "fit",
    "fit_devices",
    "fits",
    "in_turn",
    "left_after",
    "listed",
    "proven_s",
    "soonest_s",
    "spread",
    "staggered",
    "within",
]

ROUNDS = 1500
"""Lists that are tried; a dozen trials take a quarter of a second."""
OFFSETS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Offsets that are tried, as shares of what the longest trial takes alone."""
MANY = 12
"""With more trials each list takes longer to play, so fewer are tried."""
ROUGH = 20
"""A list that is only asked whether all trials end in time is searched for in so many times fewer rounds."""
PROVEN = 12
"""Of more trials than this nothing is proven: so many have 4,095 sets."""
KNOWN_S = 1.0
"""A trial's end is known when it has taken batches for so long (`queueing.AGAIN_S`, and a few readings)."""


@dataclass(frozen=True)
class Schedule:
    """When each trial starts and ends."""

    starts_s: Mapping[str, float]
    """By name, from the beginning."""
    ends_s: Mapping[str, float]
    """By name, from the beginning."""

    @property
    def makespan_s(self) -> float:
        """When the last one ends."""
        return max(self.ends_s.values(), default=0.0)

    def in_time(self, limit_s: float, anyhow_s: Mapping[str, float]) -> bool:
        """Tell whether all trials end by a time, but for those that would be later than that anyhow.

        Args:
            limit_s: The time, from the beginning.
            anyhow_s: By name, when trials that run already would end if no other started.
        """
        return all(end_s <= max(limit_s, anyhow_s.get(name, 0.0)) for name, end_s in self.ends_s.items())


@dataclass(frozen=True)
class Listed:
    """An order, and how many run at once."""

    order: tuple[str, ...]
    """Names: the next starts as soon as it may."""
    at_once: int
    """So many at most."""
    schedule: Schedule = field(compare=False)
    """Its predicted course."""


def listed(
    jobs: Sequence[Job], resources: Resources, *, shared: bool = True, apart_s: float = 0.0
) -> Schedule:
    """Play a list of trials: each starts, in this order, as soon as there is a place and memory for it.

    On one stream their processes are started a moment early (`queueing`): they take batches as soon as there is a
    place, where the memory holds them beside the trial that has just ended, too. When that ends is known only once it
    has taken batches for `KNOWN_S`; of a start that takes longer than what is left then the rest comes after its end.

    Args:
        jobs: In their order.
        resources: What they have. A trial that is larger than all of the memory runs alone.
        shared: Whether all are on one stream.
        apart_s: Seconds that each starts after the one before it, at least.
    """
    waiting, course = list(jobs), Course(resources, shared=shared)
    places = resources.at_once or max(1, len(jobs) + len(resources.running))
    starts: dict[str, float] = {job.name: 0.0 for job in resources.running}
    ends: dict[str, float] = {}
    next_s = 0.0
    # those that ran until the last event, and for how long those of them that ended with it had taken batches
    before, trained_s = list[Going](), list[float]()
    while waiting or course.going:
        while (
            waiting
            and course.now_s >= next_s
            and len(course.going) < places
            and _fits(waiting[0], course.going, resources, shared=shared)
        ):
            job = waiting.pop(0)
            starts[job.name] = course.now_s
            next_s = course.now_s + apart_s
            if shared and trained_s and _fits(job, before, resources, shared=True):
                job = job.started(max(0.0, trained_s.pop() - KNOWN_S))
                before.append(Going(job, job.samples, 0.0))
            course.begin(job)
        until_s = next_s - course.now_s if waiting and next_s > course.now_s else math.inf
        if not course.going:
            course.now_s = next_s
        before = list(course.going)
        ended = course.go_on(until_s) if course.going else []
        trained_s = sorted(course.now_s - (one.joined_s or 0.0) for one in before if one.job.name in ended)
        ends |= dict.fromkeys(ended, course.now_s)
    return Schedule(starts, ends)


def _fits(job: Job, going: Sequence[Going], resources: Resources, *, shared: bool) -> bool:
    """Tell whether memory holds a trial beside others; alone it runs however large it is."""
    loaders_bytes = (1 if shared else len(going) + 1) * resources.loader.memory_bytes
    return not going or fit([*(each.job for each in going), job], resources.memory_bytes - loaders_bytes)


def fit(jobs: Sequence[Job], memory_bytes: float) -> bool:
    """Tell whether trials that run at once fit so much memory, and that of the GPUs that they compute on."""
    return sum(job.memory_bytes for job in jobs) <= memory_bytes and fit_devices(jobs)


def fit_devices(jobs: Sequence[Job]) -> bool:
    """Tell whether trials that run at once fit the memory of the GPUs that they compute on."""
    used: dict[str, float] = {}
    for job in jobs:
        used[job.device] = used.get(job.device, 0.0) + job.device_bytes
    return all(not job.device or used[job.device] <= job.device_room_bytes for job in jobs)


def fits(job: Job, memory_bytes: float) -> bool:
    """Return whether a trial fits the memory, and its GPU's, when it runs alone.

    Args:
        job: What it needs.
        memory_bytes: What there is.
    """
    return job.memory_bytes <= memory_bytes and fit_devices([job])


def spread(jobs: Sequence[Job], room_bytes: Mapping[str, float], running: Sequence[Job] = ()) -> list[Job]:
    """Return trials on GPUs, each on one: the longest first, where the least is to be done and it fits.

    Where it fits on none beside the others, it goes where the least is to be done of those that it fits alone; it has
    to wait there.

    Args:
        jobs: The trials.
        room_bytes: The GPUs, and their memory for all trials.
        running: Trials that have started before, with the samples that are left to them; they stay where they are.
    """
    work = dict.fromkeys(room_bytes, 0.0)
    used = dict.fromkeys(room_bytes, 0.0)
    for job in running:
        if job.device in work:
            work[job.device] += job.samples * job.step_s
            used[job.device] += job.device_bytes
    found = {}
    for job in sorted(jobs, key=lambda job: -job.samples * job.step_s):
        fits = [device for device in work if used[device] + job.device_bytes <= room_bytes[device]]
        alone = [device for device in work if job.device_bytes <= room_bytes[device]]
        device = min(fits or alone or work, key=work.__getitem__)
        work[device] += job.samples * job.step_s
        used[device] += job.device_bytes
        found[job.name] = replace(job, device=device, device_room_bytes=room_bytes[device])
    return [found[job.name] for job in jobs]


def in_turn(jobs: Sequence[Job], resources: Resources) -> Schedule:
    """Return one after the other, each with a loader of its own and all cores."""
    return listed(jobs, replace(resources, at_once=1), shared=False)


def apart(jobs: Sequence[Job], resources: Resources) -> Schedule:
    """Return all at once, as far as memory allows, with a loader each: each starts when its stream is there."""
    return listed(jobs, resources, shared=False, apart_s=resources.loader.serve_s)


def staggered(jobs: Sequence[Job], resources: Resources) -> tuple[Schedule, float]:
    """Return the trials with a loader each, the longest first, started one after the other at the best offset.

    A later one finds files in memory that an earlier one has read, and the cores while others wait for the disk.

    Returns:
        When each starts and ends, and the offset in seconds; 0 where none is sooner than all at once.
    """
    loader = resources.loader
    order = sorted(jobs, key=lambda job: -job.samples * max(job.step_s + loader.taking_s, loader.wall_s))
    alone_s = in_turn(order[:1], resources).makespan_s
    tried = [
        (
            listed(order, resources, shared=False, apart_s=max(loader.serve_s, share * alone_s)),
            share * alone_s,
        )
        for share in OFFSETS
    ]
    return min(tried, key=lambda found: found[0].makespan_s)


def annealed(jobs: Sequence[Job], resources: Resources, *, rounds: int = ROUNDS) -> Listed:
    """Return a good list of trials on one stream: its order, and how many run at once.

    Args:
        jobs: The trials.
        resources: What they have.
        rounds: Lists that are tried; more find the last per cent.
    """
    luck = random.Random(0)  # the same jobs give the same list
    everyone = len(jobs) + len(resources.running)
    places = max(1, min(everyone, resources.at_once or everyone))
    rounds = max(1, round(rounds * min(1.0, (MANY / max(1, len(jobs))) ** 2)))

    def judged(order: Sequence[Job], at_once: int) -> Listed:
        found = listed(order, replace(resources, at_once=at_once))
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


def soonest_s(jobs: Sequence[Job], resources: Resources) -> float:
    """Return the seconds before which no order can have all trials done on one stream, by their costs.

    The longest trial trains as long as it does alone, and no batch is there before the first trial has started; the
    cores have all the work to do, the loader's once at least; and what does not fit the memory at once has to follow.
    A trial's own start is not in it: beside one that trains its process is started before it has its place. Nor are
    files that are not in memory: others may have read them.

    Args:
        jobs: The trials.
        resources: What they have; nothing runs yet.
    """
    loader = resources.loader
    warm = Resources(replace(loader, disk=None, fill_s=0.0), resources.cores)
    running = [replace(job, start_s=0.0, start_cpu_s=0.0) for job in jobs]
    alone = {job.name: listed([job], warm).makespan_s for job in running}
    cpu_s = max(job.samples for job in jobs) * loader.cpu_s + sum(
        job.samples * (job.cpu_s + loader.taking_s) + min(job.start_cpu_s, job.start_s) for job in jobs
    )
    room = resources.memory_bytes - loader.memory_bytes
    area_s = sum(alone[job.name] * min(job.memory_bytes, room) for job in jobs) / room if room > 0 else 0.0
    # together they may have been seen to go faster than their costs say
    drag = min(1.0, loader.drag)
    longest_s = first_batch_s(jobs, loader) + drag * max(alone.values())
    return max(longest_s, drag * cpu_s / resources.cores, drag * area_s if math.isfinite(room) else 0.0)


def proven_s(jobs: Sequence[Job], resources: Resources) -> float | None:
    """Return the seconds before which no order can have all trials done on one stream, as a solver proves it.

    Args:
        jobs: The trials.
        resources: What they have; nothing runs yet.

    Returns:
        It; None where scipy is not installed, there are more than `PROVEN` trials, or the solver finds none.
    """
    try:
        from scipy.optimize import LinearConstraint, milp
    except ImportError:
        return None
    if not jobs or len(jobs) > PROVEN:
        return None
    paces = _paces(jobs, replace(resources, loader=replace(resources.loader, disk=None)))
    # a row for each trial, a column for each set: the share of its samples that it takes there in a second
    shares = [
        [pace / max(job.samples, 1e-12) if at in some else 0.0 for some, pace in paces.items()]
        for at, job in enumerate(jobs)
    ]
    found = milp([1.0] * len(paces), constraints=LinearConstraint(shares, 1.0, math.inf))
    if not found.success:
        return None
    return float(found.fun) + first_batch_s(jobs, resources.loader)


def _paces(jobs: Sequence[Job], resources: Resources) -> dict[tuple[int, ...], float]:
    """Return samples/s of each set of trials that may run at once, by their places."""
    found = {}
    room_bytes = resources.memory_bytes - resources.loader.memory_bytes
    for number in range(1, len(jobs) + 1):
        for some in itertools.combinations(range(len(jobs)), number):
            mine = [jobs[at] for at in some]
            if number == 1 or fit(mine, room_bytes):
                found[some] = Course(replace(resources, running=mine), shared=True).paces()[0]
    return found


def first_batch_s(jobs: Sequence[Job], loader: LoaderCost) -> float:
    """Return the seconds before which no trial has a batch of one stream, whichever is the first."""
    # without epochs to wait for, one that starts later may be there before the loader is
    waits = loader.epoch_samples or len(jobs) == 1
    return min(job.start_s for job in jobs) + (loader.fill_s if waits else 0.0)


def left_after(resources: Resources, seconds: float) -> dict[str, float]:
    """Return how many samples are left to each of the trials that run on one stream after a while, by name.

    Args:
        resources: Those trials, with the samples that are left to them now, and what they have.
        seconds: From now.
    """
    course = Course(resources, shared=True)
    left = {job.name: job.samples for job in resources.running}
    while course.now_s < seconds and course.going:
        ended = course.go_on(seconds - course.now_s)
        left |= dict.fromkeys(ended, 0.0) | {each.job.name: each.left for each in course.going}
    return left


def within(
    jobs: Sequence[Job], resources: Resources, limit_s: float, *, rounds: int = ROUNDS
) -> tuple[Listed, dict[str, float]]:
    """Return a list of the most trials that are done by a time, and of the others when they would be.

    The shortest are taken first, as long as all that were taken still end in time, and so do those that run, unless
    they would not anyhow.

    Args:
        jobs: The trials.
        resources: What they have.
        limit_s: By when, in seconds from now.
        rounds: As `annealed` takes it, for the final list.

    Returns:
        The list of those that are done in time, and the seconds from now at which each of the others would be done if
        it were added to them.
    """
    loader, anyhow_s = resources.loader, listed([], resources).ends_s
    rough = max(1, rounds // ROUGH)
    taken, late = list[Job](), dict[str, float]()
    for job in sorted(
        jobs, key=lambda job: job.samples * max(job.step_s + loader.taking_s, loader.wall_s, job.cpu_s)
    ):
        tried = annealed([*taken, job], resources, rounds=rough).schedule
        if tried.in_time(limit_s, anyhow_s):
            taken.append(job)
        else:
            late[job.name] = tried.ends_s[job.name]
    found = annealed([job for job in jobs if job in taken], resources, rounds=rounds)
    if not found.schedule.in_time(limit_s, anyhow_s):
        found = annealed(taken, resources, rounds=rough)  # the list by which they were taken
    return found, late
