"""Loaders among the notebook's variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from IPython.core.error import UsageError

from tsnb.words import did_you_mean

__all__ = ["find_loader", "loader_names"]


def loader_names(variables: Mapping[str, Any]) -> list[str]:
    """Return the variables that look like loaders: iterable, and with a dataset or a batch size."""
    return [
        name
        for name, value in variables.items()
        if not name.startswith("_")
        and not isinstance(value, type)
        and hasattr(type(value), "__iter__")
        and (hasattr(value, "dataset") or hasattr(value, "batch_size"))
    ]


def find_loader(name: str | None, variables: Mapping[str, Any], magic: str = "%tensorsocket start") -> Any:
    """Return the variable that `%tensorsocket start` names.

    Args:
        name: As it was given.
        variables: The notebook's.
        magic: Who asks, for messages.

    Raises:
        UsageError: There is none of that name; lists the loaders there are.
    """
    loaders = loader_names(variables)
    there = f"Loaders in this notebook: {', '.join(loaders) or 'none yet'}."
    if name is None:
        raise UsageError(f"{magic}: which loader? {there}")
    if name in variables:
        return variables[name]
    if not name.isidentifier():
        raise UsageError(f"{magic}: {name!r} is no variable's name. Assign the loader to one first. {there}")
    hint = did_you_mean(name, loaders)
    raise UsageError(f"{magic}: no variable {name!r} in this notebook.{hint} {there}")
