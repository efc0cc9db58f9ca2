"""Which directory a project's records lie in: `.tsnb`, beside the notebook or in one of the directories above it.

```
.tsnb/
  .gitignore            everything in here stays out of the repository
  records.sqlite        runs and what they logged
  logs/NAME-NUMBER.log  what a run printed
  artifacts/NAME-NUMBER/
  tensorboard/NAME-NUMBER/, mlflow/, wandb/      where a run was asked to log there
```
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from pathlib import Path

from tsnb.config import private_directory, runtime_directory
from tsnb.errors import TsnbError

__all__ = ["DIRECTORY", "project_directory", "project_name"]

DIRECTORY = ".tsnb"

_log = logging.getLogger("tsnb")
_told: set[Path] = set()


def project_directory(*, make: bool = True) -> Path:
    """Return the directory that this project's records lie in.

    `$TSNB_PROJECT_DIR/.tsnb` where that is set, else the nearest `.tsnb` of this user in the current directory
    or one above it, else `.tsnb` in the current directory. Where that cannot be written: a directory of this
    user's below the runtime directory, and a warning that says so.

    Args:
        make: Make it if it is not there. Readers leave it: an empty result needs no directory.

    Raises:
        TsnbError: `$TSNB_PROJECT_DIR` is set and cannot be written, or no directory can be.
    """
    chosen = os.environ.get("TSNB_PROJECT_DIR")
    if chosen:
        return _chosen(Path(chosen).expanduser().absolute() / DIRECTORY, make)
    here = Path.cwd()
    place = _nearest(here) or here / DIRECTORY
    if _writable(place) and (not make or _made(place) is None):
        return place
    return _instead_of(place, make)


def project_name(directory: Path) -> str:
    """Return what the project of a records directory is called elsewhere (an experiment in MLflow, say)."""
    return directory.parent.name or "tsnb"


def _chosen(place: Path, make: bool) -> Path:
    error = _made(place) if make else None
    if error is not None:
        raise TsnbError(
            f"tsnb cannot keep records in {place}: {error}. "
            "Set TSNB_PROJECT_DIR to a directory that you can write to."
        )
    return place


def _nearest(here: Path) -> Path | None:
    """Return the first records directory from `here` upwards that is this user's.

    Somebody else's above us is left alone: in a shared directory such as /tmp anybody could put one.
    """
    for parent in (here, *here.parents):
        place = parent / DIRECTORY
        if place.is_dir() and (parent == here or place.stat().st_uid == os.getuid()):
            return place
    return None


def _writable(place: Path) -> bool:
    there = place if place.exists() else place.parent
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _made(place: Path) -> str | None:
    """Make a records directory with its .gitignore; return why that was not possible."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        ignore = place / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
    except OSError as error:
        return error.strerror or str(error)
    return None if _writable(place) else "Permission denied"


def _instead_of(place: Path, make: bool) -> Path:
    """Return a directory of this user's for a project that cannot be written; say so once, when it is made."""
    above = place.parent
    word = re.sub(r"\W+", "-", above.name).strip("-") or "project"
    digest = hashlib.sha256(os.fsencode(above)).hexdigest()[:12]
    instead = runtime_directory() / "projects" / f"{word}-{digest}" / DIRECTORY
    if not make:
        return instead
    if place not in _told:
        _told.add(place)
        _log.warning(
            "tsnb cannot write to %s: the records of its trials go to %s, which may not outlive a reboot. "
            "Set TSNB_PROJECT_DIR to a directory of yours to keep them.",
            above,
            instead,
        )
    return private_directory(instead)
