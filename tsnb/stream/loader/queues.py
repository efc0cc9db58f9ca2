"""Queues between a DataLoader and its workers: one packet for each object, without a thread and without a lock.

torch's own loop runs in the workers, unchanged, and its iterator in the loading thread. Both use what a
`multiprocessing` context makes for them: queues, an event, processes. `QueueContext` makes the queues and the event of
sockets, and leaves the processes to the loader's own context.

    loading thread                                      worker
    index queue.put      --(number, ticket)--> one socket pair a worker -->  index queue.get
    result queue.get     <--(number, answer)-- one socket pair for all  <--  result queue.put

A queue of `multiprocessing` gives each object to a thread that writes it, and takes three semaphores for it. A worker
that is killed while it holds one stops all others. Here each packet is sent by one system call and taken by one, whole.

- An object that is too large for a packet goes into memory without a name, and the packet carries its descriptor.
  Where /dev/shm is full (`nameless`), that is a file of the disk: whoever takes the object says what is full.
- The loading thread never waits to send. What the socket has no room for stays here until the next look.
- A worker waits to send while the loading thread lags. It goes on when the DataLoader ends, and drops what it has.

`PacketQueue` also serves as one line of tickets for all workers of a loader: whichever is free takes the next. A
DataLoader binds each order to a worker when it is sent, so what stands behind a slow batch in that worker's queue waits
with it. So the DataLoader sends blanks, which only let a worker go on, and the tickets wait in the line.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import mmap
import os
import pickle
import queue
import socket
import struct
import tempfile
from array import array
from collections import deque
from multiprocessing.context import BaseContext
from multiprocessing.reduction import DupFd, ForkingPickler
from typing import IO, Any

from torch import multiprocessing

from tsnb.config import explained
from tsnb.stream.memory.nameless import make_nameless

__all__ = ["PACKET_BYTES", "PacketQueue", "QueueContext", "has_packets", "ordinary", "why_ordinary"]

PACKET_BYTES = 1 << 15
"""A larger object goes into memory of its own. A ticket of 256 samples takes about 1 KB, an answer 0.3 KB."""
# plain numbers: Python's own flags cost several calls each time that they are joined
_QUIETLY = int(getattr(socket, "MSG_NOSIGNAL", 0))
"""The user's dataset may have changed what SIGPIPE does."""
_AT_ONCE = _QUIETLY | int(getattr(socket, "MSG_DONTWAIT", 0))
_CUT = int(socket.MSG_CTRUNC)
_FD_BYTES = array("i", [0]).itemsize
_GONE = {errno.EPIPE, errno.ECONNRESET, errno.EBADF, errno.ENOTCONN}
_LEAST_S = 1e-6
"""A socket takes 0 for no limit."""


@functools.cache
def has_packets() -> bool:
    """Return whether this system has sockets that keep packets apart and say when the other side has ended."""
    try:
        for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET):
            end.close()
    except OSError as error:
        return error.errno not in (errno.EPROTONOSUPPORT, errno.EOPNOTSUPP, errno.EPROTOTYPE, errno.EINVAL)
    except AttributeError:
        return False
    return True


def why_ordinary(context: BaseContext | None) -> str:
    """Return why a loader's batches go through the queues that its own context makes; "" where they need not.

    Args:
        context: The loader's `multiprocessing_context`.
    """
    if context is not None and any(
        getattr(type(context), name) is not getattr(BaseContext, name) for name in ("Queue", "Event")
    ):
        kind = type(context).__name__
        return ordinary(f"the multiprocessing_context, a {kind}, makes the queues")
    return "" if has_packets() else ordinary("this system has no sockets that keep packets apart")


def ordinary(why: str) -> str:
    """Return the words of status for a loader whose batches go through the queues of its own context."""
    return f"workers use Python's own queues: {why}"


class _Process:
    """This process, by identity: a fork is another one (`native.forks`, 3)."""

    here = object()

    @classmethod
    def forked(cls) -> None:
        cls.here = object()


os.register_at_fork(after_in_child=_Process.forked)


