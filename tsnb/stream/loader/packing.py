"""Writes a batch into a slot: tensors and arrays at 64-byte boundaries, everything else as one JSON text.

Runs in the loader's workers (`stream.loader.collate`), or in the producer for loaders without workers.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from tsnb.errors import BatchNotShareable, BatchTooLarge
from tsnb.stream.decisions.events import Placed
from tsnb.stream.loader.leaves import DTYPE_WORDS, array_placing, classify, dtype_word, tensor_placing
from tsnb.stream.memory.arena import ALIGN_BYTES, Arena, aligned
from tsnb.stream.memory.leases import lease
from tsnb.stream.protocol.codec import MAX_MESSAGE_BYTES
from tsnb.stream.protocol.layout import COLOURS, ArrayLeaf, Layout, encode_values, image_lists
from tsnb.stream.protocol.tree import Spec, checked_words, flatten

__all__ = ["ArrivingImage", "Collated", "RowCounting", "SlotImage", "SlotWriter", "batch_bytes"]

MAX_LAYOUT_BYTES = MAX_MESSAGE_BYTES - 16
"""A layout travels in one packet, with a few bytes before it."""


class Collated:
    """A batch that a loader made in the producer's own process, and how many samples it made it of."""

    __slots__ = ("batch", "samples")

    def __init__(self, batch: Any, samples: int | None) -> None:
        self.batch = batch
        self.samples = samples


class SlotImage(NamedTuple):
    """A batch as it lay in a slot of another arena, byte for byte."""

    layout: bytes
    """`protocol.layout.Layout`, encoded."""
    rows: int
    """As `Placed.rows`."""
    values_offset: int
    values_bytes: int
    memory: np.ndarray[Any, Any]
    """uint8 [bytes]: from the slot's start to the end of what was written."""


class ArrivingImage(NamedTuple):
    """A batch as it lies in a slot of another machine, whose bytes are received when it has a slot here."""

    layout: bytes
    """As `SlotImage`."""
    rows: int
    values_offset: int
    values_bytes: int
    size: int
    """Bytes from the slot's start to the end of what was written."""
    fill: Callable[[Any], None]
    """Receives them into so much memory."""
    first_bytes: int
    """What the stream's largest batch took: this one may hold fewer samples, and slots are as large as that needs."""


class RowCounting:
    """Counts the samples of one stream's batches, where nobody says how many they were made of."""

    def __init__(self) -> None:
        # whether a list in its batches is one of fields: their first dimension is no number of colours
        self._fields = False

    def rows(self, spec: Spec, arrays: tuple[ArrayLeaf, ...], values: list[Any], samples: int | None) -> int:
        """Return the samples in a batch: those that it was made of, else the first dimension that all its leaves share.

        A dataset whose one sample is a ready batch (`collate_fn=lambda batch: batch[0]`) has as many as that has rows.

        Args:
            spec: The batch's tree.
            arrays: Its arrays, in order.
            values: Its other leaves.
            samples: How many samples it was made of; None: that is not known.
        """
        lengths = {leaf.shape[0] if leaf.shape else -1 for leaf in arrays}
        lengths |= {len(v) if isinstance(v, list) else -1 for v in values}
        common = lengths.pop() if len(lengths) == 1 and -1 not in lengths else 0
        images = image_lists(spec, arrays)
        if samples is None:
            return self._listed(spec, images) or common or _first_rows(arrays)
        ready = samples == 1 and common and all(count > 1 for count, _ in images)
        return common if ready else samples

    def _listed(self, spec: Spec, images: list[tuple[int, int]]) -> int:
        """Return how many images a batch lists; 0 where it lists none.

        A list of two images of three colours looks like a list of two fields of three samples. Another batch of the
        stream tells: images keep their colours, and fields have as many rows as there are samples. A pair of fields
        comes as a tuple mostly.
        """
        self._fields |= any(rows not in (1, *COLOURS) for _, rows in images)
        if self._fields:
            return 0
        return next((count for count, rows in images if count > rows or spec[0] == "list"), 0)


