"""What a test may leave behind: processes, sockets, registry entries, and names in /dev/shm.

Processes are ours by descent, sockets and entries by this session's runtime directory. /dev/shm belongs to the whole
machine: a name there is somebody else's if a process that is not ours maps it or has it open. Ours are the descendants
of this process, and processes that were started with its runtime directory, even if their parent has gone.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from pathlib import Path

import psutil

from tests import forking
from tsnb.discovery.registry import address_prefix
from tsnb.native import sweeping

__all__ = ["SHM", "descendants", "infrastructure", "kept", "leftovers", "new_leftovers"]

SHM = "/dev/shm/"
CUDAS = re.compile(SHM + r"cuda\.shm\.[0-9a-f]+\.(?P<pid>[0-9a-f]+)\.")
"""What CUDA makes for a process that shares memory or events, and keeps as long as the process lives: this one, say."""

kept: set[int] = set()
"""Processes that several tests share: what runs below them is no leftover of one test. Their fixture removes them."""


def leftovers() -> set[str]:
    """Return everything that outlives its process if it is not cleaned up; names in /dev/shm may be other programs'."""
    found = _children() | {SHM + name for name in os.listdir(SHM)}
    ours = f"@{address_prefix()}-"  # once: it looks at the directory, and the machine may have hundreds of sockets
    unix = Path("/proc/net/unix").read_text()
    found |= {f"socket {line.split()[-1]}" for line in unix.splitlines() if ours in line}
    for kind in ("producers", "sockets"):
        entries = Path(os.environ["TSNB_RUNTIME_DIR"], kind)
        found |= {f"{kind} {path.name}" for path in entries.glob("*")} if entries.is_dir() else set()
    return found


def new_leftovers(before: AbstractSet[str]) -> set[str]:
    """Return what of ours is there now and was not before."""
    if not (new := leftovers() - before):  # as after most tests: nobody needs to look further
        return new
    new -= infrastructure()
    names = {name for name in new if name.startswith(SHM)}
    return new - _of_others(names) if names else new


def descendants() -> set[psutil.Process]:
    """Return the processes below this one that run, without a Ray cluster's, which earlier tests may have started."""
    found: set[psutil.Process] = set()
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if child.name() not in {"raylet", "gcs_server"}:
                found |= {child, *child.children(recursive=True)}
    return {process for process in found if _runs(process)}


def _runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def _children() -> set[str]:
    """Return the descendants of this process that still run."""
    found = set()
    for process in _below(psutil.Process()):
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                found.add(f"process {process.pid}: {' '.join(process.cmdline())[:400]}")
        except psutil.Error:
            continue
    return found


def _below(process: psutil.Process) -> list[psutil.Process]:
    if not kept:
        return process.children(recursive=True)
    children = [child for child in process.children() if child.pid not in kept]
    return children + [one for child in children for one in _children_of(child)]


def _children_of(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:  # it has ended
        return []


def infrastructure() -> set[str]:
    """Return what Python itself, and our own fork servers, keep for the process's life, once somebody used it."""
    words = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
    kept = {line for line in _children() if any(word in line for word in words)}
    # its kernels have its command line too: the idle server is this process's own child
    own = {f"process {process.pid}:" for process in psutil.Process().children()}
    return kept | {
        line
        for line in _children()
        if any(word in line for word in ("tsnb.kernels.processes.forkserver", forking.ENTRY, sweeping.MARK))
        and line.startswith(tuple(own))
    }


def _of_others(names: Iterable[str]) -> set[str]:
    """Return those of the names in /dev/shm that are another program's, or have gone meanwhile."""
    there = {name: status for name in names if (status := _status(name)) is not None}
    # only as root do tests become another user; and only root sees what others hold
    found = {name for name, status in there.items() if status.st_uid != os.getuid() != 0}
    found |= {
        name for name in there if (cuda := CUDAS.match(name)) and psutil.pid_exists(int(cuda["pid"], 16))
    }
    files = {name: (status.st_dev, status.st_ino) for name, status in there.items()}
    ours = {os.getpid(), *(process.pid for process in psutil.Process().children(recursive=True))}
    for pid in psutil.pids():
        held = _held_by(pid) if pid not in ours else set()
        if not held.isdisjoint(files.values()) and not _has_our_directory(pid):
            found |= {name for name, file in files.items() if file in held}
    # removed while we looked: its holder may have let go of it before we came by
    return found | {name for name in names if not _is_still(name, there.get(name))}


def _is_still(name: str, seen: os.stat_result | None) -> bool:
    now = _status(name)
    return now is not None and seen is not None and os.path.samestat(now, seen)


def _status(name: str) -> os.stat_result | None:
    with contextlib.suppress(FileNotFoundError):
        return os.stat(name)
    return None


def _held_by(pid: int) -> set[tuple[int, int]]:
    """Return device and inode of what a process maps of /dev/shm or has open, as far as we may look.

    Not the names: the C library makes a semaphore under another name, which stays in the maps of its maker.
    """
    found: set[tuple[int, int]] = set()
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
            if SHM in line:
                _, _, _, device, inode, *_ = line.split()
                major, minor = (int(part, 16) for part in device.split(":"))
                found.add((os.makedev(major, minor), int(inode)))
        for descriptor in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                status = os.stat(descriptor.path)
                found.add((status.st_dev, status.st_ino))
    return found


def _has_our_directory(pid: int) -> bool:
    mine = f"TSNB_RUNTIME_DIR={os.environ['TSNB_RUNTIME_DIR']}".encode()
    with contextlib.suppress(OSError):
        return mine in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False
