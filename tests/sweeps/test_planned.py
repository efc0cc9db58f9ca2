"""A sweep that is planned: what starts when, by a clock of its own; then a small one with real trials."""

from __future__ import annotations

import asyncio
import json
import random
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import tsnb
from tests.reports.made import consumer, reading
from tests.terminal import in_terminal
from tsnb.errors import NotShippable, TsnbError
from tsnb.experiments.functions import plan_function
from tsnb.experiments.overview.board import launch
from tsnb.kernels.hub import the_hub
from tsnb.machine.memory import Free
from tsnb.planners import timeline
from tsnb.planners.fluid import Job, LoaderCost, Resources
from tsnb.planners.scheduling import annealed, fit_devices, left_after, listed, within
from tsnb.planners.strategies import Strategy, by_trial
from tsnb.planners.timeline import newest
from tsnb.planning import profiling, served
from tsnb.planning.profiling import KEPT
from tsnb.planning.served import ServedCosts
from tsnb.sweeps import forecast, settled
from tsnb.sweeps.forecast import show_plan
from tsnb.sweeps.plan_wish import PlanWish, read_deadline
from tsnb.sweeps.planned import Conditions, Foresight, PlannedPlaces
from tsnb.sweeps.sweep import Sweep
from tsnb.telemetry.forecast.eta import NO_ETA
from tsnb.text.words import clock_span, clock_time

FEED = LoaderCost(0.0004, 0.0006, 0.0001)


def job(name: str, samples: float = 10_000, ms: float = 1.0, memory: float = 1.0) -> Job:
    return Job(name, samples, ms / 1000, ms / 1000, memory)


def mix(seed: int, number: int) -> list[Job]:
    luck = random.Random(seed)
    return [
        job(f"t{i}", luck.choice((2e4, 1e5, 3e5)), luck.uniform(0.2, 4.0), luck.choice((1.0, 2.0, 3.0)))
        for i in range(number)
    ]


def threads_of(found: Foresight) -> dict[str, int]:
    """Return the torch threads of each trial that has not started."""
    return {name: strategy.threads for name, strategy in found.strategies.items()}


def threaded(number: int) -> Strategy:
    return Strategy(number, (("threads", number),))


class World:
    """Trials that go as fast as they really do, whatever was measured of them; no process, no clock but this."""

    def __init__(self, jobs: Sequence[Job], *, cores: float = 2.0, memory: float = 6.0, **more: Any) -> None:
        self.now_s = 0.0
        self.real = {each.name: each for each in jobs}
        self.left = {each.name: each.samples for each in jobs}
        self.running: dict[str, float] = {}
        self.clones: dict[str, tuple[str, float]] = {}
        self.ended: dict[str, float] = {}
        self.cores, self.memory = cores, memory
        believed = more.pop("believed", {each.name: each for each in jobs})
        self.threads = {1: believed, **more.pop("threads", {})}
        feed = more.pop("feed", FEED)
        several = {threaded(number): each.values() for number, each in self.threads.items()}
        told = Conditions(
            by_trial(several | more.pop("others", {})),
            Resources(feed, cores, memory),
            more.pop("off", 0.1),
            more.pop("end_s", float("inf")),
            devices=more.pop("devices", {}),
        )
        self.said: list[str] = []
        self.places = PlannedPlaces(
            more.pop("at_once", len(jobs)),
            told,
            clock=lambda: self.now_s,
            taken=self.taken,
            clones=lambda: dict(self.clones),
            left_s=more.pop("left_s", dict),
            say=self.said.append,
            rounds=200,
        )
        self.places.add(self.real)

    def taken(self) -> Mapping[str, float]:
        return {name: self.real[name].samples - self.left[name] for name in self.running}

    def step(self) -> str | None:
        """Start what starts, and go on to the next end; return the name of the one that ended."""
        for name in self.places.start():
            self.running[name] = self.now_s
        self.places.check()
        there = [self.real[name] for name in self.running]
        assert len(there) == 1 or sum(job.memory_bytes for job in there) <= self.memory
        assert len(there) == 1 or fit_devices(there)
        if not self.running:
            return None
        going = [replace(self.real[name], samples=self.left[name]) for name in self.running]
        ends = listed([], Resources(FEED, self.cores, running=going)).ends_s
        first = min(ends, key=ends.__getitem__)
        self.go(ends[first])
        self.end(first)
        return first

    def go(self, seconds: float) -> None:
        going = [replace(self.real[name], samples=self.left[name]) for name in self.running]
        self.left |= left_after(Resources(FEED, self.cores, running=going), seconds)
        self.now_s += seconds

    def end(self, name: str) -> None:
        self.running.pop(name)
        self.ended[name] = self.now_s
        if self.clones.pop(name, None):
            self.places.changed()
        else:
            self.places.end(name)

    def run(self) -> float:
        while not self.places.over:
            self.step()
        return self.now_s


@pytest.mark.parametrize("seed", range(4))
def test_a_plan_that_is_made_anew_forgives_costs_that_were_wrong(seed: int) -> None:
    """Costs 30 % off either way: within a tenth of a plan that knew them; each trial runs once, memory is kept."""
    luck, jobs = random.Random(seed), mix(seed, 8)
    wrong = {
        j.name: replace(j, step_s=j.step_s * (f := luck.uniform(0.7, 1.3)), cpu_s=j.cpu_s * f) for j in jobs
    }
    ideal_s = annealed(jobs, Resources(FEED, 2, 6.0), rounds=400).schedule.makespan_s
    world = World(jobs, believed=wrong)
    assert ideal_s * 0.99 <= world.run() <= ideal_s * 1.1
    assert world.ended.keys() == {j.name for j in jobs} and not world.places.refused


def test_trials_that_do_not_fit_a_gpu_at_once_follow_each_other() -> None:
    """Also where one is all but done: its memory is free when it has ended. Another GPU is not waited for."""
    on = [
        replace(job(f"{gpu}-{n}"), device=gpu, device_bytes=size, device_room_bytes=10.0)
        for gpu, size, number in (("cuda:0", 6.0, 2), ("cuda:1", 2.0, 8))
        for n in range(number)
    ]
    world = World(on, memory=100.0, cores=32.0)
    first = world.places.start()
    mine = next(name for name in first if name.startswith("cuda:0"))
    assert len(first) == 6
    for name in first:
        world.running[name], world.left[name] = 0.0, 0.0
    for name in set(first) - {mine}:
        world.end(name)
    then = world.places.start()
    assert not [name for name in then if name.startswith("cuda:0")], (
        "it has taken all batches, but has not ended"
    )
    world.running |= dict.fromkeys(then, 0.0)
    world.end(mine)
    world.run()
    assert len(world.ended) == 10


