"""Channels over AF_UNIX SOCK_SEQPACKET: the data plane between processes of one machine, on Linux.

Chosen over the alternatives because it keeps packets whole and in order, carries a file descriptor, tells the
peer's uid and death, and lets a finalizer send from any thread. Addresses are *abstract* (they live in the
kernel, not in a directory), so no socket file is left behind even by SIGKILL.
"""

from __future__ import annotations

import array
import errno
import os
import select
import socket

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

__all__ = ["SeqpacketChannel", "connect", "listen"]

_RECEIVE_BYTES = MAX_PACKET_BYTES + 1
"""One more than may come, so that a packet cut off differs from a whole one."""
_buffers: list[memoryview] = []
"""Where packets are received, each used by one thread at a time. New memory for each packet would cost more than the
packet: malloc takes so much from the system, and gives it back."""


class SeqpacketChannel(HasSocket):
    """One connected socket; see `transport.channel.LocalChannel` for the contract."""

    pending = False
    """A packet is taken whole, or not at all."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        sock.setblocking(False)
        self.peer = peer_of(sock)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def send(self, packet: bytes, fd: int | None = None) -> bool:
        """Send one packet without waiting; False when the other end's queue is full."""
        try:
            if fd is None:
                self._socket.send(packet, socket.MSG_NOSIGNAL)
            else:
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))
                self._socket.sendmsg([packet], [rights], socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in GONE:
                raise ChannelClosed("the other end has gone") from None
            if error.errno in FULL:
                return False
            raise
        return True

    def flush(self) -> bool:
        """Return True: nothing of a packet is ever left."""
        return True

    def receive(self) -> bytes | None:
        """Return the next packet, None if none has come. Descriptors that it carries are not taken.

        Raises:
            ChannelClosed: As the contract says.
            RemoteProtocolError: The packet is larger than any of ours.
        """
        try:
            buffer = _buffers.pop()
        except IndexError:  # other threads have all of them
            buffer = memoryview(bytearray(_RECEIVE_BYTES))
        try:
            size = self._socket.recv_into(buffer)
            packet = buffer[:size].tobytes()
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in (*GONE, errno.ECONNRESET):
                return self._receive(None)
            raise
        finally:
            _buffers.append(buffer)
        return packet if 0 < size <= MAX_PACKET_BYTES else self._checked(packet)

    def receive_with_fd(self) -> tuple[bytes | None, int | None]:
        """Return the next packet and the descriptor it carries, where it does.

        Raises:
            ChannelClosed: As the contract says.
            RemoteProtocolError: The packet is larger than any of ours.
            TsnbError: It carries one, and this process may not open another.
        """
        fds: list[int] = []
        packet = self._receive(fds)
        for extra in fds[1:]:
            os.close(extra)
        return packet, fds[0] if fds else None

    def _receive(self, fds: list[int] | None) -> bytes | None:
        # A peer that closes with packets of ours unread resets the connection: the error comes once, before
        # the packets it had sent to us. So an error is followed by a second look.
        for _ in range(2):
            try:
                if fds is None:
                    packet = self._socket.recv(_RECEIVE_BYTES)
                else:
                    packet = received_fds(self._socket, _RECEIVE_BYTES, fds)
            except BlockingIOError:
                return None
            except OSError as error:
                if error.errno == errno.ECONNRESET:
                    continue
                if error.errno in GONE:
                    break
                raise
            return self._checked(packet)
        raise ChannelClosed("the other end has gone")

    def _checked(self, packet: bytes) -> bytes:
        if len(packet) > MAX_PACKET_BYTES:
            raise RemoteProtocolError(f"a packet of more than {MAX_PACKET_BYTES:,} bytes")
        if not packet:
            raise ChannelClosed("the other end has gone")
        return packet

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until there is a packet or the other end has gone."""
        return self._fd < 0 or bool(
            self._poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000)
        )


def _socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def listen(address: str) -> Listener:
    """Listen at an abstract address.

    Raises:
        TsnbError: This process may not open more descriptors.
    """
    with explained("listen for trials"):
        sock = _socket()
    try:
        sock.bind("\0" + address)
        return Listener(sock, SeqpacketChannel)
    except BaseException:
        sock.close()
        raise


def connect(address: str) -> SeqpacketChannel:
    """Connect to a listener of this user.

    Raises:
        ConnectionRefusedError: No process listens there.
        PermissionError: The listener belongs to another user.
        TsnbError: It stands still, or this process may not open more descriptors.
    """
    with explained("connect to the stream"):
        sock = _socket()
    return connected(sock, "\0" + address, address, SeqpacketChannel)
