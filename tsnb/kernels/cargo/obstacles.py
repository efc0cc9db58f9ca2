"""Why an object cannot travel to another kernel: which part of it, and what to do.

The walk goes from the variable down through attributes, items, and what functions close over, to the first
part that cannot be pickled although nothing below it is to blame. It runs only after a failure.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import sqlite3
import sys
import sysconfig
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tsnb.kernels.cargo.pickling import TookTooLong, packed_bytes
from tsnb.stream.this_process import this_process
from tsnb.text.words import sentence

__all__ = ["CargoPart", "Obstacle", "explain", "find_obstacle", "parts_of"]

DEEPEST = 12
"""Levels below the variable that the walk descends."""

MOST_ITEMS = 100
"""Items of one container that the walk looks at."""

LOOKING_S = 5.0
"""How long the walk may take: each step tries to pickle all that is below it."""

_ANEW = "Leave it out in __getstate__ and create it again where it is used."
_REOPEN = (
    "Keep its path instead and open it where it is used: in __getitem__, or on first use in each worker."
)
_FIXES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("an open file", lambda o: isinstance(o, io.IOBase), _REOPEN),
    (
        "a database connection",
        lambda o: isinstance(o, (sqlite3.Connection, sqlite3.Cursor)),
        "Keep the database's path instead and connect where it is used: on first use in each worker.",
    ),
    (
        "a generator",
        lambda o: isinstance(o, (types.GeneratorType, types.AsyncGeneratorType, types.CoroutineType)),
        "It runs only once, in this process. Use a class whose __iter__ creates the generator instead.",
    ),
    (
        "a lock",
        lambda o: type(o).__module__ in {"_thread", "threading"} and "local" not in type(o).__name__,
        "Leave it out in __getstate__ and create a new one in __setstate__.",
    ),
    (
        "a socket",
        lambda o: type(o).__name__ in {"socket", "Socket", "SSLSocket"},
        "Keep its address instead and connect where it is used: on first use in each worker.",
    ),
    (
        "an HDF5 object",
        lambda o: type(o).__module__.partition(".")[0] == "h5py",
        _REOPEN,
    ),
)


_LIBRARIES = tuple(
    f"{sysconfig.get_path(kind)}{os.sep}" for kind in ("purelib", "platlib", "stdlib", "platstdlib")
)
"""Where packages lie that their users do not edit."""


class Obstacle(NamedTuple):
    """A part of something that cannot travel."""

    path: str
    """How one gets there: "data.cache['open']"."""
    part: Any
    """The part."""
    holder: Any = None
    """The outermost object of another library that it belongs to; None: it belongs to none."""
    holder_path: str = ""
    """How one gets to that."""
    owned: bool = False
    """Whether an object of the user's own class holds that."""


class CargoPart(NamedTuple):
    """Something that was to travel, as its user knows it."""

    title: str
    """What it is called in a message: "'images'", "its parameter 'lr'"."""
    path: str
    """What the way to a part of it begins with: "images"."""
    value: Any
    """The object."""


def parts_of(variables: Mapping[str, Any], kind: str = "") -> list[CargoPart]:
    """Return variables as their user knows them: by their names.

    Args:
        variables: By name.
        kind: What stands before each name: "its parameter".
    """
    return [CargoPart(f"{kind} {name!r}".lstrip(), name, value) for name, value in variables.items()]


def explain(parts: Sequence[CargoPart], error: Exception, purpose: str) -> str:
    """Say which part of which variable cannot travel, and the fix.

    Args:
        parts: What was to be shipped.
        error: What pickling it raised.
        purpose: What it was for ("trial 'cnn'").
    """
    until_s = time.monotonic() + LOOKING_S
    with contextlib.suppress(TookTooLong):
        for part in parts:
            found = find_obstacle(part.value, part.path, until_s)
            if found is not None:
                what, fix = _describe(found)
                where = "it" if found.path == part.path else found.path
                return (
                    f"{sentence(purpose)} cannot copy {part.title}: {where} is {what}, which cannot be "
                    f"pickled. {fix}"
                )
    names = ", ".join(part.path for part in parts)
    return f"{sentence(purpose)} cannot copy its variables {names}: {error}"


