"""Copying files and folders so that nobody ever finds half of one."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

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


def copy_whole(source: Path, target: Path) -> None:
    """Copy a file or folder beside its place, then put it there; what was there goes.

    Raises:
        OSError: It cannot be read, or there is no room. Nothing of it stays then.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    try:
        if source.is_dir():
            # the records themselves may lie in the folder: a copy of them would contain itself
            left_out = shutil.ignore_patterns(".tsnb")
            shutil.copytree(source, beside, ignore=left_out, ignore_dangling_symlinks=True)
        else:
            shutil.copy2(source, beside)
        _remove(target)
        beside.replace(target)
    finally:
        _remove(beside)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
