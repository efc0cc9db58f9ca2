"""Collate into a slot: what runs in the loader's workers in place of the user's `collate_fn`.

The user's own function still runs, unchanged. Two things are different around it: `default_collate` stacks
tensors straight into a free slot, and leaves that are found outside the slot afterwards are copied in, by the
worker. What goes back through the DataLoader's queue is a `Placed`: numbers, no tensor.

A slot is taken after the expensive decode, so that none lies idle while a worker works. When none comes free
in time, or before the arena has its geometry, the batch takes the ordinary way and the producer copies it.

On the ordinary way a batch goes through the DataLoader's own queue: as bytes, not through /dev/shm (`carried`). The
first batch does, which gives the arena its geometry, and later ones when no slot is free. torch would give each of
their tensors a file in /dev/shm, which containers keep small (64 MB), and a worker that is killed leaves it there.

The ordinary way copies a batch four times, most of it in the producer's one loading thread. So the first batches of the
other workers wait until the first one has arrived: no batch can be given before it anyway.
"""

from __future__ import annotations

import contextlib
import operator
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info
from torch.utils.data._utils import collate as torch_collate

from tsnb.errors import ArenaFull
from tsnb.stream.decisions.events import Placed
from tsnb.stream.loader.packing import Collated, RowCounting, SlotImage, SlotWriter, batch_bytes
from tsnb.stream.memory.arena import ALIGN_BYTES, Arena
from tsnb.stream.memory.slots import SlotPipe

__all__ = ["SlotCollate", "carried", "image_of", "outside_shm", "outside_slot"]


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

    def __init__(self, batch: Any, samples: int | None) -> None:
        image = image_of(batch, samples)
        # not as the batch itself: pickles of tensors of some dtypes cannot be read again. Here, not in the queue's
        # thread: an error there is printed, and nothing is sent
        self._bytes = pickle.dumps(image, pickle.HIGHEST_PROTOCOL)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._bytes,)


def image_of(batch: Any, samples: int | None = None) -> SlotImage:
    """Return a batch as it would lie in a slot.

    Args:
        batch: The batch.
        samples: As `carried`.

    Raises:
        BatchNotShareable: It holds something that cannot be shared.
    """
    room: Any = _Room(batch_bytes(batch) + ALIGN_BYTES)
    writer = SlotWriter(room, 0)
    placed = writer.write(batch, samples)
    writer.close()
    memory = room.buffer[: writer.used]
    return SlotImage(placed.layout, placed.rows, placed.values_offset, placed.values_bytes, memory)


def carried(batch: Any, samples: int | None = None) -> Any:
    """Return what stands for a collated batch on its way to the producer: in the DataLoader's queue, or here.

    Args:
        batch: The batch.
        samples: How many samples it was made of; None: that is not known.

    Raises:
        BatchNotShareable: It holds something that cannot be shared.
    """
    return Collated(batch, samples) if get_worker_info() is None else _Carried(batch, samples)


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


GEOMETRY_WAIT_S = 5.0
"""How long the first batch of another worker than the first waits for the arena's geometry, before it takes the
ordinary way: the first worker may have the one sample that takes long, or none at all."""
LOOK_S = 0.002
"""How often it is looked whether the geometry is there."""
SLOT_WAIT_S = 0.5
"""How long a worker waits for a free slot. One is normally there at once; waiting longer would only move the
back-pressure from the DataLoader's own queue to here."""


