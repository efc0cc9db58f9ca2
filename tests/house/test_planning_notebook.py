"""The notebook about planning, run as a person would."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tests.house.notebooks import FOLDER, NOTHING_IS_LEFT, assert_a_person_can_read_it, check_after, run

NOTEBOOK = FOLDER / "06_planning.ipynb"

PLANNED = """
assert [trial.state for trial in done.values()] == ["done"] * 3
assert set(plan.actual) == set(trials)
assert all(start < end for start, end in plan.actual.values())
"""
PLACED = """
assert {row.where for row in tight.trials} == {"now", "queued"}, tight
"""
IN_TIME = """
assert sorted(sweep) == ["train-width256-epochs20", "train-width32-epochs20"]
assert sorted(sweep.not_started) == ["train-width256-epochs5000", "train-width32-epochs5000"]
assert all(trial.state == "done" for trial in sweep.values())
"""
THE_STREAM_OF_THE_PLAN_ENDED = """
import os
assert not [entry for entry in tsnb.streams.list() if entry.pid == os.getpid()]
"""


def test_a_person_can_read_it() -> None:
    """It asks a question, explains as it goes, has short cells, and ends with links."""
    assert_a_person_can_read_it(NOTEBOOK.name)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
def test_predictions_are_shown_next_to_what_happened(tmp_path: Path) -> None:
    """Every cell runs in a fresh kernel."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    check_after(notebook, "plan.run()", PLANNED)
    check_after(notebook, "tight = tsnb.plan(", PLACED)
    check_after(notebook, "sweep.wait()", IN_TIME)
    check_after(notebook, "%trials stop", NOTHING_IS_LEFT + THE_STREAM_OF_THE_PLAN_ENDED)
    said, data = run(notebook, tmp_path, "nbclient")
    assert "predicted: " in said and "actual: " in said and "samples/s" in said
    assert any("all done after" in shown.get("text/html", "") for shown in data), "the plan is a table"
