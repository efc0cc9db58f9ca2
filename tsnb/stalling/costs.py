"""From counts to costs: what a loader and a step cost a sample, by the medians of several rounds. No clock, no I/O."""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

from tsnb.stalling.measuring import Counted
from tsnb.stalling.sharing import Computing, Loading, Way

__all__ = ["Round", "others", "ways"]


class Round(NamedTuple):
    """Everything measured once."""

    alone: Counted
    """The loader as it is."""
    computing: Counted | None
    """The step; None if none was given."""
    together: Counted | None
    """Both."""
    served: Counted
    """The loader, shared."""
    together_served: Counted | None
    """That and the step."""


def ways(rounds: list[Round], workers: int, *, on_gpu: bool) -> tuple[Way, Way]:
    """Return what a trial costs with a loader of its own, and on one that is shared.

    Args:
        rounds: At least one.
        workers: The loader's.
        on_gpu: Whether the step computes there.
    """
    plain = _loading([r.alone for r in rounds], workers)
    served = _loading([r.served for r in rounds], workers)
    steps = [r.computing for r in rounds if r.computing is not None]
    together = [r.together for r in rounds if r.together is not None]
    together_served = [r.together_served for r in rounds if r.together_served is not None]
    if not steps:
        return Way(plain), Way(served)
    # Caches and memory are busier when all cores work, and that is how several trials will run: a step beside a loader
    # of its own shows how much. Beside a shared one, which has little to do, a core may be idle.
    crowd = _crowd(_median(steps, "computing_s"), _median(together, "computing_s"))
    cpu_s = _median(steps, "computing_s") * crowd
    wall_s = median(run.each(run.wall_s - run.no_core_s) for run in steps) * crowd
    computing = Computing(wall_s, cpu_s, wall_s if on_gpu else 0.0)
    busy_s = _median(together, "rest_s") + _median(together, "taking_s")
    crowd = _crowd(plain.cpu_s + plain.taking_s, busy_s)
    own_s, one_s = _one_s(together), _one_s(together_served)
    # alone it is at least as fast as beside a model, whatever a busy moment made of it
    plain, served = _slower(plain, crowd, own_s), _slower(served, crowd, one_s)
    return Way(plain, computing, own_s), Way(served, computing, one_s)


def others(rounds: list[Round]) -> float | None:
    """Return the cores that other programs took, on average over all rounds."""
    runs = [run for each in rounds for run in each if run is not None]
    taken = [run.others_s for run in runs if run.others_s is not None]
    return sum(taken) / sum(run.wall_s for run in runs) if len(taken) == len(runs) else None


def _one_s(together: list[Counted]) -> float:
    """Return the seconds a sample of one trial, on a machine without other programs."""
    return median(run.each(run.wall_s - min(run.no_core_s, run.others_s or 0.0)) for run in together)


def _slower(loading: Loading, crowd: float, most_s: float) -> Loading:
    wall_s = min(loading.wall_s * crowd, most_s)
    return Loading(wall_s, loading.cpu_s * crowd, loading.taking_s * crowd, loading.workers)


def _crowd(alone_s: float, together_s: float) -> float:
    """Return how many times as much CPU time something takes when everything runs at once."""
    return max(1.0, together_s / alone_s) if alone_s else 1.0


def _median(runs: list[Counted], name: str) -> float:
    """Return a cost a sample, the median of several runs."""
    return median(run.each(getattr(run, name)) for run in runs)


def _loading(runs: list[Counted], workers: int) -> Loading:
    wall_s = median(run.each(run.wall_s - run.no_core_s) for run in runs)
    return Loading(wall_s, _median(runs, "rest_s"), _median(runs, "taking_s"), workers)
