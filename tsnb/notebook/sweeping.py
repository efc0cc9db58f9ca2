"""What `%%trial --grid` and `--sample` do: the cell runs as many trials, each with other parameters."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from tsnb.experiments.plan import TrialOptions
from tsnb.options import typed
from tsnb.sweeps.rungs import Halving, halving
from tsnb.sweeps.spaces import settings
from tsnb.sweeps.starting import sweep_cell
from tsnb.sweeps.sweep import Sweep

__all__ = ["SWEEP_OPTIONS", "run_sweep", "wants_sweep"]

SWEEP_OPTIONS = ("sample", "n", "at_once", "halving", "every", "keep", "mode")
"""What goes with parameters only."""


def wants_sweep(given: Namespace) -> bool:
    """Return whether a cell is to run as several trials.

    Raises:
        ValueError: An option is given that needs parameters to sweep over, and there are none.
    """
    if given.grid or given.sample:
        return True
    alone = [name for name in SWEEP_OPTIONS if getattr(given, name) not in (None, [])]
    if alone:
        option = alone[0].replace("_", "-")
        raise ValueError(
            f"--{option} goes with parameters: --grid lr=0.1,0.01 or --sample lr=uniform(0,1) --n 8"
        )
    return False


def run_sweep(shell: Any, given: Namespace, cell: str) -> Sweep:
    """Start a sweep from a cell; with `--wait`, wait for its end.

    Raises:
        ValueError: The parameters or options make no sweep.
        TrialFailed: It was waited for, and every trial failed.
        Exception: As `sweep_cell` raises.
    """
    options = {name: value for name, value in typed(given, TrialOptions).items() if value is not None}
    params = settings(dict(given.grid), dict(given.sample), given.n, given.seed)
    started = sweep_cell(
        given.name,
        cell,
        shell.user_ns,
        params,
        transform=shell.transform_cell,
        at_once=given.at_once,
        prune=_rule(given),
        also=given.with_,
        check=given.check,
        **options,
    )
    return started.wait() if given.wait else started


def _rule(given: Namespace) -> Halving | None:
    asked = {
        name: getattr(given, name) for name in ("every", "keep", "mode") if getattr(given, name) is not None
    }
    if given.halving is None:
        if asked:
            raise ValueError(f"--{next(iter(asked))} goes with --halving METRIC: --halving loss --every 100")
        return None
    return halving(given.halving, **asked)
