"""Two ends of a line of packets that no other process can open: inherited, or sent along one that was."""

from __future__ import annotations

import socket

__all__ = ["CLOEXEC", "packet_pair"]

CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
"""For `recv_fds`: what arrives is not inherited by commands."""


def packet_pair() -> tuple[socket.socket, socket.socket]:
    """Return the two ends. A packet arrives whole or not at all."""
    try:
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError:  # macOS
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
