"""The plan that all trials of a cell have in common: its code and variables, its parameters checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tsnb.experiments.cells import plan_cell
from tsnb.experiments.plan import OPTION_NAMES, TrialOptions, TrialPlan
from tsnb.words import did_you_mean

__all__ = ["settle_cell"]


def settle_cell(
    title: str,
    name: str,
    source: str,
    namespace: Mapping[str, Any],
    params: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    transform: Callable[[str], str],
    also: Iterable[str],
    check: bool,
) -> TrialPlan:
    """Return what the trials of a cell have in common, its variables shipped.

    Args:
        title: Of the sweep.
        name: Of its first trial.
        source: The cell.
        namespace: The notebook's variables.
        params: The parameters of the first trial.
        options: `plan.TrialOptions`, by name.
        transform: IPython's `transform_cell`.
        also: Variables that it takes along whether it reads them or not.
        check: Whether names that are not defined, and parameters that it does not read, are refused.

    Raises:
        Exception: As `run_cell` raises.
    """
    settled = TrialOptions(**{**options, "sweep": title})
    told = plan_cell(
        name, source, namespace, settled, transform=transform, params=params, also=also, check=check
    )
    own = {key: value for key, value in params.items() if key not in OPTION_NAMES}
    if check:
        try:
            _require_read(told, own)
        except BaseException:
            told.discard()
            raise
    return replace(told, params=own, signature=_signature(params))


def _require_read(plan: TrialPlan, names: Iterable[str]) -> None:
    """Refuse parameters that make no difference to a cell: its trials would be the same, recorded as different ones.

    Raises:
        ValueError: The cell sets one of them itself, or reads none of that name.
    """
    for name in names:
        if name in plan.reads:
            continue
        if name in plan.sets:
            raise ValueError(
                f"The cell sets {name!r} itself, so a value for it would have no effect. Nothing was started. "
                f"Remove that line: the sweep provides {name!r} as a variable."
            )
        hint = did_you_mean(name, plan.reads)
        raise ValueError(
            f"The cell reads no variable {name!r}, so a value for it would have no effect. Nothing was "
            f"started.{hint} If tsnb cannot see how the cell reads it, add --no-check."
        )


def _signature(names: Iterable[str]) -> inspect.Signature:
    """Return what a cell takes: an option of ours that is swept over (batch_size) is a variable of the cell, too."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature([inspect.Parameter(name, kind, default=None) for name in names])
