"""Another user of the machine, played by a real process with another uid.

Only root can start one, so tests that need it are marked `two_users`: elsewhere they are skipped, with the reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["OTHER", "acting", "does", "given", "reachable", "two_users"]

OTHER = 65534
"""The second user's number."""

two_users = pytest.mark.skipif(os.getuid() != 0, reason="only root can play a second user of the machine")

BECOME = "import os, socket, sys; os.setgroups([]); os.setgid({0}); os.setuid({0})\n"


def _start(code: str, *arguments: str | Path) -> subprocess.Popen[str]:
    text = BECOME.format(OTHER) + textwrap.dedent(code)
    words = [sys.executable, "-I", "-S", "-c", text, *map(str, arguments)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/")


def does(code: str, *arguments: str | Path) -> str:
    """Have the second user run some Python with `os`, `socket` and `sys` imported; return what it prints.

    Raises:
        AssertionError: It ended with an error.
    """
    process = _start(code, *arguments)
    said, _ = process.communicate(timeout=240)
    assert process.returncode == 0, said
    return said


@contextmanager
def acting(code: str, *arguments: str | Path) -> Iterator[None]:
    """Have the second user go on doing something; `code` prints a line when it has begun."""
    process = _start(code, *arguments)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("begun"), line + process.stdout.read()
        yield
    finally:
        process.kill()
        process.communicate()


def given(path: Path, mode: int = 0o755) -> Path:
    """Make a directory that is the second user's."""
    path.mkdir(parents=True, exist_ok=True)
    os.chown(path, OTHER, OTHER)
    path.chmod(mode)
    return path


def reachable(path: Path) -> Path:
    """Let the second user come as far as this directory: pytest's own above it are closed."""
    for above in (path, *path.parents):
        if not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode & 0o7777 | 0o011)
    return path
