"""Values that are neither arrays nor containers: which can be shared, and how they are written as JSON.

| Python | JSON |
|---|---|
| None, True, 3, 2.5, "text" | as they are |
| everything else of `SCALARS` and `SETTLED` | an object with one key, a word of `_READ` |

Long texts and bytes, alone or in lists of nothing else, follow the JSON as they are (*columns*):

    COLUMNS, bytes of the JSON: u32, the JSON, then of each column the length of each text or bytes: u32 each, and all
    of them joined

and in the JSON {"column": [word, count, bytes]} stands for one. Quoting and base64 would cost ten times a copy.

A type is taken exactly: a subclass of str or int would come back as another type.
"""

from __future__ import annotations

import base64
import datetime as dt
import itertools
import json
import math
import pathlib
import struct
import uuid
from array import array
from collections.abc import Callable, Collection
from decimal import Decimal
from fractions import Fraction
from typing import Any

__all__ = ["SCALARS", "decode_values", "encode_values", "why_not"]

_DOUBLE = struct.Struct("<d")
_NAN = _DOUBLE.pack(float("nan"))
COLUMNS = b"\x01"
"""What values with columns begin with; JSON never does."""
LONG = 512
"""Letters or bytes from which on a value is a column."""
_WORDS: dict[type, str] = {str: "text", bytes: "chunk"}
_TEXTS = ("text", "texts")
_BIG = 1 << 4096
"""Python does not write or read whole numbers of more than 4,300 digits in decimal."""


def _text(value: Collection[int]) -> str:
    return base64.b64encode(bytes(value)).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _complex(value: complex) -> list[Any]:
    return [_plain(value.real), _plain(value.imag)]


def _moment(value: dt.datetime | dt.time) -> list[Any]:
    return [value.isoformat(), value.fold]


def _pair(one: Any, other: Any) -> tuple[Any, Any]:
    return one, other


def _hex(*numbers: int | None) -> list[str | None]:
    return [None if n is None else hex(n) for n in numbers]


def _unhex(texts: list[str | None]) -> list[Any]:
    return [None if t is None else int(t, 16) for t in texts]


_KINDS: dict[type, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    bytes: ("bytes", _text, _bytes),
    bytearray: ("bytearray", _text, lambda v: bytearray(_bytes(v))),
    complex: ("complex", _complex, lambda v: complex(*map(float, _pair(*v)))),
    Decimal: ("decimal", str, lambda v: Decimal(str(v))),
    Fraction: ("fraction", lambda v: _hex(v.numerator, v.denominator), lambda v: Fraction(*_pair(*_unhex(v)))),
    range: ("range", lambda v: _hex(v.start, v.stop, v.step), lambda v: range(*_unhex(v))),
    dt.date: ("date", dt.date.isoformat, dt.date.fromisoformat),
    dt.datetime: (
        "datetime", _moment, lambda v: dt.datetime.fromisoformat(v[0]).replace(fold=v[1])
    ),
    dt.time: ("time", _moment, lambda v: dt.time.fromisoformat(v[0]).replace(fold=v[1])),
    dt.timedelta: (
        "timedelta", lambda v: [v.days, v.seconds, v.microseconds], lambda v: dt.timedelta(*v)
    ),
    uuid.UUID: ("uuid", str, lambda v: uuid.UUID(str(v))),
    pathlib.PurePosixPath: ("purepath", str, lambda v: pathlib.PurePosixPath(str(v))),
    pathlib.PosixPath: ("path", str, lambda v: pathlib.PosixPath(str(v))),
    set: ("set", list, set),
    frozenset: ("frozenset", list, frozenset),
    slice: ("slice", lambda v: [v.start, v.stop, v.step], lambda v: slice(*v)),
}  # fmt: skip
_READ: dict[str, Callable[[Any], Any]] = {word: read for word, _, read in _KINDS.values()}
_READ |= {"int": lambda v: int(v, 16), "float": lambda v: _DOUBLE.unpack(_bytes(v))[0]}
SCALARS = frozenset((str, bool, int, float, type(None), *_KINDS)) - {
    set, frozenset, slice, dt.datetime, dt.time
}  # fmt: skip
"""Types of which every value can be shared; a list or tuple of these alone is one leaf."""


def why_not(value: Any) -> str | None:
    """Return why a value of no type in `SCALARS` cannot be shared; empty where it can, None where it is not a value."""
    kind = type(value)
    if kind in (dt.datetime, dt.time):
        zone = value.tzinfo
        fixed = zone is None or repr(zone) == repr(_zone(zone.utcoffset(None)))
        return (
            "" if fixed else f"has the time zone {zone!r:.80}: call astimezone(datetime.timezone.utc) on it"
        )
    if kind in (set, frozenset, slice):
        parts = (value.start, value.stop, value.step) if kind is slice else value
        odd = next((x for x in parts if type(x) not in SCALARS), None)
        return (
            ""
            if odd is None
            else f"holds a {type(odd).__name__}, but may hold only numbers, strings and similar values"
        )
    return None


