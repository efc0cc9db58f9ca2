"""The fluid model and the annealed list, without a process or a clock."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from typing import Any

import pytest

from tsnb.planners.fluid import Job, LoaderCost, Resources
from tsnb.planners.scheduling import (
    annealed,
    apart,
    fit_devices,
    in_turn,
    left_after,
    listed,
    soonest_s,
    spread,
    staggered,
)

FREE = LoaderCost(0.0, 0.0, 0.0)


def job(name: str, samples: float = 1000.0, ms: float = 1.0, **more: Any) -> Job:
    return Job(name, samples, ms / 1000, ms / 1000, **more)


def mix(seed: int, number: int) -> list[Job]:
    """Return unequal trials: short and long, light and heavy."""
    luck = random.Random(seed)
    return [
        job(
            f"t{i}",
            luck.choice((2e3, 1e4, 3e4)),
            luck.uniform(0.2, 4.0),
            memory_bytes=luck.choice((1.0, 2.0, 3.0)),
        )
        for i in range(number)
    ]


def test_paces_by_hand() -> None:
    """One stream: the slowest, the loader or the cores; a loader each: what one leaves is the others'."""
    two = [job("fast", 1000, 1.0), job("slow", 1000, 3.0)]
    one_core = Resources(LoaderCost(0.0, 0.002, 0.0), 1)
    assert listed(two, Resources(FREE, 8)).ends_s == pytest.approx({"fast": 3.0, "slow": 3.0})
    assert apart(two, Resources(FREE, 8)).ends_s == pytest.approx({"fast": 1.0, "slow": 3.0})
    assert listed(two, Resources(LoaderCost(0.005, 0.0, 0.0), 8)).makespan_s == pytest.approx(5.0)
    # 2 + 1 + 3 ms of CPU a sample on two cores; then the slow one alone has nothing left to do
    assert listed(two, one_core).makespan_s == pytest.approx(6.0)
    # on one core a loader each: 3 and 5 ms; half a core each until the fast one has ended, at 6 s
    ends = apart(two, one_core).ends_s
    assert ends == pytest.approx({"fast": 6.0, "slow": 8.0})
    assert in_turn(two, one_core).makespan_s == pytest.approx(8.0)


def test_loaders_of_their_own_are_served_one_after_the_other() -> None:
    """One process serves them: each trial starts when its stream is there."""
    feed = LoaderCost(0.001, 0.0, 0.0, fill_s=0.5, serve_s=0.2)
    three = [job(name, 1000, 1.0) for name in "abc"]
    found = apart(three, Resources(feed, 8))
    assert found.starts_s == pytest.approx({"a": 0.0, "b": 0.2, "c": 0.4})
    assert found.ends_s == pytest.approx({"a": 1.5, "b": 1.7, "c": 1.9})
    assert staggered(three, Resources(feed, 8))[0].ends_s == pytest.approx(found.ends_s)


def test_places_memory_and_starts_are_kept() -> None:
    """Never more at once than there are places or memory for; one that is too large for all runs alone."""
    jobs = [job(f"t{i}", 1500, 1.0, memory_bytes=2.0, start_s=0.5) for i in range(4)]
    found = listed(jobs, Resources(FREE, 64, 5.0))
    assert found.starts_s == pytest.approx({"t0": 0, "t1": 0, "t2": 2.0, "t3": 2.0})
    assert found.makespan_s == pytest.approx(4.0)
    one_s = listed(jobs, Resources(FREE, 64, at_once=1)).makespan_s
    assert one_s == pytest.approx(6.5), "started while others end"
    assert listed(jobs, Resources(FREE, 64, 2.0)).makespan_s == pytest.approx(8.0)
    large = [job("large", memory_bytes=9.0), job("small", memory_bytes=1.0)]
    assert listed(large, Resources(FREE, 64, 5.0)).starts_s["small"] == pytest.approx(1.0)
    for seed in range(20):
        jobs = mix(seed, 8)
        found = listed(jobs, Resources(FREE, 2, 5.0, at_once=3))
        for now_s in found.starts_s.values():
            here = [j for j in jobs if found.starts_s[j.name] <= now_s < found.ends_s[j.name]]
            assert len(here) <= 3 and sum(j.memory_bytes for j in here) <= 5.0
        assert found.ends_s.keys() == {j.name for j in jobs}


