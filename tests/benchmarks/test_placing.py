"""benchmarks.placing: the best order that memory allows, and one way is really run."""

from __future__ import annotations

import pytest

from benchmarks.placing import Ran, best_feasible_s, measured, table


def test_the_best_of_all_orders_is_found() -> None:
    """Three trials that do not fit together: the long one beside the two short ones, whatever order they came in."""
    seconds = {"short": 2.0, "shorter": 1.0, "long": 3.0}
    sizes = {"short": 2.0, "shorter": 2.0, "long": 2.0}
    assert best_feasible_s(seconds, sizes, 4.0) == 3.0
    assert best_feasible_s(seconds, sizes, 3.0) == 6.0
    assert best_feasible_s(seconds, sizes, 6.0) == 3.0
    assert best_feasible_s(seconds, {**sizes, "long": 4.0}, 4.0) == 5.0


def test_a_way_that_lost_trials_has_no_makespan_to_compare() -> None:
    """It is done soon because it did less."""
    said = table([Ran("at_once=8", 4, 4, 4, 9.0), Ran("plan", 8, 0, 0, 22.0, 30.0, queued=5)], 20.0)
    _, lost, placed = said.splitlines()
    assert "x" not in lost.replace("at_once=8", "") and "1.10x" in placed


@pytest.mark.slow
@pytest.mark.system
def test_a_way_runs_in_a_group_of_its_own() -> None:
    """Small trials, and memory for all of them; tests/planning has a limit that loses some."""
    ran = measured("at_once=8", 4 << 30, quick=True)
    if ran is None:
        pytest.skip("no control group can be made here")
    assert (ran.way, ran.done, ran.lost) == ("at_once=8", 8, 0)
