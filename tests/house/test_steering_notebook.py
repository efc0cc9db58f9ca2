"""The notebook about changing trials while they train, run as a person would."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tests.house.notebooks import FOLDER, NOTHING_IS_LEFT, assert_a_person_can_read_it, check_after, run

NOTEBOOK = FOLDER / "05_steering.ipynb"

STEERED = """
assert sorted(rates.stopped_early) == ["learn-lr0.001", "learn-lr0.01"]
assert twin.parent.name == leader.name == "learn-lr0.1"
assert [(change.name, change.value) for change in leader.changes] == [("lr", 0.05)]
assert leader.report["epochs"] == EPOCHS + 2
assert len(leader.metrics.by_step("loss")) == 80 * (EPOCHS + 2)
assert len(twin.metrics.by_step("loss")) <= 80 * EPOCHS
assert leader.metrics["accuracy"] > 0.85
"""


def test_a_person_can_read_it() -> None:
    """It asks a question, explains as it goes, has short cells, and ends with links."""
    assert_a_person_can_read_it(NOTEBOOK.name)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
def test_a_race_is_decided_a_trial_is_cloned_and_a_finished_one_continues(tmp_path: Path) -> None:
    """Every cell runs in a fresh kernel."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    check_after(notebook, "leader.extend", STEERED)
    check_after(notebook, "%trials stop", NOTHING_IS_LEFT)
    said, data = run(notebook, tmp_path, "nbclient")
    assert "hotter is a clone of 'learn-lr0.1'" in said
    assert any("pruned at step" in shown.get("text/html", "") for shown in data)
