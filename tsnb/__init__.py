"""tsnb: parallel training trials on one shared data loader.

`import tsnb` is light: each public name loads its part when it is first used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tsnb import errors
from tsnb.lazy import lazily

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tsnb import data, records, search, streams
    from tsnb.attaching import Consumer, attach
    from tsnb.checks.devices import devices
    from tsnb.checks.examining import doctor
    from tsnb.duels.starting import duel
    from tsnb.experiments import Trial, trials
    from tsnb.experiments.functions import run, trial
    from tsnb.experiments.in_kernel.artifacts import folder, log_artifact
    from tsnb.experiments.in_kernel.kept_state import checkpoint, epochs
    from tsnb.experiments.live_values import live
    from tsnb.notebook.panels import dashboard
    from tsnb.planning import plan
    from tsnb.reports import plot, report, results
    from tsnb.serving import serve
    from tsnb.spilling.asked import offload
    from tsnb.stalling import stalls
    from tsnb.sweeps.starting import sweep
    from tsnb.sweeps.sweep import Sweep
    from tsnb.telemetry.metrics import log

_HOMES = {
    "attach": "tsnb.attaching",
    "Consumer": "tsnb.attaching",
    "serve": "tsnb.serving.starting",
    "log": "tsnb.telemetry.metrics",
    "log_artifact": "tsnb.experiments.in_kernel.artifacts",
    "live": "tsnb.experiments.live_values",
    "checkpoint": "tsnb.experiments.in_kernel.kept_state",
    "epochs": "tsnb.experiments.in_kernel.kept_state",
    "folder": "tsnb.experiments.in_kernel.artifacts",
    "run": "tsnb.experiments.functions",
    "trial": "tsnb.experiments.functions",
    "trials": "tsnb.experiments",
    "Trial": "tsnb.experiments",
    "sweep": "tsnb.sweeps.starting",
    "duel": "tsnb.duels.starting",
    "Sweep": "tsnb.sweeps.sweep",
    "results": "tsnb.reports",
    "plot": "tsnb.reports",
    "report": "tsnb.reports",
    "dashboard": "tsnb.notebook.panels",
    "stalls": "tsnb.stalling",
    "plan": "tsnb.planning",
    "doctor": "tsnb.checks.examining",
    "devices": "tsnb.checks.devices",
    "offload": "tsnb.spilling.asked",
    "streams": "tsnb.streams",
    "data": "tsnb.data",
    "search": "tsnb.search",
    "records": "tsnb.records",
    "errors": "tsnb.errors",
}
"""Public names and the package that each comes from."""

__all__ = [
    "Consumer",
    "Sweep",
    "Trial",
    "attach",
    "checkpoint",
    "dashboard",
    "data",
    "devices",
    "doctor",
    "duel",
    "epochs",
    "errors",
    "folder",
    "live",
    "log",
    "log_artifact",
    "offload",
    "plan",
    "plot",
    "records",
    "report",
    "results",
    "run",
    "search",
    "serve",
    "stalls",
    "streams",
    "sweep",
    "trial",
    "trials",
]

_load, __dir__ = lazily(__name__, _HOMES)
_PARTS = ("streams", "data", "search", "records")
_MEANT = {
    "start": "tsnb.run or tsnb.serve",
    "submit": "tsnb.run",
    "stop": 'tsnb.trials["NAME"].stop() or tsnb.streams.stop("NAME")',
    "panel": "tsnb.dashboard",
    "early_stopping": "tsnb.search.halving",
}
"""Names that people try first, and what they mean by them."""


def __getattr__(name: str) -> Any:
    """Load a public name at its first use; one of a namespace is named there."""
    try:
        return _load(name)
    except AttributeError as error:
        if name in _HOMES or name.startswith("_"):
            raise
        there = [part for part in _PARTS if name in import_module(f"tsnb.{part}").__all__]
        meant = _MEANT.get(name) or (f"tsnb.{there[0]}.{name}" if there else "")
        hint = f". Did you mean {meant}?" if meant else ""
        raise AttributeError(f"{error}{hint}") from None


def load_ipython_extension(ipython: Any) -> None:
    """Register the magics; called by `%load_ext tsnb`."""
    from tsnb.notebook.extension import load

    load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """Take the magics out again; called by `%unload_ext tsnb`."""
    from tsnb.notebook.extension import unload

    unload(ipython)


class _Package(ModuleType):
    """This package, which a notebook's function that is sent to another kernel may name."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel by name, as every module does: a notebook's function that says `tsnb.log` takes it along."""
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Package
