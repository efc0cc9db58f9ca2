"""The notebook of a sweep, run as a person would, with fewer trials and epochs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tests.house.notebooks import FOLDER, NOTHING_IS_LEFT, assert_a_person_can_read_it, check_after, run

NOTEBOOK = FOLDER / "02_sweep.ipynb"

SMALLER = {
    "EPOCHS = 6": "EPOCHS = 4",
    '{"lr": [0.3, 0.1, 0.03, 0.01, 0.003, 0.001], "net": ["mlp", "cnn"]}': '{"lr": [0.1, 0.03, 0.003], "net": ["mlp"]}',
}
"""Texts of the notebook, and what the test runs in their place."""

HALVED = """
halved = sorted(sweep.results()["stopped_at"].dropna())
assert halved == [1, 2], halved
assert EPOCHS * len(dataset) < trained < without_halving
assert accuracy_on(model, test_part) > 0.9
assert best.state == "done"
"""


def test_a_person_can_read_it() -> None:
    """It asks a question, explains as it goes, has short cells, and ends with links."""
    assert_a_person_can_read_it(NOTEBOOK.name)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
def test_the_worse_half_stops_and_the_best_is_returned(tmp_path: Path) -> None:
    """Every cell runs in a fresh kernel: the sweep, its plot and table, the sweep of a cell, the end of everything.

    Each notebook has its own runner: nbclient for this one, papermill for the model that limits the others, nbconvert
    for pacing. `tests/notebook/test_batch.py` runs a small notebook with each and compares them.
    """
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    sources = "\n".join(cell.source for cell in notebook.cells)
    assert not [text for text in SMALLER if sources.count(text) != 1], (
        "the notebook has changed: adapt SMALLER"
    )
    for cell in notebook.cells:
        for text, smaller in SMALLER.items():
            cell.source = cell.source.replace(text, smaller)
    check_after(notebook, "samples prepared", HALVED)
    check_after(notebook, "%trials stop", NOTHING_IS_LEFT)
    said, data = run(notebook, tmp_path, "nbclient")
    assert "3 trials, 2 of them stopped early" in said
    assert "[wide-16] accuracy after one epoch" in said and "[wide-64] accuracy after one epoch" in said
    assert any("application/vnd.plotly.v1+json" in shown for shown in data)
    assert any("pruned at step 2" in shown.get("text/html", "") for shown in data)
