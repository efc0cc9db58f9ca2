"""Bytes on their way between our own processes: without a name, so no other user can find or replace them.

A little stays in this process's memory until it is sent; more goes to an unnamed file, in a directory on a disk where
there is one (a runtime directory is memory, and small, on most systems). A descriptor is sent (`lane`). The last one
that is closed, at either end, frees the bytes: no clean-up is needed, or can be missed.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

from tsnb.config import runtime_directory
from tsnb.errors import TsnbError
from tsnb.machine.disks import in_memory
from tsnb.native import memfd

__all__ = ["SMALL_BYTES", "Cargo", "CargoWriter", "opened", "spill_directory"]

SMALL_BYTES = 256 * 2**10
"""Up to this it is kept in memory: hundreds of trials take no descriptor each, and a full disk stops none."""

"""Kinds of file systems that are memory."""


class _Hold:
    """The bytes, which all that share them keep alive."""

    def __init__(self, small: bytes, file: IO[bytes] | None, size: int) -> None:
        self.small = small
        self.file = file
        self.size = size

    def __del__(self) -> None:
        if self.file is not None:
            self.file.close()  # Python warns of a file that is only let go of


class Cargo:
    """Some bytes, to be sent as often as one likes.

    Args:
        hold: Where they are.
    """

    def __init__(self, hold: _Hold) -> None:
        self._hold: _Hold | None = hold

    @classmethod
    def received(cls, descriptor: int, *, shared: bool = False) -> Cargo:
        """Return what another process of ours has sent; takes the descriptor over.

        Args:
            descriptor: The file's.
            shared: Whether it is the file that counts, however small it is now: it is memory that several write into.

        Raises:
            OSError: It is not of a file.
        """
        try:
            file = os.fdopen(descriptor, "rb")
        except OSError:  # a directory, say
            os.close(descriptor)
            raise
        size = os.fstat(descriptor).st_size
        if shared or size > SMALL_BYTES:
            return cls(_Hold(b"", file, size))
        with file:  # as what is sent: a notebook keeps the results of hundreds of trials
            return cls(_Hold(os.pread(descriptor, size, 0), None, size))

    @property
    def size(self) -> int:
        """Its bytes."""
        return self._held().size

    def again(self) -> Cargo:
        """Return another one with the same bytes; each is closed on its own.

        Raises:
            TsnbError: It is closed.
        """
        return Cargo(self._held())

    def close(self) -> None:
        """Let go of the bytes."""
        self._hold = None

    def read(self, offset: int, size: int) -> bytes:
        """Return a part of it; nothing behind its end."""
        hold = self._held()
        if hold.file is None:
            return hold.small[offset : offset + size]
        return os.pread(hold.file.fileno(), size, offset)

    @contextlib.contextmanager
    def descriptor(self) -> Iterator[int]:
        """Give a descriptor of a file with the bytes, to be sent; it is valid inside the block.

        Raises:
            TsnbError: It is closed.
            OSError: The system has no memory for it.
        """
        hold = self._held()
        if hold.file is not None:
            yield hold.file.fileno()
            return
        with _small_file() as file:
            file.write(hold.small)
            file.flush()
            with contextlib.suppress(OSError):  # no memfd
                memfd.seal(file.fileno(), contents=True)
            yield file.fileno()

    def _held(self) -> _Hold:
        if self._hold is None:
            raise TsnbError("what was shipped is gone")
        return self._hold


class CargoWriter:
    """Takes bytes, piece by piece, until they are a `Cargo`.

    Attributes:
        size: Bytes so far.
    """

    def __init__(self) -> None:
        self._small = bytearray()
        self._file: IO[bytes] | None = None
        self.size = 0

    def write(self, data: Any) -> int:
        """Take some.

        Raises:
            OSError: The disk or the memory is full.
        """
        size = memoryview(data).nbytes
        if self._file is None and self.size + size > SMALL_BYTES:
            self._file = _large_file()
            self._file.write(self._small)
            self._small.clear()
        if self._file is None:
            self._small += data
        else:
            self._file.write(data)
        self.size += size
        return size

    def discard(self) -> None:
        """Let go of what was taken."""
        self._small.clear()
        if self._file is not None:
            self._file.close()

    def done(self) -> Cargo:
        """Return what was taken.

        Raises:
            OSError: The disk is full.
        """
        if self._file is not None:
            self._file.flush()
        return Cargo(_Hold(bytes(self._small), self._file, self.size))


class _Reader(io.RawIOBase):
    """Reads by places of its own: the one in the file is shared with all that have the descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._place = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if hasattr(os, "preadv"):
            size = os.preadv(self._descriptor, [buffer], self._place)
        else:
            data = os.pread(self._descriptor, len(buffer), self._place)
            buffer[: (size := len(data))] = data
        self._place += size
        return size


def opened(source: Cargo | int) -> BinaryIO:
    """Return a file to read from, at its start.

    Args:
        source: A cargo, or a descriptor that another process of ours has sent.

    Raises:
        TsnbError: The descriptor is not one of a nameless file of this user's, or the cargo is closed.
    """
    if isinstance(source, Cargo):
        hold = source._held()
        if hold.file is None:
            return io.BytesIO(hold.small)
        source = hold.file.fileno()
    if not _nameless_and_mine(source):
        raise TsnbError("what arrived is not an unnamed file of this user's own: it is not read")
    return io.BufferedReader(_Reader(source), SMALL_BYTES)


def _nameless_and_mine(descriptor: int) -> bool:
    status = os.fstat(descriptor)
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_nlink


def _small_file() -> IO[bytes]:
    try:
        return os.fdopen(memfd.make_memfd("tsnb-cargo"), "w+b")
    except OSError:  # macOS; a sandbox
        return tempfile.TemporaryFile()


def _large_file() -> IO[bytes]:
    directory = spill_directory()
    return _small_file() if directory is None else tempfile.TemporaryFile(dir=directory)


def spill_directory() -> Path | None:
    """Return where large cargo goes: the directory with the most room, on a disk if there is one. None: in memory.

    No other user can see it, and a directory of another user does no harm: the file never has a name, or loses it at
    once (`tempfile.TemporaryFile`).
    """
    found = []
    for directory in _candidates():
        with contextlib.suppress(OSError):
            room = os.statvfs(directory)
            free = room.f_bavail * room.f_frsize
            if free and _keeps_nameless(directory):
                found.append((not in_memory(directory), free, directory))
    return max(found)[2] if found else None


def _candidates() -> list[Path]:
    found = [Path("/var/tmp")]  # noqa: S108 (only for files without a name)
    with contextlib.suppress(TsnbError):
        found.append(runtime_directory())
    with contextlib.suppress(OSError):  # none can be written
        found.append(Path(tempfile.gettempdir()))
    return found


@functools.lru_cache(64)
def _keeps_nameless(directory: Path) -> bool:
    """Whether files there can be unnamed: a network file system gives open ones a hidden name."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            return _nameless_and_mine(file.fileno())
    except OSError:
        return False
