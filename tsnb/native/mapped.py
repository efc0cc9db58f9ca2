"""The bytes of a file that stay readable when its descriptor is closed: a mapping keeps the file alive.

Python's own `mmap` keeps a descriptor, unless it is 3.13 or newer.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from typing import BinaryIO

__all__ = ["MappedFile"]

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
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_longlong]
        libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address == ctypes.c_void_p(-1).value:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._view = memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B").toreadonly()
        weakref.finalize(self, libc.munmap, address, size).atexit = False

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
