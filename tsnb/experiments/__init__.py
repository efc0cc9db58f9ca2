"""Trials: cells and functions that run in background kernels of their own, and what becomes of them.

What the notebook's own code calls (`Trial`, `trials`, `run`) hands work to the thread that owns all kernels
(`tsnb.kernels.hub`) and waits. Names load on first use.

| module | what it owns |
|---|---|
| `plan`, `replanning` | a trial's code, options and name, settled before its start; again with other parameters |
| `cells`, `functions` | starting a trial from a cell, and the set-up cell; from a function: `tsnb.run`, `@tsnb.trial` |
| `trial` | one trial, as its user sees it |
| `verbs` | what can be done to a trial: the table that every surface is made from |
| `pausing` | several trials that pause together, or go on |
| `memory_queue` | which trials wait for memory; what a trial was seen to take |
| `live_values` | values that are set while the training reads them |
| `remaining` | how those that run stand, as is seen of them: when each ends, what it waits for |
| `news`, `ends` | what that kernel tells; how the end is told to all observers of its streams |
| `bookkeeping` | what it has logged; the launching process's part of the project's records |
| `in_kernel` | what runs in a trial's kernel |
| `running/` | what happens to a trial, on the thread of the kernels' hub |
| `overview/` | all trials of this process, and what others ask of them |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsnb.lazy import lazily

if TYPE_CHECKING:
    from tsnb.experiments.cells import run_cell
    from tsnb.experiments.functions import TrialFunction, run
    from tsnb.experiments.overview.board import Board, trials
    from tsnb.experiments.trial import Trial

__all__ = ["Board", "Trial", "TrialFunction", "run", "run_cell", "trials"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "Board": "tsnb.experiments.overview.board",
        "Trial": "tsnb.experiments.trial",
        "TrialFunction": "tsnb.experiments.functions",
        "run": "tsnb.experiments.functions",
        "run_cell": "tsnb.experiments.cells",
        "trials": "tsnb.experiments.overview.board",
    },
)
