"""Secrets among parameters: what looks like one is masked before it is named, recorded or shown.

A trial gets the value itself. Wherever it is kept or shown (`masked`), `MASK` stands in its place where

| | masked | not masked |
|---|---|---|
| its name says so | `password`, `api_key`, `hf_token`, `PGPASSWORD` | `max_tokens=512`, `pad_token`, `key="image"` |
| it has the shape of one | `sk-...`, `ghp_...`, `AKIA...`, a JWT, `me:word@host`, `Bearer ...` | a UUID, a path |
| it is long and random | 20 letters and digits or more, mixed as in random text | `resnet50-imagenet1k-v2` |

Numbers, True and None are not secrets, whatever their name. Lists, mappings and objects (a dataclass, a Namespace, a
partial, an Enum) are searched; an object that holds a secret is shown as its class and its parts. In text (a cell's
code, a traceback, what a trial prints) `masked_text` finds the same shapes, assignments to such names, and the values
that this process has masked before.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import os
import re
from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

__all__ = ["MASK", "Masked", "hidden", "is_masked", "is_plain_word", "masked", "masked_text", "remember"]

MASK = "[masked]"
"""Stands in place of a secret."""

LONGEST_SECRET = 16_384
"""Characters of the longest secret, a private key with its certificates: longer text is data."""

MOST_ITEMS = 1000
MOST_LEVELS = 8
"""How many items and levels of a list or mapping are searched: a larger one is data."""
MOST_LOOKS = 20_000
"""How many values are looked at in all: lists of lists come to more than anybody can wait for."""
LONGEST_SHOWN = 2000
"""Letters of an object's text without its secrets."""

LONGEST_WORD = 16
"""Letters of a text that may stand in a name."""

_ALWAYS = re.compile(
    r"passw(or)?d|passwd|passphrase|secret|credential|bearer|authorization|"
    r"(api|access|auth|account|private|ssh|signing|encryption|license|service)_?(key|token)",
    re.IGNORECASE,
)
_OF_MODELS = frozenset(
    (
        "pad",
        "cls",
        "sep",
        "mask",
        "unk",
        "bos",
        "eos",
        "special",
        "start",
        "end",
        "image",
        "text",
        "stop",
        "prompt",
    )
)
"""Words before `token` that make it one of a tokenizer."""
_SHAPES = re.compile(
    r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|"
    r"\bglpat-[\w-]{16,}|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bxox[abeoprs]-[\w-]{10,}|\bAIza[\w-]{30,}|\bhf_[A-Za-z0-9]{20,}|"
    r"\bnpm_[A-Za-z0-9]{30,}|\bpypi-[\w-]{30,}|\bya29\.[\w.-]{20,}|"
    r"\beyJ[\w.-]{18,}|"
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:.*?-----END [A-Z ]*PRIVATE KEY-----|.*)",
    re.DOTALL,
)
"""Each takes all that it looks at, so that no letter is looked at for many of them; `_is_shape` has the last word."""
_SURE = re.compile(r"(?:sk|pk|rk)[-_](?=[\w-]*[0-9])|eyJ[\w-]{8,}\.[\w-]{8,}\.|(?!(?:sk|pk|rk)[-_]|eyJ)")
_IN_ADDRESS = re.compile(r"(?<=://)(?P<user>[^/\s:@'\"]{0,256})(?P<word>:[^/\s@'\"]{1,1024})?(?=@)")
_HEADER = re.compile(
    r"""(?P<head>\b(?:(?:proxy-)?authorization|x-[\w-]{0,40}(?:key|token)|private-token)["']?\s{0,4}[:=]\s{0,4}"""
    r"""["']?(?:(?:basic|bearer|token|digest|apikey)\s{1,4})?|\bbearer\s{1,4})(?P<value>[^\s'",;()\[\]{}]+)""",
    re.IGNORECASE,
)
_PLAIN = re.compile(
    r"""(?<![\w.,(\[])(?<![,(]\s)(?P<name>[A-Za-z_][\w-]{0,63})=(?P<value>[^\s;&,'"()\[\]{}<>]+)(?=[\s;&'"]|$)"""
)
"""As in a connection string, an address's query, a command line or a shell: NAME=VALUE, without quotes."""
_SCHEMES = frozenset(("basic", "bearer", "token", "digest", "apikey"))
_WORDS = frozenset(("pwd", "pass", "pin"))
_NONE = frozenset(("none", "null", "true", "false", "str", "bytes", "int", "self"))
_ASSIGNED = re.compile(
    r"""(?<![\w.-])(?P<name>[A-Za-z_][\w.-]{0,127})(?P<between>["']?\]?\s{0,16}[=:]\s{0,16}[bru]{0,2})(?P<quote>["'])(?P<value>(?:(?!(?P=quote)).)+)""",
    re.IGNORECASE,
)
_UUID = re.compile(r"(?:MIG-|GPU-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_TURN = re.compile(r"(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])|(?<=[a-z])(?=[A-Z])")
_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_WORD = re.compile(r"[A-Za-z0-9]+(?:[ ._+-][A-Za-z0-9]+){0,3}")

