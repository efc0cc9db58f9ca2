"""What this process tells a background kernel to do, as code and plain settings.

Orders carry no objects (those are shipped, see `shipping`) and leave no names in the kernel's variables.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from tsnb.kernels.capture import Captured

__all__ = ["as_written", "call", "thread_variables", "to_arrive"]


def call(module: str, function: str, *arguments: Any) -> str:
    """Return the code that calls a function of `tsnb.kernels.inside` in a child.

    Args:
        module: A module of that package.
        function: One of its functions.
        *arguments: Plain values, dictionaries and lists of them.
    """
    given = ", ".join(map(repr, arguments))
    return f"__import__('importlib').import_module('tsnb.kernels.inside.{module}').{function}({given})"


def to_arrive(path: Path, captured: Captured) -> dict[str, Any]:
    """Return the settings that `inside.arrival.arrive` takes.

    Args:
        path: Where `shipping.ship` wrote the captured variables.
        captured: What the cell takes along.
    """
    return {
        "path": str(path),
        "modules": dict(captured.modules),
        "imports": list(captured.imports),
        "sys_path": [os.path.abspath(p) for p in sys.path if p],  # noqa: PTH100 (strings, links kept)
    }


def as_written(magic: str, cell: str) -> str:
    """Return a cell's code with the line numbers that the notebook shows: its first line is the magic's.

    Args:
        magic: That line, as far as it is worth showing in a traceback ("%%trial cnn").
        cell: What stands below it.
    """
    if cell.lstrip().startswith("%%"):  # a second cell magic has to come first
        return cell
    return f"# {magic}\n{cell}"


def thread_variables(threads: int) -> dict[str, str]:
    """Return the environment that has numerical libraries compute on so many threads."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return dict.fromkeys(names, str(threads))
