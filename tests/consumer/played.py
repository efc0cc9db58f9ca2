"""A producer that a test plays, word by word: real sockets, a real arena and a real registry entry, and no loader.

Newcomers are answered on a thread of its own; from then on the test reads what they say and sends what it likes.
"""

from __future__ import annotations

import os
import queue
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from msgspec import structs

import tsnb.attaching  # noqa: F401  # a consumer has its extensions
from tsnb.discovery import registry
from tsnb.discovery.addresses import new_address
from tsnb.discovery.registry import Entry
from tsnb.stream.loader.packing import SlotWriter
from tsnb.stream.memory.arena import Arena
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.codec import decode, encode
from tsnb.stream.transport.channel import ChannelClosed, LocalChannel
from tsnb.stream.transport.local import listen

SLOTS = 16
ROWS = 4
LONG_S = 60.0
"""How long anything may take that has to come: tells a hang from a busy machine."""

_M = TypeVar("_M")


class End:
    """The producer's end of one consumer's connection.

    Attributes:
        hello: The first message that came.
        closed: Whether the consumer has closed its end; all that it said before has been read then.
    """

    def __init__(self, channel: LocalChannel, hello: ms.Hello, arena: Arena) -> None:
        self.channel = channel
        self.hello = hello
        self.closed = False
        self._arena = arena
        self._layouts: list[bytes] = []
        self._leases = 0

    def tell(self, *messages: ms.Message) -> None:
        """Send messages."""
        for message in messages:
            assert self.channel.send(encode(message))

    def heard(self) -> list[ms.Message]:
        """Return all that has come since the last time."""
        found: list[ms.Message] = []
        try:
            while (packet := self.channel.receive()) is not None:
                found.append(decode(packet))
        except ChannelClosed:
            self.closed = True
        return found

    def await_(self, kind: type[_M]) -> _M:
        """Return the next message of a kind; those before it are dropped. For what another thread says."""
        while self.channel.wait(LONG_S):
            packet = self.channel.receive()
            if packet is not None and isinstance(message := decode(packet), kind):
                return message
        raise TimeoutError(f"no {kind.__name__} came")

    def begin(self, epoch: int = 0, seq: int = 0) -> ms.Ask:
        """Answer the consumer's last ask with an epoch; return the ask."""
        asks = [message for message in self.heard() if isinstance(message, ms.Ask)]
        self.tell(ms.EpochStarted(asks[-1].number, epoch, seq))
        return asks[-1]

    def give(self, *seqs: int, epoch: int = 0, rows: int = ROWS) -> None:
        """Send batches of the epoch's rows: batch n of 4 has 4n to 4n + 3. The lease of each is its number, from 1."""
        for seq in seqs:
            slot = self._leases % SLOTS
            writer = SlotWriter(self._arena, slot)
            placed = writer.write({"row": torch.arange(seq * ROWS, seq * ROWS + rows)})
            writer.close()
            if placed.layout not in self._layouts:
                self._layouts.append(placed.layout)
                self.tell(ms.LayoutTold(self._layouts.index(placed.layout), placed.layout))
            self._leases += 1
            where = (placed.values_offset, placed.values_bytes)
            number = self._layouts.index(placed.layout)
            self.tell(ms.Batch(number, slot, epoch, seq, placed.rows, self._leases, *where))


class Played:
    """A stream whose producer is the test.

    Args:
        name: The stream's name.
        welcome: Fields of the `Welcome`.

    Attributes:
        entry: Its entry in the registry.
        answers: What the next newcomers are told instead of a welcome, one each; None: nothing at all.
        answer_s: How long an answer takes.
    """

    def __init__(self, name: str = "s", **welcome: Any) -> None:
        self.arena = Arena.create()
        self.arena.fit(SLOTS, 1 << 16)
        plain = ms.Welcome(name, os.getpid(), 8, 4, ROWS, 3, 3 * ROWS, order="seed=1")
        self.welcome = structs.replace(plain, **welcome)
        self.answers: list[ms.Message | None] = []
        self.answer_s = 0.0
        self._ends: queue.Queue[End] = queue.Queue()
        self._all: list[LocalChannel] = []
        address = new_address(name)
        self._listener = listen(address)
        self._over, self._stop = os.pipe()
        self.entry: Entry = registry.register(name, address, "a test", "the token")
        self._thread = threading.Thread(target=self._serve, name="played")
        self._thread.start()

    def end(self) -> End:
        """Return the end of the next consumer that was welcomed."""
        return self._ends.get(timeout=LONG_S)

    def leave(self) -> None:
        """Take the name out of the registry, as a producer does that ends."""
        registry.unregister(self.entry)

    def close(self) -> None:
        """End, as a process does: all connections at once, and without a word."""
        os.close(self._stop)
        self._thread.join()
        registry.unregister(self.entry)
        for channel in self._all:
            channel.close()
        self._listener.close()
        os.close(self._over)
        self.arena.close()

    def _serve(self) -> None:
        poll = select.poll()
        for descriptor in (self._listener.fileno(), self._over):
            poll.register(descriptor, select.POLLIN)
        while self._over not in [descriptor for descriptor, _ in poll.poll()]:
            channel = self._listener.accept()
            if channel is not None:
                self._all.append(channel)
                self._answer(channel)

    def _answer(self, channel: LocalChannel) -> None:
        assert channel.wait(LONG_S)
        hello = decode(channel.receive() or b"")
        assert isinstance(hello, ms.Hello)
        answer = self.answers.pop(0) if self.answers else self.welcome
        if answer is None:
            return
        time.sleep(self.answer_s)
        channel.send(encode(answer), self.arena.fd if isinstance(answer, ms.Welcome) else None)
        if isinstance(answer, ms.Welcome):
            self._ends.put(End(channel, hello, self.arena))


def until(true: Callable[[], object]) -> None:
    """Return as soon as something is true."""
    deadline = time.monotonic() + LONG_S
    while not true():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.001)


@contextmanager
def played(name: str = "s", **welcome: Any) -> Iterator[Played]:
    """Play a producer, until the `with` block ends."""
    made = Played(name, **welcome)
    try:
        yield made
    finally:
        made.close()