_PLAIN_KINDS = (int, float, complex, type, FunctionType, ModuleType)

_seen: set[str] = set()
"""Secrets that were masked in this process: a traceback or a printed line may hold them, too."""

_unread: list[dict[str, Any]] = []
"""What may hold further ones, and has not been looked at yet."""


def masked(value: Any, name: str = "") -> Any:
    """Return a value as it may be kept and shown: itself, or `MASK`. Lists and mappings keep their type.

    Looks at the first `MOST_ITEMS` items of a list or mapping, `MOST_LEVELS` deep.

    Args:
        value: The value.
        name: Its name: a parameter, a variable of the environment; left out: its shape alone counts.
    """
    return _masked(value, name, MOST_LEVELS, itertools.count())


def _masked(value: Any, name: str, levels: int, looks: Iterator[int]) -> Any:
    if next(looks) > MOST_LOOKS:
        return value
    if isinstance(value, (bytes, bytearray)):
        text = bytes(value[: LONGEST_SECRET + 1]).decode("utf-8", errors="replace")
        return MASK if _masked_word(text, name) is not text else value
    if isinstance(value, str) and not isinstance(value, enum.Enum):
        return _masked_word(value, name)
    if isinstance(value, os.PathLike):
        path = os.fsdecode(value)
        return value if (shown := _masked_word(path, name)) == path else shown
    if not levels or value is None or (isinstance(value, _PLAIN_KINDS) and not isinstance(value, enum.Enum)):
        return value
    return _masked_parts(value, name, levels, looks)


def _masked_parts(value: Any, name: str, levels: int, looks: Iterator[int]) -> Any:
    """Return what holds other values, without the secrets among them."""
    if isinstance(value, Mapping):
        items = list(itertools.islice(value.items(), MOST_ITEMS))
        shown = {
            key: _masked(item, key if isinstance(key, str) else name, levels - 1, looks)
            for key, item in items
        }
        return value if all(shown[key] is item for key, item in items) else {**value, **shown}
    if type(value) in (list, tuple, set, frozenset):
        some = list(itertools.islice(value, MOST_ITEMS))
        masks = [_masked(item, name, levels - 1, looks) for item in some]
        if all(mask is item for mask, item in zip(masks, some, strict=True)):
            return value
        return type(value)([*masks, *itertools.islice(value, MOST_ITEMS, None)])
    return _masked_object(value, _parts(value, name), levels, looks)


def _parts(value: Any, name: str) -> dict[str, Any]:
    """Return what an object is made of, as far as its class says it: fields, attributes, arguments."""
    if isinstance(value, enum.Enum):
        return {name: value.value}
    if isinstance(value, partial):
        return {name: [value.func, value.args], **value.keywords}
    found: dict[str, Any] = {}
    with contextlib.suppress(Exception):  # a user's own class may raise anything
        if isinstance(value, (list, tuple, set, frozenset, deque)):
            fields = getattr(value, "_fields", ())
            found = {**dict(zip(fields, value, strict=False)), name: [] if fields else list(value)}
        for each in type(value).__mro__:
            slots = vars(each).get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else slots:
                if hasattr(value, slot):
                    found[slot] = getattr(value, slot)
        found |= vars(value)
    return found


def _masked_object(value: Any, parts: Mapping[str, Any], levels: int, looks: Iterator[int]) -> Any:
    """Return an object itself, or, where something in it is a secret, its text without that."""
    found = list(itertools.islice(parts.items(), MOST_ITEMS))
    kept = {part: _masked(item, part, levels - 1, looks) for part, item in found}
    if all(kept[part] is item for part, item in found):
        return value
    said = (f"{part}={shown!r}" if part else repr(shown) for part, shown in kept.items())
    text = f"{type(value).__name__}({', '.join(said)})"
    return masked_text(text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}...")


def _masked_word(text: str, name: str) -> str:
    if not text or text == MASK:
        return text
    if _says_secret(name, text) or (len(text) <= LONGEST_SECRET and _looks_secret(text)):
        if 8 <= len(text) <= LONGEST_SECRET and not text.isalpha() and len(_seen) < MOST_ITEMS:
            _seen.add(text)  # a plain word would be masked in ordinary text, too
        return MASK
    if len(text) > LONGEST_SECRET:
        return text
    found = masked_text(text)
    return text if found == text else found


def remember(values: Mapping[str, Any]) -> None:
    """Have the secrets among these be masked from now on in any text.

    They are looked for when the first text is masked: most trials fail with no traceback, and begin the sooner.

    Args:
        values: By name, as in `masked`; taken as they are now.
    """
    _unread.append(dict(values))


