"""Objects on their way to another kernel, through a file without a name (`unnamed_file`).

Classes and functions of the notebook travel by value, those of importable modules by name. Objects shipped
together stay together (two variables that share a dataset share it on arrival). `pickling` says how they are written.
Behind them come the lines of the cells that their code is from (`CellLines`). Python finds lines by file name in
`linecache`, and a cell's file exists only in the kernel that ran it; with them a traceback in the other kernel says
"Cell In[5], line 3" and shows the line.

What does not fit into memory or on the file system is refused before it fills them, and an interrupt comes through
at any time.

Only such files of this user's are ever unpickled, never what lies under a name or comes from a socket.
"""

from __future__ import annotations

import errno
import functools
import linecache
import math
import pickle
import shutil
import sys
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple, cast

from tsnb.config import way_out
from tsnb.errors import NotShippable
from tsnb.kernels.cargo.obstacles import CargoPart, explain, parts_of
from tsnb.kernels.cargo.pickling import Sink, TooLarge, pack
from tsnb.kernels.cargo.unnamed_file import SMALL_BYTES, Cargo, CargoWriter, opened, spill_directory
from tsnb.kernels.cargo.unpickling import unpack
from tsnb.machine.memory import Free, free_memory
from tsnb.stream.protocol import adapters
from tsnb.text.words import sentence

__all__ = ["LARGE_BYTES", "CellLines", "fetch", "lines_of", "remember", "ship", "title_of"]

LARGE_BYTES = 64 * 2**20
"""Past this a copy is worth a warning: it takes memory once per kernel, and time at each start."""

SPARE_BYTES = 64 * 2**20
"""Left free on the file system: others write there too."""

MEASURING_S = 3.0
"""How long it may take to find out which variable is to blame."""

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

_REGISTERED = "tsnb.data.register"
"""Among variables: no name of a user's."""


def ship(
    variables: Mapping[str, Any],
    purpose: str,
    *,
    most_bytes: int | None = None,
    parts: Sequence[CargoPart] | None = None,
) -> Cargo:
    """Write variables, for `fetch` in another process.

    Called on the thread that owns the objects, before anything is started.

    Args:
        variables: By name; they travel together.
        purpose: Their purpose, for messages ("trial 'cnn'").
        most_bytes: Refuse more than this, and do not warn of less; left out: free memory and disk are the bound.
        parts: The same as the user knows it, for messages; left out: the variables, by their names.

    Raises:
        NotShippable: Something cannot travel: names the variable, the attribute path, and the fix; or there is
            not enough room: names the largest variable, and what to do.
        KeyboardInterrupt: The user's; nothing is left.
    """
    found = _room if most_bytes is None else lambda: min(_room(), Free(most_bytes, "to keep"))
    room = functools.cache(found)  # most functions are small, and to look takes longer than to write them
    small = SMALL_BYTES if most_bytes is None else min(SMALL_BYTES, most_bytes)
    known, loading = parts_of(variables) if parts is None else parts, CargoWriter()
    try:
        given = dict(variables)
        if (
            others := adapters.registered()
        ):  # `tsnb.data.register`: a kernel's batches may hold such objects too
            given[_REGISTERED] = others
        code_files = pack(given, Sink(cast("BinaryIO", loading), small, more=lambda: room().size))
        pickle.dump(lines_of(code_files), cast("BinaryIO", loading))
        cargo = loading.done()
    except BaseException as error:
        loading.discard()  # a traceback that is kept would keep it
        if isinstance(error, OSError) and error.errno in _FULL:
            met = f"but there is no room for it ({error.strerror}). {way_out(error)}"
            raise NotShippable(_too_large(known, room(), purpose, met)) from None
        if isinstance(error, TooLarge):
            met = f"but only {_human(room().size)} are available {room().where}."
            raise NotShippable(_too_large(known, room(), purpose, met)) from None
        if isinstance(error, Exception):
            raise NotShippable(explain(known, error, purpose)) from error
        raise  # an interrupt of the user's
    if cargo.size > LARGE_BYTES and most_bytes is None:
        _warn_large(known, cargo.size, purpose)
    return cargo


