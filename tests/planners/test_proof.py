"""The bound that a solver proves: below every schedule, and near the list that is chosen."""

from __future__ import annotations

import builtins
import itertools
import math
import random
from dataclasses import replace
from typing import Any

import pytest

from tsnb.planners.fluid import Disk, Job, LoaderCost, Resources
from tsnb.planners.scheduling import PROVEN, annealed, listed, proven_s, soonest_s

pytest.importorskip("scipy")

FEED = LoaderCost(0.0004, 0.0006, 0.0001)


def mix(seed: int, number: int) -> list[Job]:
    """Return unequal trials, some of them on a GPU that two of them fill, with starts and crowds."""
    luck = random.Random(seed)
    return [
        Job(
            f"t{at}",
            luck.choice((2e3, 1e4, 3e4)),
            step_s := luck.uniform(0.2e-3, 4e-3),
            step_s,
            luck.choice((1.0, 2.0, 3.0)),
            start_s=luck.uniform(0.0, 2.0),
            start_cpu_s=luck.uniform(0.0, 1.0),
            crowd=luck.uniform(1.0, 1.3),
            beside=number - 1,
            device="cuda:0" if at % 2 else "",
            device_bytes=4.0 * (at % 2),
            device_room_bytes=10.0,
        )
        for at in range(number)
    ]


FEEDS = {
    "plain": FEED,
    "faster together": replace(FEED, drag=0.7, drag_of=3),
    "epochs": replace(FEED, epoch_samples=1000.0, fill_s=1.5),
    "disk": replace(FEED, disk=Disk(0.002, 0.001, 1, 0.2, 0.9), epoch_samples=1000.0),
    "drag": replace(FEED, drag=1.2, drag_of=4, memory_bytes=1.0),
}


@pytest.mark.parametrize("feed", FEEDS.values(), ids=FEEDS)
def test_no_order_is_sooner_than_what_was_proven(feed: LoaderCost) -> None:
    """All orders of four trials, and all numbers at once: with starts, epochs, a disk, a crowd, GPUs."""
    for seed in range(3):
        jobs, resources = mix(seed, 4), Resources(feed, 2, 7.0)
        bound = proven_s(jobs, resources)
        assert bound is not None
        bound = max(bound, soonest_s(jobs, resources))  # as a plan says it
        for order in itertools.permutations(jobs):
            for at_once in range(1, 5):
                makespan_s = listed(order, replace(resources, at_once=at_once)).makespan_s
                assert bound <= makespan_s * (1 + 1e-6)


@pytest.mark.parametrize("feed", FEEDS.values(), ids=FEEDS)
def test_no_order_is_sooner_than_the_longest_trial(feed: LoaderCost) -> None:
    """Where one is much longer than the others: they start the loader for it, and its process while it waits."""
    short = [Job(f"short{at}", 500.0, 1e-4, 1e-4, 1.0, start_s=0.4 + at, start_cpu_s=0.1) for at in range(2)]
    jobs = [*short, Job("long", 2e4, 1e-4, 1e-4, 1.0, start_s=2.0, start_cpu_s=0.1)]
    for memory in (2.0, math.inf):
        resources = Resources(feed, 2, memory)
        bound = max(soonest_s(jobs, resources), proven_s(jobs, resources) or 0.0)
        for order in itertools.permutations(jobs):
            for at_once in range(1, 4):
                makespan_s = listed(order, replace(resources, at_once=at_once)).makespan_s
                assert bound <= makespan_s * (1 + 1e-6), ([job.name for job in order], at_once, memory)


@pytest.mark.parametrize("number", [3, 5, 8, PROVEN])
def test_the_annealed_list_is_within_four_per_cent_of_it(number: int) -> None:
    """For up to a dozen unequal trials with memory for a few: what no search over orders could tell of so many."""
    resources = Resources(FEED, 2, 6.0)
    for seed in range(3):
        jobs = [replace(each, start_s=0.0, start_cpu_s=0.0) for each in mix(seed, number)]
        bound = proven_s(jobs, resources)
        assert bound is not None and bound >= soonest_s(jobs, resources) * (1 - 1e-6)
        found = annealed(jobs, resources, rounds=600).schedule.makespan_s
        assert bound * (1 - 1e-6) <= found <= 1.04 * bound, (seed, number)


def test_trials_that_exclude_each_other_are_added_up() -> None:
    """Three of which no two fit: their memory over time alone lets hope for a third less. One too large runs alone."""
    three = [Job(f"t{at}", 1000.0, 0.001, 0.001, 6.0) for at in range(3)]
    resources = Resources(LoaderCost(0.0, 0.0, 0.0), 64, 10.0)
    assert proven_s(three, resources) == pytest.approx(3.0)
    assert soonest_s(three, resources) == pytest.approx(1.8)
    assert proven_s(three, replace(resources, memory_bytes=1.0)) == pytest.approx(3.0)


def test_without_a_solver_and_of_many_trials_nothing_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning goes on without it."""
    resources = Resources(FEED, 2)
    assert proven_s(mix(0, PROVEN + 1), resources) is None and proven_s([], resources) is None
    real = builtins.__import__

    def without(name: str, *more: Any, **named: Any) -> Any:
        if name.startswith("scipy"):
            raise ImportError(name)
        return real(name, *more, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    assert proven_s(mix(0, 3), resources) is None