def test_trials_that_start_together_share_the_cores() -> None:
    """Four starts of a second of CPU time take two on two cores; a start takes from those that train."""
    four = [job(f"t{i}", 1000, 1.0, start_s=1.0, start_cpu_s=1.0) for i in range(4)]
    assert listed(four, Resources(FREE, 64)).makespan_s == pytest.approx(2.0)
    assert listed(four, Resources(FREE, 2)).makespan_s == pytest.approx(2.0 + 2.0)
    waits = [job(f"t{i}", 1000, 1.0, start_s=1.0, start_cpu_s=0.25) for i in range(4)]
    assert listed(waits, Resources(FREE, 2)).makespan_s == pytest.approx(1.0 + 2.0), "four quarters of a core"
    # one core: half of it each, until 500 of 1000 samples are taken and the other has begun; then half each again
    trains = replace(job("trains", 1000, 1.0), start_s=0.0)
    begins = job("begins", 1000, 1.0, start_s=0.5, start_cpu_s=0.5)
    ends = listed([trains, begins], Resources(FREE, 1)).ends_s
    assert ends == pytest.approx({"trains": 1.0 + 1.0, "begins": 1.0 + 1.5})
    left = left_after(Resources(FREE, 1, running=[trains, begins]), 1.0)
    assert left == pytest.approx({"trains": 500.0, "begins": 1000.0})


def test_work_is_neither_lost_nor_invented() -> None:
    """Where the cores are all that limits, every way takes the CPU time that it needs, and one loader needs less."""
    one_core = Resources(LoaderCost(0.0, 0.002, 0.0), 1)
    for seed in range(10):
        jobs = [Job(j.name, j.samples, 0.0, j.cpu_s) for j in mix(seed, 5)]
        needed_s = sum(j.samples * (j.cpu_s + 0.002) for j in jobs)
        assert apart(jobs, one_core).makespan_s == pytest.approx(needed_s, rel=1e-6)
        assert in_turn(jobs, one_core).makespan_s == pytest.approx(needed_s, rel=1e-6)
        assert listed(jobs, one_core).makespan_s <= needed_s


@pytest.mark.parametrize("seed", range(6))
def test_the_annealed_list_is_within_four_per_cent_of_the_best(seed: int) -> None:
    """Against every order and every number at once, of five unequal trials with too little memory for all."""
    jobs, two_cores = mix(seed, 5), Resources(LoaderCost(0.0004, 0.0006, 0.0001), 2, 6.0)
    found = annealed(jobs, two_cores, rounds=300)
    best = min(
        listed(order, replace(two_cores, at_once=k)).makespan_s
        for order in itertools.permutations(jobs)
        for k in range(1, 6)
    )
    assert best <= found.schedule.makespan_s * (1 + 1e-9) <= 1.04 * best
    assert sorted(found.order) == sorted(j.name for j in jobs)
    again = annealed(jobs, two_cores, rounds=300)
    assert again == found


def test_equals_are_put_together_on_one_stream() -> None:
    """A slow trial beside fast ones would hold them up; with cores to spare, pairs of equals end sooner."""
    jobs = [job("a", 1000, 1.0), job("B", 1000, 9.0), job("c", 1000, 1.0), job("D", 1000, 9.0)]
    found = annealed(jobs, Resources(FREE, 64))
    assert found.schedule.makespan_s == pytest.approx(9.0)
    two = annealed([Job(j.name, j.samples, j.step_s, j.cpu_s, 1.0) for j in jobs], Resources(FREE, 64, 2.0))
    assert two.schedule.makespan_s == pytest.approx(10.0)
    assert {frozenset(two.order[:2]), frozenset(two.order[2:])} == {frozenset("ac"), frozenset("BD")}
    assert [annealed(some, Resources(FREE, 2)).order for some in ([], jobs[:1])] == [(), ("a",)]


