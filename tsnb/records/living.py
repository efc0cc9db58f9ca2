"""Which process a run belongs to, and whether that process has gone.

A process is known by its number and by when it was started: numbers are used again. Both mean something only on
one machine, since one boot, and in one namespace of process numbers (a container has its own); a reader anywhere
else cannot tell, and does not guess.
"""

from __future__ import annotations

import functools
import os
import socket
from pathlib import Path
from typing import NamedTuple

__all__ = ["Owner", "has_gone", "owner"]

_STATE, _STARTED = 0, 19
"""Fields of /proc/PID/stat after the program's name: its state, and its start in ticks since boot."""


class Owner(NamedTuple):
    """The process that a run belongs to."""

    host: str
    """Name of its machine."""
    boot: str
    """This life of the machine (the kernel's own random name); empty where the system gives none."""
    namespace: str
    """The namespace that its number counts in; empty where the system gives none."""
    pid: int
    """Its number."""
    started: int
    """When it was started, in the kernel's ticks since boot; 0 where the system does not tell."""


@functools.cache
def _here() -> tuple[str, str, str]:
    return (
        socket.gethostname(),
        _text("/proc/sys/kernel/random/boot_id"),
        _link("/proc/self/ns/pid"),
    )


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""


def owner(pid: int) -> Owner:
    """Return what is to be noted of a process of this machine."""
    return Owner(*_here(), pid, _started(pid) or 0)


def has_gone(process: Owner) -> bool:
    """Tell whether a process has ended for certain; False too where this one cannot know."""
    host, boot, namespace = _here()
    if process.host != host or not process.pid:
        return False
    if process.boot != boot:
        return True  # the machine was started again since
    if process.namespace != namespace:
        return False
    return not _lives(process)


def _lives(process: Owner) -> bool:
    started = _started(process.pid)
    if started is not None:
        return started == process.started or not process.started
    if process.started:
        return False  # the system tells when a process started, and there is none of that number
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # there is one, of somebody else
    return True


def _started(pid: int) -> int | None:
    """Return when a live process was started, in ticks since boot; None if there is none or nobody tells."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # the program's name stands in brackets and may hold spaces and brackets itself
    words = fields.rpartition(")")[2].split()
    return None if words[_STATE] in "ZX" else int(words[_STARTED])
