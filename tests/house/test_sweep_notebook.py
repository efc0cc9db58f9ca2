"""The notebook of a sweep, as a person would run it, with fewer trials and epochs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tests.house.notebooks import FOLDER, assert_it_introduces, run

NOTEBOOK = FOLDER / "02_sweep.ipynb"

SMALLER = {
    "EPOCHS = 6": "EPOCHS = 4",
    '{"lr": [0.3, 0.1, 0.03, 0.01, 0.003, 0.001], "net": ["mlp", "cnn"]}': '{"lr": [0.1, 0.03, 0.003], "net": ["mlp"]}',
    "[1] * 6 + [2] * 3 + [4]": "[1, 2]",
    "2 * prepared < trained < 0.6 * to_the_end": "prepared < trained < to_the_end",
}
"""What stands in the notebook, and what the test runs instead."""


def test_it_introduces_before_it_runs() -> None:
    """It begins with words, explains as it goes, and its last cell checks the claims."""
    assert_it_introduces(NOTEBOOK.name)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
def test_the_sweep_runs_and_its_claims_hold(tmp_path: Path) -> None:
    """Every cell runs in a fresh kernel: the sweep, its plot and table, the grid of a cell, the end of everything.

    Each notebook runs by one runner: this one and the quickstart by nbclient, who holds whom by papermill, rebalancing
    by nbconvert. What the runners do differently is in `tests/notebook/test_batch.py`, where each runs a small one.
    """
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    sources = "\n".join(cell.source for cell in notebook.cells)
    assert not [text for text in SMALLER if sources.count(text) != 1], (
        "the notebook has changed: adapt SMALLER"
    )
    for cell in notebook.cells:
        for text, smaller in SMALLER.items():
            cell.source = cell.source.replace(text, smaller)
    said, data = run(notebook, tmp_path, "nbclient")
    assert "All claims hold." in said
    assert "3 trials, 2 of them stopped early" in said
    assert "[wide-16] after one epoch" in said and "[wide-64] after one epoch" in said
    assert any("application/vnd.plotly.v1+json" in shown for shown in data)
    assert any("pruned at step 2" in shown.get("text/html", "") for shown in data)
