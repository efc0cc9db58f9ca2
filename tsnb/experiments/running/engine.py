"""Where trials run: what has to be there first, how many at once, and the kernel for one run through a trial's code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from tsnb.engines import cluster_at
from tsnb.experiments.plan import TrialPlan
from tsnb.experiments.running.attempt import Attempt
from tsnb.kernels.hub import Hub
from tsnb.machine.cores import usable_cores
from tsnb.machine.placement import free_gpu_bytes
from tsnb.records.run import Run

if TYPE_CHECKING:
    from tsnb.experiments.running.trial_life import TrialLife

__all__ = ["Engine", "ThisMachine", "engine_of", "places_here"]

PER_CORE = 2
"""Trials of one thread each that share a core by default: while one waits for a batch the other computes."""


GPU_BYTES = 4 << 30
"""GPU memory that a trial is thought to need by default: its CUDA context is about half a GiB of it."""


def places_here(trials: int, cores: int, gpu_bytes: int | None = None) -> int:
    """Return how many trials run at once by default: all, unless cores or the GPU's memory are too few for that.

    Args:
        trials: How many there are.
        cores: What this process may use.
        gpu_bytes: Free memory of the GPU that all of them train on; None: they train on none.
    """
    most = PER_CORE * cores if gpu_bytes is None else min(PER_CORE * cores, gpu_bytes // GPU_BYTES)
    return max(1, min(trials, most))


class Engine(Protocol):
    """Where trials run: `ThisMachine`, or a cluster (`tsnb.cluster.ray_cluster`)."""

    def join(self) -> None:
        """Connect to the place where trials run. Called before the first is started.

        Raises:
            TsnbError: It is not available.
        """

    def attempt(
        self, hub: Hub, plan: TrialPlan, settings: Mapping[str, Any], host: TrialLife, run: Run
    ) -> Attempt:
        """Return a kernel for one run through a trial's code.

        Args:
            hub: The hub on whose thread it lives.
            plan: What is run.
            settings: What its kernel needs to know of the run beyond the plan.
            host: The trial.
            run: Its place in the project's records.
        """

    def places(self, plan: TrialPlan, trials: int) -> tuple[int, str]:
        """Return how many trials run at once by default, and why so many.

        Args:
            plan: What they have in common.
            trials: How many there are.
        """


class ThisMachine:
    """Trials in processes of this machine."""

    def join(self) -> None:
        """Do nothing: it is here."""

    def attempt(
        self, hub: Hub, plan: TrialPlan, settings: Mapping[str, Any], host: TrialLife, run: Run
    ) -> Attempt:
        """Return a kernel of this machine; a detached one writes its own log."""
        return Attempt(hub, plan, settings, host, run.log_path if plan.options.detach else None)

    def places(self, plan: TrialPlan, trials: int) -> tuple[int, str]:
        """Return as many as the cores of this process, and the memory of the trials' GPU, have places for."""
        cores, free = usable_cores(), free_gpu_bytes(plan.options.device)
        places = places_here(trials, cores, free)
        if free is not None and places < min(trials, PER_CORE * cores):
            return (
                places,
                f"one per {GPU_BYTES >> 30} GiB of the {free / 2**30:.0f} GiB free on "
                + ("their GPUs" if isinstance(plan.options.device, tuple) else "the GPU"),
            )
        return places, f"two per core, on {cores} cores" if cores > 1 else "two on the one core"


def engine_of(plan: TrialPlan) -> Engine:
    """Return where a trial runs.

    Raises:
        ValueError: Its engine is not one.
    """
    return cluster_at(plan.options.engine) or ThisMachine()
