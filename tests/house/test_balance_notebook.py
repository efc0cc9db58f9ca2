"""The notebook of modes and weights, as a person would run it."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tests.house.notebooks import FOLDER, assert_it_introduces, run

NOTEBOOK = FOLDER / "04_rebalancing.ipynb"


def test_it_introduces_before_it_runs() -> None:
    """It begins with words, explains as it goes, and its last cell checks the claims."""
    assert_it_introduces(NOTEBOOK.name)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
def test_the_mode_is_changed_under_running_trials_and_the_report_shows_it(tmp_path: Path) -> None:
    """Every cell runs in a fresh kernel: three trials, the panel, free, weights, in step again, the report."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    said, data = run(notebook, tmp_path, "nbconvert")
    assert "All claims hold." in said
    assert all(f"trial {name!r} stopped" in said for name in ("small", "middle", "wide")), (
        "their output is in the file"
    )
    assert "note: 'wider' is not attached" in said
    assert any("application/vnd.jupyter.widget-view+json" in shown for shown in data)
    assert any("image/svg+xml" in shown for shown in data)