def test_trials_go_where_the_least_is_to_be_done_and_their_memory_is() -> None:
    """The longest first; one that fits on no GPU beside the others waits there, and none is left out."""
    jobs = [job("long", 4000), job("short", 1000), job("middle", 2500), job("tiny", 100)]
    found = {each.name: each.device for each in spread(jobs, {"cuda:0": math.inf, "cuda:1": math.inf})}
    assert found == {"long": "cuda:0", "middle": "cuda:1", "short": "cuda:1", "tiny": "cuda:1"}
    large = [replace(each, device_bytes=3.0) for each in jobs]
    on = spread(large, {"cuda:0": 4.0, "cuda:1": 8.0})
    assert [each.device for each in on] == ["cuda:0", "cuda:1", "cuda:1", "cuda:1"], (
        "the last one waits there"
    )
    assert not fit_devices(on) and fit_devices(on[:3])
    course = listed(on, Resources(FREE, 64))
    for now_s in course.starts_s.values():
        here = [each for each in on if course.starts_s[each.name] <= now_s < course.ends_s[each.name]]
        assert fit_devices(here)
    assert course.ends_s.keys() == {each.name for each in jobs}
    one_large = [job("large", 4000, device_bytes=8.0), job("small", 1000, device_bytes=1.0)]
    on = spread(
        one_large, {"cuda:0": 4.0, "cuda:1": 8.0}, [job("going", 9000, device="cuda:1", device_bytes=2.0)]
    )
    assert [each.device for each in on] == ["cuda:1", "cuda:0"], (
        "it waits where it fits once the other has ended"
    )


def test_no_order_is_sooner_than_its_bound() -> None:
    """The longest alone, the work of all cores, and the memory: no list beats any of them, and one reaches each."""
    for seed in range(8):
        # with trials that go faster together than their costs say, too
        feed = LoaderCost(0.0004, 0.0006, 0.0001, drag=0.7 if seed % 2 else 1.0, drag_of=3)
        jobs = mix(seed, 4)
        bound = soonest_s(jobs, Resources(feed, 2, 6.0))
        assert bound <= annealed(jobs, Resources(feed, 2, 6.0), rounds=200).schedule.makespan_s * (1 + 1e-9)
    alone = [job("a", 5000), job("b", 10)]
    assert soonest_s(alone, Resources(FREE, 64)) == pytest.approx(
        listed(alone, Resources(FREE, 64)).makespan_s
    )
    even = [job("a", 1000), job("b", 1000)]
    assert soonest_s(even, Resources(LoaderCost(0.0, 0.001, 0.0), 1)) == pytest.approx(3.0)
    two = [replace(each, memory_bytes=2.0) for each in even]
    assert soonest_s(two, Resources(FREE, 64, 2.0)) == pytest.approx(2.0)


def test_a_trial_that_is_started_early_takes_the_epoch_after_the_one_before_it() -> None:
    """Where the memory holds both; else it is started when the other has ended, and misses the epoch that begins."""
    epochs = LoaderCost(0.002, 0.0, 0.0, epoch_samples=1000.0)
    three = [
        Job(name, samples, 0.0, 0.0, memory_bytes=1.0, start_s=0.5)
        for name, samples in (("long", 3000), ("short", 1000), ("next", 1000))
    ]
    found = listed(three, Resources(epochs, 8, at_once=2))
    assert found.ends_s == pytest.approx({"short": 2.5, "next": 4.5, "long": 6.5})
    tight = listed(three, Resources(epochs, 8, 2.0, at_once=2))
    assert tight.ends_s == pytest.approx({"short": 2.5, "long": 6.5, "next": 6.5})
    assert tight.starts_s == found.starts_s


@pytest.mark.parametrize(("epoch_s", "end_s"), [(3.0, 7.0), (2.1, 5.2), (1.9, 6.7), (0.5, 3.0)])
def test_one_whose_end_is_known_too_late_for_a_start_leaves_its_place_empty_for_an_epoch(
    epoch_s: float, end_s: float
) -> None:
    """It is known a second after its first batch, and the start of the next takes one more."""
    epochs = LoaderCost(epoch_s / 1000, 0.0, 0.0, epoch_samples=1000.0)
    lengths = (("long", 9000), ("short", 1000), ("next", 1000))
    three = [Job(name, samples, 0.0, 0.0, start_s=1.0) for name, samples in lengths]
    assert listed(three, Resources(epochs, 8, at_once=2)).ends_s["next"] == pytest.approx(end_s)


def test_what_the_start_of_one_that_is_started_early_costs_is_not_lost() -> None:
    """A second of CPU time on the only core, in the same total as if it were started later."""
    one = LoaderCost(0.0, 0.0, 0.0, epoch_samples=2000.0)
    two = [job(name, 2000, 1.0, start_s=1.0, start_cpu_s=1.0) for name in "ab"]
    assert listed(two, Resources(one, 1, at_once=1)).makespan_s == pytest.approx(6.0)
    assert listed(two, Resources(one, 2, at_once=1)).makespan_s == pytest.approx(1.0 + 2.0 + 2.0)
