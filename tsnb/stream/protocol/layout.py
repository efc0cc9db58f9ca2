"""Layouts: where the leaves of a batch lie inside its slot.

A slot holds one batch: its arrays, each at a 64-byte boundary, then the *values* (everything that is not
an array) as one JSON text. Batches of equal shapes have equal layouts, so a layout crosses each border once and
is an id from then on (`protocol.table`). The values' place changes with every batch and travels with it.

Encoded, a layout is two lines of JSON. The *form* (the tree, what kind of array each leaf is) stays the same where only
shapes vary from batch to batch, as in detection, and is read and checked once; the *numbers* (shapes, offsets, strides)
are all that is read anew.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from tsnb.errors import RemoteProtocolError
from tsnb.stream.protocol import scalars
from tsnb.stream.protocol.checks import MAX_BYTES, MAX_DIMENSIONS, item_bytes
from tsnb.stream.protocol.specs import HEADS
from tsnb.stream.protocol.tree import Spec, checked_words, leaf_words

__all__ = ["COLOURS", "ArrayLeaf", "Layout", "decode_values", "encode_values", "image_lists"]


SAMPLED_ARRAYS = 8
"""The largest ones of a batch that are looked at for changes; three words of each."""
SAMPLED_BYTES = 8
COLOURS = (3, 4)
"""First dimensions of an image that has colours."""
IMAGE_DIMENSIONS = 3
FORMS = 16
"""First lines of layouts that a process remembers as they were read: a packet each at most."""


class ArrayLeaf(NamedTuple):
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
    """The tree, as `protocol.tree` describes it."""
    arrays: tuple[ArrayLeaf, ...]
    """The array leaves in order."""
    has_values: bool
    """Whether there are value leaves, so that a values text follows the arrays."""
    beyond: int = 0
    """Values at the end of that text that belong to no leaf here (`protocol.forms`)."""

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
    def container(self) -> type[list[Any] | tuple[Any, ...]] | None:
        """What the batch is, where that is a list or a tuple of tensors and nothing else. Read for every batch."""
        found: Any = {"list": list, "tuple": tuple}.get(self.spec[0])
        flat = found is not None and all(child[0] == "a" for child in self.spec[HEADS[self.spec[0]] :])
        return found if flat and all(a.kind == "tensor" for a in self.arrays) else None

    @cached_property
    def leaf_words(self) -> list[str]:
        """What each leaf is, in order: `a` an array, `v` or `vt` a value. Read for every batch, so kept."""
        return leaf_words(self.spec)

    def encode(self) -> bytes:
        """Return the layout as two lines of JSON, its form and its numbers; equal layouts give equal bytes."""
        kinds: dict[tuple[str, str, int, bool], int] = {}
        which: list[int] = []
        numbers: list[int] = []
        for kind, dtype, shape, offset, strides in self.arrays:
            word = (kind, dtype, len(shape), strides is not None)
            which.append(kinds.setdefault(word, len(kinds)))
            numbers += (*shape, offset, *(strides or ()))
        form = [self.spec, [*kinds], which, self.has_values]
        return b"\n".join(json.dumps(part, separators=(",", ":")).encode() for part in (form, numbers))

    @classmethod
    def decode(cls, data: bytes) -> Layout:
        """Read what `encode` wrote.

        Raises:
            RemoteProtocolError: It is not a layout.
        """
        first, _, second = data.partition(b"\n")
        try:
            form = _form(first)
            numbers = json.loads(second)
            if not isinstance(numbers, list) or len(numbers) != form.numbers or {*map(type, numbers)} - {int}:
                raise ValueError(f"{numbers!r:.80} in place of {form.numbers} numbers")
            leaves, at = [], 0
            for kind in form.arrays:
                leaves.append(kind.leaf(numbers[at : at + kind.numbers]))
                at += kind.numbers
        except (ValueError, TypeError, RecursionError, OverflowError) as error:
            raise RemoteProtocolError(f"malformed layout: {error}"[:300]) from None
        return cls(form.spec, tuple(leaves), form.has_values)


class _Kind(NamedTuple):
    """What arrays that differ in their numbers only have in common."""

    kind: str
    dtype: str
    width: int
    """Bytes of an element."""
    dimensions: int
    strided: bool

    @property
    def numbers(self) -> int:
        """How many an array has: shape, offset, strides."""
        return self.dimensions * (1 + self.strided) + 1

    def leaf(self, numbers: list[int]) -> ArrayLeaf:
        """Return an array of these numbers, which came from another process.

        Raises:
            ValueError: They are not an array's, or one of impossible size.
        """
        shape, offset = tuple(numbers[: self.dimensions]), numbers[self.dimensions]
        # the empty ones too: their strides would overflow
        size = math.prod(shape) or math.prod(n or 1 for n in shape)
        if min(numbers[: self.dimensions + 1]) < 0 or max(size * self.width, offset) > MAX_BYTES:
            raise ValueError(f"a shape {shape} at {offset}"[:80])
        if not self.strided:
            return ArrayLeaf(self.kind, self.dtype, shape, offset)
        strides = tuple(numbers[self.dimensions + 1 :])
        leaf = ArrayLeaf(self.kind, self.dtype, shape, offset, strides)
        low, high = leaf.extent
        least = 0 if self.kind == "tensor" else -MAX_BYTES
        if low < 0 or high > MAX_BYTES or not all(least <= s <= MAX_BYTES for s in strides):
            raise ValueError(f"strides {strides!r:.80}")
        return leaf


class _Form(NamedTuple):
    """What layouts have in common that differ in their numbers only: those of one loader, however its shapes vary."""

    spec: Spec
    arrays: tuple[_Kind, ...]
    has_values: bool
    numbers: int
    """How many follow."""


@lru_cache(maxsize=FORMS)
def _form(data: bytes) -> _Form:
    """Read the first line of a layout.

    Raises:
        RemoteProtocolError: A dtype does not exist, or the leaves do not fit the tree.
        ValueError, TypeError, RecursionError: It is not one.
    """
    spec, kinds, which, has_values = json.loads(data)
    known = [_kind(*kind) for kind in kinds]
    if not isinstance(which, list) or not all(type(n) is int and 0 <= n < len(known) for n in which):
        raise ValueError(f"{which!r:.80} in place of kinds of arrays")
    arrays = tuple(known[n] for n in which)
    words = checked_words(spec)
    if words.count("a") != len(arrays) or (len(words) > len(arrays)) != bool(has_values):
        raise RemoteProtocolError("malformed layout: its leaves do not fit its tree")
    return _Form(spec, arrays, bool(has_values), sum(kind.numbers for kind in arrays))


def _kind(kind: Any, dtype: Any, dimensions: Any, strided: Any) -> _Kind:
    if not isinstance(kind, str) or not isinstance(dtype, str):
        raise ValueError(f"an array of kind {kind!r:.80} and dtype {dtype!r:.80}")
    if type(dimensions) is not int or not 0 <= dimensions <= MAX_DIMENSIONS or type(strided) is not bool:
        raise ValueError(f"an array of {dimensions!r:.80} dimensions")
    if strided and kind == "scalar":
        raise ValueError("a scalar with strides")
    width = item_bytes(kind, dtype)
    if not width:
        raise ValueError(f"elements of no bytes, of dtype {dtype!r:.80}")
    return _Kind(kind, dtype, width, dimensions, strided)


def image_lists(spec: Spec, arrays: tuple[ArrayLeaf, ...]) -> list[tuple[int, int]]:
    """Return of each list in a batch that may be one of images how many there are, and their common first dimension.

    A list of arrays of three dimensions and one dtype may be: nothing else tells it from a list of fields.

    Args:
        spec: The batch's tree.
        arrays: Its arrays, in order.
    """
    found: list[tuple[int, int]] = []
    _look_for_images(spec, iter(arrays), found)
    return found


def _look_for_images(
    spec: Spec, arrays: Iterator[ArrayLeaf], found: list[tuple[int, int]]
) -> ArrayLeaf | None:
    if spec[0] == "a":
        return next(arrays, None)
    parts = (
        [_look_for_images(child, arrays, found) for child in spec[HEADS[spec[0]] :]]
        if spec[0] in HEADS
        else []
    )
    likes = {(p.dtype, len(p.shape), p.shape[0]) if p is not None and p.shape else None for p in parts}
    like = likes.pop() if len(likes) == 1 and spec[0] in ("list", "tuple") else None
    if like is not None and like[1] == IMAGE_DIMENSIONS:
        found.append((len(parts), like[2]))
    return None


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
