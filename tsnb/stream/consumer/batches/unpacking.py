"""Turns a slot into tensors: views over the shared memory, or copies in warm scratch where they must be.

The counterpart of `stream.loader.packing`. A view keeps its slot leased until the last reference to it has gone.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from tsnb.errors import BatchNotShareable, RemoteProtocolError
from tsnb.stream.consumer.batches.device import DeviceShare, device_access
from tsnb.stream.consumer.batches.leaves import array_on, arrays, make
from tsnb.stream.memory.arena import Arena
from tsnb.stream.memory.own_pages import OwnPages
from tsnb.stream.memory.scratch import ScratchPool
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.layout import COLOURS, Layout, decode_values, image_lists
from tsnb.stream.protocol.tree import leaf_paths, unflatten

__all__ = ["Delivered", "Unpacker", "delivered_from"]


class Delivered:
    """One loader batch as its leaves, before it is cut or put together for the user.

    Attributes:
        layout: How the leaves make a tree.
        leaves: Tensors, numpy arrays, scalars and lists of scalars, in the tree's order.
        rows: Samples of the stream that it stands for; `common_rows` tells whether the batch can be cut.
        shared: Whether the leaves lie in shared memory, where others read them too.
        seq: Which loader batch of its epoch it is; -1 where it was put together from several.
        memory: The slot's memory, without keeping it; None where the leaves lie elsewhere.
        private: Whether this consumer wants to write: numpy arrays are read-only else.
        drawn: For each row the index of its sample, as `protocol.messages.Drawn`; empty where it is not known.
        weights: For each row its weight, as `protocol.messages.Drawn`; empty where all are 1.
    """

    __slots__ = ("drawn", "layout", "leaves", "memory", "private", "rows", "seq", "shared", "weights")

    def __init__(self, layout: Layout, leaves: list[Any], rows: int, *, shared: bool) -> None:
        self.layout = layout
        self.leaves = leaves
        self.rows = rows
        self.shared = shared
        self.seq = -1
        self.memory: weakref.ref[Any] | None = None
        self.private = False
        self.drawn = b""
        self.weights = b""

    def tree(self) -> Any:
        """Return the batch as the loader yielded it.

        Raises:
            BatchNotShareable: It needs a class that this process has not loaded.
            RemoteProtocolError: The layout names a class of this process that cannot be made of these leaves.
        """
        if (container := self.layout.container) is not None:
            return container(self.leaves)
        if self.layout.has_numpy and not self.private:
            for leaf in self.leaves:
                if isinstance(leaf, np.ndarray):
                    leaf.flags.writeable = False
        try:
            return unflatten(self.layout.spec, iter(self.leaves), make)
        except BatchNotShareable:
            raise
        except (ValueError, TypeError, AttributeError, StopIteration, RuntimeError) as error:
            raise RemoteProtocolError(f"a batch that does not fit its layout: {error}"[:300]) from None

    def common_rows(self) -> int | None:
        """Return the first dimension that all leaves share; None where they do not."""
        lengths = {_length(leaf) for leaf in self.leaves}
        return lengths.pop() if len(lengths) == 1 else None

    def _may_be_images(self, rows: int) -> bool:
        """Return whether the first dimension may as well be the colours of as many images, in a list."""
        return rows in COLOURS and (rows, rows) in image_lists(self.layout.spec, self.layout.arrays)

    def require_rows(self, option: str, instead: str) -> int:
        """Return the samples, for cutting.

        Args:
            option: What the user asked for, so that batches have to be cut.
            instead: What to do where they cannot be.

        Raises:
            BatchNotShareable: A leaf has no first dimension of that length; names it.
        """
        rows = self.common_rows()
        if rows is not None and self.rows and (rows != self.rows or self._may_be_images(rows)):
            raise BatchNotShareable(
                f"{option} needs batches with one row per sample, but a batch has {rows} rows for "
                f"{self.rows} samples. {instead}, or stack one row per sample in the loader's "
                "collate_fn."
            )
        if rows is not None:
            return rows
        lengths = [_length(leaf) for leaf in self.leaves]
        known = [n for n in lengths if n is not None]
        commonest = max(set(known), key=known.count) if known else None
        path = next(
            (
                p
                for p, n in zip(leaf_paths(self.layout.spec), lengths, strict=True)
                if n is None or n != commonest
            ),
            "batch",
        )
        raise BatchNotShareable(
            f"{option} needs batches whose parts all have the same first dimension, and {path} does "
            f"not. {instead}, or change the loader's collate_fn."
        )


def delivered_from(layout: Layout, memory: Any, values_offset: int, values_bytes: int) -> Delivered:
    """Return a batch that lies in memory of this process's own.

    Args:
        layout: Its layout.
        memory: uint8 [bytes]; kept alive by the leaves.
        values_offset: Where its values lie.
        values_bytes: How many bytes those take.

    Raises:
        RemoteProtocolError: They do not fit to each other.
    """
    try:
        text = memory[values_offset : values_offset + values_bytes].tobytes()
        leaves = _leaves(layout, memory, decode_values(text) if layout.has_values else [])
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise RemoteProtocolError(f"a batch that does not fit its layout: {error}"[:300]) from None
    delivered = Delivered(layout, leaves, 0, shared=False)
    delivered.private = True
    return delivered


class Unpacker:
    """Reads batches for one consumer.

    Args:
        arena: The stream's arena.
        hold: Slots this consumer may keep leased; past that it gets copies.
        scratch: Where the copies go.
        release: Called with a lease's number when its last reference has gone; from any thread.
        on_device: Knows which batches lie on this consumer's device.

    Attributes:
        crowded: Whether the last batch was copied because too many were held.
        pinned: The slots that this process has locked.
        foreign: Whether the arena is another process's alone, so that a forked child need not keep it.
    """

    foreign = False

    def __init__(
        self,
        arena: Arena,
        hold: int,
        scratch: ScratchPool,
        release: Callable[[int], None],
        on_device: DeviceShare | None = None,
    ) -> None:
        self._on_device = on_device
        self._arena = arena
        self._hold = hold
        self._scratch = scratch
        self._release = release
        self._leases: dict[
            int, weakref.ref[Any]
        ] = {}  # single operations are atomic: finalizers need no lock
        self.crowded = False
        self.pinned = device_access().locked(arena)
        self._own = OwnPages(arena, self)

    @property
    def hold(self) -> int:
        """Slots this consumer may keep leased."""
        return self._hold

    @property
    def addresses(self) -> range:
        """Where the arena lies in this process."""
        first = self._arena.address_of(0)
        return range(first, first + self._arena.slots * self._arena.slot_bytes)

    @property
    def held(self) -> tuple[int, ...]:
        """The leases that are out now."""
        # an interrupt may hit a finalizer, which Python then drops: a lease that has died unnoticed is found here
        for number in list(self._leases):
            ref = self._leases.get(number)
            if ref is not None and ref() is None:
                self._leases.pop(number, None)
        # a list, which has its memory before it looks at the dictionary: a tuple takes it after that, the collector may
        # run then, and what it ends leaves the dictionary
        found = list(self._leases)
        return tuple(found)

    def read(self, batch: ms.Batch, layout: Layout, *, private: bool) -> Delivered:
        """Return the batch that lies in a slot.

        Args:
            batch: The producer's message.
            layout: Its layout.
            private: Copy it, whether it must be or not.

        Raises:
            RemoteProtocolError: The message points outside the arena.
        """
        over = self._leased(batch, layout)
        there = None
        if batch.place is not None and self._on_device is not None and self._on_device.has(batch.lease):
            # before the leases are counted: it ends those whose kernels are over
            there = self._on_device.view(batch.lease, layout.array_bytes, over)
        self.crowded = len(self._leases) > self._hold and len(self.held) > self._hold
        copied = private or self.crowded
        if copied and there is not None:
            there = there.clone()  # with its stream's order: the view goes when this has been done
        try:
            values = self._values(over, batch) if layout.has_values else []
            if copied:
                over = self._copy(over, layout.array_bytes)
            if there is None and not layout.has_values:
                leaves = arrays(layout.arrays, over)
            else:
                leaves = _leaves(layout, over, values, there)
            delivered = Delivered(layout, leaves, batch.rows, shared=not copied)
        except (ValueError, TypeError, RuntimeError, OverflowError) as error:
            # values that are not those of the tree; text that is not UTF-8
            raise RemoteProtocolError(f"a batch that does not fit its layout: {error}"[:300]) from None
        delivered.private = private
        delivered.memory = None if copied else self._leases.get(batch.lease)
        return delivered

    def _leased(self, batch: ms.Batch, layout: Layout) -> Any:
        """Return the slot's memory; the lease ends with its last reference."""
        arena = self._arena
        if not (arena.mapped or arena.attach()) or batch.slot >= arena.slots:
            raise RemoteProtocolError(f"a batch in slot {batch.slot} of {arena.slots}")
        if max(batch.values_offset + batch.values_bytes, layout.array_bytes) > arena.slot_bytes:
            raise RemoteProtocolError("a batch that reaches past its slot")
        if self._own.slots and batch.slot in self._own.slots:
            self._own.share(batch.slot)
        over = arena.lease(batch.slot, partial(self._let_go, batch.lease))
        self._leases[batch.lease] = weakref.ref(over)
        return over

    def keep_for_children(self) -> None:
        """Have own pages under all slots that are held now: a process is about to be forked.

        Not under those that are locked for copies to a GPU, which reads the pages that lay there when they were locked;
        what lies on a device cannot be used in a forked process anyway.

        Raises:
            OSError: Memory ran out.
        """
        # held from here on: no other batch can come into these slots while their pages are copied
        held, slots = self._held_slots()
        if not slots and self._arena.fd < 0:
            return  # nothing can be given again, so nothing has to be put back under what was held
        for slot in self._own.slots.keys() - slots:
            self._own.share(slot)
        for slot in slots:
            if slot not in self.pinned:
                self._own.keep(slot)
        del held

    def let_go_in_child(self) -> None:
        """Let go of the arena except the held slots: this process is a child, and gets nothing from the stream."""
        if self.foreign and self._arena.slots:
            self._own.leave(self._held_slots()[1])

    def _held_slots(self) -> tuple[list[Any], set[int]]:
        """Return the leases that are out now, and the slots they are for."""
        held = [over for over in [ref() for ref in list(self._leases.values())] if over is not None]
        first, size = self.addresses.start if held else 0, self._arena.slot_bytes
        return held, {(ctypes.addressof(over) - first) // size for over in held}

    def image(self, batch: ms.Batch, layout: Layout) -> np.ndarray[Any, Any]:
        """Return what was written into a slot, as it lies there: uint8 [bytes], leased like `read`'s leaves.

        Raises:
            RemoteProtocolError: The message points outside the arena.
        """
        over = self._leased(batch, layout)
        size = max(batch.values_offset + batch.values_bytes, layout.array_bytes)
        return np.frombuffer(over, np.uint8, size)

    def pin(self, leaves: list[Any]) -> None:
        """Lock the slots that tensors lie in, for copies to a GPU; what lies elsewhere is left alone."""
        ends: dict[int, int] = {}
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor) and leaf.numel() and leaf.data_ptr() in self.addresses:
                slot, offset = divmod(leaf.data_ptr() - self.addresses.start, self._arena.slot_bytes)
                ends[slot] = max(ends.get(slot, 0), offset + leaf.numel() * leaf.itemsize)
        for slot, size in ends.items():
            self.pinned.pin(slot, size)

    def _let_go(self, number: int) -> None:
        self._leases.pop(number, None)
        self._release(number)

    def _values(self, over: Any, batch: ms.Batch) -> list[Any]:
        text = memoryview(over)[batch.values_offset : batch.values_offset + batch.values_bytes]
        return decode_values(text.tobytes())

    def _copy(self, over: Any, size: int) -> Any:
        block, _ = self._scratch.take(max(1, size))
        if size:
            source = torch.frombuffer(over, dtype=torch.uint8, count=size)
            torch.frombuffer(block, dtype=torch.uint8, count=size).copy_(source)
        return block


