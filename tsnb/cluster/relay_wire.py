"""What crosses between the process of a stream and a relay, over TCP.

    connection  =  both proofs (`caching.shard_wire`) | Hello | Alive, or Refused | messages both ways
    message     =  size of the packet: 4 bytes | packet | behind a Batch: the bytes of its slot

    relay -> producer   Hello  MachineParts  Ask  Take  Waiting  Leave  Rest  Alive
    producer -> relay   Refused  Alive  LayoutTold  Drawn  Batch  Covers  EpochStarted  NotJoined  EpochEnded  Parked
                        Steered

Most are a local stream's messages (`stream.protocol.messages`), and mean the same here. msgspec checks their types and
bounds as it reads a packet. Sizes are looked at before memory is taken. Nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from typing import Any, NamedTuple

import msgspec

from tsnb.caching.shard_wire import BadPeer
from tsnb.errors import RemoteProtocolError
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.codec import MAX_MESSAGE_BYTES, decode
from tsnb.stream.protocol.fields import Sent

__all__ = [
    "Address",
    "Alive",
    "Covers",
    "FromProducer",
    "FromRelay",
    "Link",
    "MachineParts",
    "mask_of",
    "part_of",
]

_SIZE = struct.Struct("<I")
_MORE = getattr(socket, "MSG_MORE", 0)
_WASTE_BYTES = 1 << 20
"""What nobody wants any more is read in such pieces."""


class Address(NamedTuple):
    """Where the process of a stream waits for its relays."""

    host: str
    """IPv4 or IPv6."""
    port: int
    """TCP."""
    token: bytes
    """A relay has to know it."""


class MachineParts(Sent, frozen=True, tag=40):
    """Which samples are taken on the relay's machine, a bit each; None: all. Said before an Ask, and at each change."""

    cover: bytes | None
    """With the epoch that it takes or asks for next."""
    expects: bytes | None
    """With those that begin later."""


class Covers(Sent, frozen=True, tag=41):
    """The epoch that the relay takes holds more samples than it asked for. Said before the first batch."""

    cover: bytes | None
    """What it holds, a bit each; None: all."""


class Alive(Sent, frozen=True, tag=42):
    """This side is there. The producer says it where a relay waits for something, a relay says it all the time."""


FromRelay = ms.Hello | MachineParts | ms.Ask | ms.Take | ms.Waiting | ms.Leave | ms.Rest | Alive
FromProducer = (
    ms.Refused
    | Alive
    | ms.LayoutTold
    | ms.Drawn
    | ms.Batch
    | Covers
    | ms.EpochStarted
    | ms.NotJoined
    | ms.EpochEnded
    | ms.Parked
    | ms.Steered
)
_TEXTS = (ms.Hello, ms.Refused, ms.EpochEnded)
"""Those whose texts have to be cleaned."""
_write = msgspec.msgpack.Encoder().encode


def mask_of(part: int | None) -> bytes | None:
    """Return samples as they cross; None: all."""
    return None if part is None else part.to_bytes(-(-part.bit_length() // 8), "little")


def part_of(mask: bytes | None) -> int | None:
    """Return samples, a bit each; None: all."""
    return None if mask is None else int.from_bytes(mask, "little")


class Link:
    """One end of a connection that was proven. One thread hears; any may say something.

    Args:
        sock: The connection.
        hears: What the other side may say.
        samples: Of the loader's dataset: masks are no longer than that.
        silent_s: How long the other side may send nothing while something is read.
    """

    def __init__(self, sock: socket.socket, hears: Any, samples: int | None, silent_s: float) -> None:
        self.sock = sock
        self._read = msgspec.msgpack.Decoder(hears).decode
        self._most_bytes = MAX_MESSAGE_BYTES + (samples or 0) // 4
        self._saying = threading.Lock()
        self._poll = select.poll()
        self._poll.register(sock.fileno(), select.POLLIN)
        sock.settimeout(None)
        # the system's: one of Python's own would go for both directions
        whole_s = int(silent_s)
        span = struct.pack("ll", whole_s, int((silent_s - whole_s) * 1e6))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, span)

    def say(self, *messages: Sent) -> None:
        """Send messages.

        Raises:
            OSError: The connection broke.
        """
        packets = map(_write, messages)
        sent = b"".join([_SIZE.pack(len(packet)) + packet for packet in packets])
        with self._saying:
            self.sock.sendall(sent)

    def give(self, messages: list[Sent], memory: Any) -> None:
        """Send a Batch, with what comes before it, and the bytes of its slot.

        Raises:
            OSError: The connection broke.
        """
        sent = b"".join([_SIZE.pack(len(packet)) + packet for packet in map(_write, messages)])
        with self._saying:
            self.sock.sendall(sent, _MORE)
            self.sock.sendall(memory)

    def arrived(self, within_s: float) -> bool:
        """Return whether something has come, or the connection has ended; wait so long for it."""
        return bool(self._poll.poll(within_s * 1000))

    def hear(self) -> Any:
        """Return the next message.

        Raises:
            BadPeer: It makes no sense.
            OSError: The connection ended, or nothing came for too long.
        """
        head = bytearray(_SIZE.size)
        self.fill(head)
        (size,) = _SIZE.unpack(head)
        if size > self._most_bytes:
            raise BadPeer(f"a message of {size} bytes")
        packet = bytearray(size)
        self.fill(packet)
        try:
            message = self._read(packet)
            return decode(bytes(packet)) if isinstance(message, _TEXTS) else message
        except (msgspec.MsgspecError, RemoteProtocolError, ValueError, RecursionError) as error:
            raise BadPeer(f"a malformed message: {error}"[:300]) from None

    def fill(self, target: Any) -> None:
        """Fill memory with what comes.

        Raises:
            TimeoutError: Nothing came for too long.
            OSError: The connection ended.
        """
        view = memoryview(target)
        while view:
            try:
                got = self.sock.recv_into(view, 0, socket.MSG_WAITALL)
            except BlockingIOError:
                raise TimeoutError("nothing came for too long") from None
            if not got:
                raise ConnectionResetError("the other side has closed the connection")
            view = view[got:]

    def waste(self, size: int) -> None:
        """Read bytes that nobody wants. Errors as `fill`'s."""
        waste = memoryview(bytearray(min(size, _WASTE_BYTES)))
        for start in range(0, size, _WASTE_BYTES):
            self.fill(waste[: size - start])

    def close(self) -> None:
        """End the connection, and whatever reads or sends on it. Called from any thread."""
        with contextlib.suppress(OSError):  # it has ended
            self.sock.shutdown(socket.SHUT_RDWR)
