"""With which strategy each trial runs, from made-up costs: no process, no clock."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tsnb.planners.fluid import Job, LoaderCost, Resources
from tsnb.planners.scheduling import Listed, annealed, listed, within
from tsnb.planners.strategies import (
    LESS,
    WORTH,
    Jobs,
    Strategy,
    StrategyList,
    by_trial,
    fitting,
    in_each,
    in_threads,
    most_within,
    on_devices,
    soonest,
    steadied,
    with_strategies,
)

FREE = LoaderCost(0.0001, 0.0001, 0.0)


def job(name: str, ms: float = 1.0, samples: float = 10_000, memory: float = 1.0) -> Job:
    return Job(name, samples, ms / 1000, ms / 1000, memory)


def threads_of(found: StrategyList) -> dict[str, int]:
    """Return the torch threads of each trial of a list."""
    return {name: strategy.threads for name, strategy in found.strategies.items()}


def threaded(jobs: Mapping[int, Sequence[Job]]) -> Jobs:
    """Return trials as they are with so many threads."""
    return by_trial({Strategy(number): each for number, each in jobs.items()})


def sped(jobs: Sequence[Job], by: float, cost: float = 1.05) -> list[Job]:
    """Return trials as they are with twice the threads: so many times as fast, for a little more CPU."""
    return [replace(each, step_s=each.step_s / by, cpu_s=each.cpu_s * cost) for each in jobs]


def uneven(seed: int) -> Jobs:
    """Return unequal trials that gain unequally by a second thread."""
    luck = random.Random(seed)
    one = [
        job(f"t{i}", luck.uniform(0.2, 4.0), luck.choice((2e4, 1e5)), luck.choice((1.0, 2.0)))
        for i in range(5)
    ]
    two = [sped([each], luck.choice((1.0, 1.03, 1.4, 1.9)), luck.choice((1.0, 1.3)))[0] for each in one]
    return threaded({1: one, 2: two})


def test_a_list_gives_more_threads_to_whom_sets_the_pace() -> None:
    """Cores to spare: the slow one has two, the fast one that would gain nothing for all has one."""
    one = [job("fast", 0.2), job("slow", 2.0)]
    found = soonest(threaded({1: one, 2: sped(one, 1.9)}), Resources(FREE, 8))
    assert threads_of(found) == {"fast": 1, "slow": 2}
    assert found.schedule.makespan_s < 0.6 * annealed(one, Resources(FREE, 8)).schedule.makespan_s
    assert set(found.order) == {"fast", "slow"}


@pytest.mark.slow
@pytest.mark.parametrize("by", [1.0, 1 / (1 - WORTH / 2), 0.8])
def test_what_is_not_worth_it_gives_none(by: float) -> None:
    """A tie, a gain within the margin (what a measurement is off), a loss; and where no core is left."""
    one = [job("a", 1.0), job("b", 2.0), job("c", 0.5)]
    for cores in (8, 1):
        found = soonest(threaded({1: one, 2: sped(one, by)}), Resources(FREE, cores))
        assert set(threads_of(found).values()) == {1}
        assert annealed(one, Resources(FREE, cores)) == Listed(found.order, found.at_once, found.schedule)
    crowded = soonest(threaded({1: one, 2: sped(one, 1.9)}), Resources(FREE, 1))
    assert set(threads_of(crowded).values()) == {1}
    twos = threads_of(soonest(threaded({2: one}), Resources(FREE, 8)))
    assert twos == {"a": 2, "b": 2, "c": 2}, "one number is no choice"


def test_memory_for_one_at_a_time_gives_each_all_cores() -> None:
    """All together have a core each; one after the other each gains by two."""
    one = [job("a", memory=4.0), job("b", memory=4.0)]
    jobs = threaded({1: one, 2: sped(one, 1.9)})
    assert set(threads_of(soonest(jobs, Resources(FREE, 2))).values()) == {1}
    found = soonest(jobs, Resources(FREE, 2, 5.0))
    assert threads_of(found) == {"a": 2, "b": 2}
    each_s = 10_000 * (0.0001 + 1.05 * 0.001) / 2  # the loader and its own CPU time, on two cores
    assert sorted(found.schedule.ends_s.values()) == pytest.approx([each_s, 2 * each_s])


def test_those_that_run_keep_their_cores() -> None:
    """What runs needs all of them: the one that waits has one thread, and two when nothing else runs."""
    one = [job("next", 1.0)]
    going = [Job("going", 20_000, 0.001, 0.0019, 1.0)]
    jobs = threaded({1: one, 2: sped(one, 1.9)})
    assert threads_of(soonest(jobs, Resources(FREE, 2, running=going))) == {"next": 1}
    assert threads_of(soonest(jobs, Resources(FREE, 2))) == {"next": 2}


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "memory"), [(0, 4.0), (1, 4.0), (2, 3.0)])
def test_the_choice_is_near_the_best_of_all(seed: int, memory: float) -> None:
    """Five unequal trials that gain unequally: near the best of all numbers, each with its list."""
    jobs, resources = uneven(seed), Resources(FREE, 3, memory)

    def ends_s(threads: Mapping[str, int]) -> float:
        mine = [jobs[name][Strategy(number)] for name, number in threads.items()]
        return annealed(mine, resources, rounds=150).schedule.makespan_s

    every = [dict(zip(jobs, numbers, strict=True)) for numbers in itertools.product((1, 2), repeat=5)]
    best_s = min(map(ends_s, every))
    found = soonest(jobs, resources, rounds=200)
    assert found.schedule.makespan_s <= 1.04 * best_s
    mine = {each.name: each for each in with_strategies(jobs, found.strategies)}
    order = [mine[name] for name in found.order]
    played = listed(order, replace(resources, at_once=found.at_once))
    assert played == found.schedule, "the list is of those numbers"


def test_more_are_done_in_time_with_more_threads() -> None:
    """One of them does not end in time with one thread: it has two. With time for all, nobody has more than one."""
    one = [job("short", 0.5), job("long", 2.0, 20_000)]
    jobs = threaded({1: one, 2: sped(one, 1.9)})
    assert within(one, Resources(FREE, 8), 30.0)[0].order == ("short",)
    found, late = most_within(jobs, Resources(FREE, 8), 30.0)
    assert set(found.order) == {"short", "long"} and not late
    assert threads_of(found)["long"] == 2
    assert max(found.schedule.ends_s.values()) <= 30.0
    none, late = most_within(jobs, Resources(FREE, 8), 0.1)
    assert none.order == () and set(late) == {"short", "long"}
    tied, _ = most_within(threaded({1: one, 2: sped(one, 1.01)}), Resources(FREE, 8), math.inf)
    assert set(threads_of(tied).values()) == {1}


def test_a_trial_without_time_takes_no_threads_from_the_others() -> None:
    """The choice is of those that are done in time: what is too long for it decides nothing."""
    one = [job("short", 0.5), job("long", 1.0), job("endless", 8.0, 1e7)]
    two = [*sped(one[:1], 1.0, 2.5), *sped(one[1:], 1.9)]
    jobs = threaded({1: one, 2: two})
    assert threads_of(soonest(jobs, Resources(FREE, 2))) == {"short": 1, "long": 1, "endless": 2}
    assert all(len(within(mine, Resources(FREE, 2), 9.0)[1]) == 2 for mine in (one, two)), (
        "one of them, if both have as many"
    )
    for limit_s in (9.0, 60.0):
        found, late = most_within(jobs, Resources(FREE, 2), limit_s)
        assert set(late) == {"endless"} and threads_of(found) == {"short": 1, "long": 2, "endless": 1}
        assert max(found.schedule.ends_s.values()) < 9.0


@pytest.mark.parametrize(("seed", "cores"), [(16, 2), (33, 4), (36, 2), (80, 2), (1, 4)])
def test_a_list_that_is_hardly_better_gives_no_more_threads(seed: int, cores: int) -> None:
    """Against the best list of the fewest threads, not against the one in whose order the numbers were looked for."""
    jobs = uneven(seed)
    few = [each[Strategy(1)] for each in jobs.values()]
    few_s = annealed(few, Resources(FREE, cores, 4.0), rounds=300).schedule.makespan_s
    found = soonest(jobs, Resources(FREE, cores, 4.0), rounds=300)
    assert set(threads_of(found).values()) == {1} or found.schedule.makespan_s < few_s * (1 - WORTH)


@pytest.mark.parametrize(("seed", "threads"), [(3, [1, 1, 1, 1, 2]), (5, [1, 2, 2, 1, 1])])
def test_the_numbers_are_those_of_the_places_that_are_left(seed: int, threads: list[int]) -> None:
    """Beside a trial that runs, with two more places: who gains is not who gains where all could run at once."""
    going = [Job("going", 1e5, 0.001, 0.0019, 1.0)]
    found = soonest(uneven(seed), Resources(FREE, 3, at_once=3, running=going), rounds=200)
    assert list(threads_of(found).values()) == threads
    one = [job("a"), job("b")]
    in_turn = soonest(threaded({1: one, 2: sped(one, 1.9)}), Resources(FREE, 2, at_once=1))
    assert set(threads_of(in_turn).values()) == {2}


def test_many_trials_are_planned_in_a_few_seconds() -> None:
    """A plan is made anew whenever one of 64 ends, beside trials that compute."""
    luck = random.Random(1)
    one = [job(f"t{i}", luck.uniform(0.2, 4.0), luck.choice((2e4, 1e5))) for i in range(64)]
    for memory in (8.0, math.inf):
        began_s = time.process_time()
        found = soonest(threaded({1: one, 2: sped(one, 1.8)}), Resources(FREE, 4, memory), rounds=200)
        assert len(threads_of(found)) == 64 and time.process_time() - began_s < 30


def test_numbers_in_words() -> None:
    """What most have once, and who has another."""
    assert in_threads({"a": 2, "b": 2}) == "2 threads each" and in_threads({"a": 1}) == "1 thread each"
    assert in_threads({"a": 1, "b": 1, "wide": 2}) == "1 thread, wide 2"


def test_threads_that_gain_no_more_than_a_measurement_is_off_are_not_seen() -> None:
    """A step that is faster by noise, or a start that was shorter by chance, gives a trial no more threads."""
    one = [Job("noisy", 1e4, 1e-3, 1e-3, start_s=1.5), Job("gains", 1e4, 2e-3, 2e-3, start_s=1.5)]
    two = [Job("noisy", 1e4, 0.9e-3, 1.8e-3, start_s=0.5), Job("gains", 1e4, 1.1e-3, 2.2e-3, start_s=0.5)]
    jobs = threaded({1: one, 2: two})
    found = steadied(jobs, {"noisy": 0.15, "gains": 0.15})
    assert found["noisy"] == {Strategy(1): one[0]}
    assert found["gains"] == {Strategy(1): one[1], Strategy(2): replace(two[1], start_s=1.5)}
    sure = steadied(jobs, {})
    assert sure["noisy"][Strategy(2)].step_s == 0.9e-3, "a tenth is more than nothing is off"
    varied = steadied(jobs, {"gains": 0.9})
    assert varied["gains"][Strategy(2)].step_s == 1.1e-3, (
        "nearly twice as fast is faster, however much it varied"
    )


PLAIN, SPILLED = Strategy(1, (("limit", None),)), Strategy(1, (("limit", "2GiB"),))


def spilled(jobs: Sequence[Job], slower: float = 1.8, memory: float = 0.4) -> Jobs:
    """Return trials as they are, and as they are with most of their states in a file: slower and smaller."""
    small = [
        replace(each, step_s=each.step_s * slower, memory_bytes=each.memory_bytes * memory) for each in jobs
    ]
    return by_trial({PLAIN: jobs, SPILLED: small})


def test_one_that_does_not_fit_has_the_strategy_that_does() -> None:
    """However slow that is; the others keep what is preferred. Where nothing fits it is the smallest."""
    jobs = spilled([job("small"), job("large", memory=8.0)], slower=9.0)
    found = soonest(fitting(jobs, 5.0), Resources(FREE, 8, 5.0))
    assert found.strategies == {"small": PLAIN, "large": SPILLED}
    assert fitting(jobs, 100.0) == jobs
    assert list(fitting(jobs, 1.0)["large"]) == [SPILLED]
    on_gpu = {
        name: {
            key: replace(each, device="cuda:0", device_bytes=each.memory_bytes, device_room_bytes=5.0)
            for key, each in several.items()
        }
        for name, several in jobs.items()
    }
    assert [list(each) for each in fitting(on_gpu, math.inf).values()] == [[PLAIN, SPILLED], [SPILLED]]


def test_a_trial_is_spilled_where_more_at_once_are_done_sooner() -> None:
    """Two that wait as for a GPU, and fit together only if one is smaller; not if that is slower than one by one."""
    waiting = [Job(name, 10_000, 1e-3, 1e-5, 4.0) for name in "ab"]
    with_two = soonest(fitting(spilled(waiting, 1.3), 6.0), Resources(FREE, 8, 6.0))
    assert set(with_two.strategies.values()) == {PLAIN, SPILLED}
    in_turn_s = annealed(waiting, Resources(FREE, 8, 6.0)).schedule.makespan_s
    assert with_two.schedule.makespan_s < in_turn_s * (1 - WORTH)
    for jobs, memory in ((spilled(waiting, 2.5), 6.0), (spilled(waiting, 1.3), 9.0)):
        found = soonest(fitting(jobs, memory), Resources(FREE, 8, memory))
        assert set(found.strategies.values()) == {PLAIN}, "slower than one by one; or both fit as they are"


def test_more_are_done_in_time_with_what_is_smaller() -> None:
    """One by one only one has time; with one of them spilled both have."""
    waiting = [Job(name, 10_000, 1e-3, 1e-5, 4.0) for name in "ab"]
    jobs = fitting(spilled(waiting, 1.3), 6.0)
    found, late = most_within(jobs, Resources(FREE, 8, 6.0), 15.0)
    assert not late and SPILLED in found.strategies.values()
    assert most_within(by_trial({PLAIN: waiting}), Resources(FREE, 8, 6.0), 15.0)[1]


def test_what_is_smaller_is_kept_and_no_faster_by_noise() -> None:
    """A step that is a little faster by chance is as fast; threads that gain nothing are left out for both limits."""
    plain, small = Job("a", 1e4, 1e-3, 1e-3, 10.0), Job("a", 1e4, 0.95e-3, 0.9e-3, 4.0)
    two = [Strategy(2, PLAIN.gives), Strategy(2, SPILLED.gives)]
    jobs = {
        "a": {
            PLAIN: plain,
            two[0]: replace(plain, step_s=0.95e-3, memory_bytes=10 * (1 - LESS / 2)),
            SPILLED: small,
            two[1]: replace(small, step_s=0.9e-3),
        }
    }
    found = steadied(jobs, {"a": 0.15})["a"]
    assert found == {PLAIN: plain, SPILLED: replace(plain, memory_bytes=4.0)}
    jobs["a"][two[1]] = replace(small, step_s=0.5e-3)
    assert steadied(jobs, {"a": 0.15})["a"][two[1]].step_s == 0.5e-3


def test_trials_are_divided_among_devices_whatever_their_strategy() -> None:
    """The longest first; beside what runs there already; none asked for leaves all where they were seen."""
    one = [job("long", 2.0), job("short", 0.5), job("middle", 1.5)]
    jobs = threaded({1: one, 2: sped(one, 1.9)})
    room = {"cuda:0": 10.0, "cuda:1": 20.0}
    gets, there = on_devices(jobs, room)
    assert gets == {"long": "cuda:0", "short": "cuda:1", "middle": "cuda:1"}
    assert {each.device_room_bytes for each in there["short"].values()} == {20.0}
    assert [each.device for each in there["long"].values()] == ["cuda:0", "cuda:0"]
    going = replace(job("going", 9.0), device="cuda:1")
    assert set(on_devices(jobs, room, [going])[0].values()) == {"cuda:0"}
    assert on_devices(jobs, {}) == ({}, jobs)
    gets, there = on_devices(jobs, {"cpu": math.inf})
    assert set(gets.values()) == {"cpu"} and there["long"][Strategy(1)].device == "", "a CPU is no GPU"


def test_what_trials_are_given_in_words() -> None:
    """What most have once, and who has another."""
    given = {
        "a": {"threads": 1, "limit": None, "device": "cuda:0"},
        "b": {"threads": 2, "limit": None, "device": "cuda:1"},
        "c": {"threads": 1, "limit": None, "device": "cuda:0"},
    }
    assert in_each(given) == ["1 thread, b 2", "limit=None each", "device=cuda:0, b cuda:1"]
    assert in_each({}) == [] and in_each({"a": {}}) == []
    assert str(Strategy(2, (("threads", 2), ("limit", "2GiB")))) == "2 torch threads, limit=2GiB"
