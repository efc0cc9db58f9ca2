"""Runs the quickstart notebook without a browser and prints what it found.

A cell of the notebook that carries the tag "report" prints the result; this program executes all cells in
order in a fresh kernel and repeats that text. It ends with an error, and the failing cell's traceback, if any
cell fails, the last one included, which checks the notebook's claims.

    python notebooks/demo.py [--save EXECUTED.ipynb]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

NOTEBOOK = Path(__file__).with_name("01_quickstart.ipynb")
CELL_TIMEOUT_S = 600


def execute(notebook: nbformat.NotebookNode) -> None:
    """Run every cell; outputs are written into `notebook`.

    Raises:
        CellExecutionError: A cell failed.
    """
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_S,
        kernel_name="python3",  # jupyter_client runs it with this very interpreter
        extra_arguments=["--log-level=ERROR"],  # it warns of its own transport otherwise
        store_widget_state=True,
        resources={"metadata": {"path": str(NOTEBOOK.parent)}},
    )
    client.on_cell_execute = announce
    client.execute(env={**os.environ, "TSNB_NOTEBOOK": str(NOTEBOOK)})


def announce(cell: nbformat.NotebookNode, cell_index: int) -> None:
    """Say which cell runs, so that two minutes do not pass in silence."""
    if cell.cell_type == "code":
        first_line = cell.source.partition("\n")[0]
        print(f"  {time.strftime('%H:%M:%S')} cell {cell_index}: {first_line}", flush=True)


def report(notebook: nbformat.NotebookNode) -> str:
    """Return what the cells tagged "report" printed."""
    tagged = [cell for cell in notebook.cells if "report" in cell.metadata.get("tags", ())]
    outputs: list[Any] = [output for cell in tagged for output in cell.get("outputs", ())]
    return "".join(output["text"] for output in outputs if output["output_type"] == "stream")


def main() -> int:
    """Run, print, and say by the exit status whether all claims held."""
    parser = argparse.ArgumentParser(description="Run the quickstart notebook without a browser.")
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep the executed notebook there")
    options = parser.parse_args()
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    print(f"Running {NOTEBOOK.name}: about two minutes on two cores", flush=True)
    start = time.perf_counter()
    try:
        execute(notebook)
    except CellExecutionError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        if options.save:
            nbformat.write(notebook, options.save)
    print(f"Every cell ran, and every claim held, in {time.perf_counter() - start:.0f} s.\n")
    print(report(notebook))
    return 0


if __name__ == "__main__":
    sys.exit(main())
