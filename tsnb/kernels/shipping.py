"""Objects on their way to another kernel, through a private file.

Classes and functions of the notebook travel by value, those of importable modules by name. Objects shipped
together stay together (two variables that share a dataset share it on arrival). `kernels.pickling` says how they
are written; behind them come the lines of the cells that their code is from (`kernels.cell_lines`).

Only files in a directory of mode 0700 are ever unpickled, never anything from a socket.
"""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tsnb.errors import NotShippable
from tsnb.kernels.cell_lines import lines_of, remember
from tsnb.kernels.obstacles import explain
from tsnb.kernels.pickling import pack, packed_bytes

__all__ = ["LARGE_BYTES", "fetch", "ship"]

LARGE_BYTES = 64 * 2**20
"""Past this a copy is worth a warning: it takes memory once per kernel, and time at each start."""


def ship(variables: Mapping[str, Any], path: Path, purpose: str) -> None:
    """Write variables to a private file, for `fetch` in another process.

    Called on the thread that owns the objects, before anything is started.

    Args:
        variables: By name; they travel together.
        path: A file that does not exist, in a private directory.
        purpose: What they are for, for messages ("trial 'cnn'").

    Raises:
        NotShippable: Something cannot travel; names the variable, the attribute path, and the fix.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            code_files = pack(dict(variables), file)
            pickle.dump(lines_of(code_files), file)
    except Exception as error:
        path.unlink(missing_ok=True)
        raise NotShippable(explain(variables, error, purpose)) from error
    if path.stat().st_size > LARGE_BYTES:
        _warn_large(variables, purpose)


def _warn_large(variables: Mapping[str, Any], purpose: str) -> None:
    sizes = {name: packed_bytes(value) for name, value in variables.items()}
    largest = max(sizes, key=lambda name: sizes[name])
    total = sum(sizes.values()) / 2**20
    warnings.warn(
        f"{purpose} takes a copy of {total:.0f} MB along, most of it in {largest!r} "
        f"({sizes[largest] / 2**20:.0f} MB). It may be quicker to load it in the background kernel itself.",
        stacklevel=4,
    )


def fetch(path: Path, *, keep: bool = False) -> dict[str, Any]:
    """Read what `ship` wrote, and remove the file.

    Args:
        path: Where it was written.
        keep: Whether the file stays, for a kernel that may be started again from it; the sender removes it.

    Raises:
        Exception: Whatever the objects raise on arrival (a module that cannot be imported here, say).
    """
    try:
        with path.open("rb") as file:
            arrived: dict[str, Any] = pickle.load(file)  # noqa: S301 (our own file, in a private directory)
            remember(pickle.load(file))  # noqa: S301
            return arrived
    finally:
        if not keep:
            path.unlink(missing_ok=True)
