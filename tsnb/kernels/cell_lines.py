"""The lines of the notebook's cells, for tracebacks in another kernel.

A function that was defined in a cell and travels takes its code along, but not its text: Python finds lines by
file name in `linecache`, and a cell's file exists in the kernel that ran it only. So the cells that shipped code
names travel with it (`shipping`), and a traceback there says "Cell In[5], line 3" and shows the line.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

__all__ = ["CellLines", "lines_of", "remember", "title_of"]


class CellLines(NamedTuple):
    """One cell, as a traceback shows it."""

    title: tuple[str, str]
    """What a traceback calls it: ("Cell", "In[5]")."""
    lines: list[str]
    """Its text, each line with its end."""


_arrived: dict[str, CellLines] = {}


def lines_of(files: Iterable[str]) -> dict[str, CellLines]:
    """Return the cells among these files, those that this kernel ran and those that came from another.

    Args:
        files: Names of files as code objects have them.
    """
    found = ((file, _title_here(file)) for file in sorted(files))
    return {file: CellLines(title, linecache.getlines(file)) for file, title in found if title}


def _title_here(file: str) -> tuple[str, str] | None:
    ipython = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None else None
    title: tuple[str, str] | None = shell.compile.format_code_name(file) if shell is not None else None
    return title or title_of(file)


def remember(cells: Mapping[str, CellLines]) -> None:
    """Let tracebacks of this process show these cells. What it knows of its own accord stays."""
    for file, cell in cells.items():
        _arrived[file] = cell
        # without a time of change `linecache` never looks for the file itself
        entry = (sum(map(len, cell.lines)), None, cell.lines, file)
        linecache.cache.setdefault(file, entry)


def title_of(file: str) -> tuple[str, str] | None:
    """Return what a traceback calls a cell that came from another kernel; None: it is none."""
    cell = _arrived.get(file)
    return None if cell is None else cell.title
