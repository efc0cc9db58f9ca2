"""Starting a trial from a cell; the variables that it takes along are settled on the thread that owns them.

The set-up cell is code that every trial runs before its own (`%%trial --setup`): for state that is neither a variable
nor one of the settings that are carried anyway (`kernels.cargo.numerics`), such as options of pandas and matplotlib,
handlers of loggers, registered types. A notebook has one; another takes its place, an empty one removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tsnb.errors import NotShippable
from tsnb.experiments.overview.board import launch
from tsnb.experiments.plan import TrialOptions, TrialPlan
from tsnb.experiments.trial import Trial
from tsnb.kernels.cargo import orders
from tsnb.kernels.cargo.capture import Captured, capture
from tsnb.kernels.cargo.imported import changes_here, packed
from tsnb.kernels.cargo.obstacles import find_obstacle
from tsnb.kernels.cargo.shipping import ship
from tsnb.kernels.output.outlets import Outlet

__all__ = ["SetUp", "plan_cell", "run_cell", "set_up", "set_up_now"]


def run_cell(
    name: str,
    source: str,
    namespace: Mapping[str, Any],
    *,
    transform: Callable[[str], str] = str,
    params: Mapping[str, Any] | None = None,
    also: Iterable[str] = (),
    check: bool = True,
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
        also: Variables that it takes along whether it reads them or not.
        check: Whether names that are not defined are refused before anything is started.
        outlet: Where its output goes; left out: under the running cell, or to the terminal.
        **options: `plan.TrialOptions`, by name.

    Raises:
        ValueError: Invalid name, batch size or thread count.
        NameInUse: A detached trial of that name runs.
        UndefinedNames: The cell reads names that are not defined.
        NotShippable: A variable that it reads cannot travel.
        SyntaxError: The cell is not valid Python.
    """
    given = TrialOptions(**options)
    plan = plan_cell(
        name, source, namespace, given, transform=transform, params=params, also=also, check=check
    )
    return launch(plan, outlet)


def plan_cell(
    name: str,
    source: str,
    namespace: Mapping[str, Any],
    options: TrialOptions,
    *,
    transform: Callable[[str], str] = str,
    params: Mapping[str, Any] | None = None,
    also: Iterable[str] = (),
    check: bool = True,
) -> TrialPlan:
    """Return the plan of a cell, its variables shipped. Arguments and errors are those of `run_cell`."""
    options.check(name)
    given = dict(params or {})
    written = orders.as_written(f"%%trial {name}", source)
    setup = set_up_now()
    before = Captured() if setup is None else setup.capture()
    own = capture(transform(written), {**namespace, **given}, also=also, made=before.bound, check=check)
    captured = own.joined(before)
    changes = packed(changes_here(namespace), f"trial {name!r}")
    try:
        cargo = ship({**captured.variables, **given, **changes}, f"trial {name!r}")
    except NotShippable:
        # what stands in a text only may mean something else: the cell does without what cannot travel of it
        dropped = [n for n in captured.mentioned if find_obstacle(captured.variables[n], n) is not None]
        if not dropped:
            raise
        captured = captured.without(dropped)
        cargo = ship({**captured.variables, **given, **changes}, f"trial {name!r}")
    arrival = orders.to_arrive(cargo, captured)
    if setup is not None:
        arrival["setup"] = setup.source
        source = f"{setup.source}\n\n{written}"
    reads = frozenset(captured.variables)
    return TrialPlan(
        name, written, arrival, given, options, text=source, reads=reads, sets=captured.bound - reads
    )


@dataclass(frozen=True)
class SetUp:
    """A cell that trials run first."""

    source: str
    """The cell, with the line numbers that the notebook shows."""
    transform: Callable[[str], str]
    """IPython's `transform_cell`."""
    namespace: Mapping[str, Any]
    """The notebook's variables, as they are at any time."""

    def capture(self) -> Captured:
        """Return what it takes along.

        Raises:
            UndefinedNames: It reads names that are not defined.
        """
        return capture(self.transform(self.source), self.namespace, bodies=True)


_current: list[SetUp] = []


def set_up(source: str, namespace: Mapping[str, Any], transform: Callable[[str], str] = str) -> bool:
    """Have every trial that is started from now on run a cell first.

    Args:
        source: The cell; an empty one: none.
        namespace: The notebook's variables.
        transform: IPython's `transform_cell`.

    Returns:
        Whether there is one now.

    Raises:
        UndefinedNames: It reads names that are not defined; the former set-up cell stays.
        SyntaxError: It is not Python.
    """
    new = SetUp(orders.as_written("%%trial --setup", source), transform, namespace)
    if source.strip():
        new.capture()
    _current[:] = [new] if source.strip() else []
    return bool(_current)


def set_up_now() -> SetUp | None:
    """Return the cell that trials run first, if there is one."""
    return _current[0] if _current else None
