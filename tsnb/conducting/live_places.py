"""The places of a sweep without a plan: what is seen of its trials says which may be started early.

A trial is like its siblings, as far as anybody knows: its start takes as long as the shortest that was seen of
them, and its process gets as large as the largest. What it would need on a GPU is not known before it runs, so where
there is one, nothing is started early.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence

from tsnb.experiments.remaining import leavers, stream_of
from tsnb.experiments.trial import ENDED, Trial
from tsnb.machine.gpus import Gpus, list_gpus
from tsnb.machine.memory import free_memory
from tsnb.machine.processes import held
from tsnb.planners.queueing import Leaver, Places

__all__ = ["LivePlaces"]

SAFE = 1.5
"""A trial is taken to need so many times the memory of the largest of its siblings."""

_gpus = Gpus()


class LivePlaces(Places):
    """Places that know the trials that have them.

    Args:
        at_once: How many there are.
        trial_of: Returns a trial that has started, by its name.
    """

    def __init__(self, at_once: int, trial_of: Callable[[str], Trial | None]) -> None:
        super().__init__(at_once, clock=time.monotonic)
        self._trial_of = trial_of

    def _running(self) -> list[Trial]:
        found = [self._trial_of(name) for name in self._taken]
        return [trial for trial in found if trial is not None and trial.state not in ENDED]

    def _leavers(self) -> list[Leaver] | None:
        if list_gpus(_gpus):
            return None
        return leavers({trial.name: stream_of(trial.life) for trial in self._running()})

    def _start_s(self, name: str) -> float:
        """Return how long a start took in the middle of those that were seen: one may have waited at a gate."""
        return statistics.median(self._starts_s) if self._starts_s else math.inf

    def _fit(self, names: Sequence[str]) -> bool:
        sizes = [found.most_bytes for trial in self._running() if trial.pid and (found := held(trial.pid))]
        free = free_memory()
        return bool(sizes) and (free is None or free.size >= SAFE * len(names) * max(sizes))
