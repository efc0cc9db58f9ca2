"""Who is at the other end of a local socket, as the kernel says: each system in its own words."""

from __future__ import annotations

import socket
import struct

from tsnb.transport.channel import Peer

__all__ = ["peer_of", "uid_of"]

_UCRED = struct.Struct("3i")
"""Linux: pid, uid, gid."""

_XUCRED = struct.Struct("@IIh16I")
"""macOS, sys/ucred.h: version, uid, how many groups, the groups."""
_SOL_LOCAL, _LOCAL_PEERCRED, _LOCAL_PEERPID = 0, 1, 2
"""macOS, sys/un.h. Python has no names for them."""


def peer_of(sock: socket.socket) -> Peer:
    """Return the process that a socket is connected to.

    Raises:
        OSError: It has gone, and the system does not tell any more (macOS).
    """
    if hasattr(socket, "SO_PEERCRED"):
        pid, uid, _ = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        return Peer(pid, uid)
    uid = uid_of(sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED.size))
    return Peer(sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID), uid)


def uid_of(credentials: bytes) -> int:
    """Read the user from macOS's `struct xucred`.

    Raises:
        OSError: It is of another version than is known here.
    """
    if len(credentials) < _XUCRED.size or (fields := _XUCRED.unpack_from(credentials))[0] != 0:
        raise OSError("the system tells of the other end in a way that tsnb does not know")
    return int(fields[1])
