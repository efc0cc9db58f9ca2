"""The commit that a run started from, and whether files differed from it.

| in the records | what it says |
|---|---|
| `1a2b3c4d5e` | this commit, and no file that git knows differs from it |
| `1a2b3c4d5e-dirty` | some do (files that git does not know do not count) |
| `1a2b3c4d5e?` | unknown: git's files do not tell, or the notebook ended before they had been read |
| nothing | no repository |

None of git's programs runs: the configuration of a repository names programs that git would run. A trial's start reads
the commit from two small files. Whether something differs is read afterwards (`work_tree`), on a thread of its own,
once for all trials that wait for the answer. Nothing is written.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

from tsnb.files import FEW_BYTES, read_foreign
from tsnb.records.work_tree import differs

__all__ = ["commit_here", "look"]

DIGITS = 10
"""Digits of a commit's name that are kept."""

MOST_REFS = 1 << 22
"""Bytes of a list of all branches and tags: each trial's start reads it, and another user may have made it."""

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
    found = None if here is None else _repository(here)
    if found is None:
        return ""
    commit = _head(found[1])
    return f"{commit[:DIGITS]}?" if commit else "?"


def look(tell: Callable[[str], None]) -> None:
    """Have `tell` called with the commit of the current directory, once it is known whether files differ from it.

    That is on another thread, and never where that cannot be told.
    """
    global _looks
    here = _here()
    if here is None:
        return
    with _lock:
        _waiting.setdefault(here, []).append(tell)
        if not _looks:
            _looks = True
            threading.Thread(target=_look_at_all, name="tsnb-commit", daemon=True).start()


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
    """Return a directory's commit, marked if files differ from it; "" before the first, None where that is unknown."""
    found = _repository(directory)
    if found is None:
        return None
    tree, place = found
    commit = _head(place)
    if not commit:
        return "" if _before_the_first(place) else None
    changed = differs(tree, place, _common(place), commit)
    if changed is None:
        return None
    return f"{commit[:DIGITS]}-dirty" if changed else commit[:DIGITS]


def _here() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it has been deleted
        return None


def _repository(here: Path) -> tuple[Path, Path] | None:
    """Return the work tree that a directory lies in, and where git keeps what belongs to it.

    Whoever may write to one of the directories above could put a `.git` there: one counts if it belongs to this user,
    to root or to the owner of its directory.
    """
    for parent in (here, *here.parents):
        place = parent / ".git"
        try:
            if place.lstat().st_uid not in {os.geteuid(), 0, parent.stat().st_uid}:
                continue
        except OSError:
            continue
        if place.is_dir():
            return parent, place
        text = _read(place)  # a worktree or a submodule: the file says where
        return (parent, parent / text.removeprefix("gitdir:").strip()) if text.startswith("gitdir:") else None
    return None


def _common(place: Path) -> Path:
    return place / (_read(place / "commondir") or ".")


def _head(place: Path) -> str:
    """Return the commit that is checked out; nothing where that is kept in another way, or before the first."""
    head = _read(place / "HEAD")
    if not head.startswith("ref:"):
        return head if _is_commit(head) else ""
    ref = head.removeprefix("ref:").strip()
    if ".." in ref:
        return ""
    found = _read(place / ref) or _read(_common(place) / ref) or _packed(_common(place), ref)
    return found if _is_commit(found) else ""


def _packed(common: Path, ref: str) -> str:
    """Return the commit of a branch in the list of all; nothing where the list is larger than a start may read."""
    try:
        listed = b"\n" + read_foreign(common / "packed-refs", MOST_REFS) + b"\n"
    except (OSError, ValueError):
        return ""
    commit, found, _ = listed.partition(f" {ref}\n".encode(errors="replace"))
    return commit[commit.rfind(b"\n") + 1 :].decode(errors="replace") if found else ""


def _before_the_first(place: Path) -> bool:
    """Tell whether there is no commit yet."""
    objects = _common(place) / "objects"
    with contextlib.suppress(OSError), os.scandir(objects) as found:
        return {each.name for each in itertools.islice(found, 3)} <= {"info", "pack"}
    return False


def _is_commit(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text) is not None


def _read(path: Path, most: int = FEW_BYTES) -> str:
    try:
        return read_foreign(path, most).decode(errors="replace").strip()
    except (OSError, ValueError):  # a name with a NUL in it
        return ""