def early_world(**more: Any) -> tuple[World, str]:
    """Return trials of three epochs of 1000 samples, a second each, of which one runs at once; the first has begun."""
    jobs = [replace(job(f"t{n}", 3000), start_s=0.2, start_cpu_s=0.0) for n in range(3)]
    world = World(jobs, feed=replace(FEED, epoch_samples=1000.0), at_once=1, **more)
    [name] = world.places.start()
    world.running[name] = 0.0
    assert world.places.look_s == 0.0
    return world, name


def test_the_next_trial_is_started_within_the_last_epoch_of_the_one_before_it() -> None:
    """As late as its start allows, be the plan's end of it past; its place is not another's when it is free."""
    world, name = early_world()
    assert world.places.start_early() == []
    assert world.places.look_s == pytest.approx(0.5), "of its first batches little is learnt"
    world.now_s, world.left[name] = 1.0, 3000.0 - 800 / 1.1
    assert world.places.start_early() == []
    assert world.places.look_s == pytest.approx(0.5), "a quarter of what has been seen is less"
    world.now_s = 3.0
    assert world.places.start_early() == []
    assert world.places.look_s == pytest.approx(3.0 / 4)
    world.now_s, world.left[name] = 3.3, 700.0
    assert world.places.start_early() == [], "700 samples take 0.7 s at least"
    assert world.places.look_s == pytest.approx(0.5)
    world.left[name] = 300.0
    [early] = world.places.start_early()
    world.places.check()
    assert world.places.waiting and world.places.free == 0
    world.running[early] = world.now_s
    assert world.places.start_early() == [] == world.places.start(), "one place, one that waits for it"
    world.end(name)
    assert world.places.start() == [] and world.places.free == 0, "it has its place now"
    world.now_s, world.left[early] = world.now_s + 3.3, 200.0
    assert len(world.places.start_early()) == 1 and not world.places.waiting and world.places.look_s is None


def test_a_trial_is_started_early_by_how_fast_the_one_before_it_really_goes() -> None:
    """Costs foretold a far end; its own pace says that it comes soon."""
    world, name = early_world(left_s=lambda: {"t0": 0.3, "t1": 0.3, "t2": 0.3})
    world.left[name] = 300.0
    assert len(world.places.start_early()) == 1
    far, name = early_world()
    far.left[name] = 300.0
    assert far.places.start_early() == []


def test_one_that_was_started_early_and_failed_makes_room_for_another() -> None:
    """Before the place was free: it is still the other's, and the next one may be started early for it."""
    world, name = early_world()
    world.now_s, world.left[name] = 3.3, 100.0
    [early] = world.places.start_early()
    world.places.end(early)
    world.places.check()
    assert world.places.free == 0 and world.places.start() == []
    [other] = world.places.start_early()
    assert other not in (name, early)


def test_nobody_is_started_early_where_the_memory_does_not_hold_both() -> None:
    """Nor while trials are being stopped: their places are filled together."""
    world, name = early_world(memory=1.5)
    world.now_s, world.left[name] = 3.3, 100.0
    assert world.places.start_early() == []
    room, name = early_world()
    room.now_s, room.left[name] = 3.3, 100.0
    room.places.leave([name])
    assert room.places.look_s is None and room.places.start_early() == []


def test_trials_that_differ_in_their_epochs_alone_are_profiled_once() -> None:
    """The one with the most of them; but as many as run at once are, as a sample costs more among others."""
    grid: dict[str, dict[str, Any]] = {
        f"w{width}e{epochs}": {"width": width, "epochs": epochs} for width in (8, 64) for epochs in (1, 2, 4)
    }
    twins = forecast._twins(grid, 1)
    assert {name: (twin.of, twin.times) for name, twin in twins.items()} == {
        "w8e1": ("w8e4", 0.25), "w8e2": ("w8e4", 0.5), "w64e1": ("w64e4", 0.25), "w64e2": ("w64e4", 0.5)
    }  # fmt: skip
    assert set(forecast._twins(grid, 4)) == {"w8e1", "w64e1"}, "two more run, the longer ones"
    assert not forecast._twins(grid, 6)
    other: dict[str, dict[str, Any]] = {
        "a": {"lr": 1, "epochs": 2},
        "b": {"lr": 1.0, "epochs": 3},
        "c": {"lr": True, "epochs": 4},
    }
    assert not forecast._twins(other, 1), "1, 1.0 and True are three values"
    assert not forecast._twins({"a": {"lr": 1}, "b": {"lr": 1}}, 1), (
        "who does not say how many epochs has no twin"
    )
    nets: dict[str, dict[str, Any]] = {"a": {"net": [1], "epochs": 2}, "b": {"net": [1], "epochs": 3}}
    assert not forecast._twins(nets, 1), "two objects that look alike may cost otherwise"


def test_a_trial_that_has_started_and_waits_for_an_epoch_is_not_taken_to_train() -> None:
    """The plan has it begin with the next epoch: not now, although its start is over."""
    jobs = [job("goes", 10_000), replace(job("waits", 1000), start_s=0.2)]
    world = World(jobs, feed=replace(FEED, epoch_samples=1000.0), cores=8.0)
    assert len(world.places.start()) == 2
    world.running = {"goes": 0.0, "waits": 0.0}
    world.left["goes"] = 9900.0
    world.now_s = 1.0
    found = world.places.foretell()
    begun_s = world.now_s + 0.9 * 1.1e-3 * 1000
    assert found.ends_s["waits"] == pytest.approx(begun_s + 1.1e-3 * 1000, rel=0.02)


def test_a_failure_or_an_early_stop_lets_the_next_start_at_once() -> None:
    """Whatever ends, the memory that comes free is taken; those that are stopped together are replaced together."""
    world = World([job(f"t{i}", 1e5, memory=2.0) for i in range(5)])
    first = world.places.start()
    assert len(first) == 3, "two bytes each of six"
    world.running = dict.fromkeys(first, 0.0)
    assert world.places.start() == [], "nothing has happened since"
    world.go(5.0)
    world.places.leave(first[:2])
    world.end(first[0])
    assert world.places.start() == []
    world.end(first[1])
    assert len(world.places.start()) == 2


def test_a_clone_takes_its_parent_s_memory_and_ends_with_it() -> None:
    """A trial does not start beside a clone that takes its place in memory; it does once that has ended."""
    world = World([job("a", 1e5, memory=3.0), job("b", 1e5, memory=3.0), job("c", 2e4, memory=3.0)])
    started = world.places.start()
    assert len(started) == 2
    last = next(iter({"a", "b", "c"} - set(started)))
    world.running = dict.fromkeys(started, 0.0)
    world.go(1.0)
    ended, stays = started
    world.clones["copy"] = stays, 1000.0
    world.real["copy"], world.left["copy"], world.running["copy"] = world.real[stays], 5e4, 1.0
    world.end(ended)
    assert world.places.start() == [], "the clone has its memory"
    world.end("copy")
    assert world.places.start() == [last]


