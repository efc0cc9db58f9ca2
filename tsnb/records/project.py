"""Which directory a project's records lie in: `.tsnb`, beside the notebook or in one of the directories above it.

```
.tsnb/
  .gitignore            everything in here stays out of the repository
  records.sqlite        runs and what they logged
  logs/NAME-NUMBER.log  what a run printed
  artifacts/NAME-NUMBER/
  kept/NAME-NUMBER/     states of its training that it can go on from (`kept`)
  tensorboard/NAME-NUMBER/, mlflow/, wandb/      where a run was asked to log there
```
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import stat
from pathlib import Path

from tsnb.config import private_directory, runtime_directory
from tsnb.errors import TsnbError
from tsnb.private.directories import Unsafe, check_parents, make_private
from tsnb.private.files import expanded, open_private, working_directory, write_private

__all__ = ["DIRECTORY", "looked_at", "own_place", "project_directory", "project_name", "stay_in"]

DIRECTORY = ".tsnb"

_log = logging.getLogger("tsnb")
_told: set[Path] = set()
_home_of_notebook: Path | None = None


def stay_in(directory: Path | None) -> None:
    """Keep to the project of this directory from now on, wherever the current directory goes.

    Args:
        directory: Where the notebook began; None: the current directory, at any time.
    """
    global _home_of_notebook
    _home_of_notebook = directory


def project_directory(*, make: bool = True) -> Path:
    """Return the directory that this project's records lie in.

    `$TSNB_PROJECT_DIR/.tsnb` where that is set, else the nearest `.tsnb` of this user in the current directory
    or one above it (the home directory's is for notebooks right there), else `.tsnb` in the current directory. In a
    notebook the current directory is the one in which it began (`stay_in`): a later `%cd` does not change it. Where
    that cannot be written, or where another user could replace it: a directory of this user's below the
    runtime directory, and a warning that says so. In one that was chosen `.tsnb` itself has to be
    this user's; other users who can write there are trusted.

    Args:
        make: Make it if it is not there. Readers leave it: an empty result needs no directory.

    Raises:
        TsnbError: `$TSNB_PROJECT_DIR` is set and cannot be written, or holds another user's records; or no directory
            can be written.
    """
    chosen = os.environ.get("TSNB_PROJECT_DIR")
    if chosen:
        return _chosen(expanded(chosen).absolute() / DIRECTORY, make)
    here = _home_of_notebook or working_directory()
    place = _nearest(here) or here / DIRECTORY
    refusal = _refusal(place, None, make)
    return _instead_of(place, make, refusal) if refusal else place


def looked_at() -> tuple[Path, Unsafe | None]:
    """Return where the records of the current directory belong, and what is wrong with that place; change nothing."""
    chosen = os.environ.get("TSNB_PROJECT_DIR")
    if chosen:
        place = expanded(chosen).absolute() / DIRECTORY
    else:
        here = working_directory()
        place = _nearest(here) or here / DIRECTORY
    try:
        if place.is_symlink() or place.exists():
            make_private(place, below=place.parent if chosen else None)
        if place.parent.exists():
            check_parents(place.parent)
    except Unsafe as error:
        return place, error
    return place, None


def own_place(directory: Path, *below: str, make: bool = True) -> Path:
    """Make a folder in a records directory, of mode 0700; no link is followed.

    Args:
        directory: The records directory.
        below: The folder's name, and names of folders in it.
        make: Make it where it is missing.

    Returns:
        Its path.

    Raises:
        OSError: It cannot be made, is not there, or a link or another user's directory is in its place.
    """
    return make_private(directory.joinpath(*below), below=directory.parent, tighten=True, make=make)


def project_name(directory: Path) -> str:
    """Return the name of a records directory's project elsewhere (an experiment in MLflow, say)."""
    return directory.parent.name or "tsnb"


def _chosen(place: Path, make: bool) -> Path:
    refusal = _refusal(place, place.parent, make)
    if refusal:
        raise TsnbError(
            f"tsnb cannot store records in {place}: {refusal}. Set TSNB_PROJECT_DIR to a directory that you "
            "can write to."
        )
    return place


def _nearest(here: Path) -> Path | None:
    """Return the first records directory from `here` upwards that is this user's.

    Another user's is left alone, and so is a link: in a shared directory such as /tmp anybody could put one.
    """
    home = _home()
    for parent in (here, *here.parents):
        if parent == home != here:
            return (
                None  # one that a notebook in the home directory has made is not that of every project below
            )
        with contextlib.suppress(OSError):
            status = (parent / DIRECTORY).lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                return parent / DIRECTORY
    return None


def _home() -> Path | None:
    """Return the home directory; None where this user has none: a container's number without a name, without $HOME."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def _refusal(place: Path, trusted: Path | None, make: bool) -> str:
    """Make a records directory with its .gitignore, or look at the one that is there; return why it cannot be used.

    Args:
        place: The directory.
        trusted: The directory above it, where the user has chosen it: users who can write there are trusted.
        make: Make it if it is not there.
    """
    try:
        if make and trusted is not None:
            trusted.mkdir(mode=0o700, parents=True, exist_ok=True)
        if make or place.is_symlink() or place.exists():
            make_private(place, below=trusted, tighten=True)
        elif trusted is None:
            check_parents(place.parent)
        if make:
            with contextlib.suppress(FileExistsError):
                os.close(open_private(place / ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
                write_private(place / ".gitignore", "*\n")
    except Unsafe as error:
        return f"{error} (to fix that: `{error.mend}`)" if error.mend else str(error)
    except OSError as error:
        return "" if isinstance(error, FileNotFoundError) and not make else error.strerror or str(error)
    return "" if _writable(place) or (trusted is not None and not make) else "Permission denied"


def _writable(place: Path) -> bool:
    there = place if place.exists() else place.parent
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _instead_of(place: Path, make: bool, refusal: str) -> Path:
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
            "tsnb cannot store records in %s: %s. The records of its trials go to %s, which may not survive "
            "a reboot. To keep them, set TSNB_PROJECT_DIR to your own directory.",
            above,
            refusal,
            instead,
        )
    return private_directory(instead)
