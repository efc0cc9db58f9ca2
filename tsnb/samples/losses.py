"""What trials report of the losses of samples: a moving average for each sample and trial.

    average = loss                                   the first time
    average = average + SMOOTHING * (loss - average)     from then on

A trial sees each sample once an epoch, so the average reaches over a few of its epochs. Trials are averaged last, each
with the same weight: the loss of a sample is the mean over those that have reported it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["SampleLosses"]

SMOOTHING = 0.5
"""Weight of the newest loss: an older one is of a model that has learned since."""
ROOM = 1.5
"""Memory is taken for so many times the samples that there are, as there will be more."""


class SampleLosses:
    """The losses of one stream's samples. Used from any thread.

    Memory: 4 bytes for each sample and trial.

    Args:
        count: Returns how many samples there are.
        known: What was reported to a producer before, by trial; as `changes` returns it.
    """

    def __init__(
        self, count: Callable[[], int], known: Mapping[str, npt.NDArray[np.float32]] | None = None
    ) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._of = dict(known or {})  # nan where nothing was reported
        self._changed = False

    def note(self, trial: str, samples: npt.NDArray[Any], losses: npt.NDArray[np.float32]) -> None:
        """Take what a trial reports.

        Args:
            trial: Its name.
            samples: Which; those that there are not are left out.
            losses: float32, one for each; finite.
        """
        with self._lock:
            there = samples < self._count()
            samples, losses = samples[there].astype(np.int64), losses[there]
            known = self._with_room(trial)
            self._changed = True
            before = known[samples]
            known[samples] = np.where(np.isnan(before), losses, before + SMOOTHING * (losses - before))

    def _with_room(self, trial: str) -> npt.NDArray[np.float32]:
        known = self._of.get(trial, np.empty(0, np.float32))
        if len(known) < self._count():
            more = np.full(int(ROOM * self._count()) - len(known), np.nan, np.float32)
            known = self._of[trial] = np.concatenate([known, more])
        return known

    @property
    def trials(self) -> tuple[str, ...]:
        """Those that have reported."""
        return tuple(self._of)

    def keep(self, trials: Collection[str]) -> None:
        """Forget what others have reported, unless these have reported nothing.

        Args:
            trials: Names.
        """
        with self._lock:
            if any(name in self._of for name in trials):
                self._changed = self._changed or not self._of.keys() <= set(trials)
                self._of = {name: known for name, known in self._of.items() if name in trials}

    def changes(self, *, anyway: bool = False) -> dict[str, npt.NDArray[np.float32]] | None:
        """Return a copy of all, by trial; None where nothing has changed since it was called last.

        Args:
            anyway: Also where nothing has.
        """
        with self._lock:
            if not (self._changed or anyway):
                return None
            self._changed = False
            return {name: known.copy() for name, known in self._of.items()}

    def mean(self, samples: int, trial: str = "") -> npt.NDArray[np.float64]:
        """Return the loss of each sample: float64 [samples], nan where none was reported.

        Args:
            samples: The first so many.
            trial: Whose; empty: the mean over all trials that have reported it.
        """
        total, reports = np.zeros(samples), np.zeros(samples)
        with self._lock:
            for name, known in self._of.items():
                if not trial or name == trial:
                    part = known[:samples]
                    there = ~np.isnan(part)
                    total[: len(part)][there] += part[there]
                    reports[: len(part)] += there
        total[reports == 0] = np.nan
        return total / np.maximum(reports, 1)
