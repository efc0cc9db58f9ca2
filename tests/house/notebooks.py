"""What the tests of the notebooks share."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"


def assert_it_introduces(name: str) -> None:
    """It begins with words, explains as it goes, and its last cell checks the claims."""
    notebook = nbformat.read(FOLDER / name, as_version=4)
    assert notebook.cells[0].cell_type == "markdown"
    assert notebook.cells[-1].cell_type == "code"
    assert "assert" in notebook.cells[-1].source
    assert sum(cell.cell_type == "markdown" for cell in notebook.cells) >= 8


def run(notebook: nbformat.NotebookNode, folder: Path) -> tuple[str, list[dict[str, Any]]]:
    """Run every cell in order in a fresh kernel, in `folder`.

    What was printed is printed once more, also where a cell fails: pytest shows it then.

    Returns:
        What was printed, and the data of every output that is shown.
    """
    file = folder / "run.ipynb"
    nbformat.write(notebook, file)
    client = NotebookClient(
        notebook,
        timeout=240,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(folder)}},
    )
    began = time.monotonic()
    try:
        client.execute(env={**os.environ, "TSNB_NOTEBOOK": str(file)})
    finally:
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
        # what a trial prints stands in a display of its own, under its cell
        said = "".join(output.get("text", "") or _displayed(output) for output in outputs)
        print(said, f"{time.monotonic() - began:.0f} s")
    return said, [output.get("data", {}) for output in outputs]


def _displayed(output: dict[str, Any]) -> str:
    shown = output.get("data", {}) if output["output_type"] == "display_data" else {}
    return str(shown.get("text/plain", "")) + "\n"
