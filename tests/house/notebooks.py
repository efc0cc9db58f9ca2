"""What the tests of the notebooks share: each is run as a person without a browser would, by a command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import torch

import tsnb

FOLDER = Path(__file__).parents[2] / "notebooks"

RUNNERS = {
    "nbconvert": ["nbconvert", "--to", "notebook", "--execute", "in.ipynb", "--output", "out.ipynb"],
    "papermill": ["papermill", "--no-progress-bar", "-p", "rate", "0.1", "in.ipynb", "out.ipynb"],
    "nbclient": ["jupyter", "execute", "in.ipynb", "--output", "out.ipynb"],
}
"""Commands that run `in.ipynb` and write `out.ipynb`; papermill puts a cell of its own in."""
LONGEST_CELL = 36
"""Lines."""
NOTHING_IS_LEFT = """
left = {entry.name for entry in tsnb.streams.list()}
assert left == {"of-another-notebook"}, left
"""
"""A check for the end of each notebook: it has stopped its own streams and no other."""


def command_of(runner: str) -> list[str]:
    """Return the command of one of `RUNNERS`, of this very environment."""
    words = RUNNERS[runner]
    return [sys.executable, "-m", *(["jupyter"] if words[0] == "nbconvert" else []), *words]


def assert_a_person_can_read_it(name: str) -> None:
    """It asks a question, explains as it goes, has short cells without checks, and ends with links to go on from."""
    cells = nbformat.read(FOLDER / name, as_version=4).cells
    words = [cell.source for cell in cells if cell.cell_type == "markdown"]
    assert cells[0].source == words[0]
    assert re.search(r"\*\*[^*]+\?\*\*", words[0]), "no question in the first cell"
    assert cells[-1].source == words[-1]
    _, _, end = words[-1].partition("## What to do next\n")
    assert end.count("](") >= 2, "no links at the end"
    assert len(words) >= 8
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    assert not [source for source in code if "assert" in source], "checks belong in the test"
    assert not [source for source in code if source.count("\n") >= LONGEST_CELL], "a cell is too long"


def check_after(notebook: nbformat.NotebookNode, text: str, check: str) -> None:
    """Put a cell of checks after the only cell of code that contains a text."""
    (index,) = [i for i, c in enumerate(notebook.cells) if c.cell_type == "code" and text in c.source]
    notebook.cells.insert(index + 1, nbformat.v4.new_code_cell(check))


def run(notebook: nbformat.NotebookNode, folder: Path, runner: str) -> tuple[str, list[dict[str, Any]]]:
    """Run every cell in order in a fresh kernel, in `folder`, while another notebook's stream is served.

    What was printed is printed once more, also where a cell fails: pytest shows it then.

    Args:
        notebook: Its cells.
        folder: Where files of it go.
        runner: One of `RUNNERS`.

    Returns:
        What stands printed in the executed file, and the data of every output in it that is shown.
    """
    nbformat.write(notebook, folder / "in.ipynb")
    began = time.monotonic()
    with tsnb.serve([torch.zeros(1)], name="of-another-notebook"):
        done = subprocess.run(
            command_of(runner),
            cwd=folder,
            env={**os.environ, "TSNB_PROJECT_DIR": str(folder)},  # what later tests are shown has none of it
            capture_output=True,
            text=True,
            check=False,
        )
    out = folder / "out.ipynb"
    cells = nbformat.read(out, as_version=4).cells if out.exists() else []
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    # what a trial prints stands in a display of its own, under its cell
    said = "".join(output.get("text", "") or _displayed(output) for output in outputs)
    print(said, f"{time.monotonic() - began:.0f} s")
    assert done.returncode == 0, done.stdout + done.stderr
    return said, [output.get("data", {}) for output in outputs]


def _displayed(output: dict[str, Any]) -> str:
    shown = output.get("data", {}) if output["output_type"] == "display_data" else {}
    return str(shown.get("text/plain", "")) + "\n"
