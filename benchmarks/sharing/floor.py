"""The floor: what a DataLoader alone costs when its worker collates into warm shared memory, in one process.

The worker writes a batch into the next of a few slots that go round, and returns the slot's number: an int is
all that goes through the DataLoader's own queue. No producer, no second process that trains, nobody waits for a
slot. What shares batches by a DataLoader cannot be faster, unless it needs fewer steps of the DataLoader's queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import get_worker_info

from benchmarks.sharing.workloads import Workload, make_loader

__all__ = ["take"]

SLOTS = 8
"""For each worker: two that the DataLoader prefetches, one being written, one in use, and slack."""


def _leaves(sample: Any) -> list[Any]:
    """Return what is no container in a sample."""
    if isinstance(sample, dict):
        return [leaf for value in sample.values() for leaf in _leaves(value)]
    if isinstance(sample, tuple):
        return [leaf for value in sample for leaf in _leaves(value)]
    return [sample]


def _slot(leaves: list[Any], batch_size: int) -> list[torch.Tensor]:
    """Return room for a batch: one tensor for each leaf that is a tensor or a number."""
    like = [torch.as_tensor(leaf) for leaf in leaves if not isinstance(leaf, str)]
    slot = [torch.zeros(batch_size, *leaf.shape, dtype=leaf.dtype) for leaf in like]
    for tensor in slot:
        tensor.share_memory_()  # type: ignore[no-untyped-call]
    return slot


class _Collate:
    """Runs in the workers.

    Args:
        slots: Shared before the workers were forked.
    """

    def __init__(self, slots: list[list[torch.Tensor]]) -> None:
        self._slots = slots
        self._next = 0

    def __call__(self, samples: list[Any]) -> Any:
        """Return the slot that the batch lies in; with the strings, where the batch has some."""
        worker = get_worker_info()
        slot = (worker.id if worker else 0) * SLOTS + self._next
        self._next = (self._next + 1) % SLOTS
        room = iter(self._slots[slot])
        strings = []
        for column in zip(*(_leaves(sample) for sample in samples), strict=True):
            if isinstance(column[0], torch.Tensor):
                torch.stack(column, out=next(room))
            elif isinstance(column[0], str):
                strings.append(list(column))
            else:
                next(room).copy_(torch.tensor(column))
        return (slot, strings) if strings else slot


@contextmanager
def take(workload: Workload, workers: int) -> Iterator[Iterator[Any]]:
    """Iterate a loader in this process by way of warm slots."""
    first = _leaves(workload.make()[0])
    slots = [_slot(first, workload.batch_size) for _ in range(SLOTS * max(1, workers))]
    loader = make_loader(workload, workers, collate=_Collate(slots))
    yield (slots[given if isinstance(given, int) else given[0]] for given in loader)