def _leaves(layout: Layout, over: Any, values: list[Any], there: torch.Tensor | None = None) -> list[Any]:
    """Return all leaves in the tree's order; `over` is kept alive by those that lie in it.

    Args:
        layout: The batch's.
        over: The slot's memory.
        values: The leaves that are not arrays.
        there: The same bytes on a device, uint8; the tensors are made of those.
    """
    made = (
        arrays(layout.arrays, over)
        if there is None
        else [array_on(leaf, over, there) for leaf in layout.arrays]
    )
    if not layout.has_values:
        return made
    in_memory, rest = iter(made), iter(values)
    if len(values) - layout.beyond != len(layout.leaf_words) - len(layout.arrays):
        raise ValueError(f"{len(values)} values")
    leaves = [next(in_memory) if word == "a" else next(rest) for word in layout.leaf_words]
    for word, leaf in zip(layout.leaf_words, leaves, strict=True):
        if word == "vt" and not isinstance(leaf, list):
            raise ValueError(f"{leaf!r:.80} in place of a tuple")
    return leaves


def _length(leaf: Any) -> int | None:
    if isinstance(leaf, (torch.Tensor, np.ndarray)):
        return int(leaf.shape[0]) if leaf.ndim else None
    return len(leaf) if isinstance(leaf, list) else None
