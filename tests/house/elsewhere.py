"""What the tests of other environments share: they install the package there, and run a notebook with its Python."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

ROOT = Path(__file__).parents[2]

SERVED = [
    """
%load_ext tsnb
import torch
from torch.utils.data import DataLoader, Dataset

class Squares(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        return torch.tensor([float(index) ** 2])

loader = DataLoader(Squares(), 8, num_workers=1)
""",
    "%tensorsocket start loader --name squares",
    """
%%trial roots --wait
seen = []
for batch in tsnb.attach():
    seen += batch[:, 0].sqrt().tolist()
    tsnb.log(root=seen[-1])
print("trial in", tsnb.__file__)
""",
]
"""Cells that serve a loader of forty squares, and run a trial that takes their roots."""


def run(*command: str | Path, **more: Any) -> None:
    """Run a command that must succeed."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def install(*command: str | Path) -> None:
    """Run a pip command. If it fails, skip the test, unless TSNB_INSTALL=required."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if done.returncode and os.environ.get("TSNB_INSTALL") != "required":
        pytest.skip(f"what tsnb depends on cannot be installed here (no network?): {done.stderr[-500:]}")
    assert done.returncode == 0, done.stderr


def run_notebook(
    python: Path,
    cells: Sequence[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    allow_errors: bool = False,
) -> nbformat.NotebookNode:
    """Run cells as a notebook whose kernel is another environment's Python, and return it with its outputs."""
    spec = folder / "kernels/elsewhere/kernel.json"
    spec.parent.mkdir(parents=True)
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=ERROR"]
    spec.write_text(json.dumps({"argv": argv, "display_name": "elsewhere", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(folder))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    notebook: nbformat.NotebookNode = new_notebook(cells=[new_code_cell(cell.strip()) for cell in cells])
    client = NotebookClient(
        notebook,
        kernel_name="elsewhere",
        allow_errors=allow_errors,
        store_widget_state=True,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    nbformat.validate(notebook)
    return notebook


def said_in(notebook: nbformat.NotebookNode) -> str:
    """Return what a notebook printed, its trials included."""
    shown = [out for cell in notebook.cells for out in cell.get("outputs", ())]
    # what a trial prints stands in a display of its own where no front end takes it
    return "".join(out.get("text", "") or out.get("data", {}).get("text/plain", "") for out in shown)


def has_panel(notebook: nbformat.NotebookNode) -> bool:
    """Return whether a panel was shown, with its bundle."""
    state = notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    return any(len(model["state"].get("_esm", "")) > 10_000 for model in state.values())
