"""Which files a trial's code writes: two trials that run side by side may mean the same one without knowing.

Python tells of each file that it opens (`sys.addaudithook`). `torch.save` opens its files in C++, and tells of them too
from here on. Only what is written from its start counts: a file that is appended to, or changed within, is meant to be
shared. Hidden files are caches, and do not count either.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import PurePath
from typing import Any

from tsnb.config import runtime_directory

__all__ = ["WrittenFiles"]

MOST_FILES = 1000
"""A trial that writes more is told of the first ones."""

_SYSTEM = ("/dev/", "/proc/", "/sys/")
"""No files."""


class WrittenFiles:
    """The files that this process writes from now on."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._known: set[str] = set()
        self._fresh: list[str] = []
        self._others = (*_SYSTEM, f"{runtime_directory()}{os.sep}")
        sys.addaudithook(self._hear)
        _have_torch_tell()

    def take(self) -> list[str]:
        """Return those that are new since the last time."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or os.getpid() != self._process:
            return
        with contextlib.suppress(Exception):  # what is raised here would end the user's `open`
            path, _, flags = arguments
            if flags & os.O_TRUNC and not isinstance(path, int):
                self._note(os.path.abspath(os.fsdecode(path)))  # noqa: PTH100 (a string, quickly)

    def _note(self, path: str) -> None:
        hidden = any(part[:1] == "." or part == "__pycache__" for part in PurePath(path).parts)
        if path in self._known or len(self._known) >= MOST_FILES or hidden or path.startswith(self._others):
            return
        self._known.add(path)
        self._fresh.append(path)


def _have_torch_tell() -> None:
    serialization: Any = sys.modules.get("torch.serialization")
    writer: Any = getattr(serialization, "_open_zipfile_writer_file", None)
    if not isinstance(writer, type):  # another torch, or done already, in the process that this is a clone of
        return

    def telling(name: Any) -> Any:
        sys.audit("open", name, "w", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        return writer(name)

    serialization._open_zipfile_writer_file = telling
