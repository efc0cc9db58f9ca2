"""What an argument stands for: `MODULE:NAME`, and several numbers; and where what its code prints goes."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tsnb.errors import TsnbError
from tsnb.private.directories import Unsafe, check_adders
from tsnb.private.files import read_foreign, working_directory
from tsnb.text.printable import raised_in

__all__ = ["aside", "code_at", "load", "named", "numbers"]


@contextlib.contextmanager
def aside(options: argparse.Namespace) -> Iterator[None]:
    """With `--json`, have all that is printed meanwhile go to stderr: a program reads the answer alone on stdout.

    The user's module, loader, workers and steps print what they like; workers and C code write to the descriptor.

    Args:
        options: As parsed.
    """
    if not options.json:
        yield
        return
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "wb") as answers, contextlib.redirect_stdout(sys.stderr):
        os.dup2(2, 1)
        try:
            yield
        finally:
            os.dup2(answers.fileno(), 1)


def load(target: str) -> Any:
    """Return a loader by its name, or what the function of that name returns.

    Raises:
        ValueError: There is no such thing, or it is None.
        TsnbError: The user's code raised; says what, and where.
    """
    found = named(target)
    iterable = hasattr(found, "__iter__") or not callable(found)
    try:
        loader = found if iterable else found()
    except TsnbError:
        raise
    except Exception as error:
        module_name, _, attribute = target.partition(":")
        raise _raised(target, error, f"import {module_name}; {module_name}.{attribute}()") from error
    if loader is None:
        raise ValueError(
            f"{target} is None, or returned None. Name a loader, or a function that returns one."
        )
    return loader


def named(target: str) -> Any:
    """Return what `MODULE:NAME` names.

    Raises:
        ValueError: There is no such thing.
        TsnbError: The user's module raised; says what, and where.
    """
    module_name, colon, attribute = target.partition(":")
    if not colon or not attribute:
        _refuse_file(Path(target), "NAME")
        raise ValueError(f"expected MODULE:NAME, for example data.cifar:make_loader, got {target!r}.")
    _refuse_file(Path(module_name), attribute)
    from tsnb.native.start_line import close_workers

    close_workers()
    here = working_directory()
    closed = _look_in(here)
    try:
        module = importlib.import_module(module_name)
    except TsnbError:
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name in {module_name, module_name.split(".")[0]}:
            if closed:
                raise ValueError(
                    f"found no module {module_name!r} among the installed ones. tsnb does not import it from "
                    f"the working directory: {closed}"
                ) from None
            raise ValueError(
                f"found no module {module_name!r}, neither here ({here}) nor installed."
            ) from None
        raise _raised(module_name, error, f"import {module_name}") from error
    if not hasattr(module, attribute):
        where = getattr(module, "__file__", None) or "part of Python"
        raise ValueError(f"module {module_name!r} ({where}) has no {attribute!r}.")
    return getattr(module, attribute)


def code_at(target: str) -> tuple[str, str] | Any:
    """Return what a script or `MODULE:NAME` stands for: the script's path and text, or what is named.

    The script's folder is one to import from.

    Raises:
        ValueError: There is no such thing.
        TsnbError: The user's module raised, or nothing may be imported from the script's folder.
    """
    path = Path(target)
    if ":" in target or path.suffix != ".py":
        return named(target)
    try:
        text = read_foreign(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{target!r} cannot be read: {error}. Pass a Python script, or MODULE:NAME."
        ) from None
    if closed := _look_in(path.absolute().parent):
        raise TsnbError(closed)
    return str(path.absolute()), text


def _look_in(directory: Path) -> str:
    """Have modules found in a directory; return why not, and what to do, if none may be."""
    closed = _why_not_from(directory)
    if not closed and str(directory) not in sys.path:
        # last: nothing of Python's or of a library can be shadowed from there
        sys.path.append(str(directory))
    return closed


def _why_not_from(here: Path) -> str:
    """Return why nothing may be imported from the working directory, and what to do; empty: it may.

    A name that is nowhere else, such as `winreg` on Linux, is found in the last directory too: another user who can add
    a file there would run code as this one.
    """
    try:
        check_adders(here)
    except Unsafe as error:
        return (
            f"{error}. A module that another user puts there would run as you. Work in a directory that only you "
            f"can write to, or set PYTHONPATH={shlex.quote(str(here))} if you trust everybody who can write there."
        )
    except OSError:  # it has been removed, say
        pass
    return ""


def _refuse_file(path: Path, attribute: str) -> None:
    """Say which module a file's path means. To import `train.py` by that name would run `train` first.

    Raises:
        ValueError: It is a file's path.
    """
    if path.suffix != ".py" or path.with_suffix("").is_dir():  # a package may have a module py
        return
    outside = path.is_absolute() or ".." in path.parts
    where = f" In the folder {str(path.parent)!r}:" if outside else " Name its module:"
    dotted = path.stem if outside else ".".join(path.with_suffix("").parts)
    raise ValueError(f"{str(path)!r} is a file.{where} {dotted}:{attribute}")


def _raised(what: str, error: Exception, alone: str) -> TsnbError:
    """Return what is said of an error of the user's own code; the traceback is there where it is run alone."""
    return TsnbError(
        f"{what} raised {type(error).__name__}{raised_in(error)}: {error}\nTo see the whole traceback: "
        f'{Path(sys.executable).name} -c "{alone}"'
    )


def numbers(words: str) -> tuple[int, ...]:
    """Return one or several numbers, as argparse takes them: "1" or "1,2".

    Raises:
        ArgumentTypeError: One is not a whole number from 1 on.
    """
    try:
        found = tuple(int(word) for word in words.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise argparse.ArgumentTypeError(f"{words!r} is invalid. Pass a number, 1 or more, or several: 1,2")
    return found
