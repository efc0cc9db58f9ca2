"""The class of each sample of a data set that grows, as the user's function tells it: asked once for each sample."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import numpy.typing as npt

from tsnb.errors import TsnbError

__all__ = ["STEP", "Labels"]

STEP = 1000
"""Samples that are asked for at a time: others may ask in between, and the stream may end."""


class Labels:
    """The class of each sample, numbered in the order in which classes were found. Used from any thread.

    Args:
        label: Tells a sample's class: anything that can be a key of a dict.
        fetch: Returns what `label` gets, by the sample's number.
    """

    def __init__(self, label: Callable[[Any], Hashable], fetch: Callable[[int], Any]) -> None:
        self._label = label
        self._fetch = fetch
        self._lock = threading.Lock()
        self._numbers: dict[Hashable, int] = {}
        self._of = np.empty(0, np.int32)
        self.known = 0
        """Samples whose class is known, from the first on."""

    def of(self, samples: int) -> npt.NDArray[np.int64]:
        """Return the class of each of the first so many samples: int64 [samples].

        Raises:
            TsnbError: The function raised, or gave what cannot name a class; it says for which sample.
        """
        while self.known < samples:
            with self._lock:
                self._ask(min(samples, self.known + STEP))
        return self._of[:samples].astype(np.int64)

    def counts(self, samples: int) -> npt.NDArray[np.int64]:
        """Return how many of the first so many samples each class has; of those whose class is known."""
        return np.bincount(self._of[: min(samples, self.known)])

    def _ask(self, stop: int) -> None:
        fresh = [self._number(sample) for sample in range(self.known, stop)]
        if len(self._of) < stop:
            self._of = np.concatenate([self._of, np.empty(stop, np.int32)])
        self._of[self.known : stop] = fresh
        self.known = max(self.known, stop)

    def _number(self, sample: int) -> int:
        told = self._fetch(sample)
        try:
            return self._numbers.setdefault(self._label(told), len(self._numbers))
        except Exception as error:
            raise TsnbError(
                f"label= of tsnb.data.grow raised {type(error).__name__} for sample {sample} "
                f"({told!r:.80}): {error}. Let it return the class of each sample, as a string or a "
                "number."
            ) from error
