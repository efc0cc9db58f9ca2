"""Which way is chosen, and why, from made-up costs: no process, no clock."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tsnb.planners.fluid import Job, LoaderCost, Resources
from tsnb.planners.strategies import Jobs, Strategy, by_trial
from tsnb.planning.places import placed
from tsnb.planning.result import Plan
from tsnb.planning.trial_costs import Cost
from tsnb.planning.ways import (
    APART,
    IN_TURN,
    LEAST_OFF,
    LISTED,
    STAGGERED,
    TOGETHER,
    chosen,
    foretold,
    makespan_off,
    same_as,
    why,
)
from tsnb.planning.wishes import wanted
from tsnb.text.words import duration


def threaded(jobs: Mapping[int, Sequence[Job]]) -> Jobs:
    """Return trials as they are with so many threads."""
    return by_trial({Strategy(number): each for number, each in jobs.items()})


PLAIN, SERVED = LoaderCost(0.002, 0.002, 0.0002), LoaderCost(0.001, 0.001, 0.0001)


def job(name: str, ms: float, samples: float = 10_000, memory: float = 1.0) -> Job:
    return Job(name, samples, ms / 1000, ms / 1000, memory)


def test_equal_trials_go_on_one_stream() -> None:
    """One loader runs only once; the simplest of equally good ways is taken."""
    jobs = [job("a", 0.3), job("b", 0.3), job("c", 0.3)]
    ways = foretold(threaded({1: jobs}), PLAIN, Resources(SERVED, 2), 0.1)
    found = chosen(ways)
    assert found.way == TOGETHER and [way.way for way in ways] == [
        IN_TURN,
        APART,
        STAGGERED,
        TOGETHER,
        LISTED,
    ]
    low, high = found.interval_s
    assert low == pytest.approx(0.9 * found.makespan_s) and high == pytest.approx(1.1 * found.makespan_s)
    said = why(ways, found, "cores")
    assert "all at once on one stream" in said and "cores are the limit" in said and "runs only once" in said
    assert "b is the slowest" in why(ways, found, "b")


def test_what_does_not_fit_is_not_chosen_and_that_is_said() -> None:
    """Memory for two of three: a list, two at once."""
    jobs = [job("a", 0.3), job("b", 0.3), job("c", 0.3)]
    ways = foretold(threaded({1: jobs}), PLAIN, Resources(SERVED, 2, 2.0), 0.1)
    found = chosen(ways)
    assert found.way == LISTED and "not enough memory" in why(ways, found, "cores")
    for now_s in found.schedule.starts_s.values():
        here = [n for n in "abc" if found.schedule.starts_s[n] <= now_s < found.schedule.ends_s[n]]
        assert len(here) <= 2


def test_a_slow_trial_that_would_hold_the_others_up_is_kept_apart() -> None:
    """With cores to spare and a cheap loader, a loader each or a list beats one stream; the best way is taken."""
    cheap = LoaderCost(0.0001, 0.0001, 0.0)
    jobs = [job("fast", 0.2, 50_000), job("slow", 5.0, 1_000)]
    ways = foretold(threaded({1: jobs}), cheap, Resources(cheap, 16), 0.05)
    found = chosen(ways)
    assert found.makespan_s <= 1.03 * min(way.makespan_s for way in ways)
    together = next(way for way in ways if way.way == TOGETHER)
    assert found.makespan_s < together.makespan_s


def test_a_trial_has_more_threads_where_that_ends_all_of_them_sooner() -> None:
    """Cores to spare: the slow one gets two; in turn each that gains by them; where nothing gains, all have one."""
    feed = LoaderCost(0.0001, 0.0001, 0.0)
    one = [job("fast", 0.2), job("slow", 2.0)]
    two = [Job("fast", 10_000, 0.2e-3, 0.3e-3, 1.0), Job("slow", 10_000, 1.1e-3, 2.2e-3, 1.0)]
    found = {way.way: way for way in foretold(threaded({1: one, 2: two}), feed, Resources(feed, 16), 0.05)}
    for what in (TOGETHER, IN_TURN, LISTED, APART):
        assert found[what].threads == {"fast": 1, "slow": 2}
    quicker = [Job("fast", 10_000, 0.199e-3, 0.199e-3, 1.0), two[1]]  # by what a measurement is off
    for way in foretold(threaded({1: one, 2: quicker}), feed, Resources(feed, 2), 0.05):
        assert way.threads["fast"] == 1, way.way
    few = {way.way: way for way in foretold(threaded({1: one}), feed, Resources(feed, 16), 0.05)}
    assert found[TOGETHER].makespan_s < 0.6 * few[TOGETHER].makespan_s
    said = why(list(found.values()), found[TOGETHER], "cores")
    assert "all at once on one stream (1 thread, slow 2)" in said
    crowded = {way.way: way for way in foretold(threaded({1: one, 2: two}), feed, Resources(feed, 1), 0.05)}
    assert all(set(way.threads.values()) == {1} for way in crowded.values())


def test_what_is_to_be_planned_is_read_in_every_form() -> None:
    """Functions, pairs, mappings; names from parameters; epochs from them or from outside."""

    def train(lr: float = 0.1, epochs: int = 1) -> None: ...

    found = wanted([train, (train, {"lr": 0.5, "epochs": 3})], None)
    assert [each.name for each in found] == ["train", "train-lr0.5-epochs3"]
    assert [each.epochs for each in found] == [1.0, 3.0]
    assert wanted({"x": train}, 2.5)[0].epochs == 2.5
    assert wanted(train, None)[0].fn is train
    with pytest.raises(ValueError, match="at least one trial"):
        wanted([], None)
    with pytest.raises(ValueError, match=r"two trials .*train"):
        wanted([train, train], None)
    with pytest.raises(TypeError, match=r"functions like tsnb.run"):
        wanted(["train"], None)
    with pytest.raises(ValueError, match="number of epochs"):
        wanted(train, 0)


@pytest.mark.parametrize(
    ("seconds", "text"), [(48.2, "48.2 s"), (720, "12 min"), (11_100, "3 h 05 min"), (math.inf, "for ever")]
)
def test_times_are_read_at_a_glance(seconds: float, text: str) -> None:
    """Seconds, minutes, hours."""
    assert duration(seconds) == text


def test_a_way_that_takes_as_long_as_the_chosen_one_is_no_comparison() -> None:
    """All at once is the best list here: the words compare it with the others."""
    one = LoaderCost(0.001, 0.001, 0.0)
    ways = foretold(threaded({1: (job("a", 0.1), job("b", 0.1))}), one, Resources(one, 2.0), 0.1)
    found = chosen(ways)
    listed = next(way for way in ways if way.way == LISTED)
    assert found.way == TOGETHER and duration(listed.makespan_s) == duration(found.makespan_s)
    assert LISTED not in why(ways, found, "loader") and IN_TURN in why(ways, found, "loader")


def test_two_ways_that_are_one_schedule_are_not_shown_as_a_choice() -> None:
    """A list of trials that all fit is all at once; one that waits, or one loader more, makes another schedule."""

    def twins(jobs: list[Job], memory: float) -> dict[str, str]:
        ways = foretold(threaded({1: jobs}), PLAIN, Resources(SERVED, 2, memory), 0.1)
        return {way.way: same_as(way, ways) for way in ways}

    equal = [job("a", 0.3), job("b", 0.3), job("c", 0.3)]
    assert twins(equal, math.inf)[LISTED] == TOGETHER
    assert not any(twins(equal, math.inf)[way] for way in (IN_TURN, APART, TOGETHER))
    assert not any(twins(equal, 2.0)[way] for way in (IN_TURN, APART, TOGETHER, LISTED))
    assert twins([job("a", 0.3)], math.inf) == {IN_TURN: "", APART: IN_TURN, TOGETHER: "", LISTED: TOGETHER}


def plan_of(jobs: list[Job], off: float) -> Plan:
    """Return a plan of trials that was measured as far off as that."""
    ways = foretold(threaded({1: jobs}), PLAIN, Resources(SERVED, 2), off)
    costs = {each.name: Cost(0.3e-3, 0.3e-3, 1.0, 0.0, 20, 0.1) for each in jobs}
    return Plan(
        tuple(ways),
        chosen(ways),
        costs,
        cast("Any", SimpleNamespace(cores=2, others=None)),
        "",
        placed(chosen(ways), {each.name: each for each in jobs}, math.inf),
        cores=2,
        soonest_s=1.0,
    )


def test_no_trial_ends_before_it_begins_however_unsure_its_end_is() -> None:
    """A trial that was measured badly ends after something: in the table, and as a field for programs."""
    plan = plan_of([job("a", 0.3)], 1.3)
    end_s = plan.choice.schedule.ends_s["a"]
    low_s, high_s = plan.to_dict()["trials"][0]["ends_interval_s"]
    assert (low_s, high_s) == pytest.approx((0.1 * end_s, 2.3 * end_s)) == plan.choice.interval_s
    assert plan.profiles[1][-1] == f"{duration(low_s)} to {duration(high_s)}"


def test_a_plan_says_which_ways_are_the_same() -> None:
    """In its table, and as a field for programs; offsets that gain nothing have words of their own."""
    plan = plan_of([job("a", 0.3), job("b", 0.3)], 0.1)
    marks = {row[0]: row[-1] for row in plan.table[1:]}
    assert marks[LISTED] == f"the same as {TOGETHER}" and marks[TOGETHER] == "chosen"
    assert marks[STAGGERED] == "no faster at any offset"
    told = {way["way"]: way["same_as"] for way in plan.to_dict()["ways"]}
    assert told == {IN_TURN: None, APART: None, STAGGERED: APART, TOGETHER: None, LISTED: TOGETHER}


def test_a_short_trial_that_was_seen_badly_hardly_widens_the_interval() -> None:
    """A tenth of the time that is 60 % off is 6 % of the whole; it had made every interval 60 %."""
    jobs = [Job("short", 100, 0.01, 0.01), Job("long", 900, 0.01, 0.01)]
    off = makespan_off(jobs, {"short": 0.6, "long": 0.0}, 0.0)
    assert off == pytest.approx(math.hypot(LEAST_OFF, 0.06))
    assert makespan_off(jobs, {"short": 0.0, "long": 0.6}, 0.0) == pytest.approx(math.hypot(LEAST_OFF, 0.54))


def test_errors_of_many_trials_cancel() -> None:
    """Sixteen equal trials, each 20 % off by itself, are 5 % off together."""
    jobs = [Job(str(number), 100, 0.01, 0.01) for number in range(16)]
    off = makespan_off(jobs, {job.name: 0.2 for job in jobs}, 0.0)
    assert off == pytest.approx(math.hypot(LEAST_OFF, 0.05))


def test_what_was_seen_of_all_together_and_of_the_loader_counts_whole() -> None:
    """Neither is an error of one trial."""
    jobs = [Job("a", 100, 0.01, 0.01)]
    assert makespan_off(jobs, {"a": 0.1}, 0.0, 0.3) == pytest.approx(math.hypot(LEAST_OFF, 0.3))
    assert makespan_off(jobs, {"a": 0.1}, 0.2) == pytest.approx(math.hypot(LEAST_OFF, 0.2, 0.1))
    assert makespan_off(jobs, {}, 0.0) == pytest.approx(LEAST_OFF)


def test_a_frozen_part_that_is_the_limit_is_named() -> None:
    """In place of the loader that computes it."""
    one = LoaderCost(0.01, 0.01, 0.0)
    ways = foretold(threaded({1: (job("a", 0.1), job("b", 0.1))}), one, Resources(one, 2.0), 0.1)
    together = next(way for way in ways if way.way == TOGETHER)
    said = why(ways, together, "loader", frozen="Net takes 80% of the loader's time")
    assert "The frozen part is the limit: Net takes 80% of the loader's time." in said
    assert "a faster loader" not in said
