"""The set-up cell: code that every trial runs before its own (`%%trial --setup`).

For what is neither a variable nor one of the settings that are carried anyway (`kernels.numerics`): options of pandas
and matplotlib, handlers of loggers, registered types. One a notebook; another takes its place, an empty one ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tsnb.kernels import orders
from tsnb.kernels.capture import Captured, capture

__all__ = ["SetUp", "set_up", "set_up_now"]


@dataclass(frozen=True)
class SetUp:
    """A cell that trials run first."""

    source: str
    """The cell, with the line numbers that the notebook shows."""
    transform: Callable[[str], str]
    """IPython's `transform_cell`."""
    namespace: Mapping[str, Any]
    """The notebook's variables, as they are at any time."""

    def capture(self) -> Captured:
        """Return what it takes along.

        Raises:
            UndefinedNames: It reads names that nobody defines.
        """
        return capture(self.transform(self.source), self.namespace, bodies=True)


_current: list[SetUp] = []


def set_up(source: str, namespace: Mapping[str, Any], transform: Callable[[str], str] = str) -> bool:
    """Have every trial that is started from now on run a cell first.

    Args:
        source: The cell; an empty one: none.
        namespace: The notebook's variables.
        transform: IPython's `transform_cell`.

    Returns:
        Whether there is one now.

    Raises:
        UndefinedNames: It reads names that nobody defines; what was there before stays.
        SyntaxError: It is not Python.
    """
    new = SetUp(orders.as_written("%%trial --setup", source), transform, namespace)
    if source.strip():
        new.capture()
    _current[:] = [new] if source.strip() else []
    return bool(_current)


def set_up_now() -> SetUp | None:
    """Return the cell that trials run first, if there is one."""
    return _current[0] if _current else None
