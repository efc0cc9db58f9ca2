"""Names that load their module when they are first used, so that `import tsnb` stays light."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazily"]


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
