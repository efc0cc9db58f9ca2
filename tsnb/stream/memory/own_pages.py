"""A process's own pages under the slots that it holds when it forks: its children keep the batches they inherit.

This is the fourth point of the note in `native.forks`.

A forked child has the parent's views, and no lease: once the parent lets go of a batch, the slot is written anew, and
the child would read another batch under its hands. So *before* a fork, while the leases are held and nothing can
change, each slot that is held gets pages of this process's own, with the same bytes at the same addresses: every
tensor over them stays valid, and parent and child share them from then on as they share all other memory of the
parent's, copied only where one of them writes. When the slot brings the parent another batch, or at the next fork if
it is no longer held by then, the shared pages are put back.

It costs nothing if nothing is held, else one copy of the held batches for all children that are forked meanwhile (the
workers of a validation loader, say): as many as this process holds in shared memory, `hold` at most.

The child itself then lets go of the rest of the arena, which it cannot use: otherwise a worker that outlives all others
would keep all of that memory, if the producer was killed and could not give it back.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import mmap
import os
import stat
import sys
import weakref
from typing import Any, Protocol

from tsnb.errors import TsnbError
from tsnb.native.endings import ending
from tsnb.native.mapped import FAILED, MAP_FIXED, system_mmap
from tsnb.stream.memory.arena import HEADER_BYTES, Arena, written
from tsnb.stream.memory.nameless import leave_out_of_dumps

__all__ = ["Holder", "OwnPages"]

_log = logging.getLogger("tsnb")
_MAY_MOVE, _FIXED = 1, 2
"""MREMAP_MAYMOVE and MREMAP_FIXED of Linux, for which Python has no names."""


class Holder(Protocol):
    """An object that holds slots of an arena."""

    def keep_for_children(self) -> None:
        """Have own pages under all of them. Called before each fork, in the thread that forks."""

    def let_go_in_child(self) -> None:
        """Have no part in the shared memory any more. Called once, in a forked child."""


_holders: weakref.WeakSet[Any] = weakref.WeakSet()


def _libc() -> Any:
    """Return the C library with `mremap`, which Python lacks; None where the system has no such thing."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mremap.restype = ctypes.c_void_p
    libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    return libc


_LIBC = _libc()


class OwnPages:
    """The slots of one mapping under which lie pages of this process's own.

    Args:
        arena: The arena.
        holder: Asked before each fork to keep what it holds.

    Attributes:
        slots: Which slots, each with how many bytes of it lie in such pages; the rest was never written.
    """

    def __init__(self, arena: Arena, holder: Holder) -> None:
        self.slots: dict[int, int] = {}
        self._arena = arena
        _holders.add(holder)

    def keep(self, slot: int) -> None:
        """Put own pages under a slot, with the same bytes. The caller holds its lease until this returns.

        Other threads may read the slot meanwhile: the pages change places in one step.
        """
        if slot in self.slots or _LIBC is None:
            return
        start, address = self._arena.offset_of(slot), self._arena.address_of(slot)
        parts = list(written(self._arena.fd, start, start + self._arena.slot_bytes))
        size = parts[-1][1] - start if parts else 0  # the rest of the slot is addresses, which nobody reads
        size += -size % mmap.PAGESIZE
        if not size:
            self.slots[slot] = 0
            return
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        fresh = system_mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        if fresh == FAILED:
            raise _error()
        try:
            for first, end in parts:
                ctypes.memmove(fresh + first - start, address + first - start, end - first)
            if _LIBC.mremap(fresh, size, size, _MAY_MOVE | _FIXED, address) == FAILED:
                raise _error()
        except OSError:
            _LIBC.munmap(ctypes.c_void_p(fresh), ctypes.c_size_t(size))
            raise
        self.slots[slot] = size

    def share(self, slot: int) -> None:
        """Put the arena's pages back under a slot: what lay there is held no more, or the same batch is given again.

        Raises:
            OSError: The system does not do it.
        """
        address, offset = self._arena.address_of(slot), self._arena.offset_of(slot)
        flags = mmap.MAP_SHARED | MAP_FIXED
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        if system_mmap(address, self._arena.slot_bytes, protection, flags, self._arena.fd, offset) == FAILED:
            raise _error()
        leave_out_of_dumps(self._arena.buffer, offset, self._arena.slot_bytes)
        self.slots.pop(slot, None)

    def leave(self, others: set[int]) -> None:
        """Let go of the arena except for some slots. Called in a forked child.

        Args:
            others: Slots that are held and have no pages of this process's own: they stay as they are.
        """
        if _LIBC is None:
            return
        kept = sorted(self.slots.keys() | others)
        start, offset_of = self._arena.address_of(0) - HEADER_BYTES, self._arena.offset_of
        firsts = [0, *[offset_of(slot) + self.slots.get(slot, self._arena.slot_bytes) for slot in kept]]
        ends = [*map(offset_of, kept), offset_of(self._arena.slots)]
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED
        for first, end in zip(firsts, ends, strict=True):
            if end > first:  # what cannot be replaced stays
                system_mmap(start + first, end - first, mmap.PROT_READ, flags, -1, 0)
        _close_all(self._arena.fd)


def _close_all(fd: int) -> None:
    """Let go of a file: of a descriptor, and of those that Python's mappings have of it.

    They stay open, on /dev/null: their owners will close them.
    """
    wanted = os.fstat(fd)
    if not stat.S_ISREG(wanted.st_mode):  # it was let go of already, with another consumer's
        return
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 (before a child's first step)
        with contextlib.suppress(OSError):
            if os.path.sameopenfile(number, fd) and number != fd:
                os.dup2(nothing, number, inheritable=False)
    os.dup2(nothing, fd, inheritable=False)
    os.close(nothing)


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


def _keep_all() -> None:
    for holder in list(_holders):
        try:
            holder.keep_for_children()
        except (OSError, TsnbError) as error:
            _log.warning(
                "batches that this forked process holds will change, because they cannot be copied: %s",
                error,
            )


def _before_fork() -> None:
    if len(_holders):
        ending(_keep_all)()  # `native.forks`, 6


def _after_fork_in_child() -> None:
    for holder in list(_holders):
        with contextlib.suppress(OSError, TsnbError):
            holder.let_go_in_child()
    _holders.clear()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
