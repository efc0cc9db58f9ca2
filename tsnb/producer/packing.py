"""Writes a batch into a slot: tensors and arrays at 64-byte boundaries, everything else as one JSON text.

Runs in the loader's workers (`producer.collate`), or in the producer for loaders that have none.
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any, NamedTuple

import numpy as np
import torch

from tsnb.arena.leases import lease
from tsnb.arena.memory import ALIGN_BYTES, Arena, aligned
from tsnb.errors import BatchNotShareable, BatchTooLarge, RemoteProtocolError
from tsnb.producer.events import Placed
from tsnb.wire.checks import TENSOR_DTYPES, item_bytes
from tsnb.wire.codec import MAX_MESSAGE_BYTES
from tsnb.wire.layout import ArrayLeaf, Layout, encode_values
from tsnb.wire.tree import Spec, checked_words, flatten, leaf_paths

__all__ = ["SlotImage", "SlotWriter", "batch_bytes"]

MAX_LAYOUT_BYTES = MAX_MESSAGE_BYTES - 16
"""A layout travels in one packet, with a few bytes before it."""


class SlotImage(NamedTuple):
    """A batch as it lay in a slot of another arena, byte for byte."""

    layout: bytes
    """`wire.layout.Layout`, encoded."""
    rows: int
    """As `Placed.rows`."""
    values_offset: int
    values_bytes: int
    memory: np.ndarray[Any, Any]
    """uint8 [bytes]: from the slot's start to the end of what was written."""


class SlotWriter:
    """Writes one batch into one slot.

    Args:
        arena: Mapped in this process.
        slot: Free, and this process's to write.
    """

    def __init__(self, arena: Arena, slot: int) -> None:
        self._arena = arena
        self.slot = slot
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

    def write(self, tree: Any) -> Placed:
        """Write a batch; leaves that lie in the slot already stay where they are.

        Raises:
            BatchTooLarge: It does not fit.
            BatchNotShareable: It holds something that cannot be shared.
        """
        if isinstance(tree, SlotImage):
            return self._write_image(tree)
        leaves, spec = flatten(tree, _classify)
        before = self._used
        try:
            return self._write(leaves, spec)
        except BatchTooLarge:
            if not before:
                raise
        # tensors that were stacked here and then made into something smaller fill the slot: begin it afresh
        leaves = [x.clone() if isinstance(x, torch.Tensor) and self._holds(x) else x for x in leaves]
        self._used = 0
        return self._write(leaves, spec)

    def _write_image(self, image: SlotImage) -> Placed:
        size = len(image.memory)
        if self._reserve(size) is None:
            raise self._too_large(size)
        if size:
            start = self._arena.offset_of(self.slot)
            np.frombuffer(self._arena.buffer, np.uint8, size, start)[...] = image.memory
        return Placed(self.slot, image.layout, image.rows, image.values_offset, image.values_bytes)

    def close(self) -> bool:
        """End the writing; return whether nothing else in this process refers to the slot.

        A `collate_fn` may keep a tensor that it got from `default_collate` (a cached constant, say). It lies in
        the slot, so the slot can never be given to another batch while this process lives.
        """
        self._over = None
        return bool(self._let_go)

    def _holds(self, tensor: torch.Tensor) -> bool:
        return tensor.numel() > 0 and tensor.device.type == "cpu" and tensor.data_ptr() in self._range

    def _write(self, leaves: list[Any], spec: Spec) -> Placed:
        values: list[Any] = []
        placed: list[ArrayLeaf] = []
        for number, leaf in enumerate(leaves):
            if isinstance(leaf, torch.Tensor):
                placed.append(self._place_tensor(spec, number, leaf))
            elif (kind := _classify(leaf)) is not None:
                placed.append(self._place_numpy(spec, number, np.asarray(leaf), kind))
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
        return Placed(self.slot, layout, _rows(arrays, values), offset, len(text))

    def _place_tensor(self, spec: Spec, number: int, leaf: torch.Tensor) -> ArrayLeaf:
        """Return where a tensor lies, after copying it in if it lies elsewhere."""
        _require_plain(spec, number, leaf)
        _require_known(spec, number, "tensor", str(leaf.dtype).removeprefix("torch."))
        leaf = leaf.resolve_conj().resolve_neg()  # what is lazy would stay behind: bytes alone cross
        dtype, shape = str(leaf.dtype).removeprefix("torch."), tuple(leaf.shape)
        if self._holds(leaf) and leaf.is_contiguous():
            return ArrayLeaf("tensor", dtype, shape, leaf.data_ptr() - self._range.start)
        inside = self.new_tensor(leaf.dtype, shape)
        if inside is None:
            raise self._too_large(leaf.numel() * leaf.itemsize)
        inside.copy_(leaf.detach())
        offset = inside.data_ptr() - self._range.start if leaf.numel() else 0
        return ArrayLeaf("tensor", dtype, shape, offset)

    def _place_numpy(self, spec: Spec, number: int, array: np.ndarray[Any, Any], kind: str) -> ArrayLeaf:
        """Copy an array in and return where it lies."""
        if array.dtype.hasobject or array.dtype.names:
            raise BatchNotShareable(
                f"{leaf_paths(spec)[number]} is a numpy array of dtype {array.dtype}, whose elements are objects "
                "or records. Convert it to numbers, or to a list of strings, in your collate_fn."
            )
        _require_known(spec, number, kind, array.dtype.str)
        offset = self._reserve(array.nbytes)
        if offset is None:
            raise self._too_large(array.nbytes)
        if array.nbytes:
            start = self._arena.offset_of(self.slot) + offset
            inside: np.ndarray[Any, Any] = np.ndarray(array.shape, array.dtype, self._arena.buffer, start)
            inside[...] = array
        return ArrayLeaf(kind, array.dtype.str, array.shape, offset)

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
            f"a batch needs at least {need:,} bytes, and a slot of the arena has {have:,} (four times the stream's "
            f"first batch, unless you said otherwise). Serve with max_batch_bytes={2 * need}."
        )


