"""Channels over AF_UNIX SOCK_STREAM, for systems without SEQPACKET: macOS.

A stream has no packets, so each is preceded by its length, four bytes. The system may take only part of a packet, and
give only part of one; between the parts, a finalizer, another thread or Ctrl-C may come along:

- outgoing bytes pass through a buffer of the interpreter's own (`io.BufferedWriter`), which knows how much has gone
  out, whatever came along. `send` leaves the rest there, and `flush` sends it;
- incoming bytes are read exactly: no more than the rest of one packet leaves the socket, so that a poll of the socket
  reports the next one. They are kept in the same step in which they are received.

Sockets are files in a private directory. A listener removes its own; files left by SIGKILL are swept by
`tsnb.discovery.addresses`, which reads from a file's name which process it belonged to.
"""

from __future__ import annotations

import array
import contextlib
import errno
import io
import os
import select
import socket
import struct
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from tsnb.config import explained
from tsnb.errors import RemoteProtocolError
from tsnb.stream.transport.channel import ChannelClosed
from tsnb.stream.transport.sockets import (
    FULL,
    GONE,
    MAX_PACKET_BYTES,
    HasSocket,
    Listener,
    connected,
    peer_of,
    received_fds,
)

__all__ = ["StreamChannel", "connect", "listen"]

_LENGTH = struct.Struct("<I")
_WRITER_BYTES = 4 * MAX_PACKET_BYTES
"""A packet is put into an empty buffer. Others fit beside it that come from elsewhere just then."""
_ROOM_BYTES = MAX_PACKET_BYTES
"""What a socket should hold. macOS gives 8 KiB unless asked: a few slow batches would fill that."""
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
_SO_NOSIGPIPE = 0x1022
"""macOS, sys/socket.h: its word for MSG_NOSIGNAL, once for a socket."""


