"""The places of a sweep without a plan on this machine: what is seen of its trials says which may be started early.

A trial is like its siblings, as far as anybody knows: its start takes as long as the shortest that was seen of them,
and its process gets as large as the largest. What it would need on a GPU is not known before it runs, so where there
is one, nothing is started early.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from tsnb.errors import TsnbError
from tsnb.experiments.trial import ENDED, Trial
from tsnb.machine.gpus import Gpus, list_gpus
from tsnb.machine.memory import free_memory
from tsnb.machine.processes import held
from tsnb.sweeps.queueing import Leaver, Places
from tsnb.telemetry.observer import status
from tsnb.telemetry.readings import ConsumerReading

__all__ = ["LivePlaces", "Remaining"]

SAFE = 1.5
"""A trial is taken to need so many times the memory of the largest of its siblings."""

LEAST_BATCHES = 4
"""Fewer between two looks say nothing about a pace."""

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
        self._ends = Remaining()

    def _running(self) -> list[Trial]:
        found = [self._trial_of(name) for name in self._taken]
        return [trial for trial in found if trial is not None and trial.state not in ENDED]

    def _leavers(self) -> list[Leaver] | None:
        if list_gpus(_gpus):
            return None
        trials = self._running()
        known = self._ends.of({trial.name: trial.report.get("stream", "") for trial in trials})
        return [known.get(trial.name) or Leaver(trial.name, math.inf, math.inf) for trial in trials]

    def _start_s(self, name: str) -> float:
        """Return how long a start took in the middle of those that were seen: one may have waited at a gate."""
        return statistics.median(self._starts_s) if self._starts_s else math.inf

    def _fit(self, names: Sequence[str]) -> bool:
        sizes = [found.most_bytes for trial in self._running() if trial.pid and (found := held(trial.pid))]
        free = free_memory()
        return bool(sizes) and (free is None or free.size >= SAFE * len(names) * max(sizes))


class Remaining:
    """When consumers end, by how fast they went between two looks at their streams."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, float]] = {}

    def of(self, streams: Mapping[str, str]) -> dict[str, Leaver]:
        """Return what is still to come of consumers, as far as their streams say.

        Args:
            streams: Of each, by its name; one that takes several is left out.
        """
        found: dict[str, Leaver] = {}
        for stream in {each for each in streams.values() if each and ", " not in each}:
            with contextlib.suppress(TsnbError, OSError):
                reading = status(stream)
                for consumer in reading.consumers:
                    if reading.epoch_batches and streams.get(consumer.name) == stream:
                        found |= self._of(consumer, reading.epoch_batches)
        return found

    def _of(self, consumer: ConsumerReading, batches: int) -> dict[str, Leaver]:
        inside_s = consumer.computing_s + consumer.waiting_s + consumer.held_s
        before, here = self._before.get(consumer.name, (0, 0.0)), (consumer.batches, inside_s)
        if here[0] - before[0] < LEAST_BATCHES:
            before = 0, 0.0
        else:
            self._before[consumer.name] = here
        if not (consumer.planned >= consumer.epochs > 0 and here[0] > before[0]):
            return {}
        left = (consumer.planned - consumer.epochs) * batches + max(0, batches - consumer.position)
        left_s = left * (here[1] - before[1]) / (here[0] - before[0])
        return {consumer.name: Leaver(consumer.name, left_s, left / batches)}
