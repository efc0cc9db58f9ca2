"""Specs, the descriptions of trees (`tree`), as such: their parts and places, and whether one from outside is one.

Pure: lists of JSON in, texts and numbers out. No class is looked for here and nothing is made.
"""

from __future__ import annotations

from keyword import iskeyword
from typing import Any

from tsnb.stream.protocol.checks import MAX_DEPTH

__all__ = ["HEADS", "Spec", "checked_words", "leaf_paths", "leaf_words", "place_of"]

Spec = list[Any]

HEADS = {"list": 1, "tuple": 1, "dict": 2, "named": 4, "data": 4, "kin": 5, "enum": 3, "made": 4}
"""Where a container's children begin in its spec."""


def checked_words(spec: Any) -> list[str]:
    """Return the words of a spec's leaves, in order, if it is a spec: one that came from another process.

    Raises:
        ValueError: It is not a spec, or one with more than `MAX_DEPTH` containers in one another.
    """
    words: list[str] = []
    _check(spec, words, 0, 0)
    return words


def _check(spec: Any, words: list[str], complete: int, depth: int) -> int:
    """Check a part of a tree, and note its leaves; return how many things are complete with it."""
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    if not isinstance(spec, list) or not spec or not isinstance(spec[0], str):
        raise ValueError(f"{spec!r:.80} is not a part of a tree")
    word = spec[0]
    if word in ("a", "v", "vt"):
        words.append(word)
        return complete + (word == "a")
    if word in ("c", "same"):
        value: Any = spec[1] if len(spec) == 2 else ...
        fits = type(value) in (type(None), bool, int, str) if word == "c" else type(value) is int
        if not fits or (word == "same" and not 0 <= value < complete):
            raise ValueError(f"{spec!r:.80} is not a part of a tree")
        return complete
    head = HEADS.get(word)
    if head is None:
        raise ValueError(f"{word!r:.80} is not a kind of container")
    if head > 1:
        _check_head(spec, head)
    for child in spec[head:]:
        complete = _check(child, words, complete, depth + 1)
    return complete + (word != "enum")


def _check_head(spec: list[Any], head: int) -> None:
    """Check the keys of a dict, or the class and the fields of what has one."""
    word, children = spec[0], len(spec) - head
    names = [] if word == "enum" else spec[head - 1] if children >= 0 else None
    least, most = {"kin": (1, 1), "enum": (1, 1), "made": (1, 2)}.get(word, (0, 0))  # children without a name
    if not isinstance(names, list) or not least <= children - len(names) <= most:
        raise ValueError(f"{spec!r:.80} has not as many keys as children")
    if word == "dict":
        if not all(isinstance(key, (str, int, float, type(None))) or _is_member(key) for key in names):
            raise ValueError(f"{names!r:.80} cannot be keys")
        names = [tuple(key) if isinstance(key, list) else key for key in names]
    elif word == "made":
        if (
            not isinstance(spec[1], str)
            or not isinstance(spec[2], list)
            or not all(map(_is_attribute, names))
        ):
            raise ValueError(f"{spec!r:.80} is not a recipe")
    else:
        where = spec[2].rsplit(".", 1)[-1] if isinstance(spec[1], str) and isinstance(spec[2], str) else ""
        fit = _is_attribute if word == "kin" else _can_name
        if not _can_name(where) or not all(map(fit, names)):
            raise ValueError(f"{spec!r:.80} has no fields that a class can have")
        if word == "kin" and not isinstance(spec[3], (str, type(None))):
            raise ValueError(f"{spec!r:.80} has no such hint")
        if word == "enum" and spec[3] != ["v"]:
            raise ValueError(f"{spec!r:.80} has no name")
    if len(set(names)) < len(names):
        raise ValueError(f"{names!r:.80} has a key twice")


def _is_member(key: Any) -> bool:
    """Return whether a key is a member of an enumeration: ["enum", module, qualname, name]."""
    return isinstance(key, list) and len(key) == 4 and key[0] == "enum" and all(type(x) is str for x in key)


def _is_attribute(name: Any) -> bool:
    return isinstance(name, str) and not (name[:2] == name[-2:] == "__")


def _can_name(word: Any) -> bool:
    """Return whether a class or a field of a user's may be called so; none is called like `__class__`."""
    return _is_attribute(word) and word.isidentifier() and not iskeyword(word)


def leaf_words(spec: Spec) -> list[str]:
    """Return what each leaf is, in order: `a` an array, `v` or `vt` a value."""
    if spec[0] in ("a", "v", "vt"):
        return [spec[0]]
    return [leaf for child in _children(spec) for leaf in leaf_words(child)]


def leaf_paths(spec: Spec, path: str = "batch") -> list[str]:
    """Return where each leaf stands in the tree, as the user would write it (`batch['image']`)."""
    if spec[0] in ("a", "v", "vt"):
        return [path]
    parts = zip(_steps(spec), _children(spec), strict=True)
    return [p for step, child in parts for p in leaf_paths(child, path + step)]


def _children(spec: Spec) -> list[Spec]:
    return spec[HEADS[spec[0]] :] if spec[0] in HEADS else []


def _steps(spec: Spec) -> list[str]:
    """Return what each child's place is in the container, as the user would write it."""
    word = spec[0]
    if word in ("list", "tuple"):
        return [f"[{i}]" for i in range(len(spec) - 1)]
    if word == "dict":
        return [f"[{key[2]}.{key[3]}]" if isinstance(key, list) else f"[{key!r}]" for key in spec[1]]
    if word in ("named", "data"):
        return [f".{field}" for field in spec[3]]
    names = spec[HEADS[word] - 1] if word in ("kin", "made") else []
    own = [""] * (len(_children(spec)) - len(names))
    return own + ["" if word == "kin" and name == spec[3] else f".{name}" for name in names]


def place_of(spec: Spec, name: list[str], path: str) -> str:
    """Return where the first thing of a class stands; the batch itself if it has none."""
    for step, child in zip(_steps(spec), _children(spec), strict=True):
        found = place_of(child, name, path + step)
        if found:
            return found
    named = spec[1:3] if spec[0] in ("kin", "enum") else spec[2][:2] if spec[0] == "made" else None
    return path if named == name else ""
