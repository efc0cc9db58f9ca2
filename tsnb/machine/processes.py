"""Processes: whether they live, stand still, are about to end, which are below them, and what they have used.

From /proc where there is one: a few microseconds a look. Else from psutil, which asks the system a hundred times as
long; it is imported then only. A panel asks for a dozen processes every two seconds, all day long, from the kernel of
a notebook that should have its time for itself.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

__all__ = [
    "HAS_PROC",
    "HeldMemory",
    "Use",
    "age_s",
    "children",
    "children_of",
    "children_of_thread",
    "forks_bytes",
    "has_gone",
    "has_open",
    "has_started_so",
    "has_told",
    "held",
    "is_ending",
    "is_ours",
    "is_stopped",
    "largest_bytes",
    "part_bytes",
    "program_name",
    "started",
    "use_of",
    "watch",
]

HAS_PROC = Path("/proc/self/stat").exists()
"""Whether this system tells of processes in files."""

_PF_EXITING = 4
"""The kernel's flag of a task that is on its way out."""

_GONE = (b"Z", b"X")
"""A zombie, which serves and trains no more; dead."""

_STOPPED = (b"T", b"t")
"""Stopped by a signal, stopped by a tracer; see proc(5)."""

_SLACK = 0 if HAS_PROC else 2000
"""How far two looks at the same start may differ. psutil works it out from the wall clock, in milliseconds here."""

_LOOK_S = 0.01

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

# places in /proc/PID/stat, counted behind the name (which may hold spaces and parentheses)
_STATE, _FLAGS, _UTIME, _CSTIME, _STARTED = 0, 6, 11, 14, 19


def started(pid: int) -> int:
    """Return when a process was started; 0 if it has gone.

    Returns:
        Ticks since boot, where there is /proc; else milliseconds since 1970.

    Raises:
        OSError: Nothing can be said, for want of descriptors.
    """
    if HAS_PROC:
        fields = _stat(pid)
        return 0 if not fields or fields[_STATE] in _GONE else int(fields[_STARTED])
    process = _process(pid)
    if process is None or _status(process) in {"", "zombie", "dead"}:
        return 0
    with contextlib.suppress(_psutil().Error):
        return int(process.create_time() * 1000)
    return 0


def has_started_so(pid: int, when: int) -> bool:
    """Return whether a live process has that number, and is the one that was started then.

    Args:
        pid: Its number.
        when: Its start, as `started` once gave it; 0: unknown.
    """
    now = started(pid)
    return now != 0 and (when == 0 or abs(now - when) <= _SLACK)


def has_gone(pid: int) -> bool:
    """Return whether a process has ended for certain; False where nothing can be said, for want of descriptors."""
    try:
        return started(pid) == 0
    except OSError:
        return False


def is_ending(pid: int, within_s: float = 0.0) -> bool:
    """Return whether a process has gone, or is about to: its sockets may be closed a moment before it is.

    Args:
        pid: The process.
        within_s: How long to wait for its end where the system does not tell that it is about to.
    """
    if HAS_PROC:
        try:
            fields = _stat(pid)
        except OSError:  # no descriptor left to look with: its sockets are all we know of
            return True
        return not fields or fields[_STATE] in _GONE or bool(int(fields[_FLAGS]) & _PF_EXITING)
    deadline = time.monotonic() + within_s
    while started(pid):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_S)
    return True


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped, by a signal or a debugger."""
    if HAS_PROC:
        with contextlib.suppress(OSError):
            return next(iter(_stat(pid)), b"") in _STOPPED
        return False
    process = _process(pid)
    return process is not None and _status(process) in {"stopped", "tracing-stop"}


def is_ours(pid: int) -> bool:
    """Return whether a process is this user's; False too where it has gone."""
    if HAS_PROC:
        try:
            return os.stat(f"/proc/{pid}").st_uid == os.getuid()  # noqa: PTH116  # a Path would cost more
        except OSError:
            return False
    process = _process(pid)
    with contextlib.suppress(_psutil().Error):
        return process is not None and process.uids().effective == os.getuid()
    return False


