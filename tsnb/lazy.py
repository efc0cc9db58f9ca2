"""Names that load their module when they are first used, so that `import tsnb` stays light."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

__all__ = ["Hinting", "lazily"]


class Hinting:
    """Base of a class with names that people guess: the error for such a name says what is meant.

    Attributes:
        _meant: What is meant, by the name that is guessed.
    """

    __slots__ = ()
    _meant: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:  # a checker knows of each attribute whether it is there

        def __getattr__(self, name: str) -> Any:
            try:
                return object.__getattribute__(
                    self, name
                )  # a property may have raised: its own error comes again
            except AttributeError as error:
                if name not in self._meant:
                    raise
                raise AttributeError(f"{error}. Did you mean {self._meant[name]}?") from None


def lazily(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a module's `__getattr__` and `__dir__`.

    Args:
        package: The module that has the names.
        homes: The module that each name comes from; one that ends in the name is that module itself. `name:other` is
            called `other` there.
    """

    def load(name: str) -> Any:
        """Load a name at its first use.

        Raises:
            AttributeError: There is none such.
        """
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, _, there = homes[name].partition(":")
        module = import_module(home)
        value = module if home == f"{package}.{name}" else getattr(module, there or name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        """Return the public names: what a notebook completes."""
        return sorted(homes)

    return load, names
