"""Leases: a callback when the last reference to a piece of shared memory has gone.

Tensors, views of them, numpy arrays over them, DLPack capsules and autograd's saved activations all keep the
*buffer* they were made from alive, and nothing else hears of their end. So each batch gets a buffer object
of its own, over the slot's bytes, whose finalizer is the release. It may run in any thread and in the middle
of any other code (the garbage collector calls it): it must not take a lock or raise. An interrupt that comes while it
runs is raised again afterwards (`native.endings`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tsnb.native.endings import ending

__all__ = ["lease"]


@lru_cache(maxsize=64)
def _lease_type(size: int) -> Any:
    """Return a buffer type of `size` bytes; a handful of sizes occur in a process (slot, scratch blocks)."""

    class Lease(ctypes.c_char * size):  # type: ignore[misc]  # ctypes makes the base class at run time
        __slots__ = ("__del__",)

    return Lease


def lease(memory: Any, offset: int, size: int, on_release: Callable[[], None]) -> Any:
    """Return a buffer over `memory[offset : offset + size]` that calls `on_release` when its last user has gone.

    Args:
        memory: A writable buffer (an mmap); kept alive by the lease.
        offset: First byte.
        size: Bytes.
        on_release: Called from any thread, without arguments; must not raise or block. Called again where an interrupt
            cut it short, which must change nothing.
    """
    made = _lease_type(size).from_buffer(memory, offset)
    made.__del__ = ending(on_release)
    return made