class SlotCollate:
    """Stands in for the loader's `collate_fn`.

    Args:
        arena: Inherited or carried into the worker; mapped there once it has its geometry.
        pipe: Where free slots come from.
        user: The loader's own `collate_fn`.
        batched: Whether it makes batches of samples, and does not get ready ones.
    """

    def __init__(self, arena: Arena, pipe: SlotPipe, user: Callable[[Any], Any], *, batched: bool) -> None:
        self._arena = arena
        self._pipe = pipe
        self._user = user
        self._batched = batched
        self._stack = True
        self._spare: int | None = None
        self._counting = RowCounting()
        self._early = 0  # batches of this process before the arena had its geometry

    def __call__(self, samples: Any) -> Any:
        """Return the collated batch, as a `Placed` if a slot could be had."""
        with _stacking:
            return self._collated(samples)

    def _collated(self, samples: Any) -> Any:
        # counted before the user's function gets them, which may change the list
        count = len(samples) if self._batched and isinstance(samples, (list, tuple)) else None
        made: list[Any] = []  # the batch, where it is there before its slot
        if not self._arena.attach():
            made.append(self._user(samples))
            if not self._geometry_comes():
                return carried(made[0], count)
        slot = self._pipe.take(SLOT_WAIT_S) if self._spare is None else self._spare
        if slot is None:
            return carried(made[0] if made else self._user(samples), count)
        self._spare = slot  # for the next batch, if this one comes to nothing
        writer = SlotWriter(self._arena, slot, self._counting)
        _here.writer = writer if self._stack and not made else None
        try:
            placed = writer.write(made[0] if made else self._user(samples), count)
        finally:
            _here.writer = None
        self._spare = None
        return placed if writer.close() else self._moved(placed)

    def _geometry_comes(self) -> bool:
        """Wait until the first worker's batch has given the arena its geometry; return whether it has."""
        self._early += 1
        worker = get_worker_info()
        # the first worker's first batch is the one that is waited for; and nobody waits twice
        if worker is None or self._early != (2 if worker.id == 0 else 1):
            return False
        until = time.monotonic() + GEOMETRY_WAIT_S
        while not self._arena.attach():
            if time.monotonic() > until:
                return False
            time.sleep(LOOK_S)
        return True

    def _moved(self, placed: Placed) -> Placed:
        """Copy a batch to another slot: the user's function kept a tensor in this one, which is theirs now.

        It will do so again, so from now on tensors are stacked outside and copied in.
        """
        self._stack = False
        other = self._pipe.take(60 * SLOT_WAIT_S)
        if other is None:
            raise ArenaFull("no second buffer became free for a batch whose collate_fn keeps a tensor of it")
        self._arena.copy(placed.slot, other)
        return placed._replace(slot=other)


_here = threading.local()
"""The writer of the batch being collated, by thread: other loaders of this process collate as ever."""


@contextlib.contextmanager
def outside_slot() -> Iterator[None]:
    """Let `default_collate` stack tensors elsewhere inside the block: they are not what goes into the slot."""
    writer, _here.writer = getattr(_here, "writer", None), None
    try:
        yield
    finally:
        _here.writer = writer


class _Stacking:
    """Lets `default_collate` stack tensors inside a slot while some thread collates for one.

    Without workers this is the user's own process: afterwards its `default_collate` is torch's again. A function that
    the user has put in its place meanwhile stays.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads = 0
        self._found: Any = None
        self.ordinary: Callable[..., Any] = torch_collate.collate_tensor_fn

    def __enter__(self) -> None:
        functions: dict[Any, Any] = torch_collate.default_collate_fn_map
        with self._lock:
            self._threads += 1
            if functions[torch.Tensor] is not _stack_tensors:
                self._found = functions[torch.Tensor]
                self.ordinary = outside_shm(self._found)
                functions[torch.Tensor] = _stack_tensors

    def __exit__(self, *_: object) -> None:
        functions: dict[Any, Any] = torch_collate.default_collate_fn_map
        with self._lock:
            self._threads -= 1
            if not self._threads and functions[torch.Tensor] is _stack_tensors:
                functions[torch.Tensor] = self._found

    def reset(self) -> None:
        """Forget the threads of the parent (`native.forks`, 3)."""
        self._lock, self._threads = threading.Lock(), 0
        if torch_collate.default_collate_fn_map[torch.Tensor] is _stack_tensors:
            torch_collate.default_collate_fn_map[torch.Tensor] = self._found


_stacking = _Stacking()
os.register_at_fork(after_in_child=_stacking.reset)


def _stack_tensors(batch: Any, *, collate_fn_map: Any = None) -> Any:
    writer: SlotWriter | None = getattr(_here, "writer", None)
    if writer is None:
        return _stacking.ordinary(batch, collate_fn_map=collate_fn_map)
    first = batch[0]
    plain = first.layout is torch.strided and not first.is_nested and first.device.type == "cpu"
    # of mixed dtypes torch makes what it makes; `out` would silently round to its own
    if plain and len(set(map(_dtype_of, batch))) == 1:
        out = writer.new_tensor(first.dtype, (len(batch), *first.shape))
        if out is not None:  # else it does not fit: the writer will say so, with the sizes
            try:
                return torch.stack(batch, 0, out=out)
            except (RuntimeError, TypeError):  # shapes that differ, gradients: what torch says or does then
                pass
    return _stacking.ordinary(batch, collate_fn_map=collate_fn_map)


_dtype_of = operator.attrgetter("dtype")
