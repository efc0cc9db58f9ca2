"""How many threads each trial has, from made-up costs: no process, no clock."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tsnb.planners.fluid import Job, LoaderCost
from tsnb.planners.scheduling import annealed, listed, within
from tsnb.planners.thread_counts import WORTH, in_threads, most_within, soonest, steadied, with_threads

FREE = LoaderCost(0.0001, 0.0001, 0.0)


def job(name: str, ms: float = 1.0, samples: float = 10_000, memory: float = 1.0) -> Job:
    return Job(name, samples, ms / 1000, ms / 1000, memory)


def sped(jobs: Sequence[Job], by: float, cost: float = 1.05) -> list[Job]:
    """Return trials as they are with twice the threads: so many times as fast, for a little more CPU."""
    return [replace(each, step_s=each.step_s / by, cpu_s=each.cpu_s * cost) for each in jobs]


def uneven(seed: int) -> dict[int, list[Job]]:
    """Return unequal trials that gain unequally by a second thread."""
    luck = random.Random(seed)
    one = [
        job(f"t{i}", luck.uniform(0.2, 4.0), luck.choice((2e4, 1e5)), luck.choice((1.0, 2.0)))
        for i in range(5)
    ]
    two = [sped([each], luck.choice((1.0, 1.03, 1.4, 1.9)), luck.choice((1.0, 1.3)))[0] for each in one]
    return {1: one, 2: two}


def test_a_list_gives_more_threads_to_whom_sets_the_pace() -> None:
    """Cores to spare: the slow one has two, the fast one that would gain nothing for all has one."""
    one = [job("fast", 0.2), job("slow", 2.0)]
    found = soonest({1: one, 2: sped(one, 1.9)}, FREE, 8)
    assert found.threads == {"fast": 1, "slow": 2}
    assert found.listed.schedule.makespan_s < 0.6 * annealed(one, FREE, 8).schedule.makespan_s
    assert set(found.listed.order) == {"fast", "slow"}


@pytest.mark.parametrize("by", [1.0, 1 / (1 - WORTH / 2), 0.8])
def test_what_is_not_worth_it_gives_none(by: float) -> None:
    """A tie, a gain within the margin (what a measurement is off), a loss; and where no core is left."""
    one = [job("a", 1.0), job("b", 2.0), job("c", 0.5)]
    for cores in (8, 1):
        found = soonest({1: one, 2: sped(one, by)}, FREE, cores)
        assert set(found.threads.values()) == {1}
        assert found.listed == annealed(one, FREE, cores)
    crowded = soonest({1: one, 2: sped(one, 1.9)}, FREE, 1)
    assert set(crowded.threads.values()) == {1}
    assert soonest({2: one}, FREE, 8).threads == {"a": 2, "b": 2, "c": 2}, "one number is no choice"


def test_memory_for_one_at_a_time_gives_each_all_cores() -> None:
    """All together have a core each; one after the other each gains by two."""
    one = [job("a", memory=4.0), job("b", memory=4.0)]
    jobs = {1: one, 2: sped(one, 1.9)}
    assert set(soonest(jobs, FREE, 2).threads.values()) == {1}
    found = soonest(jobs, FREE, 2, memory_bytes=5.0)
    assert found.threads == {"a": 2, "b": 2}
    each_s = 10_000 * (0.0001 + 1.05 * 0.001) / 2  # the loader and its own CPU time, on two cores
    assert sorted(found.listed.schedule.ends_s.values()) == pytest.approx([each_s, 2 * each_s])


def test_those_that_run_keep_their_cores() -> None:
    """What runs needs all of them: the one that waits has one thread, and two when nothing else runs."""
    one = [job("next", 1.0)]
    going = [Job("going", 20_000, 0.001, 0.0019, 1.0)]
    jobs = {1: one, 2: sped(one, 1.9)}
    assert soonest(jobs, FREE, 2, running=going).threads == {"next": 1}
    assert soonest(jobs, FREE, 2).threads == {"next": 2}


@pytest.mark.parametrize(("seed", "memory"), [(0, 4.0), (1, 4.0), (2, 3.0)])
def test_the_choice_is_near_the_best_of_all(seed: int, memory: float) -> None:
    """Five unequal trials that gain unequally: near the best of all numbers, each with its list."""
    jobs = uneven(seed)

    def ends_s(threads: Mapping[str, int]) -> float:
        return annealed(
            with_threads(jobs, threads), FREE, 3, memory_bytes=memory, rounds=150
        ).schedule.makespan_s

    every = [
        dict(zip([each.name for each in jobs[1]], numbers, strict=True))
        for numbers in itertools.product((1, 2), repeat=5)
    ]
    best_s = min(map(ends_s, every))
    found = soonest(jobs, FREE, 3, memory_bytes=memory, rounds=200)
    assert found.listed.schedule.makespan_s <= 1.04 * best_s
    mine = {each.name: each for each in with_threads(jobs, found.threads)}
    played = listed(
        [mine[name] for name in found.listed.order],
        FREE,
        3,
        at_once=found.listed.at_once,
        memory_bytes=memory,
    )
    assert played == found.listed.schedule, "the list is of those numbers"


def test_more_are_done_in_time_with_more_threads() -> None:
    """One of them does not end in time with one thread: it has two. With time for all, nobody has more than one."""
    one = [job("short", 0.5), job("long", 2.0, 20_000)]
    jobs = {1: one, 2: sped(one, 1.9)}
    assert within(one, FREE, 8, 30.0)[0].order == ("short",)
    found, late = most_within(jobs, FREE, 8, 30.0)
    assert set(found.listed.order) == {"short", "long"} and not late
    assert found.threads["long"] == 2
    assert max(found.listed.schedule.ends_s.values()) <= 30.0
    none, late = most_within(jobs, FREE, 8, 0.1)
    assert none.listed.order == () and set(late) == {"short", "long"}
    tied, _ = most_within({1: one, 2: sped(one, 1.01)}, FREE, 8, math.inf)
    assert set(tied.threads.values()) == {1}


def test_a_trial_without_time_takes_no_threads_from_the_others() -> None:
    """The choice is of those that are done in time: what is too long for it decides nothing."""
    one = [job("short", 0.5), job("long", 1.0), job("endless", 8.0, 1e7)]
    two = [*sped(one[:1], 1.0, 2.5), *sped(one[1:], 1.9)]
    jobs = {1: one, 2: two}
    assert soonest(jobs, FREE, 2).threads == {"short": 1, "long": 1, "endless": 2}
    assert all(len(within(mine, FREE, 2, 9.0)[1]) == 2 for mine in (one, two)), (
        "one of them, if both have as many"
    )
    for limit_s in (9.0, 60.0):
        found, late = most_within(jobs, FREE, 2, limit_s)
        assert set(late) == {"endless"} and found.threads == {"short": 1, "long": 2, "endless": 1}
        assert max(found.listed.schedule.ends_s.values()) < 9.0


@pytest.mark.parametrize(("seed", "cores"), [(16, 2), (33, 4), (36, 2), (80, 2), (1, 4)])
def test_a_list_that_is_hardly_better_gives_no_more_threads(seed: int, cores: int) -> None:
    """Against the best list of the fewest threads, not against the one in whose order the numbers were looked for."""
    jobs = uneven(seed)
    few_s = annealed(jobs[1], FREE, cores, memory_bytes=4.0, rounds=300).schedule.makespan_s
    found = soonest(jobs, FREE, cores, memory_bytes=4.0, rounds=300)
    assert set(found.threads.values()) == {1} or found.listed.schedule.makespan_s < few_s * (1 - WORTH)


@pytest.mark.parametrize(("seed", "threads"), [(3, [1, 1, 1, 1, 2]), (5, [1, 2, 2, 1, 1])])
def test_the_numbers_are_those_of_the_places_that_are_left(seed: int, threads: list[int]) -> None:
    """Beside a trial that runs, with two more places: who gains is not who gains where all could run at once."""
    going = [Job("going", 1e5, 0.001, 0.0019, 1.0)]
    found = soonest(uneven(seed), FREE, 3, rounds=200, running=going, most=3)
    assert list(found.threads.values()) == threads
    one = [job("a"), job("b")]
    assert set(soonest({1: one, 2: sped(one, 1.9)}, FREE, 2, most=1).threads.values()) == {2}


def test_many_trials_are_planned_in_a_few_seconds() -> None:
    """A plan is made anew whenever one of 64 ends, beside trials that compute."""
    luck = random.Random(1)
    one = [job(f"t{i}", luck.uniform(0.2, 4.0), luck.choice((2e4, 1e5))) for i in range(64)]
    for memory in (8.0, math.inf):
        began_s = time.process_time()
        found = soonest({1: one, 2: sped(one, 1.8)}, FREE, 4, memory_bytes=memory, rounds=200)
        assert len(found.threads) == 64 and time.process_time() - began_s < 30


def test_numbers_in_words() -> None:
    """What most have once, and who has another."""
    assert in_threads({"a": 2, "b": 2}) == "2 threads each" and in_threads({"a": 1}) == "1 thread each"
    assert in_threads({"a": 1, "b": 1, "wide": 2}) == "1 thread, wide 2"


def test_threads_that_gain_no_more_than_a_measurement_is_off_are_not_seen() -> None:
    """A step that is faster by noise, or a start that was shorter by chance, gives a trial no more threads."""
    one = [Job("noisy", 1e4, 1e-3, 1e-3, start_s=1.5), Job("gains", 1e4, 2e-3, 2e-3, start_s=1.5)]
    two = [Job("noisy", 1e4, 0.9e-3, 1.8e-3, start_s=0.5), Job("gains", 1e4, 1.1e-3, 2.2e-3, start_s=0.5)]
    found = steadied({1: one, 2: two}, {"noisy": 0.15, "gains": 0.15})
    assert found[1] == one and found[2][0] == one[0]
    assert found[2][1] == replace(two[1], start_s=1.5)
    sure = steadied({1: one, 2: two}, {})
    assert sure[2][0].step_s == 0.9e-3, "a tenth is more than nothing is off"
    varied = steadied({1: one, 2: two}, {"gains": 0.9})
    assert varied[2][1].step_s == 1.1e-3, "nearly twice as fast is faster, however much it varied"
