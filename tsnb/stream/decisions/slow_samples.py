"""Which batch is begun next, so that slow samples do not hold the line. Pure.

The order in which batches are given never changes: only when each is begun. Batch k is wanted (k - given) * pace_s from
now and takes cost_s of one worker, so the latest moment to begin it is

    slack(k) = (k - given) * pace_s - cost_s(k)

and the one with the least slack is begun first: a batch with slow samples overtakes those before it by as much as it
takes longer. What is begun early lies ready until its turn, in the memory that an ordinary loader's workers have for
what they prepare ahead: `room` tickets in all, begun and not given. The batch that is given next always has a place, so
nothing can stand still.

What a batch costs is known from the epochs before, sample by sample (`SampleCosts`); of samples that no worker has
prepared yet, from the sizes of their files, where those are known.

MinatoLoader (2025) gives slow samples later instead, which changes the order and the run; here both stay as they are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["SampleCosts", "begun_next"]

NEWEST = 0.5
"""Weight of a sample's newest measurement: one of them is as often the machine's as the sample's."""


def begun_next(
    given: int, begun: Collection[int], waiting: Mapping[int, float], pace_s: float, room: int
) -> int | None:
    """Return the batch to begin next; None: there is no room, or nothing waits.

    Args:
        given: The number of the batch that is given next.
        begun: The first batch of each ticket that was begun and is not wholly given.
        waiting: By number, in ascending order, the seconds that each batch takes a worker which was not begun.
        pace_s: Seconds between two batches that are given; 0: not known yet.
        room: Tickets that may be begun and not given.
    """
    if len(begun) >= room or not waiting:
        return None
    first = next(iter(waiting))
    if not pace_s or max(waiting.values()) - waiting[first] <= pace_s:
        return first
    if room - len(begun) == 1:
        early = sum(1 for k in begun if k > first)
        if first == given or early >= max(1, room // 2):
            return first
    return min(waiting, key=lambda k: ((k - given) * pace_s - waiting[k], k))


class SampleCosts:
    """Seconds that each sample of a dataset takes a worker.

    Args:
        samples: In the dataset.
        size_of: Returns the bytes of a sample's file by its index, 0 where that is not known; None: nothing is known.
    """

    def __init__(self, samples: int, size_of: Callable[[int], float] | None = None) -> None:
        self._took_s = np.zeros(samples, np.float32)
        """0: not prepared yet."""
        self._size_of = size_of
        self._bytes = np.zeros(samples if size_of is not None else 0, np.float32)
        self._sum_s = 0.0
        self._sum_bytes = 0.0
        self.measured = 0

    def note(self, keys: Any, took_s: npt.NDArray[np.float32] | float) -> None:
        """Take what a batch's samples have taken.

        Args:
            keys: Their indices; what is not an index of the dataset is passed over.
            took_s: Seconds of each, or of all alike.
        """
        indices = self._indices(keys)
        if indices is None:
            return
        took = np.maximum(np.broadcast_to(np.asarray(took_s, np.float32), indices.shape), 1e-9)
        before = self._took_s[indices]
        new = before == 0
        self._took_s[indices] = np.where(new, took, before + NEWEST * (took - before))
        self.measured += int(np.count_nonzero(new))
        self._sum_s += float(took[new].sum())
        if self._size_of is not None and new.any():
            self._sum_bytes += float(self._sizes(indices[new]).sum())

    def batch_s(self, keys: Any) -> float:
        """Return what a batch will take a worker; what nothing is known of counts as the mean.

        Args:
            keys: The indices of its samples, or that of the only one.
        """
        indices = self._indices(keys) if self.measured else None
        if indices is None:
            return 0.0
        took = self._took_s[indices]
        unknown = took == 0
        total = float(took.sum())
        if not unknown.any():
            return total
        mean_s = self._sum_s / self.measured
        if self._size_of is not None and self._sum_bytes:
            sizes = self._sizes(indices[unknown])
            return total + float(np.where(sizes > 0, sizes * (self._sum_s / self._sum_bytes), mean_s).sum())
        return total + mean_s * int(np.count_nonzero(unknown))

    def _sizes(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        assert self._size_of is not None
        for index in indices[self._bytes[indices] == 0].tolist():
            self._bytes[index] = self._size_of(index)
        return self._bytes[indices]

    def _indices(self, keys: Any) -> npt.NDArray[np.int64] | None:
        """Return keys as indices; None where they are something else."""
        try:
            each = map(operator.index, keys if isinstance(keys, Iterable) else (keys,))
            indices = np.fromiter(each, np.int64)
        except (TypeError, ValueError, OverflowError):
            return None
        if not len(indices) or indices.min() < 0 or indices.max() >= len(self._took_s):
            return None
        return indices
