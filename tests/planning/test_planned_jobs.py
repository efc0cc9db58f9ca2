"""How far off a plan may be."""

from __future__ import annotations

import math

import pytest

from tsnb.planners.fluid import Job
from tsnb.planning.planned_jobs import LEAST_OFF, makespan_off


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
