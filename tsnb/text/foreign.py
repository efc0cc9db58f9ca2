"""JSON from elsewhere made into dataclasses, every field checked once, as it enters.

A reading may come from a producer, a recording or a relay. So a field has the type that its dataclass says; numbers are
finite and within bounds that arithmetic and drawing bear; texts are one printable line; lists and tables are not
endless. A table of `Logged` holds what a trial has logged, which may be nan or infinite: in JSON that is the text
"nan", "inf" or "-inf". Unknown fields are left out, so a newer sender is understood.

Types and bounds are msgspec's to check. It knows no text that must be cleaned and no nan in a text: what may hold one
of them takes the longer way through `json`. Nearly nothing does.
"""

from __future__ import annotations

import functools
import json
import math
import os
import threading
from typing import Annotated, Any, TypeVar, cast

import msgspec

from tsnb.text.printable import one_line

__all__ = ["FEW", "NOT_FINITE", "Logged", "Number", "Text", "Whole", "as_json", "pack", "read_json", "unpack"]

_MOST_INT, _MOST_FLOAT, _CHARACTERS = (1 << 63) - 1, 1e15, 2000

Text = Annotated[str, msgspec.Meta(max_length=_CHARACTERS)]
"""One printable line."""
Whole = Annotated[int, msgspec.Meta(ge=-_MOST_INT, le=_MOST_INT)]
"""A whole number, as large as a `len` of Python's can be."""
Number = Annotated[float, msgspec.Meta(ge=-_MOST_FLOAT, le=_MOST_FLOAT)]
"""A finite number; seconds and bytes stay far below its bound."""
FEW = msgspec.Meta(max_length=4096)
"""Of a list or table: a stream has 128 consumers, a machine a few hundred counters."""
Logged = Annotated[dict[Text, float], FEW]
"""Numbers of the user's own, by name: of any size, nan and infinite too."""

_building = threading.Lock()


def _after_fork_in_child() -> None:
    global _building
    _building = threading.Lock()  # `native.forks`, 3


os.register_at_fork(after_in_child=_after_fork_in_child)

NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
"""Numbers that JSON has no words for."""

_Made = TypeVar("_Made")


def as_json(value: float) -> float | str:
    """Return a logged number as JSON has it, and `Logged` reads it: nan and infinity as text."""
    return value if math.isfinite(value) else repr(value)


def read_json(cls: type[_Made], text: str | bytes, *, logged: frozenset[str] = frozenset()) -> _Made:
    """Return what a line of JSON says, as a dataclass.

    Args:
        cls: The dataclass. Its fields have the types above, or are such dataclasses.
        text: The JSON.
        logged: Names of fields that are tables of `Logged`.

    Raises:
        ValueError: It is not one; says which field is wrong.
    """
    try:
        decoder = _decoder(cast("Any", cls))
        line = (text if isinstance(text, str) else text.decode()).strip()
        if line.isprintable() and "\\" not in line:
            try:
                return cast("_Made", decoder.decode(line))
            except msgspec.MsgspecError:
                pass  # "nan", a text that is too long, or a fault: below
        return msgspec.convert(_cleaned(json.loads(line), logged), cls)
    except (ValueError, msgspec.MsgspecError, RecursionError, OverflowError) as error:
        raise ValueError(one_line(error, 300)) from None


def _decoder(cls: Any) -> msgspec.json.Decoder[Any]:
    with _building:
        return _built(cls)


@functools.cache
def _built(cls: Any) -> msgspec.json.Decoder[Any]:
    # msgspec 0.22 leaves what it finds out of a dataclass on that class before it is all there: a second thread that
    # reads its first line of that class meanwhile, or of one that holds it, ends the process with a segmentation fault
    return msgspec.json.Decoder(cls)


def _cleaned(value: Any, logged: frozenset[str]) -> Any:
    """Return parsed JSON with its texts made printable, and nan and infinity where they may be."""
    if isinstance(value, str):
        return one_line(value, _CHARACTERS)
    if isinstance(value, list):
        return [_cleaned(part, logged) for part in value]
    if not isinstance(value, dict):
        return value
    found = {one_line(key, _CHARACTERS): _cleaned(part, logged) for key, part in value.items()}
    for name in logged & found.keys():
        if isinstance(table := found[name], dict):
            found[name] = {
                key: NOT_FINITE.get(part, part) if isinstance(part, str) else part
                for key, part in table.items()
            }
    return found


def pack(payload: msgspec.Struct) -> bytes:
    """Return what `unpack` reads: the payload of an extension, as MessagePack."""
    return msgspec.msgpack.encode(payload)


def unpack(cls: type[_Made], packed: bytes) -> _Made:
    """Return what another process has packed, with its texts made printable and its numbers within bounds.

    Args:
        cls: A `msgspec.Struct`, or a union of tagged ones. Its fields have the types above, or are dataclasses of them.
        packed: The MessagePack.

    Raises:
        ValueError: It is something else; says which field is wrong.
    """
    try:
        _decoder(cast("Any", cls))  # has built all that `convert` looks up
        return msgspec.convert(_cleaned(msgspec.msgpack.decode(packed), frozenset()), cls)
    except (ValueError, TypeError, msgspec.MsgspecError, RecursionError, OverflowError) as error:
        raise ValueError(one_line(error, 300)) from None
