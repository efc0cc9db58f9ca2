"""The notebook of what is known before a run, as a person would run it."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tests.house.notebooks import FOLDER, assert_it_introduces, run

NOTEBOOK = FOLDER / "06_before_you_run.ipynb"


def test_it_introduces_before_it_runs() -> None:
    """It begins with words, explains as it goes, and its last cell checks the claims."""
    assert_it_introduces(NOTEBOOK.name)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
def test_what_was_foretold_is_told_beside_what_happened(tmp_path: Path) -> None:
    """Every cell runs in a fresh kernel, and no file of it stays."""
    said, data = run(nbformat.read(NOTEBOOK, as_version=4), tmp_path, "nbclient")
    assert "All claims hold." in said
    assert "in fact:" in said and "samples/s" in said
    assert any("all done after" in shown.get("text/html", "") for shown in data), "the plan is a table"
    assert not list(tmp_path.glob("digits-*"))
