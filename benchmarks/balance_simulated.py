"""The three sizes of benchmarks.balance on larger machines, simulated: what the planner does there, and what it gives.

The machine is benchmarks.balance_machine's: Amdahl's law for the threads of a step, cores that are shared, a window.
It knows nothing of memory bandwidth, so figures for many cores are what could be had at best.

    python -m benchmarks.balance_simulated
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from benchmarks.balance_machine import Loader, Machine, Model
from tsnb.planners.balancing import Balancer

__all__ = ["Simulated", "simulate", "table"]

MODELS = (Model("resnet10-w16", 0.02), Model("resnet18-w32", 0.11), Model("resnet18-w64", 0.4))
"""CPU seconds a batch of 8 as measured on one core; 80 % of them on all threads."""
LOADER = Loader(0.02, workers=1)
CORES = (2, 8, 64)
SECONDS = 600.0


@dataclass(frozen=True)
class Simulated:
    """One machine."""

    cores: int
    before: float
    """Batches/s of each trial with one thread each."""
    after: float
    """The same when the planner has done what it does."""
    moves: int
    """Times that it moved something."""


def simulate(cores: int) -> Simulated:
    """Let the planner divide one machine."""
    machine = Machine(cores, MODELS, LOADER)
    before, balancer = machine.pace, Balancer()
    machine.run(balancer, SECONDS)
    return Simulated(cores, before, machine.pace, balancer.moves)


def table(found: list[Simulated]) -> str:
    """Return the machines as Markdown."""
    rows = [
        f"| {one.cores} | {one.before:.2f} | {one.after:.2f} | {one.after / one.before:.2f} | {one.moves} |"
        for one in found
    ]
    head = "| cores | batches/s without | with rebalancing | gain | moves |"
    return "\n".join([head, "|--:|--:|--:|--:|--:|", *rows])


if __name__ == "__main__":
    sys.stdout.write(table([simulate(cores) for cores in CORES]) + "\n")
