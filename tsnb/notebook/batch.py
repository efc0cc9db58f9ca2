"""A notebook that runs without a front end: nbclient, `jupyter nbconvert --execute`, papermill and their users.

Its kernel is ended as soon as its last cell has run. So three things differ from a live notebook:

- at the end of each cell, what trials have printed goes into the file, under their own cells (`output.outlets`), and
  panels with their pictures as they are then;
- after the last cell, all trials of this notebook are waited for;
- if one of them failed, and no cell has dealt with that (`wait`, `result`), the last cell fails, and so the run.

Only the file knows which cell is the last one. `TSNB_NOTEBOOK` names it; else it is looked for in the command lines of
the processes that started this kernel, and has to contain all that has run so far. Without such a file (a program
may have the notebook in memory), each cell waits for the trials it has started.

`TSNB_BATCH=0` switches this off, `TSNB_BATCH=1` on.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

import psutil
from IPython.core.getipython import get_ipython

from tsnb.errors import TrialFailed, TsnbError
from tsnb.experiments.overview.board import trials
from tsnb.kernels.output.outlets import SWITCH, flush_collected, is_unattended
from tsnb.private.files import MANY_BYTES, read_foreign
from tsnb.sweeps.sweep import live

__all__ = ["TrialsFailed", "end_of_cell", "last_cell"]

NOTEBOOK = "TSNB_NOTEBOOK"
SKIPPED = "skip-execution"
"""The tag of cells that these clients leave out."""


def end_of_cell(result: Any) -> None:
    """Show what trials have printed; after the last cell wait for all of them, and have it fail if one did.

    Args:
        result: IPython's ExecutionResult of the cell. Its error is set where a trial failed.
    """
    shell: Any = get_ipython()
    kernel = getattr(shell, "kernel", None)
    if kernel is None or not is_unattended(kernel):
        return
    failed = None
    if trials.own and result is not None and result.success:
        ran = [cell for cell in shell.history_manager.input_hist_raw if cell.strip()]
        last = last_cell(ran)
        if last is None:
            _say_that_each_waits()
        if last is not False:
            failed = _wait_for_all()
    if (stills := sys.modules.get("tsnb.notebook.stills")) is not None:
        stills.renew_stills()
    flush_collected()
    if failed is not None:
        result.error_in_exec = failed
        shell.showtraceback((type(failed), failed, None))


@functools.cache
def _say_that_each_waits() -> None:
    print(  # noqa: T201 (shown under the cell, once)
        "note: this notebook runs without a front end, and tsnb does not know which cell is its last. So "
        f"each cell waits for the trials that it starts. To wait only at the end, set {NOTEBOOK}=FILE. To "
        f"wait for none, set {SWITCH}=0."
    )


class TrialsFailed(TrialFailed):
    """Trials of a notebook that runs without a front end failed, and no cell has dealt with it."""

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows: what happened stands under the trials' own cells."""
        return [f"{type(self).__name__}: {self}"]


def _wait_for_all() -> TrialsFailed | None:
    """Wait for this notebook's trials; return an error that names those that failed and were not asked for."""
    failures = []
    for sweep in live():
        try:
            sweep.wait()
        except TsnbError as error:
            failures.append(str(error).partition("\n")[0])
    for trial in trials.own:
        if trial.options.get("detach") or trial.failure_seen:
            continue
        try:
            trial.wait()
        except TrialFailed as error:
            failures.append(str(error).partition("\n")[0])
    if not failures:
        return None
    few = "; ".join(failures[:5]) + (f"; and {len(failures) - 5} more" if len(failures) > 5 else "")
    return TrialsFailed(f"{few}. Their output is below the cells that started them.")


def last_cell(ran: list[str]) -> bool | None:
    """Return whether the cell that runs is the notebook's last; None if the notebook cannot be found.

    Args:
        ran: The cells that have run, the running one last, as they were typed.
    """
    for path in _candidates():
        cells = _code_cells(path)
        if cells and _begins_with(cells, ran):
            return cells[-1] == ran[-1] and cells.count(ran[-1]) == ran.count(ran[-1])
    return None


def _begins_with(cells: list[str], ran: list[str]) -> bool:
    """Return whether what has run stands in these cells, in that order; a client may have added some (parameters)."""
    there = iter(ran)
    reached = cells.index(ran[-1]) + 1 if ran[-1] in cells else 0
    return bool(reached) and all(cell in there for cell in cells[:reached])


def _candidates() -> list[Path]:
    """Return the notebooks that this kernel may be running, the likeliest first."""
    named = os.environ.get(NOTEBOOK)
    if named:
        return [Path(named)]
    found = []
    for process in psutil.Process().parents()[:4]:
        try:
            words, folder = process.cmdline(), process.cwd()
        except psutil.Error:
            continue
        found += [Path(folder, word) for word in words if word.endswith(".ipynb")]
    return [path for path in found if path.is_file()]


def _code_cells(path: Path) -> list[str]:
    """Return the source of each cell that such a client runs, as IPython's history has it."""
    try:
        cells = json.loads(read_foreign(path, MANY_BYTES))["cells"]
        sources = [
            "".join(cell["source"]).rstrip("\n")
            for cell in cells
            if cell["cell_type"] == "code" and SKIPPED not in cell.get("metadata", {}).get("tags", ())
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [source for source in sources if source.strip()]
