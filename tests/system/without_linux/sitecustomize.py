"""Takes from a Python on Linux what macOS does not have: calls, constants, and /proc for tsnb's own code.

Python imports it at the start of every process that has this folder on its path, those that are started by others
included. psutil keeps /proc: on macOS it has other ways to the same answers. So has `transport.sockets`, whose way on
macOS cannot be taken here: SO_PEERCRED stays.
"""

from __future__ import annotations

import builtins
import ctypes
import fcntl
import io
import os
import select
import signal
import socket
import sys
import time
from typing import Any

MISSING: dict[Any, tuple[str, ...]] = {
    os: (
        "memfd_create", "pidfd_open", "eventfd", "eventfd_read", "eventfd_write", "pipe2", "waitid",
        "sched_getaffinity", "sched_setaffinity", "MFD_CLOEXEC", "MFD_ALLOW_SEALING", "EFD_NONBLOCK", "EFD_CLOEXEC",
    ),
    socket: ("SOCK_SEQPACKET", "MSG_NOSIGNAL"),
    select: ("epoll",),
    fcntl: ("F_ADD_SEALS", "F_GET_SEALS"),
    signal: ("pidfd_send_signal",),
    time: ("CLOCK_BOOTTIME",),
}  # fmt: skip
for module, names in MISSING.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)


def _not_in_c(library: Any, name: str, get: Any = ctypes.CDLL.__getattr__) -> Any:
    if name in {"prctl", "memfd_create"}:
        raise AttributeError(name)
    return get(library, name)


ctypes.CDLL.__getattr__ = _not_in_c  # type: ignore[method-assign]


_BETWEEN = {"genericpath", "glob", "io", "pathlib", "posixpath"}
"""Modules that ask on behalf of somebody else."""


def _for_tsnb() -> bool:
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in {
        "pathlib",
        "io",
    }:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "tsnb"


def _blinded(real: Any) -> Any:
    def call(path: Any = ".", *arguments: Any, **named: Any) -> Any:
        if not isinstance(path, int) and os.fsdecode(path or "").startswith("/proc") and _for_tsnb():
            raise FileNotFoundError(2, "there is no /proc here", os.fspath(path))
        return real(path, *arguments, **named)

    return call


for function in ("open", "stat", "lstat", "listdir", "readlink", "scandir"):
    setattr(os, function, _blinded(getattr(os, function)))
io.open = builtins.open = _blinded(builtins.open)
