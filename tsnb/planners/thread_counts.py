"""How many torch threads each of several trials has, so that all are done soonest. Pure.

Each trial was measured with each number, so it is a `Job` for each of them. More than the fewest is given only where
all end sooner by more than `WORTH`: a tie, or what a measurement is off, gives none.

Two forms: for a way whose order does not depend on the numbers (`thread_counts`), and for a list of trials on one
stream, whose order and places are found together with them (`soonest`, and `most_within` where all must be done by a
time).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tsnb.planners.fluid import Job, LoaderCost
from tsnb.planners.scheduling import MANY, ROUNDS, Listed, Schedule, annealed, listed, within

__all__ = [
    "WORTH",
    "ThreadedList",
    "in_threads",
    "most_within",
    "soonest",
    "steadied",
    "thread_counts",
    "with_threads",
]

WORTH = 0.03
"""What ends all of them sooner by less than this share is not worth a way that is less simple, or more threads."""
MOST_OFF = 0.25
"""A step that is faster by so much with more threads is faster, however much it varied."""
PLAYS = 2000
"""So many choices of numbers are played at most for a dozen trials: fewer for more, as each takes longer."""
MISSES = 3
"""Where so many are not done in time with more threads either, the longer ones are not tried."""

Jobs = Mapping[int, Sequence[Job]]
"""The trials as they are with so many torch threads each; in the same order for every number."""


class ThreadedList(NamedTuple):
    """A list of trials on one stream, and how many threads each of them has."""

    listed: Listed
    """Their order, how many run at once, and when each starts and ends."""
    threads: dict[str, int]
    """Torch threads of each, by name; of those, too, that the list leaves out for want of time."""


def in_threads(threads: Mapping[str, int]) -> str:
    """Return how many torch threads trials have, in words: "1 thread each", "1 thread, wide-cnn 2".

    Args:
        threads: By the trial's name.
    """
    usual = min(threads.values(), key=lambda number: (-list(threads.values()).count(number), number))
    others = [f"{name} {number}" for name, number in threads.items() if number != usual]
    return ", ".join([f"{usual} thread{'s' if usual > 1 else ''}{'' if others else ' each'}", *others])


def with_threads(jobs: Jobs, threads: Mapping[str, int]) -> list[Job]:
    """Return the trials as they are with their numbers of threads.

    Args:
        jobs: As they are with each number.
        threads: The number of each, by name.
    """
    several = next(iter(jobs.values()))
    return [jobs[threads[job.name]][at] for at, job in enumerate(several)]


def steadied(jobs: Jobs, off: Mapping[str, float]) -> dict[int, list[Job]]:
    """Return the trials with each number of threads: as with the fewest, unless they are clearly faster.

    What a measurement of a few batches is off could otherwise give a trial threads that gain it nothing. A trial's
    start is the same with all numbers.

    Args:
        jobs: The trials with each number, as they were measured.
        off: How far off their steps may be, as a share, by name.
    """
    few = {job.name: job for job in jobs[min(jobs)]}

    def steady(job: Job) -> Job:
        least = few[job.name]
        clear = job.step_s < least.step_s * (1 - max(WORTH, min(MOST_OFF, off.get(job.name, 0.0))))
        return replace(job, start_s=least.start_s, start_cpu_s=least.start_cpu_s) if clear else least

    return {number: list(map(steady, each)) for number, each in jobs.items()}


def _all_with(jobs: Jobs, number: int) -> dict[str, int]:
    return {job.name: number for job in jobs[number]}


def thread_counts(jobs: Jobs, play: Callable[[Sequence[Job]], Schedule]) -> dict[str, int]:
    """Return how many threads each trial has, by name: more than the fewest only where that is worth it.

    From each number for all of them one trial's is changed at a time, those first that take longest, for as long as
    that ends the last one sooner.

    Args:
        jobs: The trials with each number.
        play: Returns how long they take in the way that is asked about.
    """
    names = [job.name for job in sorted(jobs[min(jobs)], key=lambda job: -job.samples * job.step_s)]
    plays = PLAYS * min(1.0, (MANY / max(1, len(names))) ** 2)

    def ends_s(threads: Mapping[str, int]) -> float:
        return play(with_threads(jobs, threads)).makespan_s

    fewest = _all_with(jobs, min(jobs))
    best, best_s = fewest, ends_s(fewest) * (1 - WORTH)
    for number in sorted(jobs) if len(jobs) > 1 else ():
        mine = _all_with(jobs, number)
        mine_s, changed, played = ends_s(mine), True, 0
        while changed and played < plays:
            changed = False
            for name in names:
                for other in sorted(jobs.keys() - {mine[name]}):
                    tried = {**mine, name: other}
                    if (tried_s := ends_s(tried)) < mine_s * (1 - 1e-9):
                        mine, mine_s, changed = tried, tried_s, True
                    played += 1
        for name in names:  # those that all of it hardly gains by go back to the fewest
            if mine[name] != min(jobs) and ends_s(tried := {**mine, name: min(jobs)}) <= mine_s * (1 + WORTH):
                mine = tried
        if (mine_s := ends_s(mine)) < best_s:
            best, best_s = mine, mine_s
    return best


def soonest(
    jobs: Jobs,
    feed: LoaderCost,
    cores: float,
    *,
    memory_bytes: float = math.inf,
    rounds: int = ROUNDS,
    running: Sequence[Job] = (),
    most: int | None = None,
) -> ThreadedList:
    """Return a good list of trials on one stream, with the numbers of threads with which it ends soonest.

    Args:
        jobs: The trials with each number.
        feed: The shared loader.
        cores: For all of it.
        memory_bytes: For all of it.
        rounds: As `annealed` takes it.
        running: Trials that have started before, with the samples that are left to them; they keep their threads.
        most: How many run at once at most, those included; by default all.
    """

    def best(threads: Mapping[str, int], rounds: int) -> Listed:
        mine = with_threads(jobs, threads)
        return annealed(
            mine, feed, cores, memory_bytes=memory_bytes, rounds=rounds, running=running, most=most
        )

    def counts(found: Listed) -> dict[str, int]:  # in the order and places of that list
        def play(mine: Sequence[Job]) -> Schedule:
            by_name = {job.name: job for job in mine}
            order = [by_name[name] for name in found.order]
            return listed(
                order, feed, cores, at_once=found.at_once, memory_bytes=memory_bytes, running=running
            )

        return thread_counts(jobs, play)

    fewest = _all_with(jobs, min(jobs))
    few = ThreadedList(best(fewest, rounds), fewest)
    tried = [few]
    for number in sorted(jobs) if len(jobs) > 1 else ():
        found = few.listed if number == min(jobs) else best(_all_with(jobs, number), rounds // 4)
        mine = counts(found)
        if all(mine != other.threads for other in tried):
            tried.append(ThreadedList(best(mine, rounds), mine))
    first = min(tried, key=lambda each: each.listed.schedule.makespan_s)
    return first if _sooner(first.listed, few.listed) else few


def _sooner(one: Listed, other: Listed) -> bool:
    """Tell whether a list ends sooner than another by as much as is worth more threads."""
    return one.schedule.makespan_s < other.schedule.makespan_s * (1 - WORTH)


def most_within(
    jobs: Jobs,
    feed: LoaderCost,
    cores: float,
    limit_s: float,
    *,
    memory_bytes: float = math.inf,
    rounds: int = ROUNDS,
    running: Sequence[Job] = (),
    most: int | None = None,
) -> tuple[ThreadedList, dict[str, float]]:
    """Return a list of the most trials that are done by a time, with their threads; of the others when they would be.

    First those that are done by then with the fewest threads. Then of the others, those first that would be done first,
    what is done by then where all may have more threads.

    Args:
        jobs: The trials with each number.
        feed: The shared loader.
        cores: For all of it.
        limit_s: By when, in seconds from now.
        memory_bytes: For all of it.
        rounds: As `annealed` takes it, for the final list.
        running: Trials that have started before, with the samples that are left to them; they keep their threads.
        most: How many run at once at most, those included.

    Returns:
        The list of those that are done in time, and the seconds from now at which each of the others would be done if
        it were added to them.
    """
    fewest = _all_with(jobs, min(jobs))
    found, late = within(
        with_threads(jobs, fewest),
        feed,
        cores,
        limit_s,
        memory_bytes=memory_bytes,
        rounds=rounds,
        running=running,
        most=most,
    )
    if len(jobs) == 1:
        return ThreadedList(found, fewest), late
    anyhow = listed([], feed, cores, running=running).ends_s

    def in_time(names: Sequence[str], rounds: int) -> ThreadedList | None:
        some = {number: [job for job in each if job.name in names] for number, each in jobs.items()}
        best = soonest(
            some, feed, cores, memory_bytes=memory_bytes, rounds=rounds, running=running, most=most
        )
        ends = best.listed.schedule.ends_s
        return (
            best
            if all(end_s <= max(limit_s, anyhow.get(name, 0.0)) for name, end_s in ends.items())
            else None
        )

    taken, misses = ThreadedList(found, fewest), 0
    for name in sorted(late, key=late.__getitem__):
        more = in_time([*taken.listed.order, name], max(1, rounds // 20))
        misses += more is None
        taken = more or taken
        if misses == MISSES:
            break
    taken = in_time(taken.listed.order, rounds) or taken
    left = {name: end_s for name, end_s in late.items() if name not in taken.listed.order}
    return ThreadedList(taken.listed, {**fewest, **taken.threads}), left
