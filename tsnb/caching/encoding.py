"""A sample as bytes, and back; in fewer bytes where that pays.

    record  =  parts | their sizes          a sample in the form WHOLE has one part, one that was cut several (`cut`)
    part    =  pickle's sizes | pickle | buffers, at 64-byte boundaries

Tensors and arrays are buffers: they are copied once, not pickled. A read sample is a private copy over which the arrays
lie, so nothing that a user does to a sample reaches the memory that keeps it. Only workers of one producer write and
read records.

A record may be packed, where that pays: by zlib, at its fastest level. Nothing is lost, so what comes back is the same
record. It costs to pack it, once or twice, and to unpack it, each time it is taken; whether that pays is measured for
each sample, when it is learned (`worth`), and decided when samples are chosen (`choice`).
"""

from __future__ import annotations

import hashlib
import io
import pickle
import struct
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from tsnb.machine.clocks import cost_clock

__all__ = ["Packed", "decode", "digest", "encode", "join", "pack", "part", "unpack", "worth"]

_ALIGN = 64
_COUNT = struct.Struct("<q")


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if (
            type(value) is np.ndarray and not value.flags.forc
        ):  # numpy would write it by element, as something else
            return np.ascontiguousarray(value).__reduce_ex__(5)
        if not isinstance(value, torch.Tensor) or not _is_plain(value):
            return NotImplemented
        arguments = _bytes_of(value.as_subclass(torch.Tensor))
        if type(value) is torch.Tensor:
            return _tensor, arguments
        return _of_type, (type(value), arguments, vars(value))


def _is_plain(value: torch.Tensor) -> bool:
    """Whether its bytes say it all: what torch itself pickles differs from time to time, by addresses."""
    kind = type(value)
    return (
        kind.__reduce_ex__ is torch.Tensor.__reduce_ex__
        and not isinstance(value, torch.nn.Parameter)
        and not value.requires_grad
        and value.device.type == "cpu"
        and value.layout is torch.strided
        and not value.is_nested
        and not value.is_quantized
    )


def _bytes_of(value: torch.Tensor) -> tuple[Any, ...]:
    """Return a tensor's bytes as they lie there, its type, shape and strides."""
    value = value.resolve_conj().resolve_neg()
    extent = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    if extent > value.numel():  # between its elements lie others
        value = value.contiguous()
        extent = value.numel()
    shape, strides = tuple(value.shape), value.stride()
    if not value.numel():
        return np.empty(0, np.uint8), value.dtype, shape, strides
    # as bytes: numpy lacks some of torch's types
    return value.as_strided((extent,), (1,)).view(torch.uint8).numpy(), value.dtype, shape, strides


def _tensor(
    flat: np.ndarray[Any, Any], dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...]
) -> torch.Tensor:
    if not len(flat):
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(flat).view(dtype).as_strided(shape, strides)


def _of_type(kind: type[torch.Tensor], arguments: tuple[Any, ...], state: dict[str, Any]) -> torch.Tensor:
    made = _tensor(*arguments).as_subclass(kind)
    vars(made).update(state)
    return made


def part(value: Any) -> bytes:
    """Return a value as bytes of its own.

    Raises:
        Exception: It cannot be pickled; whatever its classes raise.
    """
    buffers: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    _Pickler(file, protocol=5, buffer_callback=buffers.append).dump(value)
    raws = [buffer.raw() for buffer in buffers]
    text = file.getvalue()
    sizes = [len(text), *(raw.nbytes for raw in raws)]
    pieces: list[Any] = [struct.pack(f"<{len(sizes) + 1}q", len(sizes), *sizes), text]
    place = sum(map(len, pieces))
    for raw in raws:
        pieces += [bytes(-place % _ALIGN), raw]
        place += -place % _ALIGN + raw.nbytes
    pieces.append(bytes(-place % _ALIGN))
    return b"".join(pieces)


def join(parts: Sequence[bytes]) -> bytes:
    """Return the record of several parts."""
    return b"".join([*parts, struct.pack(f"<{len(parts) + 1}q", *map(len, parts), len(parts))])


def encode(value: Any) -> bytes:
    """Return the record of one value.

    Raises:
        Exception: It cannot be pickled; whatever its classes raise.
    """
    return join([part(value)])


def decode(record: np.ndarray[Any, Any]) -> list[Any]:
    """Return what the parts of a record say.

    Args:
        record: uint8 [bytes], writable and of no one else: arrays will lie over it.
    """
    memory = memoryview(record)  # type: ignore[arg-type]  # a buffer, as numpy's stubs do not say before Python 3.12
    (count,) = _COUNT.unpack_from(memory, len(memory) - 8)
    sizes = struct.unpack_from(f"<{count}q", memory, len(memory) - 8 * (count + 1))
    values, place = [], 0
    for size in sizes:
        values.append(_value(memory[place : place + size]))
        place += size
    return values


def _value(memory: memoryview) -> Any:
    (count,) = _COUNT.unpack_from(memory, 0)
    first, *others = struct.unpack_from(f"<{count}q", memory, 8)
    place = 8 * (count + 1)
    text = memory[place : place + first]
    place += first
    buffers = []
    for size in others:
        place += -place % _ALIGN
        buffers.append(memory[place : place + size])
        place += size
    return pickle.loads(text, buffers=buffers)  # noqa: S301  # a worker of the same producer wrote it


def digest(record: bytes | memoryview) -> bytes:
    """Return 16 bytes that are another for every other record."""
    return hashlib.blake2b(record, digest_size=16).digest()


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
        record: As `encode` returns it.
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