def test_only_what_is_done_in_time_starts_and_the_rest_is_said() -> None:
    """The shortest first; all that started is done by then; each of the others has a time when it would be."""
    jobs = [job("short", 2e4), job("middle", 1e5), job("long", 1e6), job("longest", 4e6)]
    world = World(jobs, end_s=700.0)
    found = world.places.foretell()
    assert set(found.order) == {"short", "middle"} and set(found.late_s) == {"long", "longest"}
    assert all(end_s > 700.0 for end_s in found.late_s.values())
    told = world.places.late
    assert told.keys() == {"long", "longest"}, "it is said while the others run, and not only in the end"
    assert all(why.startswith("it would be done at ") for why in told.values())
    assert world.run() <= 700.0
    assert world.ended.keys() == {"short", "middle"}
    assert world.places.refused.keys() == {"long", "longest"} == set(world.places.refused)
    span = r"it would be done at [-\d: ]+ \([-\d: ]+ to [-\d: ]+, 80% interval\)"
    assert all(re.fullmatch(span, why) for why in world.places.refused.values()), world.places.refused
    assert world.places.waiting == ()


def test_time_that_comes_free_is_given_to_a_trial_that_had_none() -> None:
    """One fails after a second: what did not fit in time before does now. None has time: none starts."""
    world = World([job("a", 3e5, memory=6.0), job("b", 4e5, memory=6.0)], end_s=800.0)
    world.places.foretell()
    assert world.places.start() == ["a"] and world.places.waiting == ("b",)
    world.running["a"] = 0.0
    world.go(1.0)
    world.end("a")
    assert world.said == [], "that b has no time was told with the first plan"
    assert world.places.start() == ["b"]
    assert world.said == ["there is enough time for b after all"]
    none = World([job("a", 1e6), job("b", 1e6)], end_s=10.0)
    assert none.places.start() == [] and none.places.over and set(none.places.refused) == {"a", "b"}


def test_a_trial_that_has_no_time_any_more_is_said_once() -> None:
    """All go three times slower than measured: the first end shows it; the table says why, and so does a line."""
    believed = [job(name, 1e5, memory=4.0) for name in "abcd"]
    real = [replace(each, step_s=3 * each.step_s, cpu_s=3 * each.cpu_s) for each in believed]
    world = World(real, believed={each.name: each for each in believed}, end_s=700.0)
    assert not world.places.foretell().late_s
    world.run()
    refused = set(world.places.refused)
    assert refused and refused < set("abcd")
    told = [line for line in world.said if line.startswith("not started, because too late for ")]
    assert told and all(sum(f"{name} at " in line for line in told) == 1 for name in refused)
    assert "after all" not in "".join(world.said)


def test_forecasts_are_stretched_by_how_fast_the_trials_really_go() -> None:
    """All three times slower than measured: once the first have shown it, the times that are said become longer."""
    jobs = [job(f"t{i}", 1e5, 3.0, memory=3.0) for i in range(6)]
    hoped = {j.name: replace(j, step_s=j.step_s / 3, cpu_s=j.cpu_s / 3) for j in jobs}
    world = World(jobs, believed=hoped, end_s=1000.0)
    assert len(world.places.foretell().order) >= 4
    started = world.places.start()
    world.running = dict.fromkeys(started, 0.0)
    world.go(60.0)
    world.end(started[0])
    assert world.places.start() != [] and world.places.stretch > 1.4


@pytest.mark.parametrize("seed", range(5))
def test_the_most_trials_are_done_within_a_time(seed: int) -> None:
    """All taken end in time, those that run are not held up past it, and one more at least cannot be added."""
    jobs = mix(seed, 6)
    all_s = annealed(jobs, Resources(FEED, 2, 6.0), rounds=200).schedule.makespan_s
    going = [replace(jobs[0], name="going", samples=jobs[0].samples / 2)]
    found, late = within(jobs, Resources(FEED, 2, 6.0, running=going), all_s / 2, rounds=200)
    alone = listed([], Resources(FEED, 2, running=going)).ends_s["going"]
    for name, end_s in found.schedule.ends_s.items():
        assert end_s <= max(all_s / 2, alone if name == "going" else 0.0) * (1 + 1e-9)
    assert sorted([*found.order, *late]) == [f"t{i}" for i in range(6)] and late and found.order
    every, none = within(jobs, Resources(FEED, 2, 6.0, running=going), 10 * all_s, rounds=200)
    assert len(every.order) == 6 and not none


def test_what_runs_already_takes_places_and_memory() -> None:
    """With what is left to it; a list of none is played too, and time that has passed is taken off."""
    going = [replace(job("going", memory=4.0), samples=5_000)]
    beside = Resources(LoaderCost(0.0, 0.0, 0.0), 8, running=going)
    assert listed([], beside).ends_s == pytest.approx({"going": 5.0})
    found = listed([job("next", memory=4.0)], replace(beside, memory_bytes=6.0))
    assert found.starts_s == pytest.approx({"going": 0.0, "next": 5.0})
    one = replace(beside, at_once=1)
    assert listed([job("next")], one).starts_s["next"] == pytest.approx(5.0)
    assert annealed([job("next")], one).schedule.makespan_s == pytest.approx(15.0)
    two = replace(beside, running=[*going, replace(job("slow", 1e3, 2.0), start_s=1.0)])
    assert left_after(two, 1.0) == pytest.approx({"going": 4000.0, "slow": 1000.0})
    assert left_after(two, 2.0) == pytest.approx({"going": 3500.0, "slow": 500.0})
    assert left_after(two, 100.0) == {"going": 0.0, "slow": 0.0}


def two_threads(jobs: Sequence[Job], by: float = 1.9) -> dict[int, dict[str, Job]]:
    """Return trials as they are with two threads: so many times as fast, for a little more CPU."""
    return {2: {j.name: replace(j, step_s=j.step_s / by, cpu_s=j.cpu_s * 1.05) for j in jobs}}


