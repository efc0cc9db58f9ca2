"""Copying files and folders so that nobody ever finds half of one."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

from tsnb.directories import make_private

__all__ = ["copy_whole", "place_in"]


def place_in(folder: Path, name: str) -> Path:
    """Return where something called `name` lies in a folder.

    Args:
        folder: The folder.
        name: Relative, with slashes for folders inside.

    Raises:
        ValueError: The name leads out of the folder.
    """
    named = Path(name)
    if not named.parts or named.is_absolute() or ".." in named.parts:
        raise ValueError(f"{name!r} cannot name an artifact: give a relative name, such as 'nets/last.pt'")
    return folder / named


def copy_whole(source: Path, target: Path, below: Path) -> None:
    """Copy a file or folder beside its place, then put it there; what was there goes. Only this user may read it.

    Args:
        source: What to copy.
        target: Where to; folders above it are made.
        below: A directory above the target, which is taken on trust; below it no link is followed.

    Raises:
        OSError: It cannot be read, or there is no room, or a link stands in the way. Nothing of it stays then.
    """
    make_private(target.parent, below=below, tighten=True)
    beside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    try:
        if source.is_dir():
            # the records themselves may lie in the folder: a copy of them would contain itself
            left_out = shutil.ignore_patterns(".tsnb")
            shutil.copytree(source, beside, ignore=left_out, ignore_dangling_symlinks=True)
        else:
            shutil.copy2(source, beside)
        for path in (beside, *beside.rglob("*")):
            path.chmod(path.stat().st_mode & 0o700)
        _remove(target)
        beside.replace(target)
    finally:
        _remove(beside)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
