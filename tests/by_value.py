"""Training functions that travel to a trial by value: files of tests cannot be imported there."""

from __future__ import annotations

from typing import Any

__all__ = ["by_value"]


def by_value(source: str, name: str = "train") -> Any:
    """Return a function that some source defines, as if a notebook had.

    Args:
        source: It, with all that it imports.
        name: The function's.
    """
    made: dict[str, Any] = {"__name__": "__main__"}
    exec(source, made)
    return made[name]
