"""To which process something belongs (a producer, a run, a detached trial), and whether that process lives.

A process is known by its number and by when it was started: numbers are used again. Both mean something only on
one machine, since one boot, and in one namespace of process numbers (a container has its own); a reader anywhere
else cannot tell, and does not guess. Whatever is removed because its owner has gone is removed by this word only.
"""

from __future__ import annotations

import functools
import os
import socket
from pathlib import Path
from typing import NamedTuple

from tsnb.machine.processes import has_started_so, started

__all__ = ["Owner", "alive", "has_gone", "owner", "same_boot", "where"]


class Owner(NamedTuple):
    """The process that something belongs to."""

    host: str
    """Name of its machine."""
    boot: str
    """This life of the machine (the kernel's own random name); empty if the system does not say."""
    namespace: str
    """The namespace that its number counts in; empty if the system does not say."""
    pid: int
    """Its number."""
    started: int
    """When it was started, as `processes.started` says; 0 where the system does not tell."""


@functools.cache
def where() -> tuple[str, str, str]:
    """Return this machine's name, its boot and this process's namespace, as in `Owner`."""
    return (
        socket.gethostname(),
        _text("/proc/sys/kernel/random/boot_id"),
        _link("/proc/self/ns/pid"),
    )


os.register_at_fork(after_in_child=where.cache_clear)  # the child may be the first of another namespace


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
    """Return a process of this machine as an owner."""
    try:
        return Owner(*where(), pid, started(pid))
    except OSError:  # no descriptor is left to look with
        return Owner(*where(), pid, 0)


def alive(process: Owner) -> bool | None:
    """Tell whether a process lives; None where this one cannot know.

    It cannot know of another machine, of another container (namespace of process numbers), or for want of descriptors.
    """
    host, boot, namespace = where()
    if process.host != host or not process.pid:
        return None
    if process.boot != boot:
        return False  # the machine was started again since
    if process.namespace != namespace or (boot and not namespace):
        return None
    try:
        return has_started_so(process.pid, process.started)
    except OSError:
        return None


def has_gone(process: Owner) -> bool:
    """Tell whether a process has ended for certain; False too where this one cannot know."""
    return alive(process) is False


def same_boot(process: Owner) -> bool:
    """Tell whether a process runs, or ran, under the same kernel as this one: in another container, perhaps."""
    return bool(process.boot) and process.boot == where()[1]