def _describe(found: Obstacle) -> tuple[str, str]:
    """Say what it is, and what its user can do about it."""
    what, fix = f"a {_kind(found.part)}", _ANEW
    for known, recognises, known_fix in _FIXES:
        if recognises(found.part):
            what, fix = known, known_fix
            break
    holder, where = found.holder, found.holder_path
    if holder is None or (holder is found.part and fix != _ANEW):
        return what, fix
    belongs = "" if holder is found.part else f"It belongs to {where}, a {_kind(holder)}. "
    if this_process.name is not None:
        return (
            what,
            (
                f"{belongs}It stays in its trial. Fetch the parts you need, such as its numbers or "
                "state_dict()."
            ),
        )
    if found.owned:
        return what, f"{belongs}Leave {where} out in __getstate__ and create it again where it is used."
    last = where.rpartition(" -> ")[2]
    return (
        what,
        (f"{belongs}Create {last} in the trial's cell or function, or in the cell that builds the loader."),
    )


def _kind(obj: Any) -> str:
    return f"{type(obj).__module__}.{type(obj).__qualname__}"


def _is_of_library(obj: Any) -> bool | None:
    """Return whether the class of an object comes from an installed package; None of what is built into Python."""
    name = type(obj).__module__
    file = getattr(sys.modules.get(name), "__file__", None)
    if name == "__main__":
        return False
    return file.startswith(_LIBRARIES) if isinstance(file, str) else None


def find_obstacle(value: Any, path: str, until_s: float = math.inf) -> Obstacle | None:
    """Return the deepest part that cannot travel; None if all of it can.

    Args:
        value: Where to start.
        path: How to call it in the path.
        until_s: When to give up, by the monotonic clock.

    Raises:
        TookTooLong: It was not found by then.
    """
    chain = _walk(value, path, set(), 0, until_s)
    if not chain:
        return None
    (last, part), (holder, holder_path, owned) = chain[-1], _holder(chain)
    return Obstacle(last, part, holder, holder_path, owned)


_Step = tuple[str, Any]


def _walk(value: Any, path: str, seen: set[int], depth: int, until_s: float) -> list[_Step]:
    """Return the way to it, each object with its path; nothing where all can travel."""
    if id(value) in seen or _can_travel(value, until_s):
        return []
    seen.add(id(value))
    if depth < DEEPEST:
        for step, part in _parts(value):
            found = _walk(part, path + step, seen, depth + 1, until_s)
            if found:
                return [(path, value), *found]
    return [(path, value)]


def _holder(chain: Sequence[_Step]) -> tuple[Any, str, bool]:
    """Return the outermost object of a library's that has nothing of the user's between itself and the chain's end.

    Behind it stands its path, and whether an object of the user's has it.
    """
    holder, holder_path, owned = None, "", False
    for path, value in chain:
        library = _is_of_library(value)
        if library is False:
            holder, holder_path, owned = None, "", True
        elif library and not holder_path:
            holder, holder_path = value, path
    return holder, holder_path, owned


def _can_travel(value: Any, until_s: float) -> bool:
    try:
        packed_bytes(value, until_s)
    except TookTooLong:
        raise
    except Exception:  # noqa: BLE001 (whatever a user's __reduce__ raises)
        return False
    return True


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Give the parts of an object with their step in the path (".lock", "['cache']", "[3]")."""
    if isinstance(value, types.FunctionType):
        yield from _function_parts(value)
    elif isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
    elif isinstance(value, dict):
        yield from ((f"[{key!r}]", part) for key, part in list(value.items())[:MOST_ITEMS])
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((f"[{index}]", part) for index, part in enumerate(list(value)[:MOST_ITEMS]))
    yield from ((f".{name}", part) for name, part in _attributes(value).items())


def _attributes(value: Any) -> dict[str, Any]:
    attributes = (
        dict(getattr(value, "__dict__", {})) if not isinstance(value, (type, types.ModuleType)) else {}
    )
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name):
                attributes.setdefault(name, getattr(value, name))
    return attributes


def _function_parts(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Give what a function takes along: cells it closes over, globals it names, defaults."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield f" -> {name}", cell.cell_contents
    for name in function.__code__.co_names:
        if name in function.__globals__:
            yield f" -> {name}", function.__globals__[name]
    for index, default in enumerate(function.__defaults__ or ()):
        yield f" default {index}", default
