"""The contract of a channel, and the outbox that makes sending on one never block.

Every implementation passes the same test suite (`tests/transport`).
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Protocol

__all__ = ["Channel", "ChannelClosed", "LocalChannel", "Outbox", "Peer"]


class ChannelClosed(ConnectionError):
    """The other end has closed or died; everything it had sent has been received."""


class Peer(NamedTuple):
    """Who is at the other end, as the kernel says."""

    pid: int
    uid: int


class Channel(Protocol):
    """One connection; packets arrive whole, once and in order. Sending is safe from any thread."""

    @property
    def peer(self) -> Peer:
        """The process at the other end."""

    @property
    def pending(self) -> bool:
        """Whether a part of a packet that was taken is still to be sent, by `flush` or the next `send`."""

    def send(self, packet: bytes, fd: int | None = None) -> bool:
        """Send one packet without waiting, with a file descriptor if given; False if there is no room.

        Raises:
            ChannelClosed: The other end has gone.
        """

    def flush(self) -> bool:
        """Send the rest of packets that were taken in part, without waiting; return whether all is sent.

        Raises:
            ChannelClosed: The other end has gone.
        """

    def receive(self) -> bytes | None:
        """Return the next packet, None if none has come.

        Raises:
            ChannelClosed: The other end has gone and nothing is left to read.
        """

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until `receive` has something to say; False when the time ran out."""

    def fileno(self) -> int:
        """Return a descriptor to poll; -1 once closed."""

    def close(self) -> None:
        """Close this end. Calling it again does nothing."""


class LocalChannel(Channel, Protocol):
    """A channel between processes of one machine, which carries descriptors too."""

    def receive_with_fd(self) -> tuple[bytes | None, int | None]:
        """Return the next packet and the descriptor it carries, where it does.

        Raises:
            ChannelClosed: As `Channel.receive`.
            RemoteProtocolError: The packet is larger than any of ours.
            TsnbError: It carries one, and this process may not open another.
        """


class Outbox:
    """Sends on a channel, or keeps packets in order until there is room.

    Called from finalizers in the middle of itself: no lock, only atomic deque operations.

    Attributes:
        limit_bytes: How much may wait for another end that does not read; None: any amount. If it is set,
            packets are posted from one thread at a time.
        overflowed: Whether it was more: the connection is as good as closed then.
        posted: Packets handed in so far.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.limit_bytes: int | None = None
        self.overflowed = False
        self.posted = 0
        self._waiting: deque[bytes] = deque()

    def post(self, packet: bytes) -> bool:
        """Send the packet, after those that still wait; return whether nothing waits now.

        Raises:
            ChannelClosed: The other end has gone, or has not read for so long that `limit_bytes` are waiting.
        """
        self.posted += 1
        if self._waiting:
            self._waiting.append(packet)
            if self.flush():
                return True
            self._bound()
            return False
        if self.channel.send(packet):
            return not self.channel.pending
        self._waiting.append(packet)
        return False

    def _bound(self) -> None:
        if self.limit_bytes is None:
            return
        # each also costs the deque and the bytes object around it, which is most of it for small packets
        if sum(len(packet) + 64 for packet in self._waiting) > self.limit_bytes:
            self.overflowed = True
            self._waiting.clear()
            raise ChannelClosed("the other end does not read what it is sent")

    def flush(self) -> bool:
        """Send what waits; return whether nothing is left.

        Raises:
            ChannelClosed: The other end has gone.
        """
        while self._waiting:
            try:
                packet = self._waiting.popleft()
            except IndexError:  # another thread, or a finalizer in this one, has sent the last
                break
            if not self.channel.send(packet):
                self._waiting.appendleft(packet)
                return False
        return self.channel.flush()

    def __len__(self) -> int:
        return 0 if self.overflowed else len(self._waiting) + self.channel.pending