def has_open(pid: int | str, beginning: str) -> bool:
    """Return whether a process has a file open whose name begins so; False too where it cannot be seen.

    Args:
        pid: The process; "self": this one.
        beginning: Such as "/dev/nvidia".
    """
    files = f"/proc/{pid}/fd"
    try:
        descriptors = os.listdir(files)  # noqa: PTH208  # a Path a descriptor would cost more than the reading
    except OSError:  # it has gone, or is another user's
        return False
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.readlink(f"{files}/{descriptor}").startswith(beginning):  # noqa: PTH115  # as above
                return True
    return False


def watch(pid: int) -> int:
    """Return a descriptor that is readable once a process has ended; -1 where the system has none.

    The caller closes it. Without one, ask `has_gone` now and then.
    """
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):  # before Linux 5.3, in a sandbox, or it has just died
            return os.pidfd_open(pid)
    return -1


def has_told(descriptor: int) -> bool:
    """Return whether the process that a descriptor of `watch` tells of has ended."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


class Use(NamedTuple):
    """One process at one moment."""

    started: int
    """When it started (`started`): tells it from a later one of the same number."""
    cpu_s: float
    """CPU seconds so far, with those of its children that have ended and were waited for."""
    anonymous_bytes: int
    """Memory that belongs to no file; pages that a fork shares are counted in both processes."""


def use_of(pid: int) -> Use | None:
    """Return what a process has used; None where it has gone, or cannot be seen."""
    if not HAS_PROC:
        return _asked(pid)
    try:
        words = _stat(pid)
        _, resident, shared = _read(f"/proc/{pid}/statm").split()[:3]
        cpu = sum(int(word) for word in words[_UTIME : _CSTIME + 1]) / _TICKS_PER_S
        pages = max(0, int(resident) - int(shared))
        return Use(int(words[_STARTED]), cpu, pages * _PAGE)
    except (OSError, ValueError, IndexError):
        return None


def age_s(started: int) -> float:
    """Return how long ago a process started, in seconds, from `Use.started`."""
    if not HAS_PROC:
        return time.time() - started / 1000
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / _TICKS_PER_S


def children(pid: int) -> list[int]:
    """Return a process's children, whichever of its threads started them."""
    return sorted(_direct(pid))


def children_of(pid: int, apart: frozenset[int] | set[int] = frozenset()) -> list[int]:
    """Return the processes below one, of all generations.

    Args:
        pid: The process.
        apart: Processes that are left out, with all below them.
    """
    found: list[int] = []
    waiting = [pid]
    while waiting:
        for child in _direct(waiting.pop()):
            if child not in apart and child not in found:
                found.append(child)
                waiting.append(child)
    return found


def children_of_thread(thread: int) -> tuple[int, ...]:
    """Return the processes that a thread of this process has started: the loading thread's are the loader's workers."""
    try:
        return tuple(map(int, _read(f"/proc/self/task/{thread}/children").split()))
    except (OSError, ValueError):
        return ()


def part_bytes(pid: int) -> int | None:
    """Return a process's part of its anonymous memory: pages that it shares with n others count as a share each.

    The kernel walks all its pages for that: some 10 ms for a process that has imported torch.

    Returns:
        Bytes; None where it cannot be told.
    """
    try:
        lines = _read(f"/proc/{pid}/smaps_rollup").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss_Anon:")), None)


def forks_bytes(pids: Sequence[int]) -> int:
    """Return the memory that comes free if processes that this one has forked all end; shared memory is not in it.

    A fork shares its parent's pages until one of the two writes them. So what each has resident counts this process's
    memory once for each of them, and their parts of it (`part_bytes`) come to nearly all of it: a data set in memory
    would be held against the workers that only read it.

    Counted are the pages that each has alone. Pages that this process has written since are the forks' too, shared
    among them: all pages of the family but those that this process has. Where others share its pages (the server that
    it was forked from) the second is too little, so the larger of the two counts.

    The kernel walks all their pages for that, and those of this process twice: some 3 ms each with torch imported.

    Args:
        pids: The processes; those that have gone count nothing.

    Returns:
        Bytes; 0 where it cannot be told.
    """
    before = _shared_out("self")
    alone, parts = 0, 0
    for pid in pids:
        with contextlib.suppress(OSError, KeyError):
            pages = _kilobytes(f"/proc/{pid}/smaps_rollup")
            # of the arena, pages that only this fork has touched are private too, and never in `Pss_Anon`
            alone += min(pages[b"Private_Dirty:"], pages[b"Pss_Anon:"])
            parts += pages[b"Pss_Anon:"]
    # some may have ended, or begun, meanwhile
    return max(alone, parts - max(before, _shared_out("self")))