def batch_bytes(tree: Any) -> int:
    """Return the bytes a batch needs in a slot."""
    if isinstance(tree, SlotImage):
        return len(tree.memory)
    leaves, _ = flatten(tree, _classify)
    total = len(encode_values([x for x in leaves if _classify(x) is None]))
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            total += leaf.numel() * leaf.itemsize + ALIGN_BYTES
        elif _classify(leaf) is not None:
            total += np.asarray(leaf).nbytes + ALIGN_BYTES
    return total


def _classify(node: Any) -> str | None:
    if isinstance(node, torch.Tensor):
        return "tensor"
    if isinstance(node, np.generic):
        return "scalar"
    return "numpy" if isinstance(node, np.ndarray) else None


def _require_plain(spec: Spec, number: int, leaf: torch.Tensor) -> None:
    if leaf.layout is not torch.strided or leaf.is_nested or leaf.is_quantized:
        kind = "nested" if leaf.is_nested else "quantized" if leaf.is_quantized else "sparse"
        raise BatchNotShareable(
            f"{leaf_paths(spec)[number]} is a {kind} tensor: only dense ones can be shared. Use to_dense()."
        )
    if leaf.device.type != "cpu":
        raise BatchNotShareable(
            f"{leaf_paths(spec)[number]} lies on {leaf.device}: let the loader give CPU tensors and each consumer "
            f'ask for its device, tsnb.attach(..., device="{leaf.device}").'
        )


def _require_known(spec: Spec, number: int, kind: str, dtype: str) -> None:
    """Refuse a dtype that no consumer takes: it makes arrays of bytes, and not of any."""
    if dtype in TENSOR_DTYPES:
        return
    try:
        item_bytes(kind, dtype)
    except RemoteProtocolError:
        raise BatchNotShareable(
            f"{leaf_paths(spec)[number]} has dtype {dtype}, which cannot be shared between processes. Convert it to "
            "one of numbers, or to a list of strings, in your collate_fn."
        ) from None


def _rows(arrays: tuple[ArrayLeaf, ...], values: list[Any]) -> int:
    """Return the samples in a batch: the first dimension that all its leaves share, else 0."""
    lengths = {leaf.shape[0] if leaf.shape else -1 for leaf in arrays}
    lengths |= {len(v) if isinstance(v, list) else -1 for v in values}
    return lengths.pop() if len(lengths) == 1 and -1 not in lengths else _first_rows(arrays)


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
                f"a batch cannot be described to other processes: {error}. Give it a simpler form in your collate_fn."
            ) from None
        encoded = Layout(*key).encode()
        if len(encoded) > MAX_LAYOUT_BYTES:
            raise BatchNotShareable(
                f"a batch has {len(arrays):,} tensors, whose description alone takes {len(encoded):,} bytes (at most "
                f"{MAX_LAYOUT_BYTES:,}). Stack or concatenate them into fewer in your collate_fn."
            )
        _last, _last_bytes = key, encoded
    return _last_bytes
