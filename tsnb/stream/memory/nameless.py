"""Shared memory without a name: reached by its descriptor alone, and gone with the last one and the last mapping.

On Linux a memfd. It never had a name, so nothing is left in /dev/shm after any end, and a container's 64 MB limit on
/dev/shm does not apply. Elsewhere POSIX shared memory whose name is removed as soon as it is made. That name is the
same for all of a user's arenas: a process killed between the two calls leaves one name, of an empty memory, and the
next arena of that user removes it. Two processes that meet there take each other's name away, and no harm is done.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import sys

from tsnb.native import memfd
from tsnb.native.memfd import portable

__all__ = ["give_back", "leave_out_of_dumps", "make_nameless", "seal"]

_DONTDUMP: int | None = getattr(mmap, "MADV_DONTDUMP", None)
"""Linux alone: a core dump reads all mapped memory, and pages of a sparse memory that are read are allocated."""
_REMOVE: int | None = getattr(mmap, "MADV_REMOVE", None)
"""Linux alone: gives memory back from the middle of a mapping."""
_PIECE_BYTES = 1 << 22
"""Python's other threads stand still while memory is given back: for a millisecond or so, by such pieces."""

_TRIES = 100
"""Each costs a few system calls; losing one means that another arena was made just then."""


def make_nameless() -> int:
    """Return the descriptor of a new, empty shared memory.

    Raises:
        OSError: The system refuses it.
    """
    if portable():
        return _posix()
    return memfd.make_memfd("tsnb-arena")


def _posix() -> int:
    # what multiprocessing.shared_memory is built on; that starts a process to remember names, and has a size at once
    import _posixshmem  # type: ignore[import-not-found]  # typeshed leaves it out

    name = f"/tsnb-{os.getuid()}"  # macOS: at most 31 bytes
    for _ in range(_TRIES):
        try:
            # POSIX says that no command which is started inherits it
            made: int = _posixshmem.shm_open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            try:
                _posixshmem.shm_unlink(name)
            except FileNotFoundError:
                pass
            except PermissionError:  # another user has taken this user's name
                name = f"/tsnb-{secrets.token_hex(8)}"
        else:
            with contextlib.suppress(OSError):
                _posixshmem.shm_unlink(name)
            return made
    raise FileExistsError(f"Every name tried for shared memory is taken, the last one {name!r}")


def seal(fd: int) -> None:
    """Fix the size for good, where the system can do that.

    Consumers get a descriptor that can write: a file cut short under the mappings of the others would kill them all
    by SIGBUS. macOS lets shared memory be sized once only, which is as good.
    """
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError):  # memory without seals
            memfd.seal(fd)


def leave_out_of_dumps(mapped: mmap.mmap, start: int = 0, size: int | None = None) -> None:
    """Let core dumps pass over a part of a mapping, or all of it; called for every one that is made."""
    if _DONTDUMP is not None:
        mapped.madvise(_DONTDUMP, start, len(mapped) if size is None else size)


def give_back(mapped: mmap.mmap, start: int, end: int) -> None:
    """Give memory back to the system, where it can do that: it reads as zeros. `start` begins a page."""
    if _REMOVE is None:
        return
    for piece in range(start, end, _PIECE_BYTES):
        with contextlib.suppress(OSError):  # locked in memory, or a file system that cannot do it
            mapped.madvise(_REMOVE, piece, min(_PIECE_BYTES, end - piece))