def _zone(offset: dt.timedelta | None) -> dt.timezone | None:
    if offset is None:
        return None
    return dt.timezone(offset) if offset else dt.timezone.utc


class _Column:
    """Stands for a long text or bytes, or a list of such, while the rest is written as JSON."""

    def __init__(self, word: str, parts: list[Any]) -> None:
        self.sizes = array("I", map(len, parts)).tobytes()
        if word in _TEXTS:
            self.joined = "".join(parts).encode("utf-8", "surrogatepass")
        else:
            self.joined = b"".join(parts)
        self.head = [word, len(parts), len(self.joined)]


def _columns(values: list[Any]) -> tuple[list[Any], list[_Column]]:
    """Return the values with what is long put apart."""
    found: list[_Column] = []
    rest = []
    for value in values:
        kinds = {*map(type, value)} if type(value) is list else {type(value)}
        word = _WORDS.get(kinds.pop(), "") if len(kinds) == 1 else ""
        parts = value if type(value) is list else [value]
        if word and sum(map(len, parts)) >= LONG:
            value = _Column(word + "s" if type(value) is list else word, parts)  # noqa: PLW2901
            found.append(value)
        rest.append(value)
    return rest, found


def encode_values(values: list[Any]) -> bytes:
    """Return the value leaves (scalars and lists of scalars) as JSON text, with what is long behind it."""
    rest, columns = _columns(values)
    text = _json_of(rest)
    if not columns:
        return text
    parts = (part for column in columns for part in (column.sizes, column.joined))
    return b"".join((COLUMNS, len(text).to_bytes(4, "little"), text, *parts))


def _json_of(values: list[Any]) -> bytes:
    try:
        text = _write(values)
    except ValueError:  # too many digits
        return _write([_plain(v) for v in values]).encode()
    if "NaN" in text:  # which tells neither its sign nor its other bits
        text = _write([_plain(v) for v in values])
    return text.encode()


def _plain(value: Any) -> Any:
    """Return what JSON can write without loss."""
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if type(value) is float and math.isnan(value) and _DOUBLE.pack(value) != _NAN:
        return {"float": base64.b64encode(_DOUBLE.pack(value)).decode()}
    if type(value) is int and abs(value) >= _BIG:
        return {"int": hex(value)}
    return value


def _tag(value: Any) -> Any:
    if type(value) is _Column:
        return {"column": value.head}
    word, write, _ = _KINDS[type(value)]
    return {word: _plain(write(value))}


_write = json.JSONEncoder(separators=(",", ":"), default=_tag).encode


def _untag(tagged: dict[str, Any]) -> Any:
    ((word, value),) = tagged.items()
    return _READ[word](value)


_read = json.JSONDecoder(object_hook=_untag).decode


class _Columns:
    """Reads columns, one after the other."""

    def __init__(self, data: memoryview) -> None:
        self._data = data

    def untag(self, tagged: dict[str, Any]) -> Any:
        """Return the value that a JSON object stands for."""
        if "column" not in tagged:
            return _untag(tagged)
        word, count, size = tagged["column"]
        if type(count) is not int or type(size) is not int or min(count, size) < 0:
            raise ValueError(f"a column of {count!r:.80}")
        sizes = self._take(4 * count).cast("I").tolist()
        joined: Any = self._take(size).tobytes()
        if word in _TEXTS:
            joined = joined.decode("utf-8", "surrogatepass")
        if sum(sizes) != len(joined):
            raise ValueError("a column of other lengths")
        ends = itertools.accumulate(sizes)
        parts = [joined[end - size : end] for size, end in zip(sizes, ends, strict=True)]
        if word in ("texts", "chunks"):
            return parts
        (value,) = parts
        if word not in ("text", "chunk"):
            raise ValueError(f"a column of {word!r:.80}")
        return value

    def _take(self, size: int) -> memoryview:
        taken, self._data = self._data[:size], self._data[size:]
        if len(taken) < size:
            raise ValueError("a column that reaches past its values")
        return taken


def decode_values(data: bytes) -> list[Any]:
    """Read what `encode_values` wrote.

    Raises:
        ValueError, TypeError, KeyError, ArithmeticError, RecursionError, AttributeError: It is not a values text.
    """
    if data[:1] == COLUMNS:
        end = 5 + int.from_bytes(data[1:5], "little")
        untag = _Columns(memoryview(data)[end:]).untag
        values: list[Any] = json.JSONDecoder(object_hook=untag).decode(data[5:end].decode())
    else:
        values = _read(data.decode())
    if not isinstance(values, list):
        raise TypeError(f"{type(values).__name__} in place of a list")
    return values