class Masked(Mapping[str, Any]):
    """A mapping that may grow, as it may be shown: each value is masked when it is looked at.

    Args:
        values: The mapping itself.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Any:
        return masked(self._values[name], name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def masked_text(text: str) -> str:
    """Return text without its secrets: known shapes, values assigned to a secret's name, values masked before."""
    if len(text) < 8:
        return text
    text = _SHAPES.sub(_masked_shape, hidden(text))
    if "://" in text:
        text = _IN_ADDRESS.sub(_masked_user, text)
    text = _HEADER.sub(_masked_header, _ASSIGNED.sub(_masked_assignment, text))
    return _PLAIN.sub(_masked_plain, text) if "=" in text else text


def hidden(text: str) -> str:
    """Return text without the secrets that this process has masked before; all else stays as it is."""
    while _unread:
        masked(_unread.pop())
    if not _seen:
        return text
    for secret in sorted(_seen, key=len, reverse=True):
        if secret in text:
            text = text.replace(secret, MASK)
    return text


def is_masked(value: Any) -> bool:
    """Tell whether something of a value that was kept is masked: it cannot be used in the value's place."""
    if isinstance(value, Mapping):
        return any(map(is_masked, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(is_masked, value))
    return isinstance(value, str) and MASK in value


def is_plain_word(text: str) -> bool:
    """Tell whether text may stand in a name: short, of letters and digits, and no secret's shape ("adam w")."""
    return bool(
        len(text) <= LONGEST_WORD and _WORD.fullmatch(text) and len(_TURN.findall(text)) <= 3 and text != MASK
    )


def _masked_shape(found: re.Match[str]) -> str:
    return MASK if _SURE.match(found[0]) else found[0]


def _masked_user(found: re.Match[str]) -> str:
    """Mask `me:word` of an address, and a name alone that is random: a key."""
    return MASK if found["word"] or _looks_secret(found["user"]) else found[0]


def _masked_assignment(found: re.Match[str]) -> str:
    name, value = found["name"].rpartition(".")[2], found["value"]
    if not _says_secret(name, value):
        return found[0]
    return f"{found['name']}{found['between']}{found['quote']}{MASK}"


def _masked_header(found: re.Match[str]) -> str:
    head, value = found["head"], found["value"]
    called = found.string[found.end() : found.end() + 1] in ("(", "[")  # of code
    scheme = head[-1:].isspace() and head.split()[-1].lower() in _SCHEMES
    bare = head[:6].lower() == "bearer"
    plain = value.isalpha() if bare else not scheme and value.isidentifier()
    return found[0] if called or plain else f"{head}{MASK}"


def _masked_plain(found: re.Match[str]) -> str:
    name, value = found["name"], found["value"]
    always = _ALWAYS.search(name) or name.lower() in _WORDS
    if value == name or value.lower() in _NONE or value.startswith("[") or not _says_secret(name, value):
        return found[0]
    return f"{name}={MASK}" if always or not (value.isalpha() or value.isdigit()) else found[0]


def _says_secret(name: str, value: str) -> bool:
    """Tell whether a name says that its text is a secret."""
    if not name:
        return False
    if _ALWAYS.search(name):
        return True
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name)
    last, before = (words[-1].lower() if words else ""), {word.lower() for word in words[:-1]}
    if last in {"token", "apikey", "authtoken", "pat", "pwd", "pass", "pin"}:
        return not before & _OF_MODELS and not (value.startswith("<") and value.endswith(">"))
    # key="image", sort_key="loss" are names of columns
    return last == "key" and not (value.isidentifier() and value.isalpha() and len(value) <= 12)


def _looks_secret(text: str) -> bool:
    """Tell whether a whole text has the shape of a secret."""
    whole = text.strip()
    if _SHAPES.fullmatch(whole) and _SURE.match(whole):
        return True
    if len(whole) < 20 or _UUID.fullmatch(whole) or re.search(r"\s", whole):
        return False
    if any(map(_is_random, re.findall(r"[A-Za-z0-9+]{20,}", whole))):
        return True
    joints = len(re.findall(r"[-_]", whole))  # base64 for addresses has few, a name made of parts has many
    return bool(
        len(whole) >= 32
        and re.fullmatch(r"[\w-]+={0,2}", whole)
        and joints <= len(whole) // 8
        and _is_random(whole)
    )


def _is_random(run: str) -> bool:
    """Tell whether letters and digits change as often as in random text: words have longer pieces."""
    letters = sum(letter.isalpha() for letter in run)
    pieces = len(_PIECE.findall(run))
    if len(run) >= 32 and re.fullmatch(r"[0-9a-f]+|[0-9A-F]+", run):
        return 5 * pieces > len(run)
    return letters >= len(run) // 8 and 3 * pieces > len(run)
