"""Tensors in an unnamed file, and which of them are in memory.

Each tensor has whole pages of its own in one mapped file. The system brings pages in when they are touched, and writes
them back; this module says when: a tensor that will be needed soon is read ahead, and of those in memory the one
that was used longest ago makes room. Training uses parameters forwards, then backwards, so the last ones of a pass are
the first ones of the next, and this order reads each of them once a pass.

The file never has a name (or loses it at once), so it goes with the process, however that ends.

A forked process would write into the same pages. So it has none of them (`Pages.leave`): a model that it runs is an
error, and what reads a weight directly ends it (SIGSEGV). Whoever forks to have both train on makes a second file
first: within `copied`, children have the copies, at the same addresses.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import math
import mmap
import os
import sys
import tempfile
import traceback
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tsnb.config import way_out
from tsnb.errors import TsnbError
from tsnb.machine.disks import in_memory
from tsnb.machine.memory import free_memory
from tsnb.native.mapped import FAILED, MAP_FIXED, system_mmap

__all__ = ["SMALL_BYTES", "Pages", "bytes_of", "copied", "free_at_once"]

SMALL_BYTES = 1 << 16
"""States below this stay in memory; on a GPU, where a copy of one takes longer to begin than to do, parameters too."""

_WILLNEED: int | None = getattr(mmap, "MADV_WILLNEED", None)
_PAGEOUT = 21
"""MADV_PAGEOUT, for which Python has no name: writes pages back and lets go of them, from Linux 5.4 on."""
_DONTNEED: int | None = getattr(mmap, "MADV_DONTNEED", None) if sys.platform.startswith("linux") else None
_SYNC_WRITE = 2
"""SYNC_FILE_RANGE_WRITE: begin to write, and do not wait."""
SHORT_BYTES = 1 << 28
"""With less free memory than this, a tensor that makes room is written before training goes on."""
_M_MMAP_THRESHOLD = -3
OWN_BYTES = 1 << 17
"""While a model is offloaded, blocks from this size on go back to the system when they are freed: glibc's default,
before it learns from freed blocks."""
LEARNED_BYTES = 1 << 25
"""The most that glibc learns: what the size above goes back to."""


def _libc() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return libc


_LIBC = _libc()
_NOTHING = 0
"""PROT_NONE, for which Python has no name."""
COPIED_BYTES = 1 << 26
"""Of a file is copied at a time."""


def free_at_once(wanted: bool) -> None:
    """Have large blocks go back to the system when they are freed, or keep them for the next ones, as glibc learns to.

    Gradients and states that go leave holes in the heap, and small blocks that stay, as an optimizer's counters, break
    each of them up: the process would grow by about the model's size, limit or not. A user's own setting is left alone,
    and so are other C libraries.
    """
    if "MALLOC_MMAP_THRESHOLD_" in os.environ or "mmap_threshold" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    mallopt = getattr(_LIBC, "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, OWN_BYTES if wanted else LEARNED_BYTES)


CHUNK_BYTES = 1 << 30
"""The file is mapped by such pieces, since each takes a descriptor; on the disk they take only their written parts."""


@dataclass(eq=False)
class _Chunk:
    """A piece of the file."""

    memory: mmap.mmap
    start: int
    used: int = 0

    def put(self, protection: int, flags: int, fd: int) -> None:
        """Have something else lie at its addresses.

        Raises:
            OSError: The system does not do it.
        """
        start = self.start if fd >= 0 else 0
        if (
            system_mmap(_address(self.memory), len(self.memory), protection, flags | MAP_FIXED, fd, start)
            == FAILED
        ):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def _address(memory: mmap.mmap) -> int:
    return int(np.frombuffer(memory, np.uint8).ctypes.data)


@dataclass(frozen=True)
class _Place:
    """Where a tensor is."""

    chunk: _Chunk
    start: int
    size: int

    def advise(self, advice: int) -> None:
        self.chunk.memory.madvise(advice, self.start, self.size)


class Pages:
    """A file of tensors.

    Attributes:
        limit_bytes: What may be in memory at once.
        read_bytes: What was asked to be read ahead, so far.
        dropped_bytes: What was let go of, so far.

    Args:
        limit_bytes: What may be in memory at once.
        directory: Where the file is, on a disk.

    Raises:
        TsnbError: The directory is in memory, or nothing can be written there.
    """

    def __init__(self, limit_bytes: int, directory: Path) -> None:
        if in_memory(directory):
            raise TsnbError(
                f"{directory} is in memory, where a file saves no memory. Pass a directory on a disk: "
                "tsnb.offload(..., directory=...)."
            )
        self.limit_bytes = limit_bytes
        self.read_bytes = self.dropped_bytes = 0
        self._directory = directory
        try:
            self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115  # open as long as this is
        except OSError as error:
            raise TsnbError(f"{directory} is not writable: {error}. Pass another directory=.") from None
        self._places: dict[int, _Place] = {}
        self._chunks: list[_Chunk] = []
        self._left = False
        self._present: OrderedDict[int, None] = OrderedDict()
        self._present_bytes = 0
        self._end = 0
        _open.add(self)

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
        chunk, start = self._room_for(whole)
        flat = torch.from_numpy(np.frombuffer(chunk.memory, np.uint8, size, start)).view(like.dtype)
        made = flat.view(like.shape)
        self._places[made.data_ptr()] = _Place(chunk, start, whole)
        if fill:
            self.use(made)
            made.copy_(like)
        return made

    def _room_for(self, whole: int) -> tuple[_Chunk, int]:
        """Return where whole pages are free, and on the disk, too.

        Raises:
            TsnbError: The disk is full.
        """
        fd = self._file.fileno()
        try:
            if not self._chunks or self._chunks[-1].used + whole > len(self._chunks[-1].memory):
                size = max(CHUNK_BYTES, whole)
                os.ftruncate(fd, self._end + size)
                self._chunks.append(_Chunk(mmap.mmap(fd, size, offset=self._end), self._end))
                _mapped.add(self._chunks[-1].memory)
                self._end += size
            chunk, start = self._chunks[-1], self._chunks[-1].used
            os.posix_fallocate(
                fd, chunk.start + start, whole
            )  # a full disk is an error here, and a SIGBUS later
        except OSError as error:
            raise TsnbError(
                f"The disk has no room for {whole:,} more bytes ({error.strerror or error}). "
                f"{way_out(error, 'pass another directory=')}"
            ) from None
        chunk.used += whole
        return chunk, start

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies in the file."""
        return tensor.data_ptr() in self._places

    @property
    def present_bytes(self) -> int:
        """How much of the file is in memory, as far as its tensors were used."""
        return self._present_bytes

    def use(self, *tensors: torch.Tensor, writes: bool = False, room: int = 0) -> None:
        """Note that tensors are used now, and let go of those that make room for them.

        Args:
            tensors: Those that are not in the file are left as they are.
            writes: Whether they will be written to: the system notices.
            room: Bytes of new tensors beside them: they come on top.

        Raises:
            TsnbError: They are another process's.
        """
        self._check_own()
        for tensor in tensors:
            self._use(tensor.data_ptr())

    def _use(self, key: int) -> None:
        if key not in self._places:
            return
        if key in self._present:
            self._present.move_to_end(key)
            return
        size = self._places[key].size
        while self._present and self._present_bytes + size > self.limit_bytes:
            self._drop(next(iter(self._present)))
        self._present[key] = None
        self._present_bytes += size

    def read_ahead(self, *tensors: torch.Tensor) -> None:
        """Have the system read tensors that will be used next, while others are computed with."""
        for tensor in tensors:
            key = tensor.data_ptr()
            if key in self._places and key not in self._present:
                self._use(key)
                self.read_bytes += self._places[key].size
                if _WILLNEED is not None:
                    self._places[key].advise(_WILLNEED)

    def changed(self, *tensors: torch.Tensor) -> None:
        """Note that tensors were written to: the system writes them back."""

    def done(self, *tensors: torch.Tensor) -> None:
        """Note that tensors were stepped: they stay until others need the room."""

    def alone(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor with the same values that has memory of its own.

        Raises:
            TsnbError: They are another process's.
        """
        self._check_own()
        return tensor.clone()

    def _drop(self, key: int) -> None:
        del self._present[key]
        place = self._places[key]
        size = place.size
        self._present_bytes -= size
        self.dropped_bytes += size
        free = free_memory()
        with contextlib.suppress(OSError, ValueError):  # an older system: it does so itself, when it has to
            if free is not None and free.size < max(SHORT_BYTES, 2 * size):
                place.chunk.memory.flush(place.start, size)  # pages take memory until they have been written
                place.advise(_PAGEOUT)
                return
            # it stays in the system's cache of files, which gives it up when memory is wanted
            if _LIBC is not None:
                _LIBC.sync_file_range(self._file.fileno(), place.chunk.start + place.start, size, _SYNC_WRITE)
            if _DONTNEED is not None:
                place.advise(_DONTNEED)

    # -- forks -------------------------------------------------------------------------------------------

    def copy(self) -> Any:
        """Return a second file with the same contents, and with room on the disk for all of them.

        Raises:
            TsnbError: There is none.
        """
        made = None
        try:
            made = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115  # the caller closes it
            os.ftruncate(made.fileno(), self._end)
            for chunk in self._chunks:
                if (
                    chunk.used
                ):  # not by sharing extents: a disk that is full later would be a SIGBUS of either
                    os.posix_fallocate(made.fileno(), chunk.start, chunk.used)
                    _copy(self._file.fileno(), made.fileno(), chunk.start, chunk.used)
        except OSError as error:
            if made is not None:
                made.close()
            size = sum(chunk.used for chunk in self._chunks)
            raise TsnbError(
                f"its offloaded model needs a second file of {size / 2**20:,.0f} MiB, for which {self._directory} has "
                f"no room ({error.strerror or error}). {way_out(error).rstrip('.')}"
            ) from None
        return made

    def adopt(self, copy: Any) -> None:
        """Have a copy in place of the file, under the same tensors. Called in a forked child.

        Raises:
            OSError: The system does not do it.
        """
        own = self._file.fileno()
        for chunk in self._chunks:
            chunk.put(mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, copy.fileno())
        found = []
        for number in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 (before a child's first step)
            with contextlib.suppress(OSError):  # that of the listing
                # Python's mappings have theirs; the copy's is one of them from the second fork on
                if number != copy.fileno() and os.path.sameopenfile(number, own):
                    found.append(number)
        for number in found:
            os.dup2(copy.fileno(), number, inheritable=False)

    def leave(self) -> None:
        """Let go of the pages: they are the parent's, which trains on with them. Called in a forked child."""
        self._left = True

    def _check_own(self) -> None:
        if self._left:
            raise TsnbError(
                "This process was forked from one that trains an offloaded model, and the weights stay "
                "in that process. Pass a copy made before the fork: {name: value.clone() for name, "
                "value in model.state_dict().items()}."
            )

    def close(self) -> None:
        """Let go of the file; tensors that are still referred to keep it."""
        self._places.clear()
        self._chunks.clear()
        self._file.close()
        _open.discard(self)


_open: weakref.WeakSet[Pages] = weakref.WeakSet()
_mapped: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()
"""All that lies in a file, also of those that were closed, while tensors refer to it."""
_copies: list[tuple[Pages, Any]] = []
"""What children have."""


@contextlib.contextmanager
def copied() -> Iterator[None]:
    """Within it, forked processes have files of their own, equal to this process's, and train on with them.

    Nothing may be trained here until the last of them has been forked.

    Raises:
        TsnbError: There is no room for the files, or a tensor's file is not known any more.
    """
    known = {chunk.memory for pages in _open for chunk in pages._chunks}
    if any(memory not in known for memory in list(_mapped)):
        gc.collect()
        if any(memory not in known for memory in list(_mapped)):
            raise TsnbError(
                "weights of an offloaded model are still in use after close(). Delete the references to them"
            )
    try:
        for pages in list(_open):
            _copies.append((pages, pages.copy()))  # noqa: PERF401  # those before one that fails are closed
        yield
    finally:
        for _, file in _copies:
            file.close()
        _copies.clear()


def _copy(source: int, to: int, start: int, size: int) -> None:
    """Copy a part of a file to the same place in another one, through the system's cache alone."""
    os.lseek(to, start, os.SEEK_SET)
    while size:
        done = os.sendfile(to, source, start, min(size, COPIED_BYTES))
        if not done:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        start, size = start + done, size - done


def _after_fork_in_child() -> None:
    try:
        for pages, file in _copies:
            pages.adopt(file)
        own = {chunk.memory for pages, _ in _copies for chunk in pages._chunks}
        for memory in list(_mapped):
            if memory not in own:
                _Chunk(memory, 0).put(_NOTHING, mmap.MAP_PRIVATE | mmap.MAP_ANON, -1)
        for pages in _open.difference(pages for pages, _ in _copies):
            pages.leave()
    except BaseException:  # noqa: BLE001 (it must not train in its parent's pages)
        os.write(2, traceback.format_exc().encode())
        os._exit(1)


os.register_at_fork(after_in_child=_after_fork_in_child)


def bytes_of(tensor: Any) -> int:
    """Return what a tensor takes; 0 for anything else."""
    return math.prod(tensor.shape) * tensor.element_size() if isinstance(tensor, torch.Tensor) else 0
