"""Layouts: where the leaves of a batch lie inside its slot.

A slot holds one batch: its arrays, each at a 64-byte boundary, then the *values* (everything that is no
array) as one JSON text. Batches of equal shapes have equal layouts, so a layout crosses each border once and
is an id from then on (`wire.table`). The values' place changes with every batch and travels with it.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tsnb.errors import RemoteProtocolError
from tsnb.wire import scalars
from tsnb.wire.checks import MAX_BYTES, item_bytes, whole_numbers
from tsnb.wire.tree import Spec, checked_words, leaf_words

__all__ = ["ArrayLeaf", "Layout", "decode_values", "encode_values"]


SAMPLED_ARRAYS = 8
"""The largest ones of a batch that are looked at for changes; three words of each."""
SAMPLED_BYTES = 8


@dataclass(frozen=True)
class ArrayLeaf:
    """One array inside a slot."""

    kind: str
    """`tensor`, `numpy`, or `scalar` (a numpy scalar, kept as a 0-d array)."""
    dtype: str
    """As torch (`float32`) or numpy (`<f4`) spells it, by kind."""
    shape: tuple[int, ...]
    """Its shape; the first dimension is the batch's, where it has one."""
    offset: int
    """Bytes from the slot's start to its first element."""
    strides: tuple[int, ...] | None = None
    """As torch (elements) or numpy (bytes, below 0 where an axis runs backwards) has them; None: as after C."""

    @property
    def extent(self) -> tuple[int, int]:
        """Where its bytes begin and end, from the slot's start."""
        width = item_bytes(self.kind, self.dtype)
        if self.strides is None or 0 in self.shape:
            return self.offset, self.offset + math.prod(self.shape) * width
        unit = width if self.kind == "tensor" else 1
        steps = [(n - 1) * s * unit for n, s in zip(self.shape, self.strides, strict=True)]
        return self.offset + sum(s for s in steps if s < 0), self.offset + sum(
            s for s in steps if s > 0
        ) + width


@dataclass(frozen=True)
class Layout:
    """Everything but the bytes: how to rebuild a batch from a slot."""

    spec: Spec
    """The tree, as `wire.tree` describes it."""
    arrays: tuple[ArrayLeaf, ...]
    """The array leaves in order."""
    has_values: bool
    """Whether there are value leaves, so that a values text follows the arrays."""

    @cached_property
    def array_bytes(self) -> int:
        """Bytes from the slot's start to the end of the last array. Read for every batch, so kept."""
        return max((a.extent[1] for a in self.arrays), default=0)

    @cached_property
    def samples(self) -> tuple[list[int], struct.Struct]:
        """A few words of its arrays: to which array each belongs, and what reads them all at once."""
        extents = [a.extent for a in self.arrays]
        words: list[tuple[int, int, int]] = []
        for index in sorted(range(len(extents)), key=lambda i: extents[i][0] - extents[i][1])[
            :SAMPLED_ARRAYS
        ]:
            low, high = extents[index]
            size = min(SAMPLED_BYTES, high - low)
            words += [(at, size, index) for at in {low, (low + high - size) // 2, high - size} if size]
        form, end, owners = "<", 0, []
        for at, size, index in sorted(words):
            if at >= end:
                form += f"{at - end}x{size}s"
                end = at + size
                owners.append(index)
        return owners, struct.Struct(form)

    @cached_property
    def has_numpy(self) -> bool:
        """Whether there are numpy arrays, which are given read-only."""
        return any(a.kind == "numpy" for a in self.arrays)

    @cached_property
    def leaf_words(self) -> list[str]:
        """What each leaf is, in order: `a` an array, `v` or `vt` a value. Read for every batch, so kept."""
        return leaf_words(self.spec)

    def encode(self) -> bytes:
        """Return the layout as JSON; equal layouts give equal bytes."""
        arrays = [
            [a.kind, a.dtype, list(a.shape), a.offset, *([list(a.strides)] if a.strides is not None else [])]
            for a in self.arrays
        ]
        return json.dumps([self.spec, arrays, self.has_values], separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Layout:
        """Read what `encode` wrote.

        Raises:
            RemoteProtocolError: It is not a layout.
        """
        try:
            spec, arrays, has_values = json.loads(data)
            leaves = tuple(_leaf(*a) for a in arrays)
            words = checked_words(spec)
        except (ValueError, TypeError, RecursionError, OverflowError) as error:
            raise RemoteProtocolError(f"malformed layout: {error}"[:300]) from None
        if words.count("a") != len(leaves) or (len(words) > len(leaves)) != bool(has_values):
            raise RemoteProtocolError("malformed layout: its leaves do not fit its tree")
        return cls(spec, leaves, bool(has_values))


def _leaf(kind: Any, dtype: Any, shape: Any, offset: Any, strides: Any = None) -> ArrayLeaf:
    """Return an array leaf of these fields, which came from another process.

    Raises:
        RemoteProtocolError: There is no such dtype.
        ValueError: They are not an array's, or one of impossible size.
    """
    if not isinstance(kind, str) or not isinstance(dtype, str):
        raise ValueError(f"an array of kind {kind!r:.80} and dtype {dtype!r:.80}")  # as all the others
    size = item_bytes(kind, dtype)
    if not size:
        raise ValueError(f"elements of no bytes, of dtype {dtype!r:.80}")
    leaf = ArrayLeaf(kind, dtype, whole_numbers(shape), whole_numbers([offset])[0])
    # the empty ones too: their strides would overflow
    if math.prod(max(1, n) for n in leaf.shape) * max(1, size) > MAX_BYTES:
        raise ValueError(f"a shape {leaf.shape}")
    if strides is None:
        return leaf
    leaf = replace(leaf, strides=_checked_strides(kind, strides, len(leaf.shape)))
    low, high = leaf.extent
    if low < 0 or high > MAX_BYTES:
        raise ValueError(f"strides {strides!r:.80}")
    return leaf


def _checked_strides(kind: str, strides: Any, dimensions: int) -> tuple[int, ...]:
    if not isinstance(strides, list) or len(strides) != dimensions or kind == "scalar":
        raise ValueError(f"{strides!r:.80} in place of {dimensions} strides")
    if not all(type(s) is int for s in strides) or (kind == "tensor" and min(strides, default=0) < 0):
        raise ValueError(f"{strides!r:.80} in place of strides")
    return (*whole_numbers([abs(s) for s in strides]),) and tuple(strides)


def encode_values(values: list[Any]) -> bytes:
    """Return the value leaves (scalars and lists of scalars) as JSON text."""
    return scalars.encode_values(values)


def decode_values(data: bytes) -> list[Any]:
    """Read what `encode_values` wrote.

    Raises:
        RemoteProtocolError: It is not a values text.
    """
    try:
        return scalars.decode_values(data)
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
        raise RemoteProtocolError(f"malformed values: {error}"[:300]) from None
