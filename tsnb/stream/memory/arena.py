"""The arena: one nameless shared memory (`memory.nameless`), a header page, then equal slots.

    +--------+--------+--------+-- ... --+--------+
    | header | slot 0 | slot 1 |         | slot n |      slot i starts at HEADER_BYTES + i * slot_bytes
    +--------+--------+--------+-- ... --+--------+

It is sparse: a slot costs memory only once a batch was written into it, and until it is punched, so slots may be many
and roomy; the producer prefers to hand out warm ones (`memory.slots`), because a page touched for the first time
costs far more than the copy into it.

The file is made before its geometry is known, so that loader workers can inherit it; `fit` writes the header
and grows the file, once, when the first batch has been seen. A process that finds no header
yet, or half of one, simply works without the arena. The header is written and read through a mapping: not every
system reads shared memory as a file.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import struct
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.reduction import DupFd
from typing import Any

from tsnb.config import explained
from tsnb.errors import ArenaFull, RemoteProtocolError
from tsnb.native.memfd import is_sealed, portable
from tsnb.stream.memory.leases import lease
from tsnb.stream.memory.nameless import give_back, leave_out_of_dumps, make_nameless, seal

__all__ = ["ALIGN_BYTES", "HEADER_BYTES", "Arena", "aligned", "header_of", "written"]

ALIGN_BYTES = 64
"""Arrays start at cache-line (and AVX-512) boundaries."""
HEADER_BYTES = 4096
MAX_SLOTS = (1 << 31) - 1
"""What a slot's number may be, in the pipe of free slots."""
_HEADER = struct.Struct("<8sIQI")
"""Magic, slots, bytes of a slot, and a checksum of these: a processor may let others see them in any order."""
_MAGIC = b"tsnb-a2\0"
_NO_GEOMETRY = "the shared memory has no geometry yet"
_WAYS_OUT = {
    errno.EFBIG: ", or raise `ulimit -f`",
    errno.ENOSPC: ", or give /dev/shm more room (a container's: --shm-size)",
}
_POPULATE_WRITE = 23 if sys.platform.startswith("linux") else None
"""MADV_POPULATE_WRITE, for which Python has no name; the number means something else elsewhere."""
_PUNCHED = slice(64, 72)
"""Where the header counts the punches: after one, a process's own notes on warm slots are out of date."""


