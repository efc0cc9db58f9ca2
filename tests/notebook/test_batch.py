"""Without a front end trials are waited for, their output is in the file, and a failed one fails the run."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert.exporters import HTMLExporter
from nbformat.v4 import new_code_cell, new_notebook

from tests.house.notebooks import RUNNERS, command_of
from tsnb.notebook import batch

FIRST = "%load_ext tsnb\nfrom IPython.display import HTML, display\nimport time"
LONG = "%%trial long\ntime.sleep(1)\ndisplay(HTML('<b>bold</b>'))\nprint('the long one is at its end')"
BROKEN = "%%trial broken\ntime.sleep(1)\nraise ValueError('broken on purpose')"
LAST = "print('the last cell')"


def notebook_of(*cells: str) -> nbformat.NotebookNode:
    """Return a notebook of these cells."""
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    assert isinstance(notebook, nbformat.NotebookNode)
    return notebook


def shown(cell: nbformat.NotebookNode) -> str:
    """Return all that stands under a cell, as one text."""
    return json.dumps(cell.outputs)


def run_by(runner: str, folder: Path, *cells: str) -> tuple[int, str, dict[str, nbformat.NotebookNode]]:
    """Run these cells by a command; return its exit status, what it printed, and the cells of the executed file."""
    nbformat.write(notebook_of(*cells), folder / "in.ipynb")
    environment = {**os.environ, "TSNB_PROJECT_DIR": str(folder)}
    done = subprocess.run(
        command_of(runner), cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    out = folder / "out.ipynb"
    after = nbformat.read(out, as_version=4).cells if out.exists() else []
    return done.returncode, done.stdout + done.stderr, {cell.source: cell for cell in after}


@pytest.mark.system
@pytest.mark.parametrize("runner", ["nbclient", pytest.param("nbconvert", marks=pytest.mark.slow)])
def test_trials_end_and_their_output_is_kept(runner: str, tmp_path: Path) -> None:
    """The last cell has run long before the trial ends: what that prints then stands under its own cell."""
    status, printed, cells = run_by(runner, tmp_path, FIRST, LONG, LAST)
    assert status == 0, printed
    assert "the long one is at its end" in shown(cells[LONG]) and "<b>bold</b>" in shown(cells[LONG])
    assert "trial 'long' done" in shown(cells[LONG])
    assert shown(cells[LAST]).count("text") == 1


PANEL = (
    "from torch import arange\nfrom torch.utils.data import DataLoader\nrows = DataLoader(arange(80.), batch_size=4)",
    "%tensorsocket start rows --name pictured",
    "%tensorsocket dashboard pictured",
    """def train(lr):
    for batch in tsnb.attach():
        tsnb.log(loss=1.0)
    tsnb.log(loss=0.125)
    print("ends at 0.125")
