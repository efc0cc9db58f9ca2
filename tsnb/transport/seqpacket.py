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

from tsnb.config import explained
from tsnb.errors import RemoteProtocolError, TsnbError
from tsnb.transport.channel import ChannelClosed, Peer

__all__ = ["Listener", "OutOfDescriptors", "SeqpacketChannel", "connect", "private_to_this_process"]

_MAX_PACKET_BYTES = 1 << 17
_RECEIVE_BYTES = (
    _MAX_PACKET_BYTES + 1
)  # one more than may come, so that a packet cut off is told from a whole one
CONNECT_S = 5.0
"""How long a listener may have its queue full: it is emptied at once, unless its process stands still."""
_CREDENTIALS = struct.Struct("3i")
_TIME = struct.Struct("@ll")
_GONE = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.EBADF, errno.ESHUTDOWN, errno.ETOOMANYREFS)
"""The last: this user has more descriptors on their way than it may have open, so that none can be sent with it."""
_FULL = (errno.ENOBUFS, errno.ENOMEM)

_open: weakref.WeakSet[_HasSocket] = weakref.WeakSet()


class OutOfDescriptors(OSError):
    """A connection waits, and this process may not open another descriptor for it."""


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
            if error.errno in _FULL:
                return False
            raise
        return True

    def receive(self) -> bytes | None:
        """Return the next packet, None when there is none now. Descriptors that it carries are not taken.

        Raises:
            ChannelClosed: As the contract says.
            RemoteProtocolError: The packet is larger than any of ours.
        """
        return self._receive(None)

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
                packet = self._socket.recv(_RECEIVE_BYTES) if fds is None else self._receive_fds(fds)
            except BlockingIOError:
                return None
            except OSError as error:
                if error.errno == errno.ECONNRESET:
                    continue
                if error.errno in _GONE:
                    break
                raise
            if len(packet) > _MAX_PACKET_BYTES:
                raise RemoteProtocolError(f"a packet of more than {_MAX_PACKET_BYTES:,} bytes")
            if packet:
                return packet
            break
        raise ChannelClosed("the other end has gone")

    def _receive_fds(self, fds: list[int]) -> bytes:
        packet, got, flags, _ = socket.recv_fds(self._socket, _RECEIVE_BYTES, 4)
        fds.extend(got)
        for fd in got:
            os.set_inheritable(fd, False)  # recv_fds leaves it on: no command we start keeps the arena
        if flags & socket.MSG_CTRUNC and not got:  # the kernel could not give it to us, and has closed it
            with explained("take over the shared memory"):
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return packet

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until there is a packet or the other end has gone."""
        return self._fd < 0 or bool(
            self._poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000)
        )


class Listener(_HasSocket):
    """Takes connections at an abstract address.

    Raises:
        TsnbError: This process may not open more descriptors.
    """

    def __init__(self, address: str) -> None:
        with explained("listen for consumers"):
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._spare = _spare()
        sock.bind("\0" + address)
        sock.listen(128)
        sock.setblocking(False)
        super().__init__(sock)

    def accept(self) -> SeqpacketChannel | None:
        """Return the next connection, None when there is none.

        Raises:
            PermissionError: It was another user's, and is closed.
            OutOfDescriptors: It cannot be taken now and keeps waiting; see `turn_away`.
        """
        try:
            sock, _ = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise OutOfDescriptors(error.errno, error.strerror) from None
            raise
        channel = _same_user(SeqpacketChannel(sock))
        if channel is None:
            raise PermissionError("a process of another user tried to connect")
        return channel

    def turn_away(self, packet: bytes) -> bool:
        """Take the next connection on the descriptor kept for this, tell it why it cannot stay, and close it.

        Returns:
            False when not even that can be done now.
        """
        self._close_spare()
        try:
            channel = self.accept()
            if channel is not None:
                with contextlib.suppress(ChannelClosed):
                    channel.send(packet)
                channel.close()
        except OutOfDescriptors:  # another thread was quicker
            return False
        except PermissionError:
            pass
        with contextlib.suppress(OSError):
            self._spare = _spare()
        return self._spare >= 0

    def abandon(self) -> None:
        """Let go of the descriptors without ending the listening: they belong to the parent process."""
        super().abandon()
        self._close_spare()

    def _close_spare(self) -> None:
        spare, self._spare = self._spare, -1
        if spare >= 0:
            os.close(spare)


def _spare() -> int:
    """Return a descriptor that can be given up for one connection when there is no other left."""
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def connect(address: str) -> SeqpacketChannel:
    """Connect to a listener of this user.

    Raises:
        ConnectionRefusedError: Nobody listens there.
        PermissionError: The listener belongs to another user.
        TsnbError: It stands still, or this process may not open more descriptors.
    """
    with explained("connect to the producer"):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # a full queue would be waited for without end; a socket timeout of Python's would not wait at all
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIME.pack(int(CONNECT_S), 0))
    try:
        sock.connect("\0" + address)
    except BlockingIOError:
        sock.close()
        raise TsnbError(
            f"the producer at {address!r} has taken no connection for {CONNECT_S:.0f} s: it may be stopped in a "
            "debugger, or the machine is very busy. Look at it with `tsnb status`, and attach again."
        ) from None
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
