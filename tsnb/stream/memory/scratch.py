"""Warm private memory for the copies a consumer cannot avoid.

A batch that straddles two loader batches, one past the consumer's `hold`, or a `private=True` one is copied.
Fresh memory from `clone()` or `cat()` costs ten times the copy itself (page faults), so blocks go round: each
comes back when the last reference to the batch in it has gone, by the same kind of lease as a slot's.
"""

from __future__ import annotations

import mmap
from collections import deque
from typing import Any

from tsnb.stream.memory.leases import lease

__all__ = ["ScratchPool"]


class ScratchPool:
    """Blocks of private memory by size.

    Args:
        keep: How many free blocks of one size are kept warm; more are given back to the system.
    """

    def __init__(self, keep: int = 4) -> None:
        self._keep = keep
        self._free: dict[int, deque[mmap.mmap]] = {}
        self.taken = 0
        """Blocks handed out so far: one a copy."""
        self.made = 0
        """Blocks made so far (a steady state makes none)."""

    def take(self, size: int) -> tuple[Any, int]:
        """Return a leased buffer of at least `size` bytes and its true size; it comes back by itself."""
        self.taken += 1
        rounded = max(mmap.PAGESIZE, 1 << (size - 1).bit_length())
        free = self._free.setdefault(rounded, deque(maxlen=self._keep))
        try:
            block = free.pop()
        except IndexError:
            # private: by default a mapping is shared with forked children, whose copy would change under them
            block = mmap.mmap(-1, rounded, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self.made += 1
        lent = [block]

        def back() -> None:
            if lent:  # else it came back already, before an interrupt
                # deque.append is atomic and drops the oldest past `keep`: safe from a finalizer in any thread
                free.append(lent.pop())

        return lease(block, 0, rounded, back), rounded
