"""A trial's plan once more, with other parameters and options.

What was shipped for the first run is shipped no more: the new plan shares its bytes, so that each of the two can let
go of them on its own, and has a second, small cargo with the parameters that differ from the first.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tsnb.config import check_name, unprofiled
from tsnb.errors import TsnbError
from tsnb.experiments.plan import OPTION_NAMES, TrialOptions, TrialPlan
from tsnb.kernels.cargo.obstacles import parts_of
from tsnb.kernels.cargo.shipping import ship
from tsnb.machine.placement import inside_name
from tsnb.text.words import did_you_mean

__all__ = ["check_fit", "cloned", "replanned"]


def replanned(plan: TrialPlan, changes: Mapping[str, Any], gate: Path | None = None) -> TrialPlan:
    """Return a plan like another, with a shipment of its own.

    Args:
        plan: The other one.
        changes: Parameters and options that are to be other than there, and perhaps `name`.
        gate: The gate at which it waits before its first batch.

    Raises:
        TypeError: A change is neither a parameter, nor a variable that the cell reads, nor an option.
        ValueError: Invalid name or option.
        NotShippable: A new parameter cannot travel.
        TsnbError: What was shipped for the other plan is there no more.
    """
    options = replace(plan.options, gate=gate, **{k: v for k, v in changes.items() if k in OPTION_NAMES})
    known = plan.reads - {"name"} if plan.signature is None else frozenset(plan.signature.parameters)
    params = {k: v for k, v in changes.items() if k not in OPTION_NAMES | {"name"}}
    _check_known(plan, params)
    merged = {**plan.params, **params}
    name = changes.get("name") or _named(plan, merged, options)
    options.check(name)
    new = {**params, **{k: v for k, v in {**changes, "name": name}.items() if k in known - params.keys()}}
    if "device" in new and new["device"] is not None:
        new["device"] = inside_name(str(new["device"]))
    arguments = {**plan.arguments, **new}
    if plan.signature is not None:
        check_fit(plan.signature, arguments, plan.name)
    changed = {**plan.changes, **new}
    arrival = _shared(plan, name, changed)
    return replace(
        plan,
        name=name,
        naming=None if changes.get("name") else plan.naming,
        arrival=arrival,
        params=merged,
        options=options,
        arguments=arguments,
        changes=changed,
    )


def cloned(plan: TrialPlan, name: str, sweep: str = "") -> TrialPlan:
    """Return the plan of a trial's clone: that of the trial, with a shipment and a name of its own.

    A clone whose process dies goes on from its checkpoint, where its parent would (`restart`). Without one it is not
    started again: from the top it would be another trial.

    Args:
        plan: The trial's.
        name: The clone's.
        sweep: The sweep that the clone belongs to; empty: it stands alone.

    Raises:
        ValueError: The name is invalid.
        TsnbError: What was shipped for the trial is there no more.
    """
    check_name(name, "trial")
    again = replanned(plan, {"name": name, "after": None})
    return replace(again, options=replace(again.options, sweep=sweep))


def _named(plan: TrialPlan, params: Mapping[str, Any], options: TrialOptions) -> str:
    """Return the name that goes with new parameters: the old one, where they make no difference to it.

    That one may have a number behind it, which tells it from another trial of the same sweep.
    """
    if plan.naming is None:
        return plan.name
    made = plan.naming(params, options)
    return plan.name if made == plan.naming(plan.params, plan.options) else made


def check_changes(plan: TrialPlan, params: Mapping[str, Any]) -> None:
    """Refuse parameters that a trial like that of a plan cannot have.

    Args:
        plan: The plan.
        params: What is to be other than there.

    Raises:
        TypeError: One is neither a parameter nor a variable that the cell reads.
    """
    _check_known(plan, params)
    if plan.signature is not None:
        check_fit(plan.signature, {**plan.arguments, **params}, plan.name)


def _check_known(plan: TrialPlan, params: Mapping[str, Any]) -> None:
    """Refuse parameters that make no difference to a cell; a function's signature says more about its own."""
    unknown = (
        []
        if plan.signature is not None
        else [name for name in params if name not in {*plan.params, *plan.reads}]
    )
    if not unknown:
        return
    name = unknown[0]
    if name in plan.sets:
        raise TypeError(
            f"The cell of trial {plan.name!r} sets {name!r} itself, so a new value would have no effect. "
            f"Nothing was started. Set {name!r} in the notebook instead, or edit the cell."
        )
    hint = did_you_mean(name, [*plan.params, *plan.reads, *OPTION_NAMES])
    there = ", ".join(sorted({*plan.params, *plan.reads})) or "nothing"
    raise TypeError(
        f"The cell of trial {plan.name!r} reads no variable {name!r}.{hint} It reads: {there}. Options: "
        f"{', '.join(sorted(OPTION_NAMES))}"
    )


def check_fit(signature: inspect.Signature, params: Mapping[str, Any], what: str) -> None:
    """Refuse parameters that a function does not take, or too few of them.

    Args:
        signature: The function's.
        params: By name.
        what: The function's name, for the message.

    Raises:
        TypeError: They do not fit; says how, and which it has.
    """
    try:
        signature.bind(**params)
    except TypeError as error:
        raise TypeError(f"{what}{signature}: {error}. Nothing was started.") from None


def _shared(plan: TrialPlan, name: str, changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrival of a new plan."""
    try:
        cargo = plan.arrival["cargo"].again()
    except TsnbError:
        raise TsnbError(
            f"The code of trial {plan.name!r} is no longer available: a later run replaced it, or it was "
            "cleared. Rerun the later one, or run the cell again."
        ) from None
    parts = parts_of(changed, "its parameter")
    return {
        **plan.arrival,
        "cargo": cargo,
        "changed": ship(changed, f"trial {unprofiled(name)!r}", parts=parts) if changed else None,
    }
