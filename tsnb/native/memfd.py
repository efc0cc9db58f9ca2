"""A memfd, also from a Python that was built for an older C library than the machine has.

Builds that shall run everywhere (conda's, uv's) were long made for glibc 2.17, and have no `os.memfd_create`. The C
library that they meet has it from glibc 2.27 on, so it is asked there. macOS lacks it, and a container may refuse it.

Which arena and which channel producers of this process use is decided here and nowhere else (`portable`). Only the
process that serves decides. One that attaches goes by the producer's address, and by the descriptor that it is sent.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import logging
import os
from typing import Any

__all__ = ["SWITCH", "has_memfd", "is_sealed", "make_memfd", "portable", "seal"]

_log = logging.getLogger("tsnb")

_CLOEXEC, _ALLOW_SEALING, _NOEXEC_SEAL = 1, 2, 8
"""linux/memfd.h. Such a Python has no names for them, nor for those below. The last one, from Linux 6.3 on, is what a
system with vm.memfd_noexec=2 insists on: nothing in it can be run as a program."""
_REFUSALS = {errno.EPERM, errno.EACCES, errno.ENOSYS}
"""What a seccomp filter or the sysctl vm.memfd_noexec answers, and a kernel without the call."""
_F_ADD_SEALS, _F_GET_SEALS = 1033, 1034
_F_SEAL_SEAL, _F_SEAL_SHRINK, _F_SEAL_GROW, _F_SEAL_WRITE = 1, 2, 4, 8
"""linux/fcntl.h."""


def has_memfd() -> bool:
    """Return whether this process can make one; where that is forbidden, the log says so once."""
    try:
        os.close(make_memfd("tsnb-probe"))
    except OSError as error:
        if error.errno not in _REFUSALS:
            return True  # it is there: no descriptor is left, say
        if hasattr(os, "memfd_create") or _in_c() is not None:
            _say_refused(str(error))
        return False
    return True


def make_memfd(name: str) -> int:
    """Return the descriptor of a new, empty memfd, which no command that is started inherits.

    Args:
        name: Shown when a process's memory is listed.

    Raises:
        OSError: The system refuses it.
    """
    try:
        return _make(name, _CLOEXEC | _ALLOW_SEALING | _NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return _make(name, _CLOEXEC | _ALLOW_SEALING)  # an older kernel


def _make(name: str, flags: int) -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name, flags)
    call = _in_c()
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    fd = int(call(name.encode(), flags))
    if fd < 0:
        raise OSError(number := ctypes.get_errno(), os.strerror(number))
    return fd


@functools.cache
def _say_refused(why: str) -> None:
    _log.warning(
        "this system refuses memfd_create (%s), as the seccomp profile of a container may do. tsnb "
        "uses shared memory in /dev/shm instead. If that is small, enlarge it (docker run --shm-size), "
        "or allow memfd_create.",
        why,
    )


def seal(fd: int, *, contents: bool = False) -> None:
    """Fix a memfd's size for good, and allow no further seals.

    Args:
        fd: The memfd.
        contents: Whether to forbid writing into it, too.

    Raises:
        OSError: It is sealed already, or is not a memfd.
    """
    written = _F_SEAL_WRITE if contents else 0
    fcntl.fcntl(fd, _F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_GROW | _F_SEAL_SEAL | written)


def is_sealed(fd: int) -> bool:
    """Return whether it cannot be made shorter any more; False for anything that is not a memfd."""
    try:
        return bool(fcntl.fcntl(fd, _F_GET_SEALS) & _F_SEAL_SHRINK)
    except OSError:
        return False


def _in_c() -> Any:
    """Return the C library's function; None if it lacks it."""
    return getattr(ctypes.CDLL(None, use_errno=True), "memfd_create", None)


SWITCH = "TSNB_PORTABLE"
"""Set to 1, this environment variable chooses the portable pair on Linux too."""


def portable() -> bool:
    """Return whether to use only what every POSIX system has: without memfd, or on request."""
    return os.environ.get(SWITCH, "") not in {"", "0"} or not has_memfd()
