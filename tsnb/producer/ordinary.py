"""Batches that take the DataLoader's own way, through its queue: as bytes, not through /dev/shm.

The first few do, before the arena has its geometry, and later ones when no slot is free. torch would give each of
their tensors a file in /dev/shm, which containers keep small (64 MB), and a worker that is killed leaves it there.
Runs in the loader's workers; elsewhere nothing is changed.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info
from torch.utils.data._utils import collate as torch_collate

from tsnb.arena.memory import ALIGN_BYTES
from tsnb.producer.packing import SlotImage, SlotWriter, batch_bytes

__all__ = ["carried", "outside_shm"]


class _Room:
    """Memory of this process that stands for an arena of one slot."""

    def __init__(self, size: int) -> None:
        self.buffer = np.empty(size, np.uint8)
        self.slot_bytes = size

    def offset_of(self, slot: int) -> int:
        return 0

    def warm(self, slot: int, size: int) -> None:
        pass


class _Carried:
    """A batch on its way from a worker to its own producer, as it would lie in a slot; arrives as `SlotImage`."""

    def __init__(self, batch: Any) -> None:
        room: Any = _Room(batch_bytes(batch) + ALIGN_BYTES)
        writer = SlotWriter(room, 0)
        placed = writer.write(batch)
        writer.close()
        image = SlotImage(
            placed.layout, placed.rows, placed.values_offset, placed.values_bytes, room.buffer[: writer.used]
        )
        # not as the batch itself: pickles of tensors of some dtypes cannot be read again. Here, not in the queue's
        # thread: an error there is printed, and nothing is sent
        self._bytes = pickle.dumps(image, pickle.HIGHEST_PROTOCOL)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._bytes,)


def carried(batch: Any) -> Any:
    """Return what stands for a collated batch in the DataLoader's queue, if there is one to cross.

    Raises:
        BatchNotShareable: It holds something that cannot be shared.
    """
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
