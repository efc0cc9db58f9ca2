"""What a planned sweep takes its trials to cost, from what was seen of them: no process, no stream."""

from __future__ import annotations

from dataclasses import replace

from tests.planners.test_strategies import threads_of
from tsnb.planners.fluid import LoaderCost, Resources
from tsnb.planners.strategies import Strategy, soonest
from tsnb.planning.served import _jobs
from tsnb.planning.trial_costs import Cost

ONE, TWO = Cost(0.004, 0.004, 1.0, 3.0, 20, 0.1, 2.0), Cost(0.002, 0.004, 1.0, 1.0, 20, 0.1, 1.0)
TYPICAL = Cost(0.003, 0.003, 2.0, 2.0, 1, 1.0, 1.5)
RESOURCES = Resources(LoaderCost(1e-4, 1e-4, 0.0), 8)


NUMBERS = ONE_THREAD, TWO_THREADS = Strategy(1, (("threads", 1),)), Strategy(2, (("threads", 2),))


def test_trials_are_told_with_each_number_of_threads() -> None:
    """All start alike, whatever their number: what a start took is no reason for more threads."""
    costs = {ONE_THREAD: {"a": ONE, "b": ONE}, TWO_THREADS: {"a": TWO, "b": TWO}}
    jobs, unsure = _jobs({"a": 100.0, "b": 200.0}, costs, {}, TYPICAL)
    assert not unsure and all(tuple(each) == NUMBERS for each in jobs.values())
    two = [each[TWO_THREADS] for each in jobs.values()]
    assert [(each.name, each.samples, each.step_s) for each in two] == [
        ("a", 100.0, 0.002),
        ("b", 200.0, 0.002),
    ]
    assert {(each.start_s, each.start_cpu_s) for mine in jobs.values() for each in mine.values()} == {
        (2.0, 1.5)
    }


def test_what_a_trial_takes_of_a_gpu_is_in_the_plan() -> None:
    """Its device, its memory there, and what that has for all: else those that do not fit it are started together."""
    on = replace(ONE, device="cuda:0", device_bytes=6e9)
    jobs, _ = _jobs({"a": 1e5, "b": 1e5}, {ONE_THREAD: {"a": on, "b": on}}, {}, TYPICAL, {"cuda:0": 1e10})
    mine = [each[ONE_THREAD] for each in jobs.values()]
    assert {(each.device, each.device_bytes, each.device_room_bytes) for each in mine} == {
        ("cuda:0", 6e9, 1e10)
    }
    assert {(each.start_s, each.start_cpu_s) for each in mine} == {(2.0, 1.5)}
    assert soonest(jobs, RESOURCES).schedule.makespan_s > 1e5 * 0.004 * 1.9


def test_one_that_lacks_a_strategy_is_not_run_with_it() -> None:
    """It has another that was seen, the preferred one or not; one that was never seen costs what the others do."""
    costs = {ONE_THREAD: {"a": ONE, "b": ONE}, TWO_THREADS: {"a": TWO, "d": TWO}}
    whys = {
        ONE_THREAD: {"c": "it failed while it was profiled", "d": "its process died while it was measured"},
        TWO_THREADS: {"b": "it was too slow", "c": "it failed with fewer threads"},
    }
    jobs, unsure = _jobs(dict.fromkeys("abcd", 1e5), costs, whys, TYPICAL)
    assert unsure == {
        "b": "b is not run with 2 torch threads: it was too slow",
        "c": "c is assumed to cost the same as the other trials: it failed while it was profiled",
        "d": "d is not run with 1 torch thread: its process died while it was measured",
    }
    assert {name: tuple(each) for name, each in jobs.items()} == {
        "a": NUMBERS,
        "b": (ONE_THREAD,),
        "c": (ONE_THREAD,),
        "d": (TWO_THREADS,),
    }
    assert jobs["c"][ONE_THREAD].step_s == TYPICAL.step_s
    found = soonest(jobs, RESOURCES)
    assert {name: threads_of(found)[name] for name in "bcd"} == {"b": 1, "c": 1, "d": 2}