class PacketQueue:
    """What torch needs of a `multiprocessing.Queue`. One thread puts or gets at each end.

    The process that made it never waits to put. Workers, forked or spawned with it, do.

    Args:
        behind: Where it is noted that something waits here for room; shared by the queues of one DataLoader's iterator.
    """

    def __init__(self, behind: set[PacketQueue] | None = None) -> None:
        with explained("make a socket for the loader's workers"):
            self._writer, self._reader = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._home: object = _Process.here
        self._behind = set() if behind is None else behind
        self._begin()

    def _begin(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._buffers: list[memoryview] = []
        self._timeout_s: float | None = None

    def put(self, thing: Any) -> None:
        """Send an object; None ends the queue: who has got all that was put gets None from then on."""
        if thing is None:
            self.end()
            return
        packet = _packed(thing)
        if self._home is not _Process.here:
            self._send(packet, _QUIETLY)
        elif self._waiting or not self._send(packet, _AT_ONCE):
            self._waiting.append(packet)
            self._behind.add(self)
            self.push()

    def push(self) -> None:
        """Send what waits here, as far as there is room."""
        while self._waiting and self._send(self._waiting[0], _AT_ONCE):
            self._waiting.popleft()
        if not self._waiting:
            self._behind.discard(self)

    def _send(self, packet: bytes, flags: int) -> bool:
        """Send a packet; return False where there is no room for it now. One to an end that has gone is dropped."""
        try:
            if len(packet) <= PACKET_BYTES:
                self._writer.send(packet, flags)
            else:
                self._send_large(packet, flags)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.EMSGSIZE:  # a system with small sockets
                return self._send_large(packet, flags)
            if error.errno not in _GONE:
                raise
        return True

    def _send_large(self, packet: bytes, flags: int) -> bool:
        with _filled(packet) as memory:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [memory.fileno()]))
            try:
                self._writer.sendmsg([b"\0"], [rights], flags)
            except BlockingIOError:
                return False
        return True

    def get(self, timeout: float | None = None) -> Any:
        """Wait for an object, and take it; None: the queue has ended.

        Args:
            timeout: Seconds; None: without limit.

        Raises:
            queue.Empty: None came in time.
        """
        for other in [*self._behind]:
            other.push()
        if timeout != self._timeout_s:
            self._wait_at_most(timeout)
        if not self._buffers:
            self._buffers = [memoryview(bytearray(PACKET_BYTES))]
        try:
            size, carried, flags, _ = self._reader.recvmsg_into(self._buffers, socket.CMSG_SPACE(_FD_BYTES))
        except BlockingIOError:
            raise queue.Empty from None
        if carried:
            return _unpacked_from(array("i", carried[0][2])[0])
        if flags & _CUT:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return pickle.loads(self._buffers[0][:size]) if size else None  # noqa: S301  # of our own processes alone

    def _wait_at_most(self, timeout_s: float | None) -> None:
        # by the socket itself: a timeout of Python's costs another system call for each packet
        whole_s, rest_s = divmod(max(_LEAST_S, timeout_s) if timeout_s is not None else 0.0, 1.0)
        self._reader.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", int(whole_s), int(rest_s * 1e6))
        )
        self._timeout_s = timeout_s

    def end(self) -> None:
        """Let nobody wait at either end any more, and close it here. What was sent before can still be got."""
        self._waiting.clear()
        self._behind.discard(self)
        with contextlib.suppress(OSError):  # closed before
            self._writer.shutdown(socket.SHUT_RDWR)
        self.close()

    def close(self) -> None:
        """Close it in this process alone."""
        self._writer.close()
        self._reader.close()

    def cancel_join_thread(self) -> None:
        """Do nothing, as there is no thread."""

    def __del__(self) -> None:
        if hasattr(self, "_reader"):
            self.close()

    def __getstate__(self) -> Any:
        return DupFd(self._writer.fileno()), DupFd(self._reader.fileno())  # only while a worker is spawned

    def __setstate__(self, ends: Any) -> None:
        self._writer, self._reader = (socket.socket(fileno=end.detach()) for end in ends)
        for end in (self._writer, self._reader):
            os.set_inheritable(end.fileno(), False)
        self._home, self._behind = None, set()
        self._begin()


def _packed(thing: Any) -> bytes:
    try:
        return pickle.dumps(thing, pickle.HIGHEST_PROTOCOL)
    except Exception:  # noqa: BLE001  # what torch and multiprocessing alone know how to send
        return bytes(ForkingPickler.dumps(thing))


def _filled(packet: bytes) -> IO[bytes]:
    """Return shared memory that holds a packet, or a file of the disk where there is no room in memory."""
    try:
        return _written(open(make_nameless(), "w+b", buffering=0), packet)  # noqa: PTH123  # a descriptor
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.ENOMEM):
            raise
    return _written(tempfile.TemporaryFile(buffering=0), packet)


def _written(memory: IO[bytes], packet: bytes) -> IO[bytes]:
    try:
        rest = memoryview(packet)
        while rest:  # what has little room takes a part first
            rest = rest[memory.write(rest) :]
    except OSError:
        memory.close()
        raise
    return memory


def _unpacked_from(memory: int) -> Any:
    try:
        with mmap.mmap(memory, 0, access=mmap.ACCESS_READ) as packet:
            return pickle.loads(packet)  # noqa: S301
    finally:
        os.close(memory)


class _Ended:
    """What torch needs of an event: whether a DataLoader's iterator has ended. A byte of shared memory.

    An event of `multiprocessing` is read under a lock. A worker that is killed while it holds it would stop the
    producer, too.
    """

    def __init__(self, queues: list[PacketQueue]) -> None:
        self._queues = queues
        self._memory = make_nameless()
        os.ftruncate(self._memory, mmap.PAGESIZE)
        self._byte = mmap.mmap(self._memory, mmap.PAGESIZE)

    def is_set(self) -> bool:
        """Return whether it has ended."""
        return self._byte[0] != 0

    def set(self) -> None:
        """Note that it has ended, and let go of workers that wait for room or for a ticket."""
        self._byte[0] = 1
        for one in self._queues:
            one.end()

    def __del__(self) -> None:
        if hasattr(self, "_byte"):
            os.close(self._memory)

    def __getstate__(self) -> Any:
        return DupFd(self._memory)  # only while a worker is spawned

    def __setstate__(self, memory: Any) -> None:
        self._queues = []
        self._memory = memory.detach()
        os.set_inheritable(self._memory, False)
        self._byte = mmap.mmap(self._memory, mmap.PAGESIZE)


class QueueContext:
    """Stands in for the `multiprocessing` context of one DataLoader's iterator.

    Args:
        real: The loader's own; None: the process's.
    """

    def __init__(self, real: BaseContext | None) -> None:
        self._real: Any = multiprocessing if real is None else real
        self._queues: list[PacketQueue] = []
        self._behind: set[PacketQueue] = set()

    def Queue(self) -> PacketQueue:  # noqa: N802  # as torch asks for it
        """Return a new queue."""
        self._queues.append(PacketQueue(self._behind))
        return self._queues[-1]

    def Event(self) -> _Ended:  # noqa: N802
        """Return what tells workers that the iterator has ended."""
        return _Ended(self._queues)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)
