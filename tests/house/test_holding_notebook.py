"""The notebook of who holds whom, as a person would run it."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tests.house.notebooks import FOLDER, assert_it_introduces, run

NOTEBOOK = FOLDER / "03_who_holds_whom.ipynb"


def test_it_introduces_before_it_runs() -> None:
    """It begins with words, explains as it goes, and its last cell checks the claims."""
    assert_it_introduces(NOTEBOOK.name)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
def test_the_slowest_is_named_and_its_leaving_is_seen(tmp_path: Path) -> None:
    """Every cell runs in a fresh kernel: what is foretold, the three trials, the panel, two of them leaving."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    said, data = run(notebook, tmp_path, "papermill")
    assert "All claims hold." in said
    assert all(f"trial {name!r} stopped" in said for name in ("mlp", "small-cnn", "wide-cnn")), (
        "their output is in the file"
    )
    assert "wide-cnn sets the pace" in said
    assert any("application/vnd.jupyter.widget-view+json" in shown for shown in data)
    told = [shown["text/html"] for shown in data if "loader alone, shared" in shown.get("text/html", "")]
    assert len(told) == 2
