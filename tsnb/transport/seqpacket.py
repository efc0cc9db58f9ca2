"""Channels over AF_UNIX SOCK_SEQPACKET: the data plane between processes of one machine.

Chosen over the alternatives because it keeps packets whole and in order, carries a file descriptor, tells the
peer's uid and death, and lets a finalizer send from any thread. Addresses are *abstract* (they live in the
kernel, not in a directory), so no socket file is left behind even by SIGKILL. Anybody on the machine can name
such an address, so both ends check that the other belongs to the same user.
"""

from __future__ import annotations

import array
import contextlib
import errno
import os
import select
import socket
import struct
import weakref

from tsnb.transport.channel import ChannelClosed, Peer

__all__ = ["Listener", "SeqpacketChannel", "connect", "private_to_this_process"]

_RECEIVE_BYTES = 1 << 17
_CREDENTIALS = struct.Struct("3i")
_GONE = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.EBADF, errno.ESHUTDOWN)

_open: weakref.WeakSet[_HasSocket] = weakref.WeakSet()


class _HasSocket:
    """A socket that must not be shared with a forked child.

    A child that keeps it open (a loader's worker, say) hides our death from the other end for as long as it
    lives: no end of file, only a timeout.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        _open.add(self)

    def fileno(self) -> int:
        """Return the socket's descriptor, -1 once closed."""
        return self._fd

    def close(self) -> None:
        """Close this end. Calling it again does nothing."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                self._socket.shutdown(
                    socket.SHUT_RDWR
                )  # wakes a thread that waits on it; closing alone does not
        self.abandon()

    def abandon(self) -> None:
        """Let go of the descriptor without ending the connection: it belongs to the parent process."""
        self._fd = -1
        self._socket.close()


def private_to_this_process() -> None:
    """Close every channel in a forked child; runs by itself after each `os.fork`."""
    for held in list(_open):
        held.abandon()


os.register_at_fork(after_in_child=private_to_this_process)


class SeqpacketChannel(_HasSocket):
    """One connected socket; see `transport.channel.Channel` for the contract."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        sock.setblocking(False)
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(credentials)
        self.peer = Peer(pid, uid)
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
            if error.errno in _GONE:
                raise ChannelClosed("the other end has gone") from None
            raise
        return True

    def receive(self) -> bytes | None:
        """Return the next packet, None when there is none now."""
        return self._receive(None)

    def receive_with_fd(self) -> tuple[bytes | None, int | None]:
        """Return the next packet and the descriptor it carries, where it does."""
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
                    packet, got, _, _ = socket.recv_fds(self._socket, _RECEIVE_BYTES, 4)
                    fds.extend(got)
                    for fd in got:
                        os.set_inheritable(
                            fd, False
                        )  # recv_fds leaves it on: no command we start keeps the arena
            except BlockingIOError:
                return None
            except OSError as error:
                if error.errno == errno.ECONNRESET:
                    continue
                if error.errno in _GONE:
                    break
                raise
            if packet:
                return packet
            break
        raise ChannelClosed("the other end has gone")

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until there is a packet or the other end has gone."""
        return self._fd < 0 or bool(
            self._poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000)
        )


class Listener(_HasSocket):
    """Takes connections at an abstract address."""

    def __init__(self, address: str) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.bind("\0" + address)
        sock.listen(128)
        sock.setblocking(False)
        super().__init__(sock)

    def accept(self) -> SeqpacketChannel | None:
        """Return the next connection of this user; None when there is none, or it was another user's."""
        try:
            sock, _ = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        return _same_user(SeqpacketChannel(sock))


def connect(address: str) -> SeqpacketChannel:
    """Connect to a listener of this user.

    Raises:
        ConnectionRefusedError: Nobody listens there.
        PermissionError: The listener belongs to another user.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.connect("\0" + address)
    except OSError:
        sock.close()
        raise
    channel = _same_user(SeqpacketChannel(sock))
    if channel is None:
        raise PermissionError(f"the producer at {address!r} belongs to another user")
    return channel


def _same_user(channel: SeqpacketChannel) -> SeqpacketChannel | None:
    if channel.peer.uid == os.getuid():
        return channel
    channel.close()
    return None