def test_each_trial_has_the_threads_with_which_all_are_done_soonest() -> None:
    """The longest two, since two cores are not enough for all; the one that waits has others when it is left alone."""
    jobs = [job("a", 1e5, memory=3.0), job("b", 3e5, memory=3.0), job("c", 1e5, memory=3.0)]
    world = World(jobs, threads=two_threads(jobs))
    found = world.places.foretell()
    assert threads_of(found) == {"a": 1, "b": 2, "c": 1}
    assert max(found.ends_s.values()) < 0.97 * World(jobs).run()
    started = world.places.start()
    assert set(started) == {"a", "b"} and threads_of(world.places.foretell()) == {"c": 1}
    world.running = dict.fromkeys(started, 0.0)
    world.go(1.0)
    for name in started:
        world.end(name)
    assert world.places.start() == ["c"]
    assert {name: world.places.gives(name) for name in "abc"} == {
        "a": {"threads": 1},
        "b": {"threads": 2},
        "c": {"threads": 2},
    }


def test_a_trial_that_runs_keeps_its_threads() -> None:
    """Whatever the next plan has for others: its own forecast, and that of a clone of it, is of what it really has."""
    jobs = [job("a", 1e5, memory=3.0), job("b", 3e5, memory=3.0), job("c", 1e5, memory=3.0)]
    world = World(jobs, threads=two_threads(jobs))
    world.running = dict.fromkeys(world.places.start(), 0.0)
    world.real["b"] = world.threads[2]["b"]
    world.go(10.0)
    world.end("a")
    world.clones["copy"] = "b", 1000.0
    running = {each.name: each for each in world.places._running(world.now_s)}
    assert running["b"].step_s == running["copy"].step_s == world.threads[2]["b"].step_s
    assert world.places.gives("b") == {"threads": 2}


def test_a_tie_gives_no_more_threads() -> None:
    """What a measurement is off is not worth it, nor is anything where all cores are taken."""
    jobs = mix(1, 6)
    for more in ({"threads": two_threads(jobs, 1.02)}, {"threads": two_threads(jobs), "cores": 1.0}):
        found = World(jobs, **more).places.foretell()
        assert set(threads_of(found).values()) == {1}
        assert found.order == World(jobs, cores=more.get("cores", 2.0)).places.foretell().order  # type: ignore[arg-type]


def test_more_are_done_by_a_time_with_more_threads() -> None:
    """The long one has no time with one thread; with two it has, and is started."""
    jobs = [job("short", 2e4), job("long", 1e5, 8.0)]
    few, two = World(jobs, cores=8, end_s=600.0), World(jobs, cores=8, end_s=600.0, threads=two_threads(jobs))
    assert set(few.places.foretell().late_s) == {"long"}
    found = two.places.foretell()
    assert not found.late_s and threads_of(found)["long"] == 2


def test_a_trial_that_waits_goes_to_the_device_that_came_free() -> None:
    """Divided by work at first; when those of one GPU are stopped early, what waits for the other goes there."""
    jobs = [
        replace(job(name, samples), device_bytes=6.0)
        for name, samples in (("long", 4e5), ("b", 1.4e5), ("c", 1.4e5), ("d", 1.4e5))
    ]
    world = World(jobs, cores=32.0, memory=100.0, devices={"cuda:0": 8.0, "cuda:1": 8.0})
    started = world.places.start()
    assert len(started) == 2 and "long" in started, "one on each"
    (stays,) = set(started) - {"long"}
    on = {name: world.places.gives(name)["device"] for name in world.real}
    assert [name for name, device in on.items() if device == on["long"]] == ["long"]
    world.running = dict.fromkeys(started, 0.0)
    world.go(1.0)
    world.end("long")
    (then,) = world.places.start()
    assert world.places.gives(then)["device"] == on["long"]
    assert world.places.gives(stays)["device"] == on[stays], "one that runs stays"
    running = {each.name: each.device for each in world.places._running(world.now_s)}
    assert running == {then: on["long"], stays: on[stays]}
    world.running[then] = world.now_s
    world.end(stays)
    (last,) = world.places.start()
    assert world.places.gives(last)["device"] == on[stays], "the other is taken by one that runs"


def test_what_does_not_fit_is_started_with_the_value_with_which_it_does() -> None:
    """However much slower that is; what fits keeps the first value, unless more at once end sooner."""
    plain, small = (Strategy(1, (("threads", 1), ("limit", limit))) for limit in (None, "2GiB"))
    jobs = [job("small", 1e5, memory=1.0), job("large", 1e5, memory=9.0)]
    spilled = [replace(each, step_s=each.step_s * 4, memory_bytes=each.memory_bytes * 0.5) for each in jobs]
    told = Conditions(by_trial({plain: jobs, small: spilled}), Resources(FEED, 2.0, 6.0), 0.1)
    places = PlannedPlaces(2, told, clock=lambda: 0.0, taken=dict)
    places.add(["small", "large"])
    places.start()
    assert places.gives("small") == {"threads": 1, "limit": None}
    assert places.gives("large") == {"threads": 1, "limit": "2GiB"}
    assert all(each.memory_bytes <= 6.0 for each in places._running(0.0))


def test_several_threads_and_devices_are_for_a_plan_to_choose() -> None:
    """Without a plan, beside values that are swept over, and what is invalid: the error says what to do."""
    assert PlanWish.of(True, None, threads=(2, 1, 2)) == PlanWish(threads=(1, 2))
    assert PlanWish.of(True, None, threads=2) == PlanWish() and PlanWish.of(False, None, threads=2) is None
    assert PlanWish.of(False, "18:00", threads=[1, 4]) is not None
    with pytest.raises(
        ValueError, match=r"threads=\(1, 2\) is invalid, because only a plan picks.*Add plan=True \(--plan\)"
    ):
        PlanWish.of(False, None, threads=(1, 2))
    with pytest.raises(ValueError, match="threads are a sweep parameter and each trial has its own value"):
        PlanWish.of(True, None, threads=(1, 2), swept=["lr", "threads"])
    for wrong in ((0, 2), (), (1.5,), ("2",), (True, 2)):
        with pytest.raises(ValueError, match="Pass a number, 1 or more, or several"):
            PlanWish.of(True, None, threads=wrong)
    assert PlanWish.of(True, None, device=("cpu", "cpu")) == PlanWish(devices=("cpu",))
    assert PlanWish.of(True, None, device="cpu") == PlanWish()
    with pytest.raises(
        ValueError,
        match=r"device=\('cpu',\) is invalid, because only a plan picks from several devices.*--plan",
    ):
        PlanWish.of(False, None, device=("cpu",))
    with pytest.raises(ValueError, match="device is a sweep parameter and each trial has its own value"):
        PlanWish.of(True, None, device=("cpu",), swept=["device"])
    with pytest.raises(ValueError, match="Pass GPUs, or only the CPU"):
        PlanWish.of(True, None, device=("cpu", "meta"))
    with pytest.raises(ValueError, match="Pass a device, or several"):
        PlanWish.of(True, None, device=())
    with pytest.raises(ValueError, match="cuda:99"):
        PlanWish.of(True, None, device=("cuda:99",))


