"""One line of tickets for all workers of a loader: whichever is free takes the next.

A DataLoader binds each order to a worker when it is sent, so what stands behind a slow batch in that worker's queue
waits with it. Here the DataLoader sends blanks, which only let a worker go on, and the tickets wait in a socket that
all workers read: each packet is taken whole, by one of them, and no lock is held that a killed worker could leave.

    loading thread                                   workers
    Tickets  --blank-->  the DataLoader's queues  -->  TicketCollate
    TicketLine.put  --ticket-->  one socket  ------->  TicketLine.take

The producer never waits on it: what the socket has no room for stays here until the next look.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import socket
import tempfile
from collections import deque
from multiprocessing.reduction import DupFd
from typing import Any

from tsnb.config import explained

__all__ = ["TicketLine", "has_lines"]

PACKET_BYTES = 1 << 15
"""A larger ticket goes as a file without a name. One of 256 samples takes about 1 KB."""


def has_lines() -> bool:
    """Return whether this system has sockets that keep packets apart and say when the other side has ended."""
    try:
        for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET):
            end.close()
    except OSError as error:
        return error.errno not in (errno.EPROTONOSUPPORT, errno.EOPNOTSUPP, errno.EPROTOTYPE, errno.EINVAL)
    except AttributeError:
        return False
    return True


class TicketLine:
    """Tickets on their way to the workers of one DataLoader's iterator.

    The loading thread puts and ends; workers, forked or spawned with it, take.
    """

    def __init__(self) -> None:
        with explained("make a socket for the loader's workers"):
            self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setblocking(False)
        self._waiting: deque[bytes] = deque()

    def put(self, ticket: Any) -> None:
        """Let a worker take this ticket, or None: there is nothing more for it to do."""
        self._waiting.append(pickle.dumps(ticket, pickle.HIGHEST_PROTOCOL))
        self.push()

    def push(self) -> None:
        """Send what waits here, as far as there is room."""
        while self._waiting and self._sent(self._waiting[0]):
            self._waiting.popleft()

    def _sent(self, packet: bytes) -> bool:
        try:
            if len(packet) <= PACKET_BYTES:
                self._ours.send(packet)
                return True
            with tempfile.TemporaryFile() as file:
                file.write(packet)
                file.flush()
                socket.send_fds(self._ours, [b"\0"], [file.fileno()])
        except BlockingIOError:
            return False
        return True

    def take(self) -> Any:
        """Wait for a ticket, and take it; None: there is none any more. Called in a worker."""
        packet, files, _, _ = socket.recv_fds(self._theirs, PACKET_BYTES, 1)
        if not packet:
            return None
        if not files:
            return pickle.loads(packet)  # noqa: S301  # of our own process alone
        with open(files[0], "rb") as file:  # noqa: PTH123  # a descriptor
            file.seek(0)
            return pickle.load(file)  # noqa: S301

    def end(self) -> None:
        """Let workers that wait for a ticket go on without one, now and from now on; close it here."""
        self._waiting.clear()
        with contextlib.suppress(OSError):  # closed before
            self._ours.shutdown(socket.SHUT_RDWR)
        self._ours.close()
        self._theirs.close()

    def __getstate__(self) -> Any:
        return DupFd(self._theirs.fileno())  # only while multiprocessing spawns a worker

    def __setstate__(self, there: Any) -> None:
        self._theirs = socket.socket(fileno=there.detach())
        os.set_inheritable(self._theirs.fileno(), False)
