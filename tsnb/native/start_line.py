"""The first words of a Python that is started with `-c`.

Python puts the working directory first on `sys.path` there, so that a `random.py` or `torch.py` in it is imported
instead of the real one: another user's, where others can write, or an innocent one of this user's. Processes of ours
begin with `CLOSED` and get their path from the process that started them. (`-P` does the same from Python 3.11 on;
`-I` would lose PYTHONPATH.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import util
from typing import Any

__all__ = ["CLOSED", "close_workers", "closed"]

CLOSED = "import sys; sys.path[:] = filter(None, sys.path); "
"""Takes the working directory off the path. `sys` is there before there is a path."""


def closed(words: Sequence[Any]) -> list[Any]:
    """Return a command line in which Python's `-c`, if any, imports nothing from the directory it is started in."""
    words = list(words)
    if "-c" in words[1:-1]:
        place = words.index("-c", 1) + 1
        if not words[place].startswith(CLOSED):
            words[place] = CLOSED + words[place]
    return words


def close_workers() -> None:
    """Have multiprocessing start its processes so from now on: spawned workers, fork server, resource tracker.

    They get this process's own path (the working directory too, if it is on it) before they import the user's code.
    """
    start = util.spawnv_passfds
    if getattr(start, "func", None) is not _start_closed:
        util.spawnv_passfds = partial(_start_closed, start)


def _start_closed(start: Callable[..., int], path: bytes, args: Sequence[Any], passfds: Sequence[int]) -> int:
    return start(path, closed(args), passfds)
