"""A memfd, also from a Python that was built for an older C library than the machine has.

Builds that shall run everywhere (conda's, uv's) were long made for glibc 2.17, and have no `os.memfd_create`. The C
library that they meet has it from glibc 2.27 on, so it is asked there. macOS has none.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from typing import Any

__all__ = ["has_memfd", "is_sealed", "make_memfd", "seal"]

_CLOEXEC, _ALLOW_SEALING = 1, 2
"""linux/memfd.h. Such a Python has no names for them, nor for those below."""
_F_ADD_SEALS, _F_GET_SEALS = 1033, 1034
_F_SEAL_SEAL, _F_SEAL_SHRINK, _F_SEAL_GROW = 1, 2, 4
"""linux/fcntl.h."""


def has_memfd() -> bool:
    """Return whether there are any on this system."""
    return hasattr(os, "memfd_create") or _in_c() is not None


def make_memfd(name: str) -> int:
    """Return the descriptor of a new, empty memfd, which no command that is started inherits.

    Args:
        name: For those who list a process's memory.

    Raises:
        OSError: The system gives none.
    """
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name, _CLOEXEC | _ALLOW_SEALING)
    call = _in_c()
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    fd = int(call(name.encode(), _CLOEXEC | _ALLOW_SEALING))
    if fd < 0:
        raise OSError(number := ctypes.get_errno(), os.strerror(number))
    return fd


def seal(fd: int) -> None:
    """Let nobody change a memfd's size any more, nor seal it further.

    Raises:
        OSError: It is sealed, or no memfd.
    """
    fcntl.fcntl(fd, _F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_GROW | _F_SEAL_SEAL)


def is_sealed(fd: int) -> bool:
    """Return whether nobody can make it shorter any more; False too of what is not a memfd."""
    try:
        return bool(fcntl.fcntl(fd, _F_GET_SEALS) & _F_SEAL_SHRINK)
    except OSError:
        return False


def _in_c() -> Any:
    """Return the C library's function; None where it has none."""
    return getattr(ctypes.CDLL(None, use_errno=True), "memfd_create", None)
