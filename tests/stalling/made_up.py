"""Measurements that are made up: nothing runs, so every sentence can be asked for."""

from __future__ import annotations

from tsnb.stalling import Computing, Loading, Stalls, Way


def measured(
    *,
    prepare_ms: float = 1.0,
    served_ms: float | None = None,
    compute_ms: float | None = 1.0,
    workers: int = 1,
    cores: float = 2.0,
    trials: int = 4,
    stalled: float = 0.0,
    others: float | None = 0.0,
    device: bool = False,
    resting_ms: float = 0.0,
) -> Stalls:
    """Return what a loader and a model with these CPU milliseconds a sample would give.

    `resting_ms` is time in which the loader waits, for a disk say; `device` moves the computing to a GPU.
    """

    def loading(cpu_ms: float) -> Loading:
        return Loading((cpu_ms + resting_ms) / 1000 / max(1, workers), cpu_ms / 1000, 0.0, workers)

    computing, one_s = None, 0.0
    if compute_ms is not None:
        wall_s = compute_ms / 1000
        computing = Computing(wall_s, wall_s / 10, wall_s) if device else Computing(wall_s, wall_s)
        one_s = wall_s / (1 - stalled)
    served = loading(prepare_ms if served_ms is None else served_ms)
    own, one = Way(loading(prepare_ms), computing, one_s), Way(served, computing)
    return Stalls(trials, cores, 32, 1, own, one, others)