def _room() -> Free:
    """Return how much may be shipped: what fits on the disk, and into memory beside the original.

    Half of the free memory: while a kernel takes a copy in, its bytes are there once more.
    """
    directory, memory = spill_directory(), free_memory()
    found = []
    if directory is not None:
        disk = max(0, shutil.disk_usage(directory).free - SPARE_BYTES)
        found.append(Free(max(SMALL_BYTES, disk), f"on the file system of {directory}"))
    if memory is not None:
        found.append(Free(memory.size // 2, f"for a copy (half of what is free {memory.where})"))
    return min(found, default=Free(sys.maxsize, ""))


def _too_large(parts: Sequence[CargoPart], room: Free, purpose: str, met: str) -> str:
    title, size, exactly = _largest(parts, room.size)
    takes = f"{'' if exactly else 'more than '}{_human(size)}"
    return (
        f"{sentence(purpose)} cannot copy {title}: it takes {takes}, {met} Load it from its file in "
        "the cell itself (for a stream: in a %%tensorsocket start cell that builds the loader), or "
        "make it smaller first. A stream holds its data once for all trials, and %trials clear frees "
        "the copies of ended trials."
    )


def _largest(parts: Sequence[CargoPart], enough: float = math.inf) -> tuple[str, int, bool]:
    """Return the title and bytes of the largest variable, and whether it was measured to its end.

    Args:
        parts: The variables.
        enough: Bytes past which one is large enough to be blamed.
    """
    until_s = time.monotonic() + MEASURING_S
    measured = []
    for part in parts:
        sink = Sink(room_bytes=enough, until_s=until_s)
        try:
            pack(part.value, sink)
        except TooLarge:
            return part.title, int(enough), False
        except Exception:  # noqa: BLE001 (its time was over, or a user's __reduce__ raises the second time)
            measured.append((sink.size, part.title, False))
        else:
            measured.append((sink.size, part.title, True))
    size, title, exactly = max(measured)
    return title, size, exactly


def _warn_large(parts: Sequence[CargoPart], total: int, purpose: str) -> None:
    title, size, exactly = _largest(parts)
    takes = f"{'' if exactly else 'more than '}{_human(size)}"
    warnings.warn(
        f"{sentence(purpose)} copies {_human(total)}, most of it in {title} ({takes}). Loading it in "
        "the cell or function itself may be faster.",
        stacklevel=4,
    )


def _human(size: int) -> str:
    return f"{size / 2**30:,.1f} GB" if size >= 2**30 else f"{size / 2**20:,.0f} MB"


def fetch(source: Cargo | int, *, apart: bool = False) -> dict[str, Any]:
    """Read what `ship` wrote. Classes that this process has stay as they are.

    Args:
        source: Where it is: a cargo, or the descriptor that has arrived, which the caller closes.
        apart: Whether functions keep the variables that they had there; else they see those of this process, which
            gets what it lacks.

    Raises:
        TsnbError: It is not what another process of ours has sent.
        Exception: Whatever the objects raise on arrival (a module that cannot be imported here, say).
    """
    with opened(source) as file:
        arrived: dict[str, Any] = unpack(file, apart=apart)  # a file without a name, of this user's
        remember(pickle.load(file))  # noqa: S301
        adapters.take_on(arrived.pop(_REGISTERED, []))
        return arrived


class CellLines(NamedTuple):
    """One cell, as a traceback shows it."""

    title: tuple[str, str]
    """What a traceback calls it: ("Cell", "In[5]")."""
    lines: list[str]
    """Its text, each line with its end."""


_arrived: dict[str, CellLines] = {}


def lines_of(files: Iterable[str]) -> dict[str, CellLines]:
    """Return the cells among these files, those that this kernel ran and those that came from another.

    Args:
        files: Names of files as code objects have them.
    """
    found = ((file, _title_here(file)) for file in sorted(files))
    return {file: CellLines(title, linecache.getlines(file)) for file, title in found if title}


def _title_here(file: str) -> tuple[str, str] | None:
    ipython = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None else None
    title: tuple[str, str] | None = None
    if shell is not None and hasattr(shell.compile, "format_code_name"):
        title = shell.compile.format_code_name(file)
    elif file in getattr(linecache, "_ipython_cache", ()):  # IPython 7 has no titles, and shows a cell's file
        title = ("File", file)
    return title or title_of(file)


def remember(cells: Mapping[str, CellLines]) -> None:
    """Let tracebacks of this process show these cells. Cells of its own stay as they are."""
    for file, cell in cells.items():
        _arrived[file] = cell
        # without a time of change `linecache` never looks for the file itself
        entry = (sum(map(len, cell.lines)), None, cell.lines, file)
        linecache.cache.setdefault(file, entry)


def title_of(file: str) -> tuple[str, str] | None:
    """Return what a traceback calls a cell that came from another kernel; None: it did not."""
    cell = _arrived.get(file)
    return None if cell is None else cell.title
