"""tsnb: parallel training trials on one shared data loader.

`import tsnb` is light: each public name loads its part when it is first used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tsnb import errors

__version__ = "0.1.0"

_PUBLIC = {
    "attach": "tsnb.consumer",
    "Consumer": "tsnb.consumer",
    "serve": "tsnb.producer.serving",
    "Producer": "tsnb.producer",
    "live": "tsnb.experiments.live_values",
    "keep": "tsnb.experiments.in_kernel.kept_state",
    "epochs": "tsnb.experiments.in_kernel.kept_state",
    "cache": "tsnb.samples.cut",
    "after": "tsnb.samples.selection",
    "every": "tsnb.samples.selection",
    "grow": "tsnb.samples.grown",
    "rounds": "tsnb.samples.selection",
    "worse": "tsnb.samples.selection",
    "Grown": "tsnb.samples.grown",
    "crossval": "tsnb.sweeps.folds",
    "CrossValidation": "tsnb.sweeps.folds",
    "log": "tsnb.telemetry.metrics",
    "log_losses": "tsnb.consumer",
    "record": "tsnb.telemetry.recording",
    "status": "tsnb.telemetry.observer",
    "stop": "tsnb.telemetry.observer",
    "doctor": "tsnb.checks.examining",
    "stalls": "tsnb.stalling",
    "plan": "tsnb.planning",
    "Plan": "tsnb.planning",
    "place": "tsnb.planning",
    "Fitting": "tsnb.planning",
    "devices": "tsnb.checks.devices",
    "Devices": "tsnb.checks.devices",
    "Stalls": "tsnb.stalling",
    "dashboard": "tsnb.notebook.panels",
    "trials": "tsnb.experiments",
    "Trial": "tsnb.experiments",
    "run": "tsnb.experiments.functions",
    "trial": "tsnb.experiments.functions",
    "population": "tsnb.sweeps.population",
    "Population": "tsnb.sweeps.population",
    "sweep": "tsnb.sweeps.starting",
    "Sweep": "tsnb.sweeps.sweep",
    "halving": "tsnb.sweeps.rungs",
    "race": "tsnb.sweeps.race_table",
    "results": "tsnb.reports",
    "history": "tsnb.records.tables",
    "compare": "tsnb.records.tables",
    "delete": "tsnb.records.selection",
    "direction": "tsnb.records.scores",
    "spill": "tsnb.spilling.asked",
    "plot": "tsnb.reports",
    "report": "tsnb.reports",
    "Report": "tsnb.reports",
    "replay": "tsnb.notebook.panels",
    "export": "tsnb.records.exporting",
    "tag": "tsnb.records.selection",
    "folder": "tsnb.records.current",
    "log_artifact": "tsnb.records.current",
    "notify": "tsnb.records.notices",
}
"""Public names and the package that each comes from."""
_PARTS = ("data",)
"""Public modules."""

if TYPE_CHECKING:
    from tsnb.checks.devices import Devices, devices
    from tsnb.checks.examining import doctor
    from tsnb.consumer import Consumer, attach, log_losses
    from tsnb.experiments import Trial, trials
    from tsnb.experiments.functions import run, trial
    from tsnb.experiments.in_kernel.kept_state import epochs, keep
    from tsnb.experiments.live_values import live
    from tsnb.notebook.panels import dashboard, replay
    from tsnb.planning import Fitting, Plan, place, plan
    from tsnb.producer import Producer
    from tsnb.producer.serving import serve
    from tsnb.records.current import folder, log_artifact
    from tsnb.records.exporting import export
    from tsnb.records.notices import notify
    from tsnb.records.scores import direction
    from tsnb.records.selection import delete, tag
    from tsnb.records.tables import compare, history
    from tsnb.reports import Report, plot, report, results
    from tsnb.samples.cut import cache
    from tsnb.samples.grown import Grown, grow
    from tsnb.samples.selection import after, every, rounds, worse
    from tsnb.spilling.asked import spill
    from tsnb.stalling import Stalls, stalls
    from tsnb.sweeps.folds import CrossValidation, crossval
    from tsnb.sweeps.population import Population, population
    from tsnb.sweeps.race_table import race
    from tsnb.sweeps.rungs import halving
    from tsnb.sweeps.starting import sweep
    from tsnb.sweeps.sweep import Sweep
    from tsnb.telemetry.metrics import log
    from tsnb.telemetry.observer import status, stop
    from tsnb.telemetry.recording import record

__all__ = [
    "Consumer",
    "CrossValidation",
    "Devices",
    "Fitting",
    "Grown",
    "Plan",
    "Population",
    "Producer",
    "Report",
    "Stalls",
    "Sweep",
    "Trial",
    "after",
    "attach",
    "cache",
    "compare",
    "crossval",
    "dashboard",
    "delete",
    "devices",
    "direction",
    "doctor",
    "epochs",
    "errors",
    "every",
    "export",
    "folder",
    "grow",
    "halving",
    "history",
    "keep",
    "live",
    "log",
    "log_artifact",
    "log_losses",
    "notify",
    "place",
    "plan",
    "plot",
    "population",
    "producers",
    "race",
    "record",
    "replay",
    "report",
    "results",
    "rounds",
    "run",
    "serve",
    "spill",
    "stalls",
    "status",
    "stop",
    "sweep",
    "tag",
    "trial",
    "trials",
    "worse",
]


def producers() -> list[Any]:
    """Return the producers that this user is serving now (`tsnb.registry.Entry`), by name.

    Raises:
        TsnbError: The runtime directory cannot be used.
    """
    from tsnb.registry import entries

    return list(entries())


def load_ipython_extension(ipython: Any) -> None:
    """Register the magics; called by `%load_ext tsnb`."""
    from tsnb.notebook.extension import load

    load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """Take the magics out again; called by `%unload_ext tsnb`."""
    from tsnb.notebook.extension import unload

    unload(ipython)


def __getattr__(name: str) -> Any:
    """Load a public name at its first use."""
    if name in _PARTS:
        return import_module(f"tsnb.{name}")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'tsnb' has no attribute {name!r}")

    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted([*__all__, *_PARTS])


class _Package(ModuleType):
    """This package, which a notebook's function that is sent to another kernel may name."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel by name, as every module does: a notebook's function that says `tsnb.log` takes it along."""
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Package
