"""Readings made of JSON that came from elsewhere: a producer, a recording, a relay. Every field is checked here, once.

A field has the type that its dataclass says, numbers are finite and within bounds that arithmetic and drawing bear,
texts are one printable line, lists and tables are not endless. Unknown fields are left out.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from tsnb.printable import one_line

__all__ = ["decoded"]

MOST_ENTRIES = 4096
"""In one list or table: a stream has 32 consumers, a machine a few hundred counters."""
MOST_INT = 1 << 62
MOST_FLOAT = 1e15
"""Seconds and bytes stay far below; a number of the user's own may be larger (`_number_of_users`)."""
_WORD = 2000
"""Characters of one text."""

_Made = TypeVar("_Made")


def decoded(cls: Callable[..., _Made], fields: Any) -> _Made:
    """Return one reading, or a part of one.

    Args:
        cls: Its dataclass.
        fields: What JSON gave.

    Raises:
        ValueError: It is not one.
    """
    if not isinstance(fields, dict):
        raise ValueError(f"{_shown(fields)} in place of a {getattr(cls, '__name__', cls)}")
    made = {}
    for name, read in _readers(cls).items():
        if name in fields:
            try:
                made[name] = read(fields[name])
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
    try:
        return cls(**made)
    except TypeError as error:  # one is missing
        raise ValueError(str(error)) from None


@functools.cache
def _readers(cls: Any) -> dict[str, Callable[[Any], Any]]:
    hints = typing.get_type_hints(cls)
    return {field.name: _reader(hints[field.name]) for field in dataclasses.fields(cls)}


def _reader(hint: Any) -> Callable[[Any], Any]:
    """Return what reads a value of a type."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        inner = _reader(next(part for part in parts if part is not type(None)))
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        inner = _reader(parts[0])
        return lambda value: tuple(inner(part) for part in _some(value, list))
    if origin is dict:
        inner = _number_of_users if parts[1] is float else _reader(parts[1])
        return lambda value: {one_line(key, _WORD): inner(part) for key, part in _some(value, dict).items()}
    if dataclasses.is_dataclass(hint):
        return functools.partial(decoded, typing.cast("type[Any]", hint))
    return {str: _text, int: _whole, float: _number}[hint]


def _some(value: Any, kind: type[Any]) -> Any:
    if not isinstance(value, kind) or len(value) > MOST_ENTRIES:
        raise ValueError(f"{_shown(value)} in place of a {kind.__name__}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{_shown(value)} in place of a text")
    return one_line(value, _WORD)


def _whole(value: Any) -> int:
    if type(value) is not int or abs(value) > MOST_INT:
        raise ValueError(f"{_shown(value)} in place of a whole number")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) <= MOST_FLOAT:  # so that nan is refused too
        raise ValueError(f"{_shown(value)} in place of a number")
    return value  # type: ignore[no-any-return]  # an int or a float


def _number_of_users(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:
        raise ValueError(f"{_shown(value)} in place of a number")
    return float(value)


def _shown(value: Any) -> str:
    try:
        return one_line(repr(value), 80)
    except ValueError:  # a whole number of thousands of digits
        return "a number of thousands of digits"
