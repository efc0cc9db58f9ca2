"""Starting a trial from a cell; what it takes along is settled on the thread that owns the variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tsnb.config import check_name
from tsnb.kernels import orders
from tsnb.kernels.board import trials
from tsnb.kernels.capture import capture
from tsnb.kernels.hub import the_hub
from tsnb.kernels.outlets import Outlet, outlet_here
from tsnb.kernels.shipping import ship
from tsnb.kernels.trial import Trial, TrialPlan

__all__ = ["run_cell"]


def run_cell(
    name: str,
    source: str,
    namespace: Mapping[str, Any],
    *,
    transform: Callable[[str], str] = str,
    producer: str | None = None,
    batch_size: int | None = None,
    device: str | None = None,
    seed: int | None = None,
    threads: int = 1,
    env: Mapping[str, str] | None = None,
    outlet: Outlet | None = None,
) -> Trial:
    """Run a cell in a background kernel of its own, and return at once.

    A live trial of that name is stopped and replaced.

    Args:
        name: The trial's name; `tsnb.attach()` in the cell takes it.
        source: The cell.
        namespace: The notebook's variables, of which the cell gets copies of those that it reads.
        transform: IPython's `transform_cell`, where the cell may hold magics.
        producer: The stream that `tsnb.attach()` takes there.
        batch_size: The batch size that `tsnb.attach()` asks for there, in samples.
        device: Where `tsnb.attach()` delivers batches there.
        seed: Seeds Python's, numpy's and torch's generators.
        threads: Threads that torch computes on. One, since several trials share the machine.
        env: Added to the kernel's environment.
        outlet: Where its output goes; left out: under the running cell, or to the terminal.

    Raises:
        ValueError: The name, batch size or thread count is none.
        UndefinedNames: The cell reads what nobody defines.
        NotShippable: A variable that it reads cannot travel.
        SyntaxError: The cell is no Python.
    """
    check_name(name, "trial")
    for what, number in (("batch size", batch_size), ("number of threads", threads)):
        if number is not None and number < 1:
            raise ValueError(f"the {what} of trial {name!r} must be 1 or more, not {number}")
    source = orders.as_written(f"%%trial {name}", source)
    captured = capture(transform(source), namespace)
    hub = the_hub()
    path = hub.new_path("ship", ".pickle")
    ship(captured.variables, path, f"trial {name!r}")
    params = {
        "producer": producer, "batch_size": batch_size, "device": device, "seed": seed, "threads": threads,
    }  # fmt: skip
    variables = {**orders.thread_variables(threads), **(env or {})}
    plan = TrialPlan(name, source, orders.to_arrive(path, captured), params, variables)
    trial = Trial(plan, hub, outlet or outlet_here(name))
    trial.begin(trials.put(trial))
    return trial
