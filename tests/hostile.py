"""What hostile peers and files send: junk in place of any part of what is well-formed, and texts with sequences."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

JUNK: st.SearchStrategy[Any] = st.sampled_from(
    [
        None, True, -1, 0, 1, 4, 2**31, 2**63, 10**30, 10**400, 0.5, float("nan"), float("inf"), "", "x", "a.b",
        "\ud800", "\x1b]0;title\x07", [], {}, [[]], [1], ["v"], ["a"], ["a", "tensor"], {"x": 1}, ["vt"], "__class__",
        "_x", "class", ["list"], ["dict", ["x"], ["v"]],
    ]
)  # fmt: skip
"""Any JSON that is not what was expected."""


def places(tree: Any) -> list[tuple[Any, ...]]:
    """Return the path to every part of a JSON text."""
    found: list[tuple[Any, ...]] = [()]
    parts = enumerate(tree) if isinstance(tree, list) else tree.items() if isinstance(tree, dict) else ()
    return found + [(key, *rest) for key, part in parts for rest in places(part)]


def changed_somewhere(tree: Any, data: st.DataObject, junk: st.SearchStrategy[Any] = JUNK) -> Any:
    """Return a JSON text with one to three of its parts replaced, removed or doubled."""
    made = [copy.deepcopy(tree)]
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(made)[1:] or [(0,)]))
        parent: Any = made
        for key in path[:-1]:
            parent = parent[key]
        kind = data.draw(st.integers(0, 4))
        if kind == 0 and (len(path) > 1):
            del parent[path[-1]]
        elif kind == 1 and isinstance(parent, list) and len(path) > 1:
            parent.append(copy.deepcopy(parent[path[-1]]))
        else:
            parent[path[-1]] = copy.deepcopy(data.draw(junk))
        if not made:
            made = [None]
    return made[0]


HOSTILE_TEXTS = (
    "\x1b]0;owned\x07",  # sets a terminal's title
    "\x1b]52;c;cm0gLXJm\x07",  # its clipboard
    "\x1b[2J\x1b[H",  # clears it
    "\x9b31m",  # the same in C1
    "\u202egnp.exe",  # turns the order of letters
    "one\r\ntwo\u2028three",  # forges a line
    "\ud800",  # cannot be encoded
    "\x00\x08\x7f",
)
"""What is harmless as text and not in a terminal."""
