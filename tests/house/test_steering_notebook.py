"""The notebook of steering, as a person would run it."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tests.house.notebooks import FOLDER, assert_it_introduces, run

NOTEBOOK = FOLDER / "05_steering.ipynb"


def test_it_introduces_before_it_runs() -> None:
    """It begins with words, explains as it goes, and its last cell checks the claims."""
    assert_it_introduces(NOTEBOOK.name)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
def test_a_race_is_decided_a_trial_is_cloned_and_a_finished_one_goes_on(tmp_path: Path) -> None:
    """Every cell runs in a fresh kernel."""
    said, data = run(nbformat.read(NOTEBOOK, as_version=4), tmp_path, "nbclient")
    assert "All claims hold." in said
    assert "hotter is a clone of 'learn-lr0.1'" in said
    assert any("is ahead of" in shown.get("text/html", "") for shown in data)
