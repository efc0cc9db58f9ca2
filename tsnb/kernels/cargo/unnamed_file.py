"""Bytes on their way between our own processes: without a name, so no other user can find or replace them.

A little stays in this process's memory until it is sent; more goes to an unnamed file, in a directory on a disk where
there is one (a runtime directory is memory, and small, on most systems). A descriptor is sent (`lane`). The last one
that is closed, at either end, frees the bytes: no clean-up is needed, or can be missed.

A notebook keeps what hundreds of its trials were given and have made. So only the files that were used last stay open.
The bytes of the others stay mapped, which takes no descriptor. When they are sent again they get a new file.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import stat
import tempfile
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

from tsnb.config import runtime_directory
from tsnb.errors import TsnbError
from tsnb.machine.disks import in_memory
from tsnb.native import memfd
from tsnb.native.forks import free_in_child
from tsnb.native.mapped import MappedFile

__all__ = ["SMALL_BYTES", "Cargo", "CargoWriter", "opened", "spill_directory"]

SMALL_BYTES = 256 * 2**10
"""Up to this it is kept in memory: hundreds of trials take no descriptor each, and a full disk stops none."""

MOST_OPEN = 64
"""Files that stay open."""


class _Hold:
    """The bytes, which all that share them keep alive.

    Args:
        small: They, if they are few.
        file: Where they are, else.
        size: How many.
        stays: Whether the file is never put by: it is the file that counts.
    """

    def __init__(self, small: bytes, file: IO[bytes] | None, size: int, *, stays: bool = False) -> None:
        self.small = small
        self.file = file
        self.size = size
        self._pages: MappedFile | None = None
        self._used = 0
        self._stays = stays
        if file is not None:
            with self.in_use():
                pass

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Let a file that is open stay open inside the block."""
        with _changing:
            self._used += 1
        try:
            yield
        finally:
            with _changing:
                self._used -= 1
                if self.file is not None and not self._stays:
                    _open.pop(id(self), None)
                    _open[id(self)] = self  # the last one is the one that was used last
                for hold in [*_open.values()][:-MOST_OPEN]:
                    hold._put_by()

    def _put_by(self) -> None:
        """Keep the bytes without a descriptor. A file that cannot be mapped, or is not one of ours, stays open."""
        if self._used or self.file is None:
            return
        with contextlib.suppress(OSError):
            if _nameless_and_mine(self.file.fileno()):
                self._pages = MappedFile(self.file.fileno(), self.size)
                self.file.close()
                self.file = None
        _open.pop(id(self), None)

    def descriptor(self) -> int:
        """Return a descriptor of the file, for as long as it is in use.

        Raises:
            OSError: The disk is full.
        """
        if self.file is None:
            assert self._pages is not None
            file = _large_file()
            try:
                self._pages.write_to(file)  # type: ignore[arg-type]
            except OSError:
                file.close()
                raise
            with _changing:
                if self.file is None:
                    self.file, self._pages = file, None
            if self.file is not file:  # another thread was faster
                file.close()
        return self.file.fileno()

    def read(self, offset: int, size: int) -> bytes:
        """Return a part of it; nothing behind its end."""
        with self.in_use():
            file, pages = self.file, self._pages
            if file is not None:
                return os.pread(file.fileno(), size, offset)
            return self.small[offset : offset + size] if pages is None else pages.read(offset, size)

    def __del__(self) -> None:
        if self.file is not None:
            self.file.close()  # Python warns of a file that is only let go of


_changing = free_in_child(threading.RLock())
_open: weakref.WeakValueDictionary[int, _Hold] = weakref.WeakValueDictionary()


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
            return cls(_Hold(b"", file, size, stays=shared))
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
        return self._held().read(offset, size)

    @contextlib.contextmanager
    def descriptor(self) -> Iterator[int]:
        """Give a descriptor of a file with the bytes, to be sent; it is valid inside the block.

        Raises:
            TsnbError: It is closed.
            OSError: The system has no memory for it, or the disk is full.
        """
        hold = self._held()
        if hold.size > SMALL_BYTES or hold.file is not None:
            with hold.in_use():
                yield hold.descriptor()
            return
        with _small_file() as file:
            file.write(hold.small)
            file.flush()
            with contextlib.suppress(OSError):  # no memfd
                memfd.seal(file.fileno(), contents=True)
            yield file.fileno()

    def _held(self) -> _Hold:
        if self._hold is None:
            raise TsnbError("the copied variables no longer exist")
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

    def __init__(self, source: _Hold | int) -> None:
        self._source = source
        self._place = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if isinstance(self._source, _Hold):
            data = self._source.read(self._place, len(buffer))
            buffer[: (size := len(data))] = data
        elif hasattr(os, "preadv"):
            size = os.preadv(self._source, [buffer], self._place)
        else:
            data = os.pread(self._source, len(buffer), self._place)
            buffer[: (size := len(data))] = data
        self._place += size
        return size

    def close(self) -> None:
        self._source = -1
        super().close()


def opened(source: Cargo | int) -> BinaryIO:
    """Return a file to read from, at its start.

    Args:
        source: A cargo, or a descriptor that another process of ours has sent.

    Raises:
        TsnbError: The descriptor is not one of a nameless file of this user's, or the cargo is closed.
    """
    if isinstance(source, Cargo):
        hold = source._held()
        with hold.in_use():
            mine = hold.file is None or _nameless_and_mine(hold.file.fileno())
        reader = _Reader(hold)
    else:
        mine, reader = _nameless_and_mine(source), _Reader(source)
    if not mine:
        raise TsnbError("the received file is not a private file of this user, so it is not read")
    return io.BufferedReader(reader, SMALL_BYTES)


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
