"""What a planned sweep takes its trials to cost, from what was seen of them: no process, no stream."""

from __future__ import annotations

from dataclasses import replace

from tsnb.planners.fluid import LoaderCost
from tsnb.planners.thread_counts import soonest
from tsnb.planning.served import _jobs
from tsnb.planning.trial_costs import Cost

ONE, TWO = Cost(0.004, 0.004, 1.0, 3.0, 20, 0.1, 2.0), Cost(0.002, 0.004, 1.0, 1.0, 20, 0.1, 1.0)
TYPICAL = Cost(0.003, 0.003, 2.0, 2.0, 1, 1.0, 1.5)


def test_trials_are_told_with_each_number_of_threads() -> None:
    """All start alike, whatever their number: what a start took is no reason for more threads."""
    jobs, unsure = _jobs(
        {"a": 100.0, "b": 200.0}, {1: {"a": ONE, "b": ONE}, 2: {"a": TWO, "b": TWO}}, {}, TYPICAL
    )
    assert not unsure and list(jobs) == [1, 2]
    assert [(each.name, each.samples, each.step_s) for each in jobs[2]] == [
        ("a", 100.0, 0.002),
        ("b", 200.0, 0.002),
    ]
    assert {(each.start_s, each.start_cpu_s) for mine in jobs.values() for each in mine} == {(2.0, 1.5)}


def test_what_a_trial_takes_of_a_gpu_is_in_the_plan() -> None:
    """Its device, its memory there, and what that has for all: else those that do not fit it are started together."""
    on = replace(ONE, device="cuda:0", device_bytes=6e9)
    jobs, _ = _jobs({"a": 1e5, "b": 1e5}, {1: {"a": on, "b": on}}, {}, TYPICAL, {"cuda:0": 1e10})
    assert {(each.device, each.device_bytes, each.device_room_bytes) for each in jobs[1]} == {
        ("cuda:0", 6e9, 1e10)
    }
    assert {(each.start_s, each.start_cpu_s) for each in jobs[1]} == {(2.0, 1.5)}
    assert soonest(jobs, LoaderCost(1e-4, 1e-4, 0.0), 8).listed.schedule.makespan_s > 1e5 * 0.004 * 1.9


def test_one_that_lacks_a_number_has_the_fewest() -> None:
    """It is the same with both, so that nothing is gained; one that was never seen costs what the others do."""
    costs = {1: {"a": ONE, "b": ONE}, 2: {"a": TWO}}
    whys = {
        1: {"c": "it failed while it was profiled"},
        2: {"b": "it was too slow", "c": "it failed with fewer"},
    }
    jobs, unsure = _jobs(dict.fromkeys("abc", 1e5), costs, whys, TYPICAL)
    assert unsure == {
        "b": "b has 1 torch thread: with 2, it was too slow",
        "c": "c is taken to cost what the others do: it failed while it was profiled",
    }
    assert jobs[1][1:] == jobs[2][1:] and jobs[1][2].step_s == TYPICAL.step_s
    found = soonest(jobs, LoaderCost(1e-4, 1e-4, 0.0), 8)
    assert found.threads["b"] == found.threads["c"] == 1
