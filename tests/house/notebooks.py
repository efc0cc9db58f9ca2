"""What the tests of the notebooks share."""

from __future__ import annotations

from pathlib import Path

import nbformat

FOLDER = Path(__file__).parents[2] / "notebooks"


def assert_it_introduces(name: str) -> None:
    """It begins with words, explains as it goes, and its last cell checks the claims."""
    notebook = nbformat.read(FOLDER / name, as_version=4)
    assert notebook.cells[0].cell_type == "markdown"
    assert notebook.cells[-1].cell_type == "code"
    assert "assert" in notebook.cells[-1].source
    assert sum(cell.cell_type == "markdown" for cell in notebook.cells) >= 8
