"""A kernel's lane: the line on which unnamed files go to it, and come back.

A pair of sockets that no other process can open. The kernel inherits its end (or gets it from the fork server); the hub
keeps the other. One packet is one descriptor, with the number by which an order names it: an order's code is
text, and never holds an object.

Both ends are used by one thread each: the hub's, and the kernel's main thread.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import struct

from tsnb.errors import TsnbError
from tsnb.kernels.cargo.unnamed_file import Cargo
from tsnb.native.ties import CLOEXEC, packet_pair

__all__ = ["FileLane", "give", "is_deserted", "open_here", "take"]

_NUMBER = struct.Struct("=I")

WAIT_S = 60.0
"""How long the other end may take; a descriptor is sent before it is mentioned."""


class FileLane:
    """The hub's end.

    Attributes:
        theirs: The kernel's end, until it has been handed over.

    Args:
        loop: The hub's.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._mine, self.theirs = packet_pair()
        self._mine.setblocking(False)
        self._loop = loop
        self._last = 0
        self._coming: dict[int, asyncio.Future[Cargo]] = {}
        loop.add_reader(self._mine, self._take)

    def handed_over(self) -> None:
        """Close this process's copy of the kernel's end."""
        self.theirs.close()

    def send(self, cargo: Cargo) -> int:
        """Send bytes; return the number by which an order names them.

        Raises:
            TsnbError: They have been let go of.
            OSError: The kernel has gone, or the system has no memory.
        """
        with cargo.descriptor() as descriptor:
            return self.pass_on(descriptor)

    def pass_on(self, descriptor: int) -> int:
        """Send a copy of a descriptor; return the number by which an order names it.

        Raises:
            OSError: The kernel has gone.
        """
        self._last += 1
        socket.send_fds(self._mine, [_NUMBER.pack(self._last)], [descriptor])
        return self._last

    def expect(self) -> int:
        """Return a number for bytes that the kernel is to send."""
        self._last += 1
        self._coming[self._last] = self._loop.create_future()
        return self._last

    async def receive(self, number: int) -> Cargo:
        """Return what the kernel has sent under a number.

        Raises:
            TimeoutError: It does not come.
        """
        try:
            return await asyncio.wait_for(self._coming[number], WAIT_S)
        finally:
            self.forget(number)

    def forget(self, number: int) -> None:
        """Expect nothing under a number any more."""
        self._coming.pop(number, None)

    def _take(self) -> bool:
        """Take one packet; return whether there was one."""
        try:
            packet, descriptors = _received(self._mine)
        except BlockingIOError:
            return False
        except OSError:
            packet, descriptors = b"", []
        if not packet:  # the kernel has gone, or closed its end
            self._loop.remove_reader(self._mine)
            self._give_up()
        number = _numbered(packet, descriptors)
        waiting = None if number is None else self._coming.get(number)
        if waiting is None or waiting.done():  # not asked for, or not one of ours
            for descriptor in descriptors:
                os.close(descriptor)
            return bool(packet)
        try:
            waiting.set_result(Cargo.received(descriptors[0]))
        except OSError as error:
            waiting.set_exception(TsnbError(f"the data from its kernel cannot be read: {error}"))
        return True

    def _give_up(self) -> None:
        """Tell all waiting calls that nothing more will come."""
        for waiting in self._coming.values():
            if not waiting.done():
                waiting.set_exception(TsnbError("its kernel has ended"))
                waiting.exception()  # asyncio tells of those that nobody has asked for; nobody need be waiting

    def close(self) -> None:
        """Close it. The kernel has gone; all that it sent is taken."""
        while self._take():
            pass
        self._give_up()
        self._loop.remove_reader(self._mine)
        self._mine.close()
        self.theirs.close()


def _received(end: socket.socket) -> tuple[bytes, list[int]]:
    """Take a packet, with a byte more than one has, so that a longer one is noticed."""
    packet, descriptors, _, _ = socket.recv_fds(end, _NUMBER.size + 1, 1, CLOEXEC)
    return packet, descriptors


def _numbered(packet: bytes, descriptors: list[int]) -> int | None:
    """Return the number of the one file that came; None of what the other end never sends."""
    if len(packet) != _NUMBER.size or len(descriptors) != 1:
        return None
    return int(_NUMBER.unpack(packet)[0])


# -- in the kernel ---------------------------------------------------------------------------------------------

_here: socket.socket | None = None
_arrived: dict[int, int] = {}


def open_here(descriptor: int) -> None:
    """Have this process be the kernel of a lane. Called before it becomes a kernel; in a clone, once more."""
    global _here
    if _here is not None:  # that of the kernel which it is a copy of
        _here.close()
        _arrived.clear()
    _here = socket.socket(fileno=descriptor)
    _here.settimeout(WAIT_S)


def is_deserted() -> bool:
    """Whether the hub has closed its end: it has gone, or does not want this kernel."""
    look = select.poll()
    look.register(_here.fileno() if _here is not None else -1, select.POLLRDHUP)
    return bool(look.poll(0))


def take(number: int) -> int:
    """Return the descriptor that the hub has sent under a number. The caller closes it.

    Raises:
        TimeoutError: It has not come.
        ConnectionError: The hub has gone, or something else came.
    """
    assert _here is not None, "this process is not a kernel"
    while number not in _arrived:
        packet, descriptors = _received(_here)
        if not packet:
            raise ConnectionError("the process that started this kernel has ended")
        came = _numbered(packet, descriptors)
        if came is None or came in _arrived:
            for descriptor in descriptors:
                os.close(descriptor)
            raise ConnectionError("this kernel received a message that the notebook never sends")
        _arrived[came] = descriptors[0]
    return _arrived.pop(number)


def give(number: int, cargo: Cargo) -> None:
    """Send bytes to the hub under a number that it has named.

    Raises:
        OSError: The hub has gone.
    """
    assert _here is not None, "this process is not a kernel"
    with cargo.descriptor() as descriptor:
        socket.send_fds(_here, [_NUMBER.pack(number)], [descriptor])
