"""What the processes of one run share: who has taken how much, when to stop, and when the loader gave a batch."""

from __future__ import annotations

import mmap
import time
from multiprocessing import get_context
from typing import Any

import numpy as np
from torch.utils.data import dataloader

__all__ = ["Board", "Times", "stamp_the_loader"]

_fork = get_context("fork")


CAPACITY = 200_000
"""Batches whose times are kept, by consumer: address space only, until they come."""

Times = np.ndarray[Any, np.dtype[np.float64]]


class Board:
    """Shared memory; made before the processes are forked.

    Args:
        consumers: How many take batches.
    """

    def __init__(self, consumers: int) -> None:
        self.taken = _fork.RawArray("q", consumers)
        """Batches, by consumer."""
        self._stopped = _fork.RawValue("b", 0)
        self._times = [mmap.mmap(-1, 2 * CAPACITY * 8) for _ in range(consumers)]

    def open(self, index: int) -> bool:
        """Return whether that consumer shall go on."""
        return not self._stopped.value and self.taken[index] < CAPACITY

    def stop(self) -> None:
        """Let everybody leave at their next step."""
        self._stopped.value = 1

    def times(self, index: int) -> tuple[Times, Times]:
        """Return where a consumer notes, for each batch, when it asked for it and when it had it (monotonic s)."""
        both = np.frombuffer(self._times[index], np.float64)
        return both[:CAPACITY], both[CAPACITY:]

    def read(self) -> list[tuple[Times, Times]]:
        """Return what all consumers have noted so far."""
        counts = self.taken[:]
        return [tuple(t[:n].copy() for t in self.times(i)) for i, n in enumerate(counts)]  # type: ignore[misc]


def stamp_the_loader(stamps: list[float]) -> None:
    """Note the moment (`time.monotonic`, one clock for all processes) of each batch that a DataLoader here gives.

    That is the last moment all systems have in common before a batch is handed out, so what follows is theirs.
    The DataLoader's own `__next__` is wrapped, because a loader of another class might be treated differently.
    tsnb lets one step of a loader of small batches give several: what it gives then has them as `batches`.
    """
    loaders_next = dataloader._BaseDataLoaderIter.__next__

    def stamped(self: Any) -> Any:
        given = loaders_next(self)
        now = time.monotonic()
        several = getattr(given, "batches", None)
        stamps.extend([now] * (len(several) if isinstance(several, list) else 1))
        return given

    dataloader._BaseDataLoaderIter.__next__ = stamped  # type: ignore[method-assign]