low = tsnb.run(train, name="low", lr=0.5)""",
)


@pytest.mark.system
@pytest.mark.slow
def test_a_panel_is_in_the_file_as_it_was_in_the_end_and_on_pages_made_from_it(tmp_path: Path) -> None:
    """Its picture is an output of its own, which needs no widget; the widget that is saved is a recording."""
    status, printed, cells = run_by("nbclient", tmp_path, FIRST, *PANEL, LAST)
    assert status == 0, printed
    (picture,) = [o for o in cells[PANEL[2]].outputs if "image/svg+xml" in o.get("data", {})]
    assert re.search(r"low +done .* loss 0\.125", picture.data["text/plain"])
    assert "ends at 0.125" in shown(cells[PANEL[3]])
    notebook = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    widgets = notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"].values()
    (panel,) = [one["state"] for one in widgets if one["state"].get("still")]
    assert all(text in picture.data["image/svg+xml"] for text in (f'id="{panel["still"]}"', "0.125"))
    scene = panel["scene"]
    assert scene["recorded"] and scene["known"]["trials"] == {"low": [["lr", "0.5"]]}
    assert [(lane["name"], lane["end"], lane["last"]) for lane in scene["lanes"]] == [
        ("low", "done", {"loss": 0.125})
    ]
    for state in (True, False):  # saved with its widgets, and without
        if not state:
            del notebook.metadata["widgets"]
        page, _ = HTMLExporter().from_notebook_node(notebook)  # type: ignore[no-untyped-call]
        drawn = re.findall(
            r"data:image/svg\+xml;base64,([\w+/=]+)", page
        )  # some are of the page's own buttons
        assert picture.data["image/svg+xml"].strip() in [
            base64.b64decode(one).decode().strip() for one in drawn
        ]


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.parametrize("runner", list(RUNNERS))
def test_a_failed_trial_fails_the_run(tmp_path: Path, runner: str) -> None:
    """Though all cells have run; papermill, which has put a cell of its own in, writes the file all the same."""
    status, printed, cells = run_by(runner, tmp_path, FIRST, LONG, BROKEN, LAST)
    assert status != 0
    assert "TrialsFailed: trial 'broken' failed: ValueError: broken on purpose" in printed
    if runner != "papermill":
        assert not cells, "the others write no file of a run that failed"
        return
    assert "the long one is at its end" in shown(cells[LONG]) and "broken on purpose" in shown(cells[BROKEN])


def run_in_memory(notebook: nbformat.NotebookNode, folder: Path) -> None:
    """Run a notebook that has no file."""
    environment = {**os.environ, "TSNB_PROJECT_DIR": str(folder)}
    NotebookClient(notebook, timeout=240, kernel_name="python3").execute(env=environment)


@pytest.mark.slow
@pytest.mark.system
def test_a_notebook_without_a_file_waits_in_each_cell_and_says_so(tmp_path: Path) -> None:
    """Which cell is the last one cannot be known; nothing is lost all the same."""
    notebook = notebook_of(FIRST, LONG, LAST)
    run_in_memory(notebook, tmp_path)
    assert "done after" in shown(notebook.cells[1]) and "TSNB_NOTEBOOK=FILE" in shown(notebook.cells[1])


@pytest.mark.slow
@pytest.mark.system
def test_a_failure_that_a_cell_has_dealt_with_does_not_fail_the_run(tmp_path: Path) -> None:
    """Whoever waits for a trial and catches its error has been told; without a cell that does, the run fails."""
    caught = "try:\n    tsnb.trials['broken'].wait()\nexcept tsnb.errors.TrialFailed as error:\n    print('caught')"
    notebook = notebook_of(FIRST, BROKEN + "\n", LAST)
    with pytest.raises(CellExecutionError, match="broken on purpose"):
        run_in_memory(notebook, tmp_path)
    asked = notebook_of(
        FIRST, f"get_ipython().run_cell_magic('trial', 'broken', 'raise ValueError(1)')\n{caught}"
    )
    run_in_memory(asked, tmp_path)
    assert "caught" in shown(asked.cells[1])


@pytest.mark.parametrize(
    ("ran", "last"),
    [
        (["a", "b"], False),
        (["a", "b", "a", "c"], True),
        (["a"], False),
        (["a", "b", "a"], False),
        (["parameter = 1", "a", "b", "a", "c"], True),
        (["a", "c"], None),
        (["x"], None),
    ],
)
def test_the_last_cell_is_found_in_the_file(
    ran: list[str], last: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cells may repeat, be empty, end with empty lines, be skipped or be added by the client."""
    notebook = notebook_of("a", "b\n", "  ", "a", "c\n\n", "skipped")
    notebook.cells[-1].metadata["tags"] = ["skip-execution"]
    nbformat.write(notebook, tmp_path / "in.ipynb")
    monkeypatch.setenv(batch.NOTEBOOK, str(tmp_path / "in.ipynb"))
    assert batch.last_cell(ran) is last


def test_a_file_that_is_no_notebook_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half written, missing, or something else: unknown, and no error."""
    for content in (None, "", "{", "[]", '{"cells": [{}]}'):
        path = tmp_path / "in.ipynb"
        if content is not None:
            path.write_text(content)
        monkeypatch.setenv(batch.NOTEBOOK, str(path))
        assert batch.last_cell(["a"]) is None
