"""What messages are made of: numbers within bounds and texts that are made printable.

| type | what it may hold |
|---|---|
| `Short` | a whole number of 16 bits: layouts |
| `Count` | a whole number of 32 bits: batches, rows, leases, places |
| `Large` | a whole number up to 2**53, the most that anything here comes to |
| `Length` | a whole number up to 2**63 - 1, the most that a `len` of Python's can be |
| `Seconds` | a finite time of up to three decades |
| `Line`, `Block` | a text of one line or of several, cleaned when a packet is read (`tsnb.text.printable`) |
| `Word` | 1 to 32 letters of ASCII: the name of an extension |
| `Json` | a text that is JSON: its own texts are cleaned when that is read |

msgspec checks types and bounds as it reads a packet. It cleans no text, so `codec` does that afterwards by `cleaners`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, get_args, get_type_hints

import msgspec

from tsnb.text.printable import block, one_line

__all__ = [
    "Block",
    "Count",
    "Json",
    "Large",
    "Length",
    "Line",
    "Seconds",
    "Sent",
    "Short",
    "Word",
    "cleaners",
    "whole_words",
]

MAX_SHORT = (1 << 16) - 1
MAX_COUNT = (1 << 32) - 1
MAX_NUMBER = 1 << 53
MAX_LENGTH = (1 << 63) - 1
MAX_SECONDS = 1e9

Short = Annotated[int, msgspec.Meta(ge=0, le=MAX_SHORT)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
Large = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
Length = Annotated[int, msgspec.Meta(ge=0, le=MAX_LENGTH)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=MAX_SECONDS)]
Line = Annotated[str, msgspec.Meta(extra={"cleaned": one_line})]
Block = Annotated[str, msgspec.Meta(extra={"cleaned": block})]
Word = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z]+\Z", max_length=32, extra={"cleaned": None})]
Json = Annotated[str, msgspec.Meta(extra={"cleaned": None})]


class Sent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message: an array of its kind's number and its fields.

    None refers to itself, so the collector of cycles need not know of them.
    """


def cleaners(cls: type[Sent]) -> dict[str, Callable[[Any], Any]]:
    """Return what makes the texts of a message printable, by field.

    Raises:
        TypeError: A field is a plain `str`, of which nobody said how it is cleaned.
    """
    found = {}
    for field, hint in get_type_hints(cls, include_extras=True).items():
        if field in cls.__struct_fields__ and (cleaned := _cleaner(cls, field, hint)) is not None:
            found[field] = cleaned
    return found


def _cleaner(cls: type[Sent], field: str, hint: Any) -> Callable[[Any], Any] | None:
    if hint is str:
        raise TypeError(f"{cls.__name__}.{field} is a str. Make it a Line, a Block or a Json.")
    for said in getattr(hint, "__metadata__", ()):
        if said.extra is not None:
            cleaned: Callable[[Any], Any] | None = said.extra["cleaned"]
            return cleaned
    inner = [_cleaner(cls, field, each) for each in get_args(hint) if each is not ...]
    if getattr(hint, "__origin__", None) is dict and inner[0] is not None:
        clean_key = inner[0]
        return lambda table: {clean_key(key): value for key, value in table.items()}
    if any(inner):
        raise TypeError(f"{cls.__name__}.{field} has texts that nothing cleans.")
    return None


def whole_words(numbers: bytes) -> None:
    """Check that bytes are numbers of four bytes each.

    Raises:
        ValueError: The last one is cut short.
    """
    if len(numbers) % 4:
        raise ValueError(f"{len(numbers)} bytes are no numbers of 4 bytes each")