def test_values_that_are_left_to_the_plan() -> None:
    """All combinations with threads, the preferred one first; options, and what is given otherwise, are refused."""
    found = PlanWish.of(True, None, threads=(1, 2), choose={"limit": [None, "2GiB", None]})
    assert found is not None and found.params == {"limit": None} and found.options == {"threads": 1}
    assert list(map(str, found.strategies(1))) == [
        "1 torch thread, limit=None",
        "2 torch threads, limit=None",
        "1 torch thread, limit=2GiB",
        "2 torch threads, limit=2GiB",
    ]
    assert PlanWish(threads=()).strategies(3) == [Strategy(3)] and not PlanWish().chooses
    limit = {"limit": [None, "2GiB"]}
    with pytest.raises(
        ValueError, match=r"choose=.*only a plan picks.*plan=True \(--plan\), or sweep over them"
    ):
        PlanWish.of(False, None, choose=limit)
    for where, more in (("swept over", {"swept": ["limit"]}), ("given for all trials", {"given": ["limit"]})):
        with pytest.raises(ValueError, match=f"limit is {where} and also in choose="):
            PlanWish.of(True, None, choose=limit, **more)
    for name, way in (
        ("batch_size", "Sweep over it"),
        ("epochs", "Sweep over it"),
        ("threads", r"threads=\("),
    ):
        with pytest.raises(ValueError, match=way):
            PlanWish.of(True, None, choose={name: [1, 2]})
    for wrong in ([], "2GiB", [[1]], {None, 1}):
        with pytest.raises(ValueError, match="Pass a list of numbers, strings or None"):
            PlanWish.of(True, None, choose={"limit": wrong})  # type: ignore[dict-item]


def test_a_time_of_the_day_is_the_next_one() -> None:
    """Today's if it is to come, else tomorrow's; a whole date, a datetime; what is none, and the past, are refused."""
    here = timezone(timedelta(hours=2))
    now = datetime(2026, 3, 1, 17, 0, tzinfo=here)
    for given, wanted in (
        ("18:00", datetime(2026, 3, 1, 18, 0, tzinfo=here)),
        ("9:30", datetime(2026, 3, 2, 9, 30, tzinfo=here)),
        ("2026-03-04 08:00", datetime(2026, 3, 4, 8, 0, tzinfo=here)),
        (datetime(2026, 3, 1, 19, 0, tzinfo=here), datetime(2026, 3, 1, 19, 0, tzinfo=here)),
    ):
        assert read_deadline(given, now) == wanted.timestamp()
    for wrong in ("soon", "25:00", "6pm", 1800, "18.30", "18:00Z", "2026-02-30 08:00"):
        with pytest.raises(ValueError, match=r"is not a time. Pass \"18:00\""):
            read_deadline(wrong, now)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has already passed: it is 2026-03-01 17:00"):
        read_deadline("2026-03-01 16:00", now)
    noon = datetime.now().astimezone().replace(hour=12, minute=0, second=0, microsecond=0).timestamp()
    assert clock_time(noon + 3600, noon) == "13:00"
    assert "-" in clock_time(noon + 2 * 86_400, noon), "another day is named"
    assert clock_span(noon + 7200, noon, 0.25) == "14:00 (13:30 to 14:30, 80% interval)"
    assert clock_time(noon + 61, noon, noon + 45) == "12:01:01", (
        "not the same text as the time it is too late for"
    )
    assert clock_time(noon + 3600, noon, noon + 45) == "13:00"


SOURCE = """
def train(ms=1.0, epochs=1, fails=False):
    import time
    import tsnb
    taken = 0
    for _ in range(epochs):
        for (labels,) in tsnb.attach():
            taken += len(labels)
            if fails and taken > 8:
                raise RuntimeError("out of luck")
            end = time.thread_time() + ms / 1000 * len(labels)
            while time.thread_time() < end:
                pass
    return taken
"""


def make_train() -> Any:
    """A function that travels by value: this file cannot be imported in a trial."""
    made: dict[str, Any] = {"__name__": "__main__"}
    exec(SOURCE, made)
    return made["train"]


