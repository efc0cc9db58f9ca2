"""Secrets among parameters: what looks like one is masked before it is named, recorded or shown.

A trial gets the value itself. Wherever it is kept or shown (`masked`), `MASK` stands in its place where

| | masked | not masked |
|---|---|---|
| its name says so | `password`, `api_key`, `hf_token`, `PGPASSWORD` | `max_tokens=512`, `pad_token`, `key="image"` |
| it has the shape of one | `sk-...`, `ghp_...`, `AKIA...`, a JWT, `https://me:word@host` | a UUID, a path |
| it is long and random | 20 letters and digits or more, mixed as in random text | `resnet50-imagenet1k-v2` |

Numbers, True and None are not secrets, whatever their name; lists and mappings are searched. In text (a cell's
code, a traceback, what a trial prints) `masked_text` finds the same shapes, assignments to such names, and the values
that this process has masked before.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["MASK", "Masked", "hidden", "is_masked", "is_plain_word", "masked", "masked_text", "remember"]

MASK = "[masked]"
"""Stands in place of a secret."""

LONGEST_SECRET = 16_384
"""Characters of the longest secret, a private key with its certificates: longer text is data."""

MOST_ITEMS = 1000
MOST_LEVELS = 8
"""How many items and levels of a list or mapping are searched: a larger one is data."""

LONGEST_WORD = 16
"""Letters of a text that may stand in a name."""

_ALWAYS = re.compile(
    r"passw(or)?d|passwd|passphrase|secret|credential|bearer|"
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
    r"\b(?:sk|pk|rk)[-_](?=[\w-]*[0-9])[A-Za-z0-9_-]{16,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|"
    r"\bglpat-[\w-]{16,}|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bxox[abeoprs]-[\w-]{10,}|\bAIza[\w-]{30,}|\bhf_[A-Za-z0-9]{20,}|"
    r"\bnpm_[A-Za-z0-9]{30,}|\bpypi-[\w-]{30,}|\bya29\.[\w.-]{20,}|"
    r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|"
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:.*?-----END [A-Z ]*PRIVATE KEY-----|.*)",
    re.DOTALL,
)
_IN_ADDRESS = re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)")
_ASSIGNED = re.compile(
    r"""(?<![\w.-])(?P<name>[A-Za-z_][\w.-]*)(?P<between>["']?\]?\s*[=:]\s*[bru]*)(?P<quote>["'])(?P<value>(?:(?!(?P=quote)).)+)""",
    re.IGNORECASE,
)
_UUID = re.compile(r"(?:MIG-|GPU-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_TURN = re.compile(r"(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])|(?<=[a-z])(?=[A-Z])")
_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_WORD = re.compile(r"[A-Za-z0-9]+(?:[ ._+-][A-Za-z0-9]+){0,3}")

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
    return _masked(value, name, MOST_LEVELS)


def _masked(value: Any, name: str, levels: int) -> Any:
    if isinstance(value, (bytes, bytearray)):
        text = bytes(value[: LONGEST_SECRET + 1]).decode("utf-8", errors="replace")
        return MASK if _masked(text, name, levels) is not text else value
    if isinstance(value, str):
        return _masked_word(value, name)
    if not levels:
        return value
    if isinstance(value, Mapping):
        items = list(itertools.islice(value.items(), MOST_ITEMS))
        shown = {key: _masked(item, key if isinstance(key, str) else name, levels - 1) for key, item in items}
        return value if all(shown[key] is item for key, item in items) else {**value, **shown}
    if type(value) in (list, tuple, set, frozenset):
        some = list(itertools.islice(value, MOST_ITEMS))
        masks = [_masked(item, name, levels - 1) for item in some]
        if all(mask is item for mask, item in zip(masks, some, strict=True)):
            return value
        return type(value)([*masks, *itertools.islice(value, MOST_ITEMS, None)])
    return value


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
    text = _SHAPES.sub(MASK, hidden(text))
    if "://" in text:
        text = _IN_ADDRESS.sub(MASK, text)
    return _ASSIGNED.sub(_masked_assignment, text)


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


def _masked_assignment(found: re.Match[str]) -> str:
    name, value = found["name"].rpartition(".")[2], found["value"]
    if not _says_secret(name, value):
        return found[0]
    return f"{found['name']}{found['between']}{found['quote']}{MASK}"


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
    if _SHAPES.fullmatch(whole):
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
