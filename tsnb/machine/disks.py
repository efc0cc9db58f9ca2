"""Disks: which file system a directory is on, and how much of a file the page cache holds."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
from collections.abc import Iterable
from pathlib import Path

__all__ = ["cached_bytes", "file_system", "in_memory", "put_out"]

_CACHESTAT = 451


_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "rootfs"})


def file_system(directory: Path) -> str:
    """Return the kind of file system that a directory is on, as the mount table has it; empty if it does not say.

    By the number of its device; where that is none of a mount's own (btrfs gives each subvolume one), or there is no
    such directory, by its path.

    Args:
        directory: Which.
    """
    number, path = "", directory.absolute()
    with contextlib.suppress(OSError):
        path, device = path.resolve(), path.stat().st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
    nearest, found = "", ""
    for line in _mounts():
        place, _, kind = line.partition(" - ")
        words = place.split()
        if words[2] == number:
            return kind.partition(" ")[0]
        where = words[4].replace("\\040", " ")  # the table writes a space so
        if path.is_relative_to(where) and len(where) >= len(nearest):
            nearest, found = where, kind.partition(" ")[0]
    return found


def in_memory(directory: Path) -> bool:
    """Return whether what lies in a directory lies in memory, where a file saves none; False if it is not told."""
    return file_system(directory) in _IN_MEMORY


def _mounts() -> list[str]:
    try:
        return os.fsdecode(Path("/proc/self/mountinfo").read_bytes()).splitlines()
    except OSError:
        return []


class _Range(ctypes.Structure):
    _fields_ = [("off", ctypes.c_uint64), ("len", ctypes.c_uint64)]  # as ctypes has it


class _Stat(ctypes.Structure):
    _fields_ = [  # as ctypes has it
        (name, ctypes.c_uint64) for name in ("cache", "dirty", "writeback", "evicted", "recently_evicted")
    ]


def cached_bytes(path: str) -> int | None:
    """Return how many bytes of a file the page cache holds; None where the system does not tell.

    Linux tells of files that this user owns or may write.

    Args:
        path: The file.
    """
    if not sys.platform.startswith("linux") or not _may_ask(path):
        return None
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        size = os.fstat(file).st_size
        libc = ctypes.CDLL(None, use_errno=True)
        told = _Stat()
        if libc.syscall(_CACHESTAT, file, ctypes.byref(_Range(0, 0)), ctypes.byref(told), 0) == 0:
            return min(size, int(told.cache) * mmap.PAGESIZE)
        return _resident(libc, file, size)
    finally:
        os.close(file)


def _may_ask(path: str) -> bool:
    """Whether the system tells the truth about this file: of others' it says that all of it is in memory."""
    try:
        return Path(path).stat().st_uid == os.geteuid() or os.access(path, os.W_OK)
    except OSError:
        return False


def _resident(libc: ctypes.CDLL, file: int, size: int) -> int | None:
    """Ask `mincore`, which every Linux has."""
    if not size:
        return 0
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_longlong]
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        return None
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    try:
        if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages):
            return None
        return min(size, sum(page & 1 for page in pages) * mmap.PAGESIZE)
    finally:
        libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))


def put_out(paths: Iterable[str]) -> float | None:
    """Have files leave the page cache; return the share of their bytes that stayed in it, None where it is not told.

    Args:
        paths: The files. Nothing is changed in them.
    """
    size = stayed = 0
    told = True
    for path in paths:
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            os.fdatasync(file)  # pages that wait to be written cannot be dropped
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            size += os.fstat(file).st_size
        except OSError:  # a file system that takes no advice
            told = False
        finally:
            os.close(file)
        left = cached_bytes(path)
        told = told and left is not None
        stayed += left or 0
    return stayed / max(1, size) if told else None
