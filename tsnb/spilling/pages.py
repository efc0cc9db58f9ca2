"""Tensors in a file without a name, and which of them are in memory.

Each tensor has whole pages of its own in one mapped file. The system brings pages in when they are touched, and writes
them back; what is said here is when: a tensor that will be needed soon is read ahead, and of those in memory the one
that was used longest ago makes room. Training uses parameters forwards, then backwards, so the last ones of a pass are
the first ones of the next, and this order reads each of them once a pass.

The file never has a name (or loses it at once), so it goes with the process, however that ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
import sys
import tempfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tsnb.errors import TsnbError
from tsnb.telemetry.memory import free_memory

__all__ = ["Pages", "in_memory"]

_MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs", "devtmpfs", "rootfs"})
_WILLNEED: int | None = getattr(mmap, "MADV_WILLNEED", None)
_PAGEOUT = 21
"""MADV_PAGEOUT, for which Python has no name: writes pages back and lets go of them, from Linux 5.4 on."""
_DONTNEED: int | None = getattr(mmap, "MADV_DONTNEED", None) if sys.platform.startswith("linux") else None
_SYNC_WRITE = 2
"""SYNC_FILE_RANGE_WRITE: begin to write, and do not wait."""
SHORT_BYTES = 1 << 28
"""With less free memory than this, a tensor that makes room is written before training goes on."""


def _libc() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return libc


_LIBC = _libc()


def in_memory(directory: Path) -> bool:
    """Return whether what lies in a directory lies in memory, where a file saves none."""
    found = ("", "")
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, where, kind, *_ = line.split()
            if directory.is_relative_to(where) and len(where) >= len(found[0]):
                found = where, kind
    return found[1] in _MEMORY_FILE_SYSTEMS


class Pages:
    """A file of tensors.

    Attributes:
        limit_bytes: What may be in memory at once.
        read_bytes: What was asked to be read ahead, so far.
        dropped_bytes: What was let go of, so far.

    Args:
        limit_bytes: As above.
        directory: Where the file is, on a disk.

    Raises:
        TsnbError: The directory is in memory, or nothing can be written there.
    """

    def __init__(self, limit_bytes: int, directory: Path) -> None:
        if in_memory(directory):
            raise TsnbError(
                f"{directory} lies in memory, where a file saves none: give a directory on a disk, "
                "tsnb.spill(..., directory=...)."
            )
        self.limit_bytes = limit_bytes
        self.read_bytes = self.dropped_bytes = 0
        try:
            self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115  # open as long as this is
        except OSError as error:
            raise TsnbError(
                f"nothing can be written in {directory}: {error}. Give another directory=."
            ) from None
        self._maps: dict[int, mmap.mmap] = {}
        self._sizes: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        self._present: OrderedDict[int, None] = OrderedDict()
        self._present_bytes = 0
        self._end = 0

    def tensor(self, like: torch.Tensor, *, fill: bool = True) -> torch.Tensor:
        """Return a tensor in the file.

        Args:
            like: Its type and shape; strides are those of a contiguous one.
            fill: Whether it has the same values; else zeros.

        Raises:
            TsnbError: The disk is full.
        """
        size = like.numel() * like.element_size()
        if not size:
            return torch.empty_like(like, device="cpu")
        whole = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        fd, start = self._file.fileno(), self._end
        try:
            os.posix_fallocate(fd, start, whole)  # a full disk is an error here, and a SIGBUS later
        except OSError as error:
            raise TsnbError(
                f"there is no room on the disk for {size:,} bytes more ({error}): free some, or give another "
                "directory=."
            ) from None
        self._end += whole
        mapped = mmap.mmap(fd, whole, offset=start)
        flat = torch.from_numpy(np.frombuffer(mapped, np.uint8, size)).view(like.dtype)
        made = flat.view(like.shape)
        key = made.data_ptr()
        self._maps[key], self._sizes[key], self._starts[key] = mapped, whole, start
        if fill:
            self.use(made)
            made.copy_(like)
        return made

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies in the file."""
        return tensor.data_ptr() in self._maps

    @property
    def present_bytes(self) -> int:
        """What is in memory, as far as this file's tensors were used."""
        return self._present_bytes

    def use(self, tensor: torch.Tensor) -> None:
        """Note that a tensor is used now, and let go of those that make room for it."""
        key = tensor.data_ptr()
        if key not in self._sizes:
            return
        if key in self._present:
            self._present.move_to_end(key)
            return
        size = self._sizes[key]
        while self._present and self._present_bytes + size > self.limit_bytes:
            self._drop(next(iter(self._present)))
        self._present[key] = None
        self._present_bytes += size

    def read_ahead(self, tensor: torch.Tensor) -> None:
        """Have the system read a tensor that will be used next, while others are computed with."""
        key = tensor.data_ptr()
        if key in self._sizes and key not in self._present:
            self.use(tensor)
            self.read_bytes += self._sizes[key]
            if _WILLNEED is not None:
                self._maps[key].madvise(_WILLNEED)

    def _drop(self, key: int) -> None:
        del self._present[key]
        size = self._sizes[key]
        self._present_bytes -= size
        self.dropped_bytes += size
        free = free_memory()
        with contextlib.suppress(OSError, ValueError):  # an older system: it does so itself, when it has to
            if free is not None and free.size < max(SHORT_BYTES, 2 * size):
                self._maps[key].flush()  # what is being written takes its memory until it is
                self._maps[key].madvise(_PAGEOUT)
                return
            # it stays in the system's cache of files, which gives it up when memory is wanted
            if _LIBC is not None:
                _LIBC.sync_file_range(self._file.fileno(), self._starts[key], size, _SYNC_WRITE)
            if _DONTNEED is not None:
                self._maps[key].madvise(_DONTNEED)

    def close(self) -> None:
        """Let go of the file; tensors that are still referred to keep it."""
        self._maps.clear()
        self._file.close()


def bytes_of(tensor: Any) -> int:
    """Return what a tensor takes; 0 for anything else."""
    return math.prod(tensor.shape) * tensor.element_size() if isinstance(tensor, torch.Tensor) else 0
