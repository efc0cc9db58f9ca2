"""The notebook about cross-validation and learning curves, run as a person would."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tests.house.notebooks import FOLDER, NOTHING_IS_LEFT, assert_a_person_can_read_it, check_after, run

NOTEBOOK = FOLDER / "07_cross_validation.ipynb"

FIVE_FOLDS = """
assert accuracy.trials == 5
assert accuracy.mean > 0.6
assert used == 5 * EPOCHS * 1600 + 2000
assert passes * len(digits) < 0.6 * used  # usually 10,000 of 34,000
"""
CURVE = """
learned = [trial.metrics["accuracy"] for trial in shares.values()]
assert learned[0] < learned[2]
assert [trial.metrics["trained_on"] for trial in shares.values()] == [EPOCHS * n for n in (200, 600, 2000)]
"""


def test_a_person_can_read_it() -> None:
    """It asks a question, explains as it goes, has short cells, and ends with links."""
    assert_a_person_can_read_it(NOTEBOOK.name)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
def test_folds_and_a_learning_curve_share_a_stream(tmp_path: Path) -> None:
    """Every cell runs in a fresh kernel: five folds, then three shares of the data."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    check_after(notebook, "samples prepared", FIVE_FOLDS)
    check_after(notebook, "shares.results()", CURVE)
    check_after(notebook, "%trials stop", NOTHING_IS_LEFT)
    said, data = run(notebook, tmp_path, "nbclient")
    assert "34,000 samples used" in said
    assert any("5-fold cross-validation" in shown.get("text/html", "") for shown in data)