@pytest.mark.slow
@pytest.mark.system
def test_a_sweep_is_planned_for_what_is_free_while_trials_run(
    numbers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first one there is no fork server: in a small container one of those planned for that was killed."""
    monkeypatch.setattr(served, "free_bytes", lambda: float(8 << 30))  # before any trial runs
    monkeypatch.setattr(profiling, "free_memory", lambda: Free(1 << 30, "while they run"), raising=False)
    measure, told = served.costs_on, []

    def measured(*given: Any, **named: Any) -> ServedCosts:
        told.append(measure(*given, **named))
        return told[0]

    monkeypatch.setattr(forecast, "costs_on", measured)
    tsnb.sweep(make_train(), grid={"ms": [1.0, 2.0]}, plan=True, name="t").wait(120)
    held = sum(way.memory_bytes for ways in told[0].jobs.values() for way in ways.values())
    assert (1 - KEPT) * (1 << 30) <= told[0].resources.memory_bytes <= (1 << 30) + held


@pytest.mark.slow
@pytest.mark.system
def test_a_real_sweep_is_profiled_planned_and_run(numbers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Each gets all of its epochs, nothing of the profiles stays, and what would be late is said and not started."""
    train = make_train()
    late = datetime.now().astimezone() + timedelta(hours=1)
    grid: dict[str, list[Any]] = {"ms": [1.0, 2.0], "epochs": [2, 10**6]}
    sweep = tsnb.sweep(train, grid=grid, deadline=late, name="t")
    under_way = newest()
    late_ones = {"t-ms1.0-epochs1000000", "t-ms2.0-epochs1000000"}
    assert set(sweep.not_started) == late_ones, "from the beginning"
    assert repr(sweep).count("queued: it would be done at ") == 2
    with pytest.raises(TsnbError, match=r"has not been started yet: it would be done at .* too late unless"):
        sweep["t-ms1.0-epochs1000000"]
    told = tsnb.report(numbers.name).story.plan  # from now on this process watches the stream
    sweep.wait(120)
    assert under_way is not None and under_way.title == "sweep 't'" and under_way.streams == (numbers.name,)
    started = [trial for trial in under_way.trials if trial.actual is not None and trial.ahead is not None]
    assert started, "while they run there is something to come"
    assert told is None or told.trials[0].planned == under_way.trials[0].planned, "the first plan stays"
    assert {trial.name: trial.result() for trial in sweep.values()} == {
        "t-ms1.0-epochs2": 800,
        "t-ms2.0-epochs2": 800,
    }
    assert set(sweep.not_started) == late_ones
    said = capsys.readouterr().out
    assert "2 of 4 done in" in said and "not started, because too late for" in said
    assert repr(sweep).count("not started: it would be done at ") == 2
    assert set(tsnb.trials) == set(sweep), "nothing of the profiles is kept"
    plan, report = newest(), tsnb.report(numbers.name)
    assert plan is not None and {trial.name for trial in plan.trials} == set(sweep)
    assert report.story.plan == plan and plan.bars() in report.text
    assert sweep.plan == plan
    drawn = {bar.name: dict(zip(bar.y, bar.x, strict=True)) for bar in tsnb.plot("plan").data}
    assert set(drawn) == {"planned", "actual"}
    assert drawn["actual"] == pytest.approx({trial.name: trial.duration_s for trial in sweep.values()})
    deadline_s = time.monotonic() + 60
    while left := [each.name for each in numbers.status().consumers if each.state != "gone"]:
        assert time.monotonic() < deadline_s, left
        time.sleep(0.05)
    with pytest.raises(TsnbError, match="was not started: it would be done at"):
        sweep["t-ms1.0-epochs1000000"]


THREADED = """
def train(width, epochs=1, threads=0):
    import torch
    import tsnb
    net = torch.randn(width, width)
    for _ in range(epochs):
        for _ in tsnb.attach():
            net @ net
    return torch.get_num_threads(), threads
"""


@pytest.mark.slow
@pytest.mark.system
def test_real_trials_have_the_threads_that_were_chosen(
    numbers: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the process, in the function's argument of that name, in its options and records, and in the plan's words."""
    one = (job("t-width4", 4e3, 0.2), Job("t-width8", 4e3, 2e-3, 2e-3, 9 << 30))
    two = (one[0], replace(one[1], step_s=1e-3))
    few, more = threaded(1), threaded(2)
    asked: list[Any] = []
    profiled: list[tuple[str, int]] = []
    jobs: dict[Strategy, tuple[Job, ...]] = {few: one, more: two}

    def measured(stream: str | None, starts: Mapping[Strategy, Mapping[str, Any]], **_: Any) -> ServedCosts:
        asked.append({number: list(each) for number, each in starts.items()})
        for each in starts.values():
            for start in each.values():
                start(None)
        return ServedCosts("numbers", by_trial(jobs), Resources(FEED, 8.0, float(4 << 30)), 0.1)

    def launched(plan: Any, outlet: Any) -> None:
        assert re.match(r"tsnb-plan-\d+-\d+-[stu]-", plan.name)
        profiled.append((plan.name.rpartition("-")[2], plan.options.threads))
        plan.discard()

    monkeypatch.setattr(forecast, "costs_on", measured)
    monkeypatch.setattr(forecast, "launch", launched)
    made: dict[str, Any] = {"__name__": "__main__"}
    exec(THREADED, made)
    sweep = tsnb.sweep(made["train"], grid={"width": [4, 8]}, plan=True, threads=(2, 1), name="t").wait(120)
    assert asked == [{few: ["t-width4", "t-width8"], more: ["t-width4", "t-width8"]}]
    assert set(profiled) == {(f"width{width}", number) for width in (4, 8) for number in (1, 2)}
    assert {name: trial.result() for name, trial in sweep.items()} == {"t-width4": (1, 1), "t-width8": (2, 2)}
    assert sweep.plan is not None and {each.name for each in sweep.plan.trials} == set(sweep)
    assert [trial.options["threads"] for trial in sweep.values()] == [
        {"t-width4": 1, "t-width8": 2}[name] for name in sweep
    ]
    said = capsys.readouterr().out
    assert "wanted by" not in said
    assert "profiling 2 trials, each with 1 torch thread and with 2 torch threads for the plan" in said
    assert "; 1 thread, t-width8 2" in said
    assert "t-width8 (9.0 GiB) does not fit into memory, even alone: 4.0 GiB are available" in said
    assert (
        'tsnb.offload(model, optimizer, limit="2048MiB")' in said and "runs alone and may be killed" in said
    )
    with pytest.raises(
        ValueError, match=r"threads=\(1, 2\) is invalid, because only a plan picks from several"
    ):
        tsnb.sweep(made["train"], grid={"width": [4, 8]}, threads=(1, 2))
    with pytest.raises(ValueError, match="threads are a sweep parameter"):
        tsnb.sweep(made["train"], grid={"threads": [1, 2]}, width=4, threads=(1, 2), plan=True)
    jobs = {Strategy(2): (job("s-threads1"), job("s-threads2"))}
    swept = tsnb.sweep(made["train"], grid={"threads": [1, 2]}, width=4, plan=True, name="s").wait(120)
    assert asked[1:] == [{Strategy(2): ["s-threads1", "s-threads2"]}], (
        "swept over: each has its own, nothing is chosen"
    )
    assert [swept[f"s-threads{number}"].result() for number in (1, 2)] == [(1, 1), (2, 2)]
    capsys.readouterr()
    jobs = {Strategy(1): (job("u-width4"),)}
    tomorrow = datetime.now().astimezone() + timedelta(hours=23, minutes=50)
    tsnb.sweep(made["train"], grid={"width": [4]}, deadline=f"{tomorrow:%H:%M}", name="u").wait(120)
    day = clock_time(tomorrow.timestamp(), datetime.now().astimezone().timestamp())
    assert f"(wanted by {day});" in capsys.readouterr().out, "which day it was taken for"


def test_a_trial_that_starts_with_something_else_than_was_said_is_named(
    page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan of that moment counts; where it is as was said, and where nothing was chosen, no line comes."""
    made: dict[str, Any] = {"__name__": "__main__"}
    exec("def train(x, limit=None): return x", made)
    params = {f"t-x{x}": {"x": x} for x in (1, 2, 3)}
    plan = plan_function(made["train"], {"x": 1}, name="t-x1", sweep="t")
    course = settled.Settled("t", plan, params, page)
    started: dict[str, Any] = {}

    def launched(plan: Any, outlet: Any) -> None:
        started[plan.name] = plan.options.threads, plan.options.device, plan.params.get("limit")
        plan.discard()

    monkeypatch.setattr(settled, "launch", launched)
    course.launch("t-x3", None)
    chosen: dict[str, dict[str, Any]] = {
        name: {"threads": 1, "limit": None, "device": "cpu"} for name in params
    }
    course.take_choice(chosen.__getitem__)
    chosen["t-x2"] = {"threads": 2, "limit": "2GiB", "device": "cpu"}
    for name in ("t-x1", "t-x2"):
        course.launch(name, None)
    assert started == {"t-x1": (1, "cpu", None), "t-x2": (2, "cpu", "2GiB"), "t-x3": (None, None, None)}
    the_hub().call(asyncio.sleep(0))  # what was said is shown by its thread
    assert page.text == (
        "sweep 't': t-x2 starts with 2 torch threads and limit=2GiB, which the plan now prefers\n"
    )
    course.over()


@pytest.mark.slow
@pytest.mark.system
def test_the_command_line_profiles_with_each_number_of_threads(numbers: Any, tmp_path: Path) -> None:
    """`tsnb sweep --plan --threads 1,2`: all are done, with a number of those; without a plan it says what to do."""
    source = SOURCE.replace("return taken", "import torch; tsnb.log(threads=torch.get_num_threads())")
    (tmp_path / "threaded.py").write_text(source, encoding="utf-8")

    given = "--grid ms=1.0,2.0 --grid epochs=2 --threads 1,2 --name p --json"
    line = f"sweep threaded:train --stream {numbers.name} {given}"
    done = in_terminal(tmp_path, f"{line} --plan")
    began, *ends = [json.loads(row) for row in done.stdout.splitlines()]
    assert [end["state"] for end in ends] == ["done", "done"], done.stderr
    assert {end["metrics"]["threads"] for end in ends} <= {1, 2} and len(began["trials"]) == 2
    assert "each with 1 torch thread and with 2 torch threads" in done.stderr
    refused = in_terminal(tmp_path, line)
    assert refused.returncode == 1 and "Add plan=True (--plan), or pass one" in refused.stderr


@pytest.mark.slow
@pytest.mark.system
def test_what_a_profile_has_taken_before_is_no_note(numbers: Any) -> None:
    """Nor what a sweep before it has: a trial of a sweep begins when it has its turn, and misses nothing."""
    for name in ("first", "second"):
        sweep = tsnb.sweep(make_train(), grid={"ms": [1.0]}, plan=True, name=name).wait(120)
        (trial,) = sweep.values()
        assert trial.result() == 400 and "note:" not in trial.logs()


@pytest.mark.slow
@pytest.mark.system
def test_a_trial_that_cannot_be_profiled_is_run_all_the_same(
    numbers: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """It fails in its place, with its own words; the others are planned. If none can be, that is the error."""
    train = make_train()
    sweep = tsnb.sweep(train, grid={"fails": [False, True]}, ms=2.0, plan=True, name="f").wait(120)
    assert {trial.name: trial.state for trial in sweep.values()} == {
        "f-fails-False": "done",
        "f-fails-True": "failed",
    }
    assert "f-fails-True is assumed to cost the same as the other trials" in capsys.readouterr().out
    with pytest.raises(TsnbError, match="out of luck"):
        tsnb.sweep(train, grid={"ms": [1.0]}, fails=True, plan=True)


@pytest.mark.slow
@pytest.mark.system
def test_trials_too_short_to_be_profiled_are_planned_by_how_long_they_took(numbers: Any) -> None:
    """One that is over after three batches is no reason to refuse the sweep."""
    made: dict[str, Any] = {"__name__": "__main__"}
    exec(
        "def train(x):\n    import tsnb\n    for number, _ in zip(range(3), tsnb.attach()):\n        pass",
        made,
    )
    sweep = tsnb.sweep(made["train"], grid={"x": [1, 2]}, plan=True, name="brief").wait(120)
    assert {trial.state for trial in sweep.values()} == {"done"} and len(sweep) == 2


@pytest.mark.system
def test_a_trial_that_takes_no_batch_is_told_as_that(
    numbers: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was taken to train for one epoch, in no time; the first of its kind ends the planning."""
    made: dict[str, Any] = {"__name__": "__main__"}
    exec("def idle(x):\n    return x", made)
    with pytest.raises(TsnbError, match=r"^Trial 'idle-x1' ended without taking a batch.*tsnb\.attach"):
        tsnb.sweep(made["idle"], grid={"x": [1, 2]}, plan=True)
    said = capsys.readouterr().out
    assert "profiling 2 trials for the plan: about 5 s, longer if" in said and "one epoch" not in said
    assert not list(tsnb.trials)


@pytest.mark.system
def test_who_has_to_end_in_time_and_does_not_say_when_is_refused_when_the_first_was_seen(
    numbers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only its code knows whether it says so; the others need not be run for that."""
    made: dict[str, Any] = {"__name__": "__main__"}
    exec("def train(x):\n    import tsnb\n    for _ in tsnb.attach():\n        pass", made)
    names: list[str] = []

    def noted(plan: Any, outlet: Any) -> Any:
        names.append(plan.name)
        return launch(plan, outlet)

    monkeypatch.setattr("tsnb.sweeps.forecast.launch", noted)
    with pytest.raises(ValueError, match=r"-x1 has no parameter epochs.*remove the deadline"):
        tsnb.sweep(made["train"], grid={"x": [1, 2, 3]}, deadline="23:59")
    assert len(names) == 1


@pytest.mark.system
def test_what_a_later_trial_of_a_planned_sweep_cannot_have_is_refused_before_the_first_is_profiled(
    numbers: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its own name, which it does not have while it is profiled."""
    train = make_train()
    with pytest.raises(NotShippable, match=r"^Trial '.*' cannot copy its parameter 'ms': it is a lock"):
        tsnb.sweep(train, grid={"ms": [1.0, threading.Lock()]}, plan=True, name="own")
    with pytest.raises(ValueError, match=r"trial 'train-batch_size0'.*batch_size=0"):
        tsnb.sweep(train, grid={"batch_size": [4, 0]}, plan=True)
    with pytest.raises(ValueError, match="device='banana' does not exist here"):
        tsnb.sweep(train, grid={"ms": [1.0]}, plan=True, device=("cpu", "banana"))
    assert "profiling" not in capsys.readouterr().out and not list(tsnb.trials)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.parametrize("epochs", ["3,10000000", "10000000"])
def test_the_command_line_plans_and_says_what_it_does_not_start(
    numbers: Any, tmp_path: Path, epochs: str
) -> None:
    """As lines of JSON every trial has one, or a program would wait for it; where none fits that is no success."""
    (tmp_path / "planned.py").write_text(SOURCE, encoding="utf-8")
    late = (datetime.now().astimezone() + timedelta(hours=1)).strftime("%Y-%m-%d %H:%M")
    line = f"sweep planned:train --stream {numbers.name} --grid epochs={epochs} --name p --plan --json --deadline"
    done = in_terminal(tmp_path, line, late)
    began, *ends = [json.loads(row) for row in done.stdout.splitlines()]
    assert list(began["trials"]) == [f"p-epochs{count}" for count in epochs.split(",")]
    states = {end["trial"]: end["state"] for end in ends}
    assert states == {name: "done" if name == "p-epochs3" else "not started" for name in began["trials"]}
    assert ends[-1]["why"].startswith("it would be done at ") and ends[-1]["metrics"] == {}
    assert done.returncode == ("p-epochs3" not in states), done.stderr
    assert "not started, because too late for" in done.stderr


@pytest.mark.slow
@pytest.mark.system
def test_a_real_failure_and_a_real_early_stop_let_the_next_start(numbers: Any) -> None:
    """With one place for all: whoever waits is started by the plan that is made anew, and gets all of its samples."""
    train = make_train()
    sweep = tsnb.sweep(
        train, grid={"fails": [True, False]}, ms=1.0, epochs=2, plan=True, at_once=1, name="f"
    ).wait(120)
    assert {name: trial.state for name, trial in sweep.items()} == {
        "f-fails-True": "failed",
        "f-fails-False": "done",
    }
    assert sweep["f-fails-False"].result() == 800
    sweep = tsnb.sweep(train, grid={"ms": [0.5, 0.6]}, epochs=10**6, plan=True, at_once=1, name="s")
    for _ in range(2):
        deadline_s = time.monotonic() + 120
        while not (running := [trial for trial in sweep.values() if trial.state == "running"]):
            assert time.monotonic() < deadline_s, sweep
            time.sleep(0.05)
        running[0].stop()
    sweep.wait(120)
    assert [trial.state for trial in sweep.values()] == ["stopped", "stopped"]
    first, second = (tuple(sweep.values())[k] for k in (0, 1))
    assert second.started_s >= first.started_s + first.duration_s


def test_a_plan_is_drawn_while_its_sweep_adds_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep's thread notes a clone just then: what was asked for has the trials that there were."""
    monkeypatch.setattr(timeline, "_newest", [])
    world = World([job("a"), job("b")])
    world.step()
    before = list(world.places.firsts)

    class Trials(dict[str, Any]):
        def get(self, name: str, default: Any = None) -> Any:
            world.places.firsts[f"clone of {name}"] = (0.0, 1.0)
            return default

    show_plan("sweep", world.places, cast("Any", SimpleNamespace(trials=Trials())))
    found = newest()
    assert found is not None and [each.name for each in found.trials] == before


def test_a_planned_sweep_tells_its_plan_and_another_sweep_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own, whichever is the newest; as bars where it is shown; as it is by the time that it is asked for."""
    monkeypatch.setattr(timeline, "_newest", [])
    world, conductor = World([job("a"), job("b", 20_000)]), cast("Any", SimpleNamespace(trials={}))
    sweep = Sweep("s", {}, conductor, foretell=show_plan("sweep 's'", world.places, conductor))
    world.places.foretell()
    show_plan("another", World([job("c")]).places, conductor)
    plan = sweep.plan
    assert (
        plan is not None and plan.title == "sweep 's'" and {each.name for each in plan.trials} == {"a", "b"}
    )
    assert all(each.ahead is not None for each in plan.trials)
    assert repr(plan) == (
        f"sweep 's'\n{plan.bars()}\nPredictions are within 10% of the time until then (80% interval): from "
        "some batches of each trial on the stream, and how fast those that run have gone since."
    )
    assert plan.to_dict()["off"] == 0.1 and plan.to_dict()["basis"].startswith("some batches of each trial")
    world.run()
    ended = sweep.plan
    assert ended is not None and [each.planned for each in ended.trials] == [
        each.planned for each in plan.trials
    ]
    assert Sweep("t", {}, conductor).plan is None


def test_a_paused_trial_has_no_end_in_its_sweeps_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows when it ends: not in this moment, however long it has been paused."""
    monkeypatch.setattr(timeline, "_newest", [])
    world = World([job("a"), job("b")])
    world.places.foretell()
    still = SimpleNamespace(state="paused", eta=NO_ETA, started_s=10.0, duration_s=20.0)
    conductor = cast("Any", SimpleNamespace(trials={"a": still}))
    plan = show_plan("sweep 's'", world.places, conductor)()
    a, b = sorted(plan.trials, key=lambda each: each.name)
    assert a.paused and a.ahead is None and a.actual is not None and not b.paused and b.ahead is not None
    assert "so far, paused" in plan.bars()


def test_what_waits_for_a_paused_trials_place_has_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would start when that one ends, which nobody knows; what another one's place is for has its time as ever."""
    monkeypatch.setattr(timeline, "_newest", [])
    world = World(
        [job(name, samples) for name, samples in zip("abcd", (2e4, 1e5, 1e5, 1e5), strict=True)], at_once=2
    )
    first = world.places.start()
    world.running |= dict.fromkeys(first, 0.0)
    found = world.places.foretell()
    early, late = sorted(found.order, key=found.starts_s.__getitem__)
    soon, longer = sorted(first, key=found.ends_s.__getitem__)
    assert found.starts_s[early] == found.ends_s[soon] < found.ends_s[longer] <= found.starts_s[late]
    runs = {
        name: SimpleNamespace(state="running", eta=NO_ETA, started_s=0.0, duration_s=1.0) for name in first
    }
    conductor = cast("Any", SimpleNamespace(trials=runs))
    look = show_plan("sweep 's'", world.places, conductor)
    assert not any(each.held for each in look().trials) and "waits for" not in look().bars()
    runs[longer].state = "paused"
    plan = look()
    by_name = {each["name"]: each for each in plan.to_dict()["trials"]}
    assert by_name[late]["held"] and by_name[late]["ahead"] is None and by_name[early]["ahead"] is not None
    assert [name for name, each in by_name.items() if each["held"]] == [late]
    assert plan.bars().count("waits for a paused trial") == 1
    runs[soon].state = "paused"
    assert {each.name for each in look().trials if each.held} == {early, late}
    runs[soon].state = runs[longer].state = "running"
    assert not any(each.held for each in look().trials)


def test_a_clone_of_a_part_has_had_what_went_by_on_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan counts the stream's samples; a trial's own are those that it was given."""
    parent = SimpleNamespace(name="tenth", samples=30)
    own = [
        SimpleNamespace(name="one", parent=parent, state="running"),
        SimpleNamespace(name="new", parent=parent, state="running"),  # it has not taken anything
        SimpleNamespace(name="over", parent=parent, state="done"),
    ]
    seen = replace(consumer("one", batches=10), samples=8, passed=80)
    monkeypatch.setattr(forecast, "trials", SimpleNamespace(own=own))
    monkeypatch.setattr(forecast, "status", lambda _stream: reading(0.0, seen))
    assert forecast._clones("s") == {"one": ("tenth", 300.0), "new": ("tenth", 30.0)}
