"""What an argument stands for: `MODULE:NAME`, and several numbers."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

__all__ = ["load", "named", "numbers"]


def load(target: str) -> Any:
    """Return a loader by its name, or what the function of that name returns.

    Raises:
        ValueError: There is no such thing, or it is None.
    """
    found = named(target)
    iterable = hasattr(found, "__iter__") or not callable(found)
    loader = found if iterable else found()
    if loader is None:
        raise ValueError(f"{target} is None, or returned it: name a loader, or a function that returns one.")
    return loader


def named(target: str) -> Any:
    """Return what `MODULE:NAME` names.

    Raises:
        ValueError: There is no such thing.
    """
    module_name, colon, attribute = target.partition(":")
    if not colon or not attribute:
        raise ValueError(f"expected MODULE:NAME, for example data.cifar:make_loader, and got {target!r}.")
    from tsnb.native.start_line import close_workers

    close_workers()
    sys.path.append(str(Path.cwd()))  # last: nothing of Python's or of a library can be shadowed from there
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.split(".")[0] and error.name != module_name:
            raise
        raise ValueError(
            f"no module {module_name!r} was found, neither here ({Path.cwd()}) nor installed."
        ) from None
    if not hasattr(module, attribute):
        where = getattr(module, "__file__", None) or "part of Python"
        raise ValueError(f"module {module_name!r} ({where}) has no {attribute!r}.")
    return getattr(module, attribute)


def numbers(words: str) -> tuple[int, ...]:
    """Return one or several numbers, as argparse takes them: "1" or "1,2".

    Raises:
        ArgumentTypeError: One is not a whole number from 1 on.
    """
    try:
        found = tuple(int(word) for word in words.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise argparse.ArgumentTypeError(f"{words!r}: give a number from 1 on, or several: 1,2")
    return found
