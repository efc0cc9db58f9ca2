"""What several loaders of the same data cost each other, beyond the cores, and the memory of one: two run at once.

Two loaders with a core each can still hold each other up: a disk that serves one read at a time, a lock, the memory
bus. Where a sample takes clearly longer with two at once than alone, half of it is what one loader at a time can have:

    alone t1 a sample, two at once t2 > t1     each has t2 / 2 of what no other can have meanwhile
    k at once                                  k t2 / 2 a sample each, or longer for want of cores
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader

from tsnb.machine.processes import children_of, held
from tsnb.stalling.measuring import fresh, length_of, run, undisturbed
from tsnb.stalling.sharing import Loading

__all__ = ["LoaderContention", "contention"]

CLEAR = 1.15
"""Two at once are slower by another reason than chance if a sample takes so many times as long."""


@dataclass(frozen=True)
class LoaderContention:
    """What a loader costs others."""

    lone_s: float = 0.0
    """Seconds a sample in which no other loader of the same data gets on; 0: nothing was noticed."""
    memory_bytes: float = 0.0
    """Memory of its workers alone."""


class _Two:
    """Two loaders of the same data, a batch of each at a time. Counts the first one's samples."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loaders = fresh(loader), fresh(loader)
        self.memory_bytes = 0.0
        self._before = set(children_of(os.getpid()))

    def __iter__(self) -> Iterator[Any]:
        """Go through one epoch of each; at its end, or where it is left, see what memory the workers have."""
        first, second = map(iter, self._loaders)
        try:
            yield from zip(first, second, strict=False)
        finally:
            workers = set(children_of(os.getpid())) - self._before
            own = [memory.own_bytes for pid in workers if (memory := held(pid)) is not None]
            self.memory_bytes = max(self.memory_bytes, sum(own) / 2)


def contention(loader: Any, alone: Loading, seconds: float) -> LoaderContention:
    """Run two copies of a loader at once; return what they cost each other, and what memory one takes.

    Args:
        loader: A DataLoader with workers; of another nothing can be told.
        alone: What it costs alone.
        seconds: How long to count.

    Raises:
        ValueError: An epoch has one batch.
    """
    if not isinstance(loader, DataLoader) or not loader.num_workers:
        return LoaderContention()
    both = _Two(loader)
    ahead = loader.num_workers * (loader.prefetch_factor or 0)
    with undisturbed(loader):
        counted = run(both, None, seconds, ahead, length_of(loader))
    two_s = counted.each(counted.wall_s - counted.no_core_s)
    one_s = max(alone.wall_s, 2 * alone.taking_s)  # this thread takes the batches of both
    return LoaderContention(two_s / 2 if two_s > CLEAR * one_s else 0.0, both.memory_bytes)
