"""Starting a trial from a cell; what it takes along is settled on the thread that owns the variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tsnb.experiments.board import launch
from tsnb.experiments.plan import TrialOptions, TrialPlan
from tsnb.experiments.trial import Trial
from tsnb.kernels import orders
from tsnb.kernels.capture import capture
from tsnb.kernels.hub import the_hub
from tsnb.kernels.outlets import Outlet
from tsnb.kernels.shipping import ship

__all__ = ["plan_cell", "run_cell"]


def run_cell(
    name: str,
    source: str,
    namespace: Mapping[str, Any],
    *,
    transform: Callable[[str], str] = str,
    params: Mapping[str, Any] | None = None,
    outlet: Outlet | None = None,
    **options: Any,
) -> Trial:
    """Run a cell in a background kernel of its own, and return at once.

    A live trial of that name is stopped and replaced.

    Args:
        name: The trial's name; `tsnb.attach()` in the cell takes it.
        source: The cell.
        namespace: The notebook's variables, of which the cell gets copies of those that it reads.
        transform: IPython's `transform_cell`, where the cell may hold magics.
        params: Parameters, which the cell finds as variables.
        outlet: Where its output goes; left out: under the running cell, or to the terminal.
        **options: `plan.TrialOptions`, by name.

    Raises:
        ValueError: The name, batch size or thread count is none.
        NameInUse: A detached trial of that name runs.
        UndefinedNames: The cell reads what nobody defines.
        NotShippable: A variable that it reads cannot travel.
        SyntaxError: The cell is no Python.
    """
    given = TrialOptions(**options)
    return launch(plan_cell(name, source, namespace, given, transform=transform, params=params), outlet)


def plan_cell(
    name: str,
    source: str,
    namespace: Mapping[str, Any],
    options: TrialOptions,
    *,
    transform: Callable[[str], str] = str,
    params: Mapping[str, Any] | None = None,
) -> TrialPlan:
    """Return the plan of a cell, its variables shipped. Arguments and errors are those of `run_cell`."""
    options.check(name)
    given = dict(params or {})
    written = orders.as_written(f"%%trial {name}", source)
    captured = capture(transform(written), {**namespace, **given})
    path = the_hub().new_path("ship", ".pickle")
    ship({**captured.variables, **given}, path, f"trial {name!r}")
    arrival = orders.to_arrive(path, captured, keep=True)
    reads = frozenset(captured.variables)
    return TrialPlan(
        name, written, arrival, given, options, text=source, reads=reads, sets=captured.bound - reads
    )
