"""Mappings that Python's own `mmap` cannot make: at an address that is given, or of a file without a descriptor.

A mapping keeps a file alive when its descriptor is closed. Python's `mmap` keeps a descriptor, unless it is 3.13 or
newer.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from typing import Any, BinaryIO

__all__ = ["FAILED", "MAP_FIXED", "MappedFile", "system_mmap"]

MAP_FIXED = 0x10
"""On Linux and macOS, for which Python has no name."""
FAILED = ctypes.c_void_p(-1).value
"""What `system_mmap` returns where it fails; `ctypes.get_errno` says why."""

system_mmap: Any = ctypes.CDLL(None, use_errno=True).mmap
"""The system's own."""
system_mmap.restype = ctypes.c_void_p
system_mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
_munmap: Any = ctypes.CDLL(None, use_errno=True).munmap
_munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

PIECE_BYTES = 1 << 24


class MappedFile:
    """A file's bytes, without a descriptor.

    Args:
        descriptor: The file's; it may be closed afterwards.
        size: Bytes, 1 or more. The file must not become shorter.

    Raises:
        OSError: It cannot be mapped.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        address = system_mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address == FAILED:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._view = memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B").toreadonly()
        weakref.finalize(self, _munmap, address, size).atexit = False

    def read(self, offset: int, size: int) -> bytes:
        """Return a part of it; nothing behind its end."""
        return bytes(self._view[offset : offset + size])

    def write_to(self, file: BinaryIO) -> None:
        """Write all of it.

        Raises:
            OSError: The disk is full.
        """
        file.writelines(
            self._view[start : start + PIECE_BYTES] for start in range(0, len(self._view), PIECE_BYTES)
        )
        file.flush()
