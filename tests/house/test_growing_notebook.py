"""The notebook about a folder that grows, run as a person would."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tests.house.notebooks import FOLDER, NOTHING_IS_LEFT, assert_a_person_can_read_it, check_after, run

NOTEBOOK = FOLDER / "08_growing_data.ipynb"

GROWN = """
early_seen, late_seen = (list(trial.metrics.by_step("seen").values()) for trial in (early, late))
assert early_seen[0] == 600
assert late_seen[0] >= 900
for seen, trial in ((early_seen, early), (late_seen, late)):
    assert seen == sorted(seen)
    assert seen[-1] == 1200
    assert list(trial.metrics.by_step("different").values()) == seen  # no digit twice in an epoch
first = next(iter(early.metrics.by_step("accuracy").values()))
assert first < 0.6 < early.metrics["accuracy"]  # it saw half of the classes, then all of them
"""
ROUNDS = """
assert sizes[0] == 1200
assert sum(sizes[1:]) == 300 == follower.metrics["new"]
assert not incoming.exists()
"""


def test_a_person_can_read_it() -> None:
    """It asks a question, explains as it goes, has short cells, and ends with links."""
    assert_a_person_can_read_it(NOTEBOOK.name)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
def test_trials_train_on_a_folder_that_grows(tmp_path: Path) -> None:
    """Every cell runs in a fresh kernel: files arrive, a second trial joins, and a third trains in rounds."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    check_after(notebook, "in the last", GROWN)
    check_after(notebook, "%trials stop", ROUNDS + NOTHING_IS_LEFT)
    said, _data = run(notebook, tmp_path, "nbclient")
    assert "early: 600 digits in the first epoch, 1,200 in the last" in said
    assert "digits in each round:" in said
