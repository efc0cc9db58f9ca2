"""What a description that came from another process may say: all checks of dtypes, sizes and classes in one place.

| what | bound |
|---|---|
| dtype of a tensor | `TENSOR_DTYPES`: a quantized one made of bytes alone would end the process |
| dtype of a numpy array | numbers, texts, bytes, dates, and records of these: no objects |
| dimensions | `MAX_DIMENSIONS` |
| elements, bytes, offset of an array | `MAX_BYTES`; whether they lie in the slot is checked against the arena |
| containers in one another | `MAX_DEPTH` |
| a class | one that a module of this process *has*: nothing is imported, no `__getattr__` is asked |
"""

from __future__ import annotations

import json
import math
import re
import sys
from functools import lru_cache
from types import ModuleType
from typing import Any

from tsnb.errors import RemoteProtocolError

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "TENSOR_DTYPES",
    "attribute_of",
    "find_class",
    "item_bytes",
    "whole_numbers",
]

TENSOR_DTYPES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "uint16": 2,
    "int16": 2,
    "uint32": 4,
    "int32": 4,
    "uint64": 8,
    "int64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex32": 4,
    "complex64": 8,
    "complex128": 16,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
}
"""The dtypes that a tensor made of plain bytes may have, and the bytes of an element."""
MAX_DIMENSIONS = 64
"""As many as numpy has."""
MAX_BYTES = 1 << 48
"""Of one array: more than any memory has."""
MAX_DEPTH = 128
"""Containers in one another: each costs a few of the interpreter's 1,000 frames, and the user's code needs some too."""

_NUMPY = re.compile(
    r"[<>|=](?:(b1)|[iu]([1248])|f(2|4|8|12|16)|c(8|16|24|32)|[SV]([0-9]{1,9})|U([0-9]{1,9})|"
    r"[mM](8)(?:\[[0-9]{0,9}[A-Za-z]{1,7}\])?)"
)


def item_bytes(kind: str, dtype: str) -> int:
    """Return the bytes of one element of an array leaf.

    Args:
        kind: `tensor`, `numpy` or `scalar`.
        dtype: As torch or numpy spells it.

    Raises:
        RemoteProtocolError: No batch of ours has elements of that dtype.
    """
    if kind == "tensor":
        size = TENSOR_DTYPES.get(dtype)
        if size is None:
            raise RemoteProtocolError(f"a tensor of dtype {dtype!r:.80}")
        return size
    if dtype[:1] == "{" and kind in ("numpy", "scalar"):
        return _record_bytes(dtype)
    found = _NUMPY.fullmatch(dtype) if kind in ("numpy", "scalar") else None
    if found is None:
        raise RemoteProtocolError(f"an array of kind {kind!r:.80} and dtype {dtype!r:.80}")
    boolean, *numbers, letters, date = found.groups()
    if boolean or letters:
        return 4 * int(letters) if letters else 1
    return int(next(n for n in (*numbers, date) if n))


@lru_cache(maxsize=256)
def _record_bytes(dtype: str) -> int:
    """Return the bytes of a record: its fields follow one another, the gaps between them named too.

    Raises:
        RemoteProtocolError: It is not a description of one.
    """
    try:
        form = json.loads(dtype)
        if set(form) != {"fields", "aligned", "record"} or not isinstance(form["fields"], list):
            raise ValueError(dtype)
        return _fields_bytes(form["fields"], 0)
    except (ValueError, TypeError, RecursionError) as error:
        raise RemoteProtocolError(f"a record of dtype {dtype!r:.80}: {error}"[:300]) from None


def _fields_bytes(fields: Any, depth: int) -> int:
    if isinstance(fields, str):
        if fields[:1] == "{":
            raise ValueError("a record inside a text")
        return item_bytes("numpy", fields)
    if depth > MAX_DIMENSIONS or not fields:
        raise ValueError("fields that have no size")
    total = 0
    for name, of, *shape in fields:
        names = [name] if isinstance(name, str) else name
        if not isinstance(names, list) or not all(isinstance(n, str) for n in names) or len(shape) > 1:
            raise ValueError(f"a field {name!r:.80}")
        total += (
            _fields_bytes(of, depth + 1) * math.prod(whole_numbers(*shape))
            if shape
            else _fields_bytes(of, depth + 1)
        )
        if total > MAX_BYTES:
            raise ValueError("fields larger than any memory")
    return total


def whole_numbers(numbers: Any, most: int = MAX_BYTES) -> tuple[int, ...]:
    """Return a list of whole numbers from 0 on, as a tuple.

    Raises:
        ValueError: It is something else, or one is larger than `most`.
    """
    if not isinstance(numbers, list) or len(numbers) > MAX_DIMENSIONS:
        raise ValueError(f"{numbers!r:.80} in place of up to {MAX_DIMENSIONS} numbers")
    for number in numbers:
        if type(number) is not int or not 0 <= number <= most:
            raise ValueError(f"{number!r:.80} in place of a size")
    return tuple(numbers)


def find_class(module: str, qualname: str) -> type | None:
    """Return the class of that name where this process has it loaded; None where it has not.

    A name that arrives on a socket must not make this process run code: nothing is imported, and neither a module's
    nor a class's `__getattr__` is asked (packages that import their parts when they are first used have one).
    """
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        if not isinstance(found, (ModuleType, type)):
            return None
        found = vars(found).get(part)
    return found if isinstance(found, type) else None


def attribute_of(cls: type, name: str) -> Any:
    """Return what a class or one of its bases has under a name, without asking any descriptor; else None."""
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
