"""Background kernels: the ones that run trials, and the ones that serve a loader.

Everything that belongs to another process's kernel happens on one daemon thread (`hub`); what the
notebook's own code calls (`Trial`, `ProducerKernel`) hands work to that thread and waits. Names load on first
use, because a child's entry point (`launch`) lives here too and must be quick.

| module | what it owns |
|---|---|
| `capture` | which variables a cell reads, before anything is started |
| `shipping`, `pickling`, `obstacles` | objects on their way to another kernel, and why one cannot travel |
| `hub` | the one thread, its loop, its private directory |
| `child`, `death` | one kernel process: start, execute, interrupt, kill, notice its death |
| `processes` | its process: spawned, forked or adopted |
| `variables` | its environment, and what of it a fork would come too late for |
| `forking`, `forkserver` | the server that kernels are forked from: its client here, and what it does |
| `launch`, `inside` | what runs in the child |
| `relay`, `outlets` | a child's output, live, to where it belongs |
| `plan`, `naming`, `replanning` | what a trial is to do; its name; the same once more with other parameters |
| `cells`, `functions` | starting a trial from a cell; from a function: `tsnb.run`, `@tsnb.trial` |
| `trial`, `hosting` | one trial, as its user sees it; as its course and the hub see it |
| `numbers` | what it has logged |
| `course`, `attempt` | its way to its end: its turn, its restarts; one life of its kernel |
| `entries`, `detached` | where detached trials are found; following and ending one that was |
| `recording` | the launching process's part of the project's records |
| `board` | all trials of this process |
| `serving`, `served` | loaders served from background kernels: starting, reloading; what from, and how |
| `producing`, `life` | one stream through all lives of its kernel; one such life |
| `crashes`, `following` | whether a crashed producer is started again, and how far it had come |
| `supervising` | the same for a process of the command line: `tsnb serve --restart on-crash` |
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tsnb.kernels.board import Board, trials
    from tsnb.kernels.cells import run_cell
    from tsnb.kernels.functions import TrialFunction, run
    from tsnb.kernels.producing import ProducerKernel
    from tsnb.kernels.serving import producer_kernels, serve_from_cell, serve_loader
    from tsnb.kernels.trial import Trial

__all__ = [
    "Board",
    "ProducerKernel",
    "Trial",
    "TrialFunction",
    "producer_kernels",
    "run",
    "run_cell",
    "serve_from_cell",
    "serve_loader",
    "trials",
]

_HOMES = {
    "Board": "board",
    "ProducerKernel": "producing",
    "Trial": "trial",
    "TrialFunction": "functions",
    "producer_kernels": "serving",
    "run": "functions",
    "run_cell": "cells",
    "serve_from_cell": "serving",
    "serve_loader": "serving",
    "trials": "board",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