class SlotWriter:
    """Writes one batch into one slot.

    Args:
        arena: Mapped in this process.
        slot: Free, and this process's to write.
        counting: Counts the samples of this stream's batches.
    """

    def __init__(self, arena: Arena, slot: int, counting: RowCounting | None = None) -> None:
        self._arena = arena
        self.slot = slot
        self._counting = RowCounting() if counting is None else counting
        self._used = 0
        self._let_go: list[bool] = []  # an Event would do, at ten times the price a batch
        released = functools.partial(self._let_go.append, True)
        self._over = lease(arena.buffer, arena.offset_of(slot), arena.slot_bytes, released)
        low = ctypes.addressof(self._over)
        self._range = range(low, low + arena.slot_bytes)

    def new_tensor(self, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor | None:
        """Return an uninitialised tensor inside the slot; None when it does not fit."""
        count = math.prod(shape)
        offset = self._reserve(dtype.itemsize * count)
        if offset is None:
            return None
        if not count:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self._over, dtype=dtype, count=count, offset=offset).view(shape)

    def write(self, tree: Any, samples: int | None = None) -> Placed:
        """Write a batch; leaves that lie in the slot already stay where they are.

        Args:
            tree: The batch.
            samples: How many samples it was made of; None: that is not known.

        Raises:
            BatchTooLarge: It does not fit.
            BatchNotShareable: It holds something that cannot be shared.
        """
        if isinstance(tree, (SlotImage, ArrivingImage)):
            return self._write_image(tree)
        if isinstance(tree, Collated):
            tree, samples = tree.batch, tree.samples
        leaves, spec = flatten(tree, classify)
        before = self._used
        try:
            return self._write(leaves, spec, samples)
        except BatchTooLarge:
            if not before:
                raise
        # tensors that were stacked here and then made into something smaller fill the slot: begin it afresh
        leaves = [_outside(x) if isinstance(x, torch.Tensor) and self._holds(x) else x for x in leaves]
        self._used = 0
        return self._write(leaves, spec, samples)

    def _write_image(self, image: SlotImage | ArrivingImage) -> Placed:
        size = image.size if isinstance(image, ArrivingImage) else len(image.memory)
        if self._reserve(size) is None:
            raise self._too_large(size)
        start = self._arena.offset_of(self.slot)
        inside = np.frombuffer(self._arena.buffer, np.uint8, size, start) if size else np.empty(0, np.uint8)
        if isinstance(image, ArrivingImage):
            image.fill(inside)
        else:
            inside[...] = image.memory
        return Placed(self.slot, image.layout, image.rows, image.values_offset, image.values_bytes)

    @property
    def used(self) -> int:
        """Bytes from the slot's start to the end of what was written."""
        return self._used

    def close(self) -> bool:
        """End the writing; return whether nothing else in this process refers to the slot.

        A `collate_fn` may keep a tensor that it got from `default_collate` (a cached constant, say). It lies in
        the slot, so the slot can never be given to another batch while this process lives.
        """
        self._over = None
        return bool(self._let_go)

    def _holds(self, tensor: torch.Tensor) -> bool:
        return tensor.data_ptr() in self._range and tensor.numel() > 0

    def _write(self, leaves: list[Any], spec: Spec, samples: int | None) -> Placed:
        values: list[Any] = []
        placed: list[ArrayLeaf] = []
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor):
                placed.append(self._place_tensor(leaf))
            elif isinstance(leaf, np.generic):
                placed.append(self._place_numpy(np.asarray(leaf), "scalar"))
            elif isinstance(leaf, np.ndarray):
                placed.append(self._place_numpy(leaf, "numpy"))
            else:
                values.append(leaf)
        text = encode_values(values) if values else b""
        offset = self._reserve(len(text))
        if offset is None:
            raise self._too_large(len(text))
        if text:
            inside = torch.frombuffer(self._over, dtype=torch.uint8, count=len(text), offset=offset)
            inside.copy_(torch.frombuffer(bytearray(text), dtype=torch.uint8))
        arrays = tuple(placed)
        layout = _encoded(spec, arrays, bool(values))
        return Placed(
            self.slot, layout, self._counting.rows(spec, arrays, values, samples), offset, len(text)
        )

    def _place_tensor(self, leaf: torch.Tensor) -> ArrayLeaf:
        """Return where a tensor lies, after copying it in if it lies elsewhere."""
        leaf = (
            leaf.resolve_conj().resolve_neg()
        )  # lazy conjugation and negation would stay behind: bytes alone cross
        dtype, shape = DTYPE_WORDS[leaf.dtype], tuple(leaf.shape)
        size, _, strides, as_it_is = tensor_placing(leaf)
        if as_it_is and self._holds(leaf):
            return ArrayLeaf("tensor", dtype, shape, leaf.data_ptr() - self._range.start, strides)
        inside = self.new_tensor(leaf.dtype, shape if strides is None else (size // leaf.itemsize,))
        if inside is None:
            raise self._too_large(size)
        offset = inside.data_ptr() - self._range.start if size else 0
        if strides is None:
            inside.copy_(leaf)
        elif as_it_is:
            inside.copy_(leaf.as_strided(inside.shape, (1,)))
        else:
            inside.as_strided(shape, strides).copy_(leaf)
        return ArrayLeaf("tensor", dtype, shape, offset, strides)

    def _place_numpy(self, array: np.ndarray[Any, Any], kind: str) -> ArrayLeaf:
        """Copy an array in and return where it lies."""
        size, first, strides, _ = array_placing(array)
        offset = self._reserve(size)
        if offset is None:
            raise self._too_large(size)
        offset += first
        if size:
            start = self._arena.offset_of(self.slot) + offset
            inside: np.ndarray[Any, Any] = np.ndarray(
                array.shape, array.dtype, self._arena.buffer, start, strides
            )
            if array.dtype.names is None:
                inside[...] = array
            else:  # what lies between the fields too
                whole = f"V{array.itemsize}"
                inside.view(whole)[...] = array.view(whole)
        return ArrayLeaf(kind, dtype_word(array.dtype), array.shape, offset, strides)

    def _reserve(self, size: int) -> int | None:
        offset = aligned(self._used)
        if offset + size > len(self._range):
            return None
        self._used = offset + size
        self._arena.warm(self.slot, self._used)
        return offset

    def _too_large(self, size: int) -> BatchTooLarge:
        have = len(self._range)
        need = aligned(self._used) + size
        return BatchTooLarge(
            f"A batch needs at least {need:,} bytes, but a buffer of the stream's memory has {have:,}. "
            f"Serve with max_batch_bytes={2 * need} (--max-batch-bytes on a command line)."
        )


def _outside(leaf: torch.Tensor) -> torch.Tensor:
    """Return a copy with the same strides: `clone()` would spread out expanded dimensions."""
    size, _, strides, as_it_is = tensor_placing(leaf)
    if strides is None or not as_it_is:
        return leaf.clone()
    return leaf.as_strided((size // leaf.itemsize,), (1,)).clone().as_strided(leaf.shape, strides)


def batch_bytes(tree: Any) -> int:
    """Return the bytes a batch needs in a slot."""
    if isinstance(tree, SlotImage):
        return len(tree.memory)
    if isinstance(tree, ArrivingImage):
        return max(tree.size, tree.first_bytes)
    if isinstance(tree, Collated):
        tree = tree.batch
    leaves, _ = flatten(tree, classify)
    arrays = [x for x in leaves if isinstance(x, (torch.Tensor, np.ndarray, np.generic))]
    total = len(
        encode_values([x for x in leaves if not isinstance(x, (torch.Tensor, np.ndarray, np.generic))])
    )
    for leaf in arrays:
        placing = tensor_placing(leaf) if isinstance(leaf, torch.Tensor) else array_placing(np.asarray(leaf))
        total += placing.size + ALIGN_BYTES
    return total


def _first_rows(arrays: tuple[ArrayLeaf, ...]) -> int:
    """Return the first array's first dimension: good enough to count samples, never used to cut a batch."""
    return next((leaf.shape[0] for leaf in arrays if leaf.shape), 0)


_last: tuple[Spec, tuple[ArrayLeaf, ...], bool] | None = None
_last_bytes = b""


def _encoded(spec: Spec, arrays: tuple[ArrayLeaf, ...], has_values: bool) -> bytes:
    """Return the layout's bytes; batches of one loader are mostly alike, so the last one is remembered."""
    global _last, _last_bytes
    key = (spec, arrays, has_values)
    if key != _last:
        try:
            checked_words(spec)
        except ValueError as error:
            raise BatchNotShareable(
                f"A batch cannot be described to other processes: {error}. Give it a simpler structure "
                "in your collate_fn."
            ) from None
        encoded = Layout(*key).encode()
        if len(encoded) > MAX_LAYOUT_BYTES:
            raise BatchNotShareable(
                f"A batch has {len(arrays):,} tensors, whose description takes {len(encoded):,} bytes, "
                f"but only {MAX_LAYOUT_BYTES:,} are allowed. Stack or concatenate them into fewer in "
                "your collate_fn."
            )
        _last, _last_bytes = key, encoded
    return _last_bytes
