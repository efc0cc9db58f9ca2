"""Batches that take the DataLoader's own way, through its queue: as bytes, not through /dev/shm.

The first few do, before the arena has its geometry, and later ones when no slot is free. torch would give each of
their tensors a file in /dev/shm, which containers keep small (64 MB), and a worker that is killed leaves it there.
Runs in the loader's workers; elsewhere nothing is changed.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import get_worker_info
from torch.utils.data._utils import collate as torch_collate

__all__ = ["carried", "outside_shm"]


class _Carried:
    """A batch on its way from a worker to its own producer; arrives as the batch itself."""

    def __init__(self, batch: Any) -> None:
        # the queue's own pickler has reducers for tensors, which share them; the plain one has none. Here, not in the
        # queue's thread: an error there is printed, and nothing is sent
        self._bytes = pickle.dumps(batch, pickle.HIGHEST_PROTOCOL)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._bytes,)


def carried(batch: Any) -> Any:
    """Return what stands for a collated batch in the DataLoader's queue, if there is one to cross."""
    return batch if get_worker_info() is None else _Carried(batch)


def outside_shm(stack: Callable[..., Any]) -> Callable[..., Any]:
    """Return torch's way of stacking tensors, without the shared memory that it uses in a worker.

    Args:
        stack: What `default_collate` uses; a function of the user's own stays as it is.
    """
    if stack is not torch_collate.collate_tensor_fn:
        return stack

    def stacked(batch: Any, *, collate_fn_map: Any = None) -> Any:
        first = batch[0]
        plain = first.layout is torch.strided and not first.is_nested
        if get_worker_info() is None or not plain:
            return stack(batch, collate_fn_map=collate_fn_map)
        # as torch does it there: the first tensor's dtype is all's
        return torch.stack(batch, 0, out=first.new_empty((len(batch), *first.shape)))

    return stacked