def _shared_out(pid: int | str) -> int:
    """Return how much of a process's anonymous memory counts as the part of others, in bytes."""
    with contextlib.suppress(OSError, KeyError):
        pages = _kilobytes(f"/proc/{pid}/smaps_rollup")
        return pages[b"Anonymous:"] - pages[b"Pss_Anon:"]
    return 0


class HeldMemory(NamedTuple):
    """The memory of a process that comes free when it ends."""

    own_bytes: int
    """Pages that are its alone now; what a fork still shares with its parent is not among them."""
    most_bytes: int
    """The same at its worst, at most: with short peaks that nobody happened to look at."""


def held(pid: int) -> HeldMemory | None:
    """Return the memory that would be free without a process; None where it has gone, or cannot be seen.

    The kernel walks all its pages for that: some 10 ms for a process that has imported torch.
    """
    if not HAS_PROC:
        use = use_of(pid)
        return HeldMemory(use.anonymous_bytes, use.anonymous_bytes) if use else None
    try:
        pages = _kilobytes(f"/proc/{pid}/smaps_rollup")
        peak = _kilobytes(f"/proc/{pid}/status")
        own = pages[b"Private_Dirty:"]
        return HeldMemory(own, own + max(0, peak[b"VmHWM:"] - pages[b"Rss:"]))
    except (OSError, KeyError):
        return None


def largest_bytes(pid: int) -> int | None:
    """Return the most that a process ever had in memory, what it shares with others included.

    In some 20 microseconds, so it tells cheaply whether `held` can have grown. None where it cannot be told.
    """
    try:
        return _kilobytes(f"/proc/{pid}/status")[b"VmHWM:"]
    except (OSError, KeyError):
        return None


def _kilobytes(path: str) -> dict[bytes, int]:
    """Return the sizes in one of the kernel's lists, in bytes, by their names."""
    rows = [line.split() for line in _read(path).splitlines()]
    return {row[0]: 1024 * int(row[1]) for row in rows if len(row) == 3 and row[2] == b"kB"}


def _stat(pid: int) -> list[bytes]:
    """Return what the kernel says of a process, from its state (the third field) on; nothing if it has gone."""
    try:
        stat = _read(f"/proc/{pid}/stat")
    except (FileNotFoundError, ProcessLookupError):  # any other error says nothing about that process
        return []
    return stat.rpartition(b")")[2].split()  # what precedes is the command's name, which may hold anything


def _direct(pid: int) -> list[int]:
    if not HAS_PROC:
        return _searched(pid)
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208  # a Path a thread would cost more than the reading
    except OSError:
        return []
    try:
        lists = [_read(f"/proc/{pid}/task/{thread}/children") for thread in threads]
    except (FileNotFoundError, ProcessLookupError):
        return _searched(pid)  # a thread has just ended, or this kernel keeps no such lists
    except OSError:
        return []
    return [int(child) for children in lists for child in children.split()]


def _searched(pid: int) -> list[int]:
    try:
        psutil = _psutil()
    except (ImportError, OSError):  # no descriptor is left to import it with
        return []
    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except (psutil.Error, ValueError):
        return []


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 65536)
    finally:
        os.close(descriptor)


def program_name(pid: int) -> str:
    """Return the name of a process's program; empty if it has gone, or cannot be seen."""
    process = _process(pid)
    with contextlib.suppress(_psutil().Error):
        return str(process.name()) if process else ""
    return ""


def _psutil() -> Any:
    import psutil

    return psutil


def _process(pid: int) -> Any:
    """Return psutil's view of a process; None if it does not exist."""
    psutil = _psutil()
    try:
        return psutil.Process(pid)
    except (psutil.Error, ValueError):
        return None


def _status(process: Any) -> str:
    try:
        return str(process.status())
    except _psutil().Error:
        return ""


def _asked(pid: int) -> Use | None:
    process, when = _process(pid), started(pid)
    if process is None or not when:
        return None
    try:
        cpu, memory = process.cpu_times(), process.memory_info()
    except _psutil().Error:
        return None
    spent = cpu.user + cpu.system + getattr(cpu, "children_user", 0.0) + getattr(cpu, "children_system", 0.0)
    return Use(when, spent, memory.rss - getattr(memory, "shared", 0))
