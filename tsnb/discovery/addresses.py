"""Addresses of producers: made, known by how they begin, and swept where they are files.

An abstract address dies with its process. On systems without those it is a file in a private directory, whose name
says which process it belongs to (process, start, boot); files left by SIGKILL are swept once no process listens there.
"""

from __future__ import annotations

import errno
import os
import secrets
import socket
import zlib
from pathlib import Path

from tsnb.config import explained, private_directory, runtime_directory, short_directory
from tsnb.errors import TsnbError
from tsnb.machine.owners import where
from tsnb.machine.processes import has_started_so, started
from tsnb.native.memfd import portable

__all__ = ["address_prefix", "new_address", "socket_directory", "sweep_sockets"]

_SOCKET_BYTES = 48
"""What the name of a socket's file takes: a pid, a start, this boot, a random word."""


def new_address(name: str) -> str:
    """Return an address for a new producer: it cannot be guessed, and a person who lists sockets can read it.

    Raises:
        TsnbError: The runtime directory cannot be used, or this process may not open more descriptors.
    """
    if portable():
        with explained("choose a socket for the stream"):
            mine = f"{os.getpid()}-{started(os.getpid())}-{_boot_word()}-{secrets.token_hex(8)}"
        return str(private_directory(socket_directory()) / mine)
    return f"{address_prefix()}-{name}-{secrets.token_hex(8)}"


def socket_directory() -> Path:
    """Return where producers without abstract addresses have their sockets."""
    return short_directory(_SOCKET_BYTES) / "sockets"


def address_prefix() -> str:
    """Return how the addresses of this user's producers in this runtime directory begin."""
    return f"tsnb-{os.getuid()}-{zlib.crc32(str(runtime_directory()).encode()):08x}"


def _boot_word() -> str:
    host, boot, _ = where()
    return f"{zlib.crc32(f'{host} {boot}'.encode()):08x}"


def sweep_sockets() -> None:
    """Remove the sockets of processes that were killed. A serving process is alive before its socket is there."""
    try:
        directory = socket_directory()
    except TsnbError:  # another user's: no producer of ours has a socket there
        return
    for path in directory.iterdir() if directory.is_dir() else ():
        pid, when, *others = path.name.split("-")[:4] if path.name.count("-") >= 2 else ("", "")
        if not (pid.isdigit() and when.isdigit()) or (len(others) > 1 and others[0] != _boot_word()):
            continue  # not ours, or another machine's
        if not has_started_so(int(pid), int(when)) and _nobody_listens(path):
            path.unlink(missing_ok=True)


def _nobody_listens(path: Path) -> bool:
    """Return whether a socket is dead, whichever container its process is in."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.setblocking(False)
        try:
            sock.connect(str(path))
        except BlockingIOError:
            return False
        except OSError as error:
            return error.errno in (errno.ECONNREFUSED, errno.ENOTSOCK, errno.ENOENT)
    return False
