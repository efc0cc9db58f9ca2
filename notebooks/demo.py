"""Run the quickstart notebook without a browser, and print its result.

The program executes all cells in order in a fresh kernel. Then it prints the output of the cell that has the
tag "report". If a cell fails, it prints the traceback and exits with status 1.

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
    """Run every cell and write the outputs into `notebook`.

    Raises:
        CellExecutionError: If a cell fails.
    """
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_S,
        kernel_name="python3",  # jupyter_client runs it with this interpreter
        extra_arguments=["--log-level=ERROR"],  # hides warnings about the transport
        store_widget_state=True,
        resources={"metadata": {"path": str(NOTEBOOK.parent)}},
    )
    client.on_cell_execute = announce
    client.execute(env={**os.environ, "TSNB_NOTEBOOK": str(NOTEBOOK)})


def announce(cell: nbformat.NotebookNode, cell_index: int) -> None:
    """Print which cell runs, so that two minutes do not pass in silence."""
    if cell.cell_type == "code":
        first_line = cell.source.partition("\n")[0]
        print(f"  {time.strftime('%H:%M:%S')} cell {cell_index}: {first_line}", flush=True)


def report(notebook: nbformat.NotebookNode) -> str:
    """Return the printed output of all cells with the tag "report"."""
    tagged = [cell for cell in notebook.cells if "report" in cell.metadata.get("tags", ())]
    outputs: list[Any] = [output for cell in tagged for output in cell.get("outputs", ())]
    return "".join(output["text"] for output in outputs if output["output_type"] == "stream")


def main() -> int:
    """Run the notebook, print its report, and return the exit status."""
    parser = argparse.ArgumentParser(description="Run the quickstart notebook without a browser.")
    parser.add_argument("--save", type=Path, metavar="FILE", help="where to save the executed notebook")
    options = parser.parse_args()
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    print(f"Running {NOTEBOOK.name}. This takes about two minutes on two cores.", flush=True)
    start = time.perf_counter()
    try:
        execute(notebook)
    except CellExecutionError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        if options.save:
            nbformat.write(notebook, options.save)
    print(f"All cells ran in {time.perf_counter() - start:.0f} s.\n")
    print(report(notebook))
    return 0


if __name__ == "__main__":
    sys.exit(main())
