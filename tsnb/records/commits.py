"""The commit that a run started from, and whether files differed from it.

| in the records | what it says |
|---|---|
| `1a2b3c4d5e` | this commit, and no file that git knows differs from it |
| `1a2b3c4d5e-dirty` | some do (files that git does not know do not count) |
| `1a2b3c4d5e?` | unknown: git is not installed, or the notebook ended before it had looked |
| nothing | no repository |

A trial's start reads the commit from two small files. Only git itself can tell whether something differs: it is asked
afterwards, on a thread of its own, once for all trials that wait for the answer. It writes nothing meanwhile (no
refreshed index, no lock) and asks no file system monitor.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

__all__ = ["commit_here", "look"]

DIGITS = 10
"""Digits of a commit's name that are kept."""

LOOK_S = 60.0
"""How long git may take: it looks at every file that it knows."""

_ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_NAMESPACE")
"""Variables that would have git look at another repository than that of the directory."""

_waiting: dict[Path, list[Callable[[str], None]]] = {}
_lock = threading.Lock()
_looks = False


def _after_fork_in_child() -> None:
    """Begin anew: the thread that looks is not in the child."""
    global _waiting, _lock, _looks
    _waiting, _lock, _looks = {}, threading.Lock(), False


os.register_at_fork(after_in_child=_after_fork_in_child)


def commit_here() -> str:
    """Return the commit of the current directory's repository, with "?" behind it; nothing outside a repository."""
    here = _here()
    place = None if here is None else _repository(here)
    if place is None:
        return ""
    commit = _head(place)
    return f"{commit[:DIGITS]}?" if commit else "?"


def look(tell: Callable[[str], None]) -> None:
    """Have `tell` called with the commit of the current directory, once it is known whether files differ from it.

    That is on another thread, and never where git cannot look.
    """
    global _looks
    here = _here()
    if here is None:
        return
    with _lock:
        _waiting.setdefault(here, []).append(tell)
        if not _looks:
            _looks = True
            threading.Thread(target=_look_at_all, name="tsnb-git", daemon=True).start()


def _look_at_all() -> None:
    global _looks
    while True:
        with _lock:
            if not _waiting:
                _looks = False
                return
            directory, those = _waiting.popitem()
        found = _status(directory)
        for tell in those if found is not None else ():
            tell(found or "")


def _status(directory: Path) -> str | None:
    """Return a directory's commit, marked if files differ from it; "" before the first, None if git cannot tell."""
    git = shutil.which("git")
    if git is None or not Path(git).is_absolute():  # never one that lies in the directory itself
        return None
    environment = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    command = [
        git, "-c", "core.fsmonitor=false", "status", "--porcelain=v2", "--branch", "--untracked-files=no",
        "--ignore-submodules=dirty",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env={**environment, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LOOK_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = done.stdout.decode(errors="replace").splitlines()
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), "")
    if not _is_commit(commit):
        return ""
    changed = any(not line.startswith("#") for line in lines)
    return f"{commit[:DIGITS]}-dirty" if changed else commit[:DIGITS]


def _here() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it has been deleted
        return None


def _repository(here: Path) -> Path | None:
    """Return where git keeps what belongs to the working tree that a directory lies in."""
    for parent in (here, *here.parents):
        place = parent / ".git"
        if place.is_dir():
            return place
        if text := _read(place):  # a worktree or a submodule: the file says where
            return (parent / text.removeprefix("gitdir:").strip()) if text.startswith("gitdir:") else None
    return None


def _head(place: Path) -> str:
    """Return the commit that is checked out; nothing where that is kept in another way, or before the first."""
    head = _read(place / "HEAD")
    if not head.startswith("ref:"):
        return head if _is_commit(head) else ""
    ref = head.removeprefix("ref:").strip()
    if ".." in ref:
        return ""
    common = place / (_read(place / "commondir") or ".")
    loose = _read(place / ref) or _read(common / ref)
    packed = (line.split(" ") for line in _read(common / "packed-refs").splitlines())
    found = loose or next((words[0] for words in packed if words[1:] == [ref]), "")
    return found if _is_commit(found) else ""


def _is_commit(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{40,64}", text) is not None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
