"""The arena: one memfd, a header page, then equal slots.

    +--------+--------+--------+-- ... --+--------+
    | header | slot 0 | slot 1 |         | slot n |      slot i starts at HEADER_BYTES + i * slot_bytes
    +--------+--------+--------+-- ... --+--------+

A memfd has no name, so nothing is left in /dev/shm after any end, and a container's 64 MB limit on /dev/shm
does not apply. It is sparse: a slot costs memory only once a batch was written into it, so slots may be many
and roomy; whoever hands slots out prefers warm ones (`arena.slots`), because a page touched for the first time
costs far more than the copy into it.

The file is made before its geometry is known, so that loader workers can inherit it; `fit` writes the header
and grows the file once the first batch has been seen. Who finds no header yet simply works without the arena.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import struct
from multiprocessing.reduction import DupFd
from typing import Any

from tsnb.config import explained
from tsnb.errors import ArenaFull

__all__ = ["ALIGN_BYTES", "HEADER_BYTES", "Arena", "aligned"]

ALIGN_BYTES = 64
"""Arrays start at cache-line (and AVX-512) boundaries."""
HEADER_BYTES = 4096
MAX_SLOTS = (1 << 31) - 1
"""What a slot's number may be, in the pipe of free slots."""
_HEADER = struct.Struct("<8sIQ")
_MAGIC = b"tsnb-a1\0"
_POPULATE_WRITE = getattr(mmap, "MADV_POPULATE_WRITE", 23)


def aligned(offset: int) -> int:
    """Return the first place at or after `offset` where an array may start."""
    return -(-offset // ALIGN_BYTES) * ALIGN_BYTES


class Arena:
    """One process's hold on the shared memory.

    Attributes:
        fd: The memfd; travels by fork, by `multiprocessing` pickling while a process is spawned, or over a
            unix socket.
        slots: How many slots there are; 0 until `fit` was called somewhere and `attach` noticed it.
        slot_bytes: Bytes of one slot.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.slots = 0
        self.slot_bytes = 0
        self._map: mmap.mmap | None = None
        self._warm: dict[int, int] = {}

    @classmethod
    def create(cls) -> Arena:
        """Make an empty arena (producer's process, before the loader's workers start).

        Raises:
            TsnbError: This process may not open more descriptors.
        """
        with explained("make shared memory"):
            return cls(os.memfd_create("tsnb-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))

    def fit(self, slots: int, slot_bytes: int) -> None:
        """Give the arena its geometry, once; called by the producer when it has seen the first batch.

        Raises:
            ArenaFull: The system does not let the file grow that far.
        """
        slot_bytes = -(-slot_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        try:
            if slots > MAX_SLOTS:
                raise OverflowError(f"at most {MAX_SLOTS:,} slots")
            os.ftruncate(self.fd, HEADER_BYTES + slots * slot_bytes)
        except (OSError, OverflowError) as error:
            limit = ", or raise `ulimit -f`" if getattr(error, "errno", None) == errno.EFBIG else ""
            raise ArenaFull(
                f"an arena of {slots:,} slots of {slot_bytes:,} bytes cannot be had ({error}). "
                f"Serve with a smaller window=, rubber_band= or max_batch_bytes={limit}."
            ) from None
        os.pwrite(self.fd, _HEADER.pack(_MAGIC, slots, slot_bytes), 0)
        # whoever attaches gets a descriptor that can write: a file cut short under the mappings of the others would
        # kill them all by SIGBUS
        with contextlib.suppress(OSError):  # a system without seals
            fcntl.fcntl(
                self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            )
        self.attach()

    def attach(self) -> bool:
        """Map the arena if its geometry is known by now; return whether it is mapped.

        Raises:
            ArenaFull: The file is there, but this process may not map so much.
        """
        if self._map is not None:
            return True
        try:
            header = os.pread(self.fd, _HEADER.size, 0)
        except OSError:  # a descriptor that is none of a file: no arena, and never one
            return False
        if len(header) < _HEADER.size or not header.startswith(_MAGIC):
            return False
        _, slots, slot_bytes = _HEADER.unpack(header)
        size = HEADER_BYTES + slots * slot_bytes
        try:
            self._map = mmap.mmap(self.fd, size)
        except (OSError, ValueError, OverflowError) as error:
            raise ArenaFull(
                f"this process cannot map {size:,} bytes of shared memory: {error}. They are addresses, most of which "
                "are never used: raise its limits (`ulimit -v`, `ulimit -n`), or serve with a smaller window=, "
                "rubber_band= or max_batch_bytes=."
            ) from None
        self.slots, self.slot_bytes = slots, slot_bytes
        return True

    @property
    def buffer(self) -> mmap.mmap:
        """The mapping. Views over it keep it alive."""
        if self._map is None:
            raise ArenaFull("the arena has no geometry yet")
        return self._map

    def offset_of(self, slot: int) -> int:
        """Return where a slot starts in the mapping."""
        return HEADER_BYTES + slot * self.slot_bytes

    def address_of(self, slot: int) -> int:
        """Return the slot's address in this process."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self.buffer)) + self.offset_of(slot)

    def warm(self, slot: int, size: int) -> None:
        """Fault in this process's pages of a slot's first `size` bytes, in one call, the first time."""
        if self._warm.get(slot, 0) >= size:
            return
        self._warm[slot] = size
        try:
            self.buffer.madvise(_POPULATE_WRITE, self.offset_of(slot), min(size, self.slot_bytes))
        except OSError as error:
            if error.errno in (
                errno.ENOMEM,
                errno.EFAULT,
            ):  # the write itself would end this process by SIGBUS
                raise ArenaFull(
                    f"there is no memory left for a batch of {size:,} bytes. End something, or serve with a smaller "
                    "window= or rubber_band=."
                ) from None
            # before Linux 5.14: pages are then faulted one by one

    def copy(self, slot: int, other: int) -> None:
        """Copy everything that was written into one slot to another."""
        size = self._warm.get(slot, 0)
        self.warm(other, size)
        start, stop = self.offset_of(slot), self.offset_of(other)
        self.buffer[stop : stop + size] = self.buffer[start : start + size]

    def touched_bytes(self) -> int:
        """Return the memory the arena really uses, in all processes together."""
        return os.fstat(self.fd).st_blocks * 512

    def close(self) -> None:
        """Let go of the descriptor; the mapping goes with the last view over it."""
        fd, self.fd = self.fd, -1  # taken before it is closed: two finalizers may come here at once
        if fd >= 0:
            os.close(fd)
        self._map = None

    def __getstate__(self) -> Any:
        # only while multiprocessing spawns a worker: DupFd then carries the descriptor across
        return DupFd(self.fd)

    def __setstate__(self, fd: Any) -> None:
        self.__init__(fd.detach())  # type: ignore[misc]  # one constructor for both ways in
