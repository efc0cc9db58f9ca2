"""Channels between processes as tests need them: with their sockets, to send on them what no channel of ours would."""

from __future__ import annotations

import os
import secrets
import struct
from pathlib import Path
from typing import cast

from tsnb.stream.transport import local
from tsnb.stream.transport.seqpacket import SeqpacketChannel
from tsnb.stream.transport.sockets import Listener
from tsnb.stream.transport.stream import StreamChannel

Line = SeqpacketChannel | StreamChannel


def connect(address: str) -> Line:
    """Connect as everybody does."""
    return cast("Line", local.connect(address))


def accepted(listener: Listener) -> Line:
    """Take a connection that waits."""
    channel = listener.accept()
    assert channel is not None
    return cast("Line", channel)


def framed(channel: Line, packet: bytes) -> bytes:
    """Return a packet as it goes over the channel's socket."""
    return struct.pack("<I", len(packet)) + packet if isinstance(channel, StreamChannel) else packet


def abstract_address() -> str:
    return f"tsnb-{os.getuid()}-test-{secrets.token_hex(4)}"


def file_address(directory: Path) -> str:
    return str(directory / secrets.token_hex(4))


def linked(address: str) -> tuple[Line, Line]:
    """Return two connected ends."""
    listener = local.listen(address)
    ours = connect(address)
    theirs = accepted(listener)
    listener.close()
    return ours, theirs
