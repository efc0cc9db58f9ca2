"""Channels inside one process, without a socket: for simulations, where a thousand runs must cost nothing.

Keeps the contract of `transport.channel.Channel`, small queue included; passes the same tests as the real one.
"""

from __future__ import annotations

import os
from collections import deque

from tsnb.stream.transport.channel import ChannelClosed, Peer

__all__ = ["LoopbackChannel", "pair"]


class LoopbackChannel:
    """One end of a pair."""

    pending = False
    """A packet is taken whole, or not at all."""

    def __init__(self, capacity: int) -> None:
        self.peer = Peer(os.getpid(), os.getuid())
        self._capacity = capacity
        self._inbox: deque[bytes] = deque()
        self._other: LoopbackChannel | None = None
        self._closed = False

    def send(self, packet: bytes, fd: int | None = None) -> bool:
        """Put the packet into the other end's queue; False when it is full. A descriptor is not carried."""
        other = self._other
        if self._closed or other is None or other._closed:
            raise ChannelClosed("the other end has gone")
        if len(other._inbox) >= self._capacity:
            return False
        other._inbox.append(packet)
        return True

    def flush(self) -> bool:
        """Return True: nothing of a packet is ever left."""
        return True

    def receive(self) -> bytes | None:
        """Return the next packet, None if none has come."""
        if self._inbox and not self._closed:
            return self._inbox.popleft()
        if self._closed or self._other is None or self._other._closed:
            raise ChannelClosed("the other end has gone")
        return None

    def wait(self, timeout_s: float | None) -> bool:
        """Return whether `receive` has a packet or an error; never sleeps, since nothing else could run meanwhile."""
        return bool(self._inbox) or self._closed or self._other is None or self._other._closed

    def fileno(self) -> int:
        """Return -1: there is nothing to poll."""
        return -1

    def close(self) -> None:
        """Close this end; what it had sent stays readable."""
        self._closed = True


def pair(capacity: int = 128) -> tuple[LoopbackChannel, LoopbackChannel]:
    """Return two connected ends; each queue holds `capacity` packets."""
    one, two = LoopbackChannel(capacity), LoopbackChannel(capacity)
    one._other, two._other = two, one
    return one, two
