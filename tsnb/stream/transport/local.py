"""Listen and connect on this machine: the kind of channel follows from the address.

A path is that of a stream socket (`transport.stream`); any other address is abstract (`transport.seqpacket`).
`native.memfd` decides which of them a producer has; a process that connects need not know.
"""

from __future__ import annotations

from tsnb.stream.transport import seqpacket, stream
from tsnb.stream.transport.channel import LocalChannel
from tsnb.stream.transport.sockets import Listener

__all__ = ["connect", "is_path", "listen"]


def is_path(address: str) -> bool:
    """Return whether an address is a file's: then its producer has the portable pair, whose memory has no seals."""
    return address.startswith("/")


def listen(address: str) -> Listener:
    """Take connections at an address.

    Raises:
        TsnbError: This process may not open more descriptors, or the socket's file cannot be made.
    """
    return stream.listen(address) if is_path(address) else seqpacket.listen(address)


def connect(address: str) -> LocalChannel:
    """Connect to a listener of this user.

    Raises:
        ConnectionRefusedError: No process listens there.
        PermissionError: The listener belongs to another user.
        TsnbError: It stands still, or this process may not open more descriptors.
    """
    return stream.connect(address) if is_path(address) else seqpacket.connect(address)