class StreamChannel(HasSocket):
    """One connected socket; see `transport.channel.LocalChannel` for the contract.

    Raises:
        OSError: The other end has gone before it could be identified.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.peer = peer_of(sock)
        sock.setblocking(False)
        _prepare(sock)
        self._raw = io.FileIO(sock.fileno(), "wb", closefd=False)
        self._out = io.BufferedWriter(self._raw, _WRITER_BYTES)
        # of the packet that is arriving: its length, what has come of it, descriptors that came with it
        self._begun: deque[bytes] = deque()
        self._fds: list[int] = []
        self._reading = threading.RLock()  # `close` in another thread reads the rest
        self.pending = False
        self._poll = select.poll()
        self._poll.register(sock.fileno(), select.POLLIN)
        super().__init__(sock)

    def send(self, packet: bytes, fd: int | None = None) -> bool:
        """Send one packet without waiting; False if there is no room, or another one is just being sent."""
        if not self.flush():
            return False
        left: bytes | None = _LENGTH.pack(len(packet)) + packet
        if fd is not None and left:
            left = self._send_with(fd, left)
        if left is None:
            return False
        if left:
            self.pending = True
            with _ended_as_closed():
                try:
                    self._out.write(left)
                except (
                    RuntimeError
                ):  # a finalizer, in the middle of a write of this thread: its word can wait
                    return False
            self.flush()
        return True

    def _send_with(self, fd: int, framed: bytes) -> bytes | None:
        """Send bytes with a descriptor; return the rest of them, None if there is no room."""
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))
        try:
            with _ended_as_closed():
                return framed[self._socket.sendmsg([framed], [rights], _NO_SIGNAL) :]
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in FULL:
                return None
            raise

    def flush(self) -> bool:
        """Send the rest of packets that were taken in part; return whether all is sent.

        Raises:
            ChannelClosed: The other end has gone.
        """
        self.pending = False  # before: a send that comes along meanwhile may set it again
        try:
            with _ended_as_closed():
                self._out.flush()
        except (BlockingIOError, RuntimeError):  # no room; or this very thread is in the middle of it
            self.pending = True
        except OSError as error:
            if error.errno not in FULL:
                raise
            self.pending = True
        return not self.pending

    def receive(self) -> bytes | None:
        """Return the next packet, None if none has come. Descriptors that it carries are not taken.

        Raises:
            ChannelClosed: As the contract says.
            RemoteProtocolError: The packet is larger than any of ours.
        """
        return self._receive(self._socket.recv)

    def receive_with_fd(self) -> tuple[bytes | None, int | None]:
        """Return the next packet and the descriptor it carries, where it does.

        Raises:
            ChannelClosed: As the contract says.
            RemoteProtocolError: The packet is larger than any of ours.
            TsnbError: It carries one, and this process may not open another.
        """
        packet = self._receive(lambda size: received_fds(self._socket, size, self._fds))
        for extra in self._fds[1:]:
            os.close(extra)
        del self._fds[1:]
        return packet, self._fds.pop() if packet is not None and self._fds else None

    def _receive(self, take: Callable[[int], bytes]) -> bytes | None:
        with self._reading:
            reset = False
            while True:
                begun = b"".join(self._begun)
                size = _size(begun)
                if len(begun) == size > _LENGTH.size:
                    self._begun = deque()
                    return begun[_LENGTH.size :]
                try:
                    # received and kept in one step: an interrupt comes before or after, never between
                    self._begun.extend(map(take, (size - len(begun),)))
                except BlockingIOError:
                    return None
                except OSError as error:
                    if error.errno == errno.ECONNRESET and not reset:
                        reset = True  # comes once, before what had been sent to us: as in `seqpacket`
                        continue
                    if error.errno in GONE:
                        break
                    raise
                if not self._begun[-1]:
                    break
        raise ChannelClosed("the other end has gone")

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until there is something to receive, a packet's part perhaps, or the other end has gone."""
        return self._fd < 0 or bool(
            self._poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000)
        )

    def close(self) -> None:
        """Close this end. Calling it again does nothing."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                self.flush()
        super().close()

    def abandon(self) -> None:
        """Let go of the descriptors without ending the connection: it belongs to the parent process."""
        self._raw.close()  # first: buffered bytes must not reach another file of the same number
        self._reading = threading.RLock()  # `native.forks`, 3
        super().abandon()
        while self._fds:
            os.close(self._fds.pop())


def _size(begun: bytes) -> int:
    """Return how many bytes a packet has, with its length; or how many are needed to know that.

    Raises:
        RemoteProtocolError: It is larger than any of ours, or empty.
    """
    if len(begun) < _LENGTH.size:
        return _LENGTH.size
    length: int = _LENGTH.unpack_from(begun)[0]
    if not 0 < length <= MAX_PACKET_BYTES:
        raise RemoteProtocolError(f"a packet of {length:,} bytes, not of 1 to {MAX_PACKET_BYTES:,}")
    return _LENGTH.size + length


class _ended_as_closed(contextlib.AbstractContextManager[None]):  # noqa: N801  # reads as a verb, as in contextlib
    """Turns the errors of a socket whose other end has gone, or that was closed here, into `ChannelClosed`."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        closed = isinstance(error, ValueError)  # the file was closed: in another thread, perhaps
        if closed or (isinstance(error, OSError) and error.errno in GONE):
            raise ChannelClosed("the other end has gone") from None


class _StreamListener(Listener):
    """A listener whose address is a file."""

    def __init__(self, sock: socket.socket, path: Path) -> None:
        self._path = path
        super().__init__(sock, StreamChannel)

    def close(self) -> None:
        """Stop listening, and remove the file."""
        if self._fd >= 0:  # else it was closed before, or belongs to the parent process
            self._path.unlink(missing_ok=True)
        super().close()


def _prepare(sock: socket.socket) -> None:
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        if sock.getsockopt(socket.SOL_SOCKET, option) < _ROOM_BYTES:
            with contextlib.suppress(OSError):  # the system's own limit: then more waits in the outbox
                sock.setsockopt(socket.SOL_SOCKET, option, _ROOM_BYTES)
    if sys.platform == "darwin":
        # others have seen it refused just after an accept; Python ignores the signal, unless told otherwise
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, _SO_NOSIGPIPE, 1)


def _socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)


def listen(address: str) -> Listener:
    """Listen at a path in a private directory, which is there.

    Raises:
        TsnbError: This process may not open more descriptors, or the file cannot be made.
    """
    with explained("listen for trials"), contextlib.ExitStack() as unless_listening:
        sock = unless_listening.enter_context(_socket())
        sock.bind(address)
        unless_listening.callback(Path(address).unlink, missing_ok=True)
        listener = _StreamListener(sock, Path(address))
        unless_listening.pop_all()
        return listener


def connect(address: str) -> StreamChannel:
    """Connect to a listener of this user.

    Raises:
        ConnectionRefusedError: No process listens there.
        PermissionError: The listener belongs to another user, or its directory does.
        TsnbError: It stands still, or this process may not open more descriptors.
    """
    with explained("connect to the stream"):
        sock = _socket()
    return connected(sock, address, address, StreamChannel)
