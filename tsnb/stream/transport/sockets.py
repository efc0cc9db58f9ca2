"""What the channels between processes share: sockets that forks let go of, and taking connections.

Anybody on the machine may try to connect, so both ends check that the other belongs to the same user: the kernel says
which process is at the other end of a local socket, each system in its own words.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import weakref
from collections.abc import Callable
from typing import TypeVar

from tsnb.config import explained
from tsnb.errors import TsnbError
from tsnb.stream.transport.channel import ChannelClosed, LocalChannel, Peer

__all__ = [
    "FULL",
    "GONE",
    "MAX_PACKET_BYTES",
    "HasSocket",
    "Listener",
    "OutOfDescriptors",
    "connected",
    "peer_of",
    "private_to_this_process",
    "received_fds",
    "uid_of",
]

MAX_PACKET_BYTES = 1 << 17
CONNECT_S = 5.0
"""How long a listener may have its queue full: it is emptied at once, unless its process stands still."""
GONE = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.EBADF, errno.ESHUTDOWN, errno.ETOOMANYREFS)
"""The last: this user has more descriptors on their way than it may have open, so that none can be sent with it."""
FULL = (errno.ENOBUFS, errno.ENOMEM)
NOBODY = (errno.ENOENT, errno.ENOTCONN, errno.ECONNRESET, errno.EINVAL)
"""No process listens there any more: the file has gone; or the listener has, before its identity was read (macOS)."""
_TIME = struct.Struct("@ll")

_open: weakref.WeakSet[HasSocket] = weakref.WeakSet()


Channel = TypeVar("Channel", bound=LocalChannel)


class OutOfDescriptors(OSError):
    """A connection waits, and this process may not open another descriptor for it."""


class HasSocket:
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
    """Close every channel in a forked child (`native.forks`, 1)."""
    for held in list(_open):
        held.abandon()


os.register_at_fork(after_in_child=private_to_this_process)


class Listener(HasSocket):
    """Takes connections. Made by `transport.local.listen`.

    Args:
        sock: A socket that has a name, and does not listen yet.
        channel: Makes a channel of a connected socket.

    Raises:
        TsnbError: This process may not open more descriptors.
    """

    def __init__(self, sock: socket.socket, channel: Callable[[socket.socket], LocalChannel]) -> None:
        with explained("listen for trials"):
            self._spare = _spare()
        sock.listen(128)
        sock.setblocking(False)
        self._channel = channel
        super().__init__(sock)

    def accept(self) -> LocalChannel | None:
        """Return the next connection, None if none has come.

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
        try:
            channel = self._channel(sock)
        except OSError:  # it has gone already; others that wait are told of again
            sock.close()
            return None
        if not _same_user(channel):
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
    """Return a descriptor that can be given up for one connection when the process has reached its limit."""
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def connected(
    sock: socket.socket, address: str, shown: str, channel: Callable[[socket.socket], Channel]
) -> Channel:
    """Connect a socket to a listener of this user, and make a channel of it.

    Args:
        sock: The socket; closed where nothing comes of it.
        address: As `socket.connect` takes it.
        shown: The same, for messages.
        channel: Makes the channel.

    Raises:
        ConnectionRefusedError: No process listens there.
        PermissionError: The listener belongs to another user.
        TsnbError: It stands still.
    """
    try:
        # a full queue would be waited for without end; a socket timeout of Python's would not wait at all
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIME.pack(int(CONNECT_S), 0))
        sock.connect(address)
        made = channel(sock)
    except BlockingIOError:
        sock.close()
        raise TsnbError(
            f"The stream at {shown!r} has accepted no connection for {CONNECT_S:.0f} s. It may be "
            "stopped in a debugger, or the machine is very busy. Check it with `tsnb status`, and "
            "attach again."
        ) from None
    except OSError as error:
        sock.close()
        if error.errno in NOBODY:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED), shown) from None
        raise
    if not _same_user(made):
        raise PermissionError(f"The stream at {shown!r} belongs to another user.")
    return made


def _same_user(channel: LocalChannel) -> bool:
    if channel.peer.uid == os.getuid():
        return True
    channel.close()
    return False


def received_fds(sock: socket.socket, size: int, fds: list[int]) -> bytes:
    """Receive bytes, and the descriptors that they carry.

    Args:
        sock: Where from.
        size: Bytes at most.
        fds: Takes the descriptors.

    Raises:
        TsnbError: They carry one, and this process may not open another.
    """
    received, got, flags, _ = socket.recv_fds(sock, size, 4)
    fds.extend(got)
    for fd in got:
        os.set_inheritable(fd, False)  # recv_fds leaves it on: no command we start keeps the arena
    if flags & socket.MSG_CTRUNC and not got:  # the kernel could not give it to us, and has closed it
        with explained("take over the shared memory"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return received


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
        raise OSError("the system describes the other end in a form that tsnb does not know")
    return int(fields[1])
