"""Texts of tsnb's own code, and whether a message that a page quotes can come from one of them."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "tsnb"
ENOUGH = 0.5
"""Share of a quoted message that has to be literal text of the code: values may be anything."""

Text = tuple[str, ...]
"""A text of the code: its literal parts, with a value between each two."""


@functools.cache
def texts() -> tuple[Text, ...]:
    """Return every text of the code but the docstrings."""
    found = {text for path in sorted(SOURCES.rglob("*.py")) for text in _texts_of(path)}
    return tuple(sorted(found))


def _texts_of(path: Path) -> Iterator[Text]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            yield tuple(_parts(node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield (node.value,)


def _parts(text: ast.JoinedStr) -> list[str]:
    parts = [""]
    for value in text.values:
        if isinstance(value, ast.Constant):
            parts[-1] += str(value.value)
        else:
            parts.append("")
    return parts


def can_say(quote: str) -> bool:
    """Tell whether a text of the code can have this in it. "..." in the quote leaves something out."""
    pieces = [piece.strip() for piece in re.split(r"\.\.\.|…", quote)]
    return all(any(_fits(piece, text) for text in texts()) for piece in pieces if len(piece) > 1)


def _fits(quote: str, text: Text) -> bool:
    """Tell whether a quote may be a part of a text, with its values filled in."""
    if any(quote in part for part in text):
        return True
    need = ENOUGH * len(quote)
    for place, part in enumerate(text[:-1]):
        for size in range(min(len(part), len(quote)) + 1):
            head = part[len(part) - size :]
            if quote.startswith(head) and size + _most(quote[size:], text[place + 1 :]) >= need:
                return True
    return False


def _most(rest: str, parts: Text) -> int:
    """Return how many letters of what follows a value can be literal text at most; -1 if it cannot follow."""
    following, *others = parts
    ends = [size for size in range(min(len(following), len(rest)), -1, -1) if rest.endswith(following[:size])]
    best = ends[0] if ends else 0  # the value takes what is before
    if others and following and following in rest:
        after = rest.partition(following)[2]
        best = max(best, len(following) + _most(after, tuple(others)))
    elif others and not following:
        best = max(best, _most(rest, tuple(others)))
    return best