def aligned(offset: int) -> int:
    """Return the first place at or after `offset` where an array may start."""
    return -(-offset // ALIGN_BYTES) * ALIGN_BYTES


class Arena:
    """One process's hold on the shared memory.

    Attributes:
        fd: The shared memory; travels by fork, by `multiprocessing` pickling while a process is spawned, or over a
            unix socket.
        slots: How many slots there are; 0 until `fit` was called somewhere and `attach` noticed it.
        slot_bytes: Bytes of one slot.
        mapped: Whether this process has mapped it.

    Args:
        fd: The descriptor of its memory.
        sealed: Whether to refuse memory that can be cut short. Set for memory that came over a socket: a file cut short
            under a mapping ends the process by SIGBUS, and the sender has the same descriptor.
    """

    def __init__(self, fd: int, *, sealed: bool = False) -> None:
        self.fd = fd
        self._sealed = sealed
        self.slots = 0
        self.slot_bytes = 0
        self.mapped = False
        self._map: mmap.mmap | None = None
        self._warm: dict[int, int] = {}
        self._warm_since = b""  # as `punches` was then

    @classmethod
    def create(cls) -> Arena:
        """Make an empty arena (producer's process, before the loader's workers start).

        Raises:
            TsnbError: This process may not open more descriptors.
        """
        with explained("make shared memory"):
            return cls(make_nameless())

    def fit(self, slots: int, slot_bytes: int, least: int = 0) -> None:
        """Give the arena its geometry, once; called by the producer when it has seen the first batch.

        Args:
            slots: How many slots.
            slot_bytes: Bytes of one.
            least: Bytes that will do where the system refuses so many; 0: fewer will not.

        Raises:
            ArenaFull: The system does not let the file grow that far.
        """
        try:
            self._take_geometry(slots, slot_bytes)
        except ArenaFull:
            if not least:
                raise
            self._take_geometry(slots, least)
        seal(self.fd)
        self.attach()

    def _take_geometry(self, slots: int, slot_bytes: int) -> None:
        slot_bytes = -(-slot_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        try:
            if slots > MAX_SLOTS:
                raise OverflowError(f"at most {MAX_SLOTS:,} slots")
            os.ftruncate(self.fd, size := HEADER_BYTES + slots * slot_bytes)
            _take_room(self.fd, HEADER_BYTES)
        except (OSError, OverflowError) as error:
            limit = _WAYS_OUT.get(getattr(error, "errno", None) or 0, "")
            raise ArenaFull(
                f"Shared memory for {slots:,} buffers of {slot_bytes:,} bytes cannot be allocated "
                f"({error}). Serve with a smaller window=, late_join= or max_batch_bytes={limit}."
            ) from None
        # all of it is mapped: once sealed, its size is for good
        with contextlib.closing(_mapped(self.fd, size)) as whole:
            whole[: _HEADER.size] = header_of(slots, slot_bytes)

    def attach(self) -> bool:
        """Map the arena if its geometry is known by now; return whether it is mapped.

        Raises:
            ArenaFull: The file is there, but this process may not map so much.
            RemoteProtocolError: It could be cut short, and is not to be.
        """
        if self._map is not None:
            return True
        try:
            # another thread may close ours meanwhile, and mapping -1 would give unrelated memory
            fd = os.dup(self.fd)
        except OSError as error:
            if error.errno == errno.EBADF:  # none that is open: no arena, and never one
                return False
            raise ArenaFull(
                f"This process cannot open its shared memory: {error}. Raise `ulimit -n`."
            ) from None
        try:
            if self._sealed and not is_sealed(fd):  # before the first look at it, which may be the last
                raise RemoteProtocolError(
                    "The stream sent memory that can still shrink or is not shared memory, which tsnb "
                    "never does."
                )
            geometry = _geometry(fd)
            if geometry is None:
                return False
            slots, slot_bytes = geometry
            self._map = _mapped(fd, HEADER_BYTES + slots * slot_bytes)
            leave_out_of_dumps(self._map)
        finally:
            os.close(fd)
        self.slots, self.slot_bytes, self.mapped = slots, slot_bytes, True
        return True

    @property
    def buffer(self) -> mmap.mmap:
        """The mapping. Views over it keep it alive."""
        if self._map is None:
            raise ArenaFull(_NO_GEOMETRY)
        return self._map

    def offset_of(self, slot: int) -> int:
        """Return where a slot starts in the mapping."""
        return HEADER_BYTES + slot * self.slot_bytes

    def lease(self, slot: int, on_release: Callable[[], None]) -> Any:
        """Return a buffer over a slot that calls `on_release` when its last user has gone (`memory.leases`)."""
        if self._map is None:
            raise ArenaFull(_NO_GEOMETRY)
        return lease(self._map, HEADER_BYTES + slot * self.slot_bytes, self.slot_bytes, on_release)

    def address_of(self, slot: int) -> int:
        """Return the slot's address in this process."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self.buffer)) + self.offset_of(slot)

    def warm(self, slot: int, size: int) -> None:
        """Fault in this process's pages of a slot's first `size` bytes, in one call, the first time."""
        punches = self.punches
        if punches != self._warm_since:
            self._warm.clear()
            self._warm_since = punches
        if self._warm.get(slot, 0) >= size:
            return
        self._warm[slot] = size
        if _POPULATE_WRITE is None:
            return
        try:
            self.buffer.madvise(_POPULATE_WRITE, self.offset_of(slot), min(size, self.slot_bytes))
        except OSError as error:
            if error.errno in (
                errno.ENOMEM,
                errno.EFAULT,
            ):  # the write itself would end this process by SIGBUS
                where = " in /dev/shm" if portable() else ""  # the one on Linux, which may be small
                raise ArenaFull(
                    f"There is no memory left{where} for a batch of {size:,} bytes. Free some memory, "
                    "or serve with a smaller window= or late_join=."
                ) from None
            # before Linux 5.14: pages are then faulted one by one

    def left(self) -> int | None:
        """Return the bytes that its file system has left; None where that has no limit of its own, as for a memfd."""
        found = os.fstatvfs(self.fd)
        return found.f_bavail * found.f_frsize if found.f_blocks else None

    @property
    def punches(self) -> bytes:
        """Another value after every punch, in whichever process."""
        return self.buffer[_PUNCHED]

    def punch(self, slots: Iterable[int]) -> None:
        """Give the memory of slots back to the system; they read as zeros. Called by the producer alone.

        Args:
            slots: No process reads or writes them, nor gets one before this returns.
        """
        # first: a process that gets a slot afterwards knows that its memory may be new
        self.buffer[_PUNCHED] = (int.from_bytes(self.punches, "little") + 1).to_bytes(8, "little")
        for first, last in _runs(slots):
            # a list: what is given back becomes a hole, which the search would find again
            for low, high in list(written(self.fd, self.offset_of(first), self.offset_of(last + 1))):
                give_back(self.buffer, low, high)

    def copy(self, slot: int, other: int) -> None:
        """Copy everything that was written into one slot to another."""
        size = self._warm.get(slot, 0)
        self.warm(other, size)
        start, stop = self.offset_of(slot), self.offset_of(other)
        self.buffer[stop : stop + size] = self.buffer[start : start + size]

    def touched_bytes(self) -> int:
        """Return the memory the arena really uses, in all processes together; 0 where the system does not tell."""
        return os.fstat(self.fd).st_blocks * 512

    def close(self) -> None:
        """Let go of the descriptor; the mapping goes with the last view over it."""
        fd, self.fd = self.fd, -1  # taken before it is closed: two finalizers may come here at once
        if fd >= 0:
            os.close(fd)
        self.mapped, self._map = False, None

    def __getstate__(self) -> Any:
        # only while multiprocessing spawns a worker: DupFd then carries the descriptor across
        return DupFd(self.fd)

    def __setstate__(self, fd: Any) -> None:
        self.__init__(fd.detach())  # type: ignore[misc]  # one constructor for both ways in


def written(fd: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a file that were written: most of a slot is a hole, and one that is read would be filled."""
    while start < end:
        try:
            first = os.lseek(fd, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole from here on
                return
            raise
        if first >= end:
            return
        start = min(end, os.lseek(fd, first, os.SEEK_HOLE))
        yield first, start


def _runs(slots: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Give runs of neighbours as their first and last."""
    first = last = -1
    for slot in sorted(slots):
        if slot == last + 1 and first >= 0:
            last = slot
            continue
        if first >= 0:
            yield first, last
        first = last = slot
    if first >= 0:
        yield first, last


def _take_room(fd: int, size: int) -> None:
    """Have memory for the first bytes: where /dev/shm is full, writing to them would end this process by SIGBUS.

    Raises:
        OSError: The system has no memory left.
    """
    try:
        os.posix_fallocate(fd, 0, size)
    except AttributeError:  # macOS: its shared memory lies in no file system
        pass
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise


def header_of(slots: int, slot_bytes: int) -> bytes:
    """Return what the header of an arena of that geometry says."""
    fields = struct.pack("<8sIQ", _MAGIC, slots, slot_bytes)
    return fields + struct.pack("<I", zlib.crc32(fields))


def _geometry(fd: int) -> tuple[int, int] | None:
    """Read slots and bytes of a slot; None where they are not known yet, or the descriptor is of something else."""
    if os.fstat(fd).st_size < HEADER_BYTES:
        return None
    with contextlib.closing(_mapped(fd, HEADER_BYTES)) as header:
        _, slots, slot_bytes, _ = fields = _HEADER.unpack_from(header)
    return (slots, slot_bytes) if _HEADER.pack(*fields) == header_of(slots, slot_bytes) else None


def _mapped(fd: int, size: int) -> mmap.mmap:
    try:
        return mmap.mmap(fd, size)
    except (OSError, ValueError, OverflowError) as error:
        raise ArenaFull(
            f"This process cannot map {size:,} bytes of shared memory: {error}. Most of that address "
            "space is never used. Raise its limits (`ulimit -v`, `ulimit -n`), or serve with a smaller "
            "window=, late_join= or max_batch_bytes=."
        ) from None
