"""A record in fewer bytes, where that pays: packed by zlib, at its fastest level.

Nothing is lost, so what comes back is the same record. It costs to pack it, once or twice, and to unpack it, each time
it is taken; whether that pays is measured for each sample, when it is learned (`worth`), and decided when samples are
chosen (`choice`).
"""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import numpy as np

from tsnb.machine.clocks import cost_clock

__all__ = ["Packed", "pack", "unpack", "worth"]

LEVEL = 1
LEAST_BYTES = 4096
"""Smaller records are left as they are: what zlib does before the first byte takes as long as the bytes."""
WORTH = 0.95
"""A record that stays larger than this share of itself is left as it is."""
PIECE_BYTES = 1 << 14
"""From the middle of a record, to see first whether it becomes smaller at all: noise does not."""
PACK_BYTE_S = 1e-8
"""What packing takes, roughly. It is only looked at to leave out samples that are large for what they cost."""
MOST_SHARE = 0.5
"""Packing may take so much of what preparing the sample takes: the first two epochs do both."""
TIMES = 2


class Packed(NamedTuple):
    """What a record is when it is packed."""

    size: int
    """Bytes."""
    take_s: float
    """Seconds that unpacking it takes."""


def worth(record: bytes, cost_s: float) -> Packed | None:
    """Return what a record is when it is packed; None where that is not worth to be thought of.

    Args:
        record: As `records.encode` returns it.
        cost_s: What preparing the sample takes.
    """
    size = len(record)
    if size < LEAST_BYTES or size * PACK_BYTE_S > MOST_SHARE * cost_s:
        return None
    start = (size - PIECE_BYTES) // 2
    if size > 2 * PIECE_BYTES and len(pack(record[start : start + PIECE_BYTES])) > WORTH * PIECE_BYTES:
        return None
    packed = pack(record)
    if len(packed) > WORTH * size:
        return None
    took = []
    for _ in range(TIMES):
        began = cost_clock()
        unpack(packed, size)
        took.append(cost_clock() - began)
    return Packed(len(packed), max(0.0, min(took)))


def pack(record: bytes) -> bytes:
    """Return a record in fewer bytes, usually; the same for the same record."""
    return zlib.compress(record, LEVEL)


def unpack(packed: bytes | np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any] | None:
    """Return the record, uint8 [size], writable and of no one else; None where these bytes are not a packed record.

    Args:
        packed: As `pack` returned it.
        size: Bytes of the record.
    """
    try:
        made = bytearray(zlib.decompress(memoryview(packed), bufsize=size))  # type: ignore[arg-type]  # numpy's stubs
    except zlib.error:  # its memory was given back
        return None
    return np.frombuffer(made, np.uint8) if len(made) == size else None
