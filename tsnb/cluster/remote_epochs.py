"""A relay's source: epochs that come from the process of the stream. As `stream.loader.sources.Source`."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import numpy as np

from tsnb.caching.shard_wire import BadPeer, prove
from tsnb.cluster.relay_wire import Address, Alive, Covers, FromProducer, Link, MachineParts, mask_of, part_of
from tsnb.errors import JoinRefused, LoaderFailed, RemoteProtocolError
from tsnb.stream.loader.facts import Indices
from tsnb.stream.loader.packing import ArrivingImage
from tsnb.stream.loader.seams import Covering, EpochIs, Given, Ready
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.layout import Layout

__all__ = ["RemoteEpochs"]

CONNECT_S = 5.0
"""How long the stream's process may take to accept a connection, and to prove itself."""
SILENT_S = 60.0
"""How long that process may say nothing at all, and a batch may take."""
AGAIN_S = 0.5
"""Where it cannot be reached, it is tried again."""
LOOK_S = 0.25
"""How often it is looked, while nothing comes, whether the epoch is still wanted here."""
CLOSING_S = 1.0
"""Until trials have been told that the stream ends here."""
_OVER = object()


class RemoteEpochs:
    """Epochs of a stream of the cluster. Used by a relay's loading thread; `rest`, `expect` and `beat` by another.

    A batch is received into its slot. While no slot is there for it, it waits in the connection.

    Args:
        address: Of the stream's process.
        facts: The loader's batch_size, batches, samples, order, indices (as a tuple) and batch_bytes.
        name: This machine's address, for the stream's panel.
    """

    workers = None
    stays = False
    ordinary = ""

    def __init__(self, address: Address, facts: dict[str, Any], name: str) -> None:
        self.batch_size: int | None = facts["batch_size"]
        self.batches: int | None = facts["batches"]
        self.samples: int | None = facts["samples"]
        self.order: str = facts["order"]
        self.indices = Indices(*facts["indices"])
        self._batch_bytes: int = facts["batch_bytes"]
        self._address, self._name = address, name
        self._link: Link | None = None
        self._closed = threading.Event()
        self._lock = threading.RLock()  # guards the number of the ask, and what is said of it
        self._ask = 0
        self._cover: int | None = None  # what this epoch holds, or is to hold
        self._expects: int | None = 0  # what is taken here with those that begin later
        self._layouts: dict[int, tuple[bytes, Layout]] = {}
        self._drawn = b""
        self._epoch = self._seq = 0  # the next batch
        self._begun = False  # that place was given, so it has to be just that one
        self._taking = False  # the last ask was answered by an epoch
        self._waiting = False  # and it was said that nothing is left to take
        self._unread = 0  # bytes of a batch that comes next on the connection
        self._heard_s = 0.0
        self._acts: dict[type[Any], Callable[[Any], Any]] = {
            ms.LayoutTold: self._learn,
            ms.Drawn: self._drew,
            ms.Batch: self._offered,
            ms.EpochStarted: self._started,
            ms.EpochEnded: self._ended,
            ms.NotJoined: self._not_joined,
            ms.Parked: self._parked,
            ms.Steered: self._steered,
            Covers: self._covers,
        }

    def most_ahead(self, _batch_bytes: int) -> int:
        """Return 0: batches are received when they are asked for."""
        return 0

    def why_empty(self, epoch: int) -> str:
        """Say what an epoch without a batch may mean."""
        return f"The loader of the stream returned no batch in pass {epoch + 1}."

    # -- the connection ------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Be a consumer of the stream. Called once, and by the loading thread after the connection has broken.

        Raises:
            JoinRefused: The stream does not take this machine, or another program listens there.
            OSError: It cannot be reached.
        """
        host, port, token = self._address
        sock = socket.create_connection((host, port), CONNECT_S)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            prove(sock, token, time.monotonic() + CONNECT_S)
            link = Link(sock, FromProducer, self.indices.samples, SILENT_S)
            link.say(ms.Hello("consumer", self._name, "a relay"))
            answer = link.hear()
            if not isinstance(answer, Alive):
                raise JoinRefused(answer.reason if isinstance(answer, ms.Refused) else "it is another stream")
        except BadPeer as error:
            sock.close()
            raise JoinRefused(f"{host}:{port} is not the port of this stream: {error}") from None
        except BaseException:
            sock.close()
            raise
        with self._lock:
            self._layouts.clear()
            self._unread = 0
            self._link = link
            self._heard_s = time.monotonic()
            self._say_parts()

    def disconnect(self) -> None:
        """End the connection. Called from any thread."""
        self._closed.set()
        if (link := self._link) is not None:
            link.close()

    def _say(self, *messages: Any) -> None:
        """Say something; a connection that has broken is found when it is read."""
        if (link := self._link) is not None:
            try:
                link.say(*messages)
            except OSError:
                link.close()

    def _say_parts(self) -> None:
        if self.indices.samples is not None:
            self._say(MachineParts(mask_of(self._cover), mask_of(self._expects)))

    # -- called by the relay's watching thread -------------------------------------------------------------

    @property
    def ask(self) -> int:
        """How often an epoch was asked for."""
        return self._ask

    def rest(self, ask: int) -> None:
        """Say that no consumer here takes an epoch, unless one was asked for since that ask."""
        with self._lock:
            if ask == self._ask:
                self._say(ms.Leave(), ms.Rest())

    def expect(self, expects: int | None) -> None:
        """Note which samples consumers here take, a bit each; None: all."""
        with self._lock:
            if expects != self._expects:
                self._expects = expects
                self._say_parts()

    def beat(self) -> None:
        """Say that this relay lives."""
        self._say(Alive())

    # -- called by the relay's loading thread --------------------------------------------------------------

    def close(self) -> None:
        """Do nothing: it has no workers."""

    def begin(self, epoch: int, start: int = 0, cover: int | None = None) -> Iterator[Given]:
        """Give an epoch's batches as `ArrivingImage`."""
        self._heard_s = time.monotonic()
        self._epoch, self._seq, self._begun = epoch, start, bool(start)
        with self._lock:
            self._cover = cover
            self._say_parts()
        self._want()
        try:
            while (given := self._step()) is not _OVER:
                yield self._arriving(given) if isinstance(given, ms.Batch) else given
        finally:
            self._taking = False
            self._say(ms.Leave())

    def _want(self) -> None:
        with self._lock:
            self._ask += 1
            self._taking = self._waiting = False
            exact = self._begun
            self._say(ms.Ask(self._ask, self._epoch, self._seq if exact else 0, exact))

    def _step(self) -> Any:
        """Return a `Batch` that comes next, `_OVER` at the epoch's end, or what the producer is to know.

        Raises:
            LoaderFailed: The loader raised; this machine cannot go on at its place; or the stream cannot be reached.
        """
        while (message := self._next()) is not None:
            act = self._acts.get(type(message))
            if act is not None and (given := act(message)) is not None:
                return given
        return EpochIs(self._epoch)

    def _started(self, told: ms.EpochStarted) -> EpochIs | None:
        if told.ask != self._ask:
            return None
        self._taking = self._begun = True
        self._epoch, self._seq = told.epoch, told.seq
        return EpochIs(told.epoch)

    def _not_joined(self, told: ms.NotJoined) -> None:
        if told.ask == self._ask:
            raise LoaderFailed(
                f"This machine cannot continue at batch {self._seq} of pass {self._epoch + 1}: its trials stalled or "
                f"came back too late, and other machines have continued to batch {told.published} of pass "
                f"{told.epoch + 1}. Iterate again for the next epoch. If you pause on purpose, serve with a larger "
                "stall_timeout_s."
            )

    def _steered(self, told: ms.Steered) -> None:
        if told.to == "stop":
            raise LoaderFailed("A user stopped the stream for this machine. Iterate again to go on.")
        if told.to == "go on":
            self._want()

    def _parked(self, _told: ms.Parked) -> None:
        if self._taking:
            self._want()  # what is lacking may still be there

    def _covers(self, told: Covers) -> Covering | None:
        if not self._taking:
            return None
        with self._lock:
            self._cover = part_of(told.cover)  # and no less, should it be asked for again
            self._say_parts()
        return Covering(self._cover)

    def _ended(self, told: ms.EpochEnded) -> object:
        if not self._taking:
            return None
        self._taking = False
        if told.failed:
            raise LoaderFailed(told.message, told.traceback)
        return _OVER

    def _offered(self, batch: ms.Batch) -> ms.Batch | None:
        """Return a batch of the epoch that is taken; the bytes of any other one are read and dropped."""
        self._unread = self._size(batch)
        if self._taking and (batch.epoch, batch.seq) == (self._epoch, self._seq):
            return batch
        if self._taking:
            self._want()
        return None

    def _drew(self, told: ms.Drawn) -> None:
        self._drawn = told.indices

    def _next(self) -> Any:
        """Return the next message; None when none has come for a moment, or the connection has broken."""
        link = self._link
        try:
            if link is None:
                raise ConnectionResetError
            if self._unread:
                unread, self._unread = self._unread, 0
                link.waste(unread)
            if not self._arrives(link):
                return None
            message = link.hear()
        except (OSError, BadPeer):
            self._come_back()
            return None
        self._heard_s = time.monotonic()
        return message

    def _arrives(self, link: Link) -> bool:
        """Return whether something has come, after a moment at most; say so if nothing has."""
        if link.arrived(0.0):
            return True
        if not self._waiting:
            self._waiting = True
            self._say(ms.Waiting())
        if link.arrived(LOOK_S):
            self._waiting = False
            return True
        if time.monotonic() - self._heard_s > SILENT_S:
            link.close()  # what another thread may be saying for as long, too
            raise self._silent()
        return False

    def _come_back(self) -> None:
        """The connection has broken: make another one, and ask for the place on that.

        Raises:
            LoaderFailed: The stream cannot be reached for long, or does not take this machine.
        """
        if self._link is not None:
            self._link.close()
            self._link.sock.close()
            self._link = None
        self._taking = False
        if self._closed.is_set():
            time.sleep(LOOK_S)  # the stream ends here, and its trials are told so
            return
        if time.monotonic() - self._heard_s > SILENT_S:
            raise self._silent()
        try:
            self.connect()
        except JoinRefused as error:
            raise LoaderFailed(f"This machine cannot come back to the stream: {error}") from None
        except OSError:
            self._closed.wait(AGAIN_S)
        else:
            self._want()

    # -- batches -------------------------------------------------------------------------------------------

    def _learn(self, told: ms.LayoutTold) -> None:
        if told.number == 0:
            self._layouts.clear()
        try:
            self._layouts[told.number] = told.layout, Layout.decode(told.layout)
        except RemoteProtocolError as error:
            raise LoaderFailed(f"A batch of the stream cannot be read here: {error}") from None

    def _size(self, batch: ms.Batch) -> int:
        """Return the bytes of a batch."""
        known = self._layouts.get(batch.layout)
        if known is None:
            raise LoaderFailed(f"A batch of the stream has an unknown layout {batch.layout}.")
        return max(batch.values_offset + batch.values_bytes, known[1].array_bytes)

    def _arriving(self, batch: ms.Batch) -> Ready:
        """Return a batch that is received when it has a slot."""
        drawn = cast("Any", np.frombuffer(self._drawn, "<u4")) if self._drawn else None
        layout, size = self._layouts[batch.layout][0], self._size(batch)
        fill = partial(self._receive, batch, layout)
        first = max(size, self._batch_bytes)
        image = ArrivingImage(layout, batch.rows, batch.values_offset, batch.values_bytes, size, fill, first)
        return Ready(image, drawn)

    def _receive(self, batch: ms.Batch, layout: bytes, target: Any) -> None:
        """Receive a batch into its slot, and say that it was taken.

        Raises:
            LoaderFailed: It does not come.
        """
        deadline_s = time.monotonic() + SILENT_S
        while True:
            self._unread = 0
            try:
                assert self._link is not None
                self._link.fill(target)
                break
            except OSError:
                self._come_back()
            again = self._once_more(deadline_s)
            if not again or self._layouts[again.layout][0] != layout or self._unread != len(target):
                raise LoaderFailed(
                    f"Batch {batch.seq} of pass {batch.epoch + 1} has not reached this machine within "
                    f"{SILENT_S:.0f} s: the network is overloaded or was interrupted. Iterate again for the next epoch."
                )
        self._seq += 1
        self._heard_s = time.monotonic()
        self._say(ms.Take())

    def _once_more(self, deadline_s: float) -> ms.Batch | None:
        """Return the message of the same batch on another connection; None if it does not come."""
        while time.monotonic() < deadline_s:
            given = self._step()
            if isinstance(given, ms.Batch):
                return given
            if given is _OVER:
                break
            if self._closed.is_set():
                time.sleep(CLOSING_S)
                break
        return None

    # -- errors --------------------------------------------------------------------------------------------

    def _silent(self) -> LoaderFailed:
        host, port, _ = self._address
        return LoaderFailed(
            f"The stream's process at {host}:{port} has not answered for {SILENT_S:.0f} s. It is stopped or "
            "overloaded, its machine is unreachable, or a firewall blocks the port. Iterate again when it is back."
        )
