"""The notebook of folds and of a folder that grows, as a person would run it."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tests.house.notebooks import FOLDER, assert_it_introduces, run

NOTEBOOK = FOLDER / "07_folds_and_growth.ipynb"


def test_it_introduces_before_it_runs() -> None:
    """It begins with words, explains as it goes, and its last cell checks the claims."""
    assert_it_introduces(NOTEBOOK.name)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
def test_folds_a_learning_curve_and_a_folder_that_grows_share_streams(tmp_path: Path) -> None:
    """Every cell runs in a fresh kernel: five folds, three shares of the data, a folder that grows, rounds, the end."""
    said, data = run(nbformat.read(NOTEBOOK, as_version=4), tmp_path, "nbclient")
    assert "All claims hold." in said
    assert "34,000 samples taken" in said
    assert "early: 600 digits in its first epoch, 1,200 in its last" in said
    assert "digits in each round:" in said
    assert any("5-fold cross-validation" in shown.get("text/html", "") for shown in data)
