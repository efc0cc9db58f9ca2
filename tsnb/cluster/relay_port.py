"""The relays' port: a TCP port of the process that serves. Each relay that connects is a consumer of the stream.

A relay's asks are answered by the stream's own decisions, as those of any consumer. Its batches go out from the slots
in which they lie. Two threads serve it: one hears what it says, one sends what the stream has for it.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import threading
import time
from typing import Any

from msgspec import structs

from tsnb.caching.shard_wire import TOKEN_BYTES, BadPeer
from tsnb.caching.token_listener import TokenListener
from tsnb.cluster.relay_wire import Address, Alive, Covers, FromRelay, Link, MachineParts, mask_of, part_of
from tsnb.errors import NameInUse, ProducerGone, RemoteProtocolError, StopRequested, TsnbError
from tsnb.serving.stream import Producer
from tsnb.stream.consumer.options import Options
from tsnb.stream.consumer.talking.connection import Connection
from tsnb.stream.memory.scratch import ScratchPool
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.layout import Layout

__all__ = ["LEASE_S", "RelayPort"]

LEASE_S = 10.0
"""A relay that says nothing for so long is given up; the end of its process is noticed at once."""
ALIVE_S = 1.0
"""How often a relay that waits is told that the stream is there."""
MOST_OF_A_NAME = 100
"""Relays at one address: machines of a test, or several runtime directories."""
_PASSED_ON = (ms.EpochStarted, ms.NotJoined, ms.EpochEnded, ms.Parked, ms.Steered)


class RelayPort:
    """Serves a stream to its relays until it is closed.

    Args:
        producer: The stream, which is served by this process.
        host: The address of this machine in its cluster.
        token: What relays have to know.

    Attributes:
        address: Where relays find it.

    Raises:
        OSError: It cannot listen there.
    """

    def __init__(self, producer: Producer, host: str, token: bytes) -> None:
        assert len(token) == TOKEN_BYTES
        self._producer = producer
        self._listener = TokenListener(host, token, self._talk, f"tsnb-relays-{producer.name}")
        self.address = Address(host, self._listener.port, token)

    def close(self) -> None:
        """End all connections."""
        self._listener.close()

    def drop(self) -> None:
        """End the connections that are open now; relays may come back."""
        self._listener.drop()

    def _talk(self, sock: socket.socket) -> None:
        """Serve one relay to its end."""
        source = self._producer.core.source
        assert source is not None
        samples = source.indices.samples
        link = Link(sock, FromRelay, samples, LEASE_S)
        hello = link.hear()
        if not isinstance(hello, ms.Hello):
            raise BadPeer(f"{type(hello).__name__} instead of a Hello")
        try:
            member = _RelayMember(self._producer, link, hello, samples)
        except ProducerGone:
            return  # the relay hears of that from the hub
        except TsnbError as error:
            link.say(ms.Refused("full", str(error).rstrip(".")))
            return
        member.serve()


class _RelayMember:
    """One relay, as a consumer of the stream.

    Args:
        producer: The stream.
        link: To the relay.
        hello: Its first message.
        samples: Of the loader's dataset, where batches can tell which of them they hold.

    Raises:
        TsnbError: The stream does not take it.
    """

    def __init__(self, producer: Producer, link: Link, hello: ms.Hello, samples: int | None) -> None:
        if hello.protocol != ms.PROTOCOL:
            raise TsnbError("Install the same version of tsnb on every machine of the cluster")
        self._core, self._link, self._samples = producer.core, link, samples
        self._name, self._connection = _member(producer, hello.name)
        self._lock = threading.Lock()  # from a batch's message to its lease, no ask may come in between
        self._asked = 0
        self._taking = False  # the last ask was answered by an epoch, and batches belong to that
        self._waits = False  # the relay may be waiting for something
        self._told: dict[int, Layout] = {}
        self._alive_s = 0.0
        self._cover: int | None = None

    def serve(self) -> None:
        """Serve it until either side has gone."""
        if self._samples is not None:
            self._core.announce(self._name, 0, 0)  # nothing is taken there yet
        sending = threading.Thread(target=self._send, name=threading.current_thread().name, daemon=True)
        try:
            self._link.say(Alive())
            sending.start()
            while True:
                self._obey(self._link.hear())
        finally:
            self._link.close()
            self._connection.retire()
            if sending.ident is not None:
                sending.join()

    # -- what the relay says ---------------------------------------------------------------------------------

    def _obey(self, message: Any) -> None:
        if isinstance(message, ms.Ask):
            with self._lock:
                self._asked, self._taking, self._waits = message.number, False, True
                held = self._connection.unpacker.held
                self._connection.post(structs.replace(message, held=held))
        elif isinstance(message, MachineParts):
            self._announce(message)
        elif isinstance(message, ms.Hello):
            raise BadPeer("a second Hello")
        elif not isinstance(message, Alive):
            if isinstance(message, ms.Leave):
                with self._lock:
                    self._taking = self._waits = False
            self._connection.post(message)

    def _announce(self, parts: MachineParts) -> None:
        """Have the stream prepare what is taken on the relay's machine."""
        most = -1 if self._samples is None else (self._samples + 7) // 8
        if any(mask is not None and len(mask) > most for mask in (parts.cover, parts.expects)):
            raise BadPeer("samples that there are not")
        self._cover = part_of(parts.cover)
        self._core.announce(self._name, self._cover, part_of(parts.expects))

    # -- what the stream has for it --------------------------------------------------------------------------

    def _send(self) -> None:
        try:
            while True:
                self._pass_on(self._hear())
        except (OSError, ProducerGone, RemoteProtocolError):
            pass  # the stream has ended, or the relay; the other thread hears of it
        finally:
            self._link.close()

    def _hear(self) -> ms.Message:
        try:
            return self._connection.wait(self._tell_alive)
        except StopRequested:
            return ms.Steered("stop")

    def _tell_alive(self, _waited_s: float) -> None:
        now_s = time.monotonic()
        if self._waits and now_s - self._alive_s >= ALIVE_S:
            self._alive_s = now_s
            self._link.say(Alive())

    def _pass_on(self, message: ms.Message) -> None:
        if isinstance(message, ms.Batch):
            self._give(message)
        elif isinstance(message, _PASSED_ON):
            self._link.say(message)
            if isinstance(message, ms.EpochStarted):
                with self._lock:
                    self._taking = message.ask == self._asked
                if self._samples is not None:
                    self._tell_cover()

    def _tell_cover(self) -> None:
        """Say what the epoch's batches hold, if it is more than the relay asked for."""
        asked = self._cover
        cover = self._core.cover_of(self._name, asked)
        if cover != asked:
            self._link.say(Covers(mask_of(cover)))

    def _give(self, batch: ms.Batch) -> None:
        connection, told = self._connection, list[Any]()
        with self._lock:
            if not self._taking:
                connection.release(batch.lease)  # of an epoch that was left: it was on its way
                return
            layout = connection.layouts.lookup(batch.layout)
            memory = connection.unpacker.image(batch, layout)
        if self._told.get(batch.layout) is not layout:
            self._told[batch.layout] = layout
            told.append(ms.LayoutTold(batch.layout, layout.encode()))
        if (drawn := connection.drawn) is not None and drawn.lease == batch.lease:
            told.append(drawn)
        self._link.give([*told, structs.replace(batch, place=None)], memory)


def _member(producer: Producer, at: str) -> tuple[str, Connection]:
    """Attach to the stream, by a name that tells the machine; return the name and the connection."""
    stem = "cluster-" + (re.sub(r"[^A-Za-z0-9._-]+", "-", at).strip("-._")[:40] or "machine")
    for number in itertools.count(1):
        name = stem if number == 1 else f"{stem}-{number}"
        with contextlib.suppress(*[NameInUse] if number < MOST_OF_A_NAME else []):
            return name, Connection(producer.entry, name, Options(reconnect_s=0.0), ScratchPool())
    raise AssertionError
