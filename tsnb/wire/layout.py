"""Layouts: where the leaves of a batch lie inside its slot.

A slot holds one batch: its arrays, each at a 64-byte boundary, then the *values* (everything that is no
array) as one JSON text. Batches of equal shapes have equal layouts, so a layout crosses each border once and
is an id from then on (`wire.table`). The values' place changes with every batch and travels with it.
"""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tsnb.errors import RemoteProtocolError
from tsnb.wire.checks import MAX_BYTES, item_bytes, whole_numbers
from tsnb.wire.tree import Spec, checked_words

__all__ = ["ArrayLeaf", "Layout", "decode_values", "encode_values"]


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
    """Bytes from the slot's start."""


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
        return max(
            (a.offset + math.prod(a.shape) * item_bytes(a.kind, a.dtype) for a in self.arrays), default=0
        )

    @cached_property
    def leaf_words(self) -> list[str]:
        """What each leaf is, in order: `a` an array, `v` or `vt` a value. Read for every batch, so kept."""
        return _leaf_words(self.spec)

    def encode(self) -> bytes:
        """Return the layout as JSON; equal layouts give equal bytes."""
        arrays = [[a.kind, a.dtype, list(a.shape), a.offset] for a in self.arrays]
        return json.dumps([self.spec, arrays, self.has_values], separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Layout:
        """Read what `encode` wrote.

        Raises:
            RemoteProtocolError: It is not a layout.
        """
        try:
            spec, arrays, has_values = json.loads(data)
            leaves = tuple(_leaf(k, d, s, o) for k, d, s, o in arrays)
            words = checked_words(spec)
        except (ValueError, TypeError, RecursionError, OverflowError) as error:
            raise RemoteProtocolError(f"malformed layout: {error}"[:300]) from None
        if words.count("a") != len(leaves) or (len(words) > len(leaves)) != bool(has_values):
            raise RemoteProtocolError("malformed layout: its leaves do not fit its tree")
        return cls(spec, leaves, bool(has_values))


def _leaf(kind: Any, dtype: Any, shape: Any, offset: Any) -> ArrayLeaf:
    """Return an array leaf of these fields, which came from another process.

    Raises:
        RemoteProtocolError: There is no such dtype.
        ValueError: They are not an array's, or one of impossible size.
    """
    if not isinstance(kind, str) or not isinstance(dtype, str):
        raise ValueError(f"an array of kind {kind!r:.80} and dtype {dtype!r:.80}")
    size = item_bytes(kind, dtype)
    leaf = ArrayLeaf(kind, dtype, whole_numbers(shape), whole_numbers([offset])[0])
    # the empty ones too: their strides would overflow
    if math.prod(max(1, n) for n in leaf.shape) * max(1, size) > MAX_BYTES:
        raise ValueError(f"a shape {leaf.shape}")
    return leaf


def _leaf_words(spec: Spec) -> list[str]:
    word = spec[0]
    if word in ("a", "v", "vt"):
        return [word]
    head = {"list": 1, "tuple": 1, "dict": 2}.get(word, 4)
    return [leaf for child in spec[head:] for leaf in _leaf_words(child)]


def encode_values(values: list[Any]) -> bytes:
    """Return the value leaves (scalars and lists of scalars) as JSON text."""
    return json.dumps([_tag(v) for v in values], separators=(",", ":")).encode()


def decode_values(data: bytes) -> list[Any]:
    """Read what `encode_values` wrote.

    Raises:
        RemoteProtocolError: It is not a values text.
    """
    try:
        values = json.loads(data)
        if not isinstance(values, list):
            raise TypeError(f"{type(values).__name__} in place of a list")
        return [_untag(v) for v in values]
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise RemoteProtocolError(f"malformed values: {error}"[:300]) from None


def _tag(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, list):
        return [_tag(v) for v in value]
    return value


def _untag(value: Any) -> Any:
    if isinstance(value, dict):
        if "bytes" in value:
            return base64.b64decode(value["bytes"], validate=True)
        real, imaginary = value["complex"]
        return complex(float(real), float(imaginary))
    if isinstance(value, list):
        return [_untag(v) for v in value]
    return value
