"""The directory from which IPython runs code in each kernel that starts, and whether others can put code there.

IPython runs files of that directory before a kernel's first cell: its configuration and the files in `startup`. It
unpickles what `%store` has kept, and older versions import extensions from it. A kernel of ours uses the directory only
if no other user can change any of these. What IPython makes there for a kernel of ours is this user's alone.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from tsnb.private.directories import Unsafe, check_adders, check_changers

__all__ = ["check_ipython", "ipython_directory", "warn_of_ipython", "wrong_with_ipython"]

PROFILE = "profile_default"
"""The profile of every kernel of ours."""

ELSEWHERE = "Set IPYTHONDIR to a directory that only you can write to."


def ipython_directory(environment: Mapping[str, str]) -> Path:
    """Return the directory that IPython uses with an environment. It may not be there yet."""
    home = Path(environment.get("HOME") or Path.home())
    named = environment.get("IPYTHONDIR")
    if named is not None:
        return Path(os.path.normpath(os.path.expanduser(named)))  # noqa: PTH111 (as IPython reads it)
    default = home / ".ipython"
    older = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "ipython"
    return older if older.is_dir() and not older.is_symlink() and not default.exists() else default


def check_ipython(place: Path) -> None:
    """Check that only root and this user can put code where IPython runs it.

    Args:
        place: IPython's directory.

    Raises:
        Unsafe: Others can; says where.
        OSError: Something there cannot be looked at.
    """
    for directory in (place, place / PROFILE):
        if directory.is_symlink() or directory.exists():
            check_adders(directory)
    for path in _code(place):
        with contextlib.suppress(
            FileNotFoundError
        ):  # a link that leads nowhere, where nobody else can put a file
            (check_adders if path.is_dir() else check_changers)(path)


def _code(place: Path) -> Iterator[Path]:
    """Yield each directory and file from which IPython takes code."""
    yield from (place / PROFILE).glob("ipython*config.*")
    for folder in (place / PROFILE / "startup", place / PROFILE / "db", place / "extensions"):
        if folder.is_dir():
            yield folder
            yield from folder.rglob("*")


def wrong_with_ipython(environment: Mapping[str, str]) -> tuple[str, str]:
    """Return what is wrong with IPython's directory, and what to do about it; both empty: nothing is.

    Args:
        environment: A kernel's.
    """
    place = ipython_directory(environment)
    try:
        check_ipython(place)
    except Unsafe as error:
        within = error.path == str(place) or error.path.startswith(f"{place}{os.sep}")
        mend = error.mend
        if within and mend.startswith("chmod "):
            mend = f"chmod -R go-w {shlex.quote(str(place))}"  # all of it at once
        if not mend:
            return str(error), ELSEWHERE
        return str(error), f"Look in {place} for code that is not yours, and run `{mend}`."
    except OSError as error:
        return f"tsnb cannot check {place} ({error})", ELSEWHERE
    return "", ""


def warn_of_ipython(environment: Mapping[str, str]) -> None:
    """Warn, once for each fault, that a kernel does without the user's directory of IPython's."""
    wrong, advice = wrong_with_ipython(environment)
    if wrong:
        _warn(f"Trials run no startup files of IPython: {wrong}. {advice}")


@functools.cache
def _warn(text: str) -> None:
    logging.getLogger("tsnb").warning(text)
