"""One consumer's side of the protocol: says where it stands, takes what comes, goes on with a successor.

Whoever owns a `Line` decides when to ask and to leave; the line knows which loader batch comes next, and that
nothing is missing before it. Where a consumer stands is a `Place`, which is also what its saved state holds.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from tsnb import registry
from tsnb.arena.scratch import ScratchPool
from tsnb.consumer.allotment import Allotment
from tsnb.consumer.connection import Connection, connect_to_successor
from tsnb.consumer.device import Prefetch, uploads_for
from tsnb.consumer.notices import Notices
from tsnb.consumer.options import Options
from tsnb.consumer.ranks import broken, incomplete
from tsnb.consumer.unpacking import Delivered, Unpacker
from tsnb.errors import (
    ConsumerParked,
    JoinRefused,
    LoaderFailed,
    ProducerGone,
    RemoteProtocolError,
    StopRequested,
)
from tsnb.telemetry import metrics
from tsnb.wire import messages as ms

__all__ = ["Line", "Place", "Progress"]

_VERSION = 1


class Place(NamedTuple):
    """The first sample that is still to come."""

    epoch: int = 0
    """The epoch's number; the least one that will do, while it has not begun."""
    batch: int = 0
    """The loader batch of it."""
    offset: int = 0
    """Rows of that loader batch that lie behind: other than 0 only where batches are cut to another size."""
    begun: bool = False
    """Whether the consumer has begun with just this epoch."""

    def next_epoch(self) -> Place:
        """Return the place after this one's epoch, or this one if it has not begun."""
        return Place(self.epoch + 1) if self.begun else self

    def to_state(self, stream: str, order: str) -> dict[str, Any]:
        """Return it as plain values.

        Args:
            stream: The stream's name.
            order: What the producer says of the order in which epochs come.
        """
        saved = {"epoch": self.epoch, "batch": self.batch, "offset": self.offset}
        return {"tsnb": _VERSION, "stream": stream, "order": order, **saved}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Place:
        """Read what `to_state` returned.

        Raises:
            ValueError: It is something else.
        """
        numbers = [state.get(key) for key in ("tsnb", "epoch", "batch", "offset")]
        if not all(isinstance(n, int) and n >= 0 for n in numbers) or numbers[0] != _VERSION:
            raise ValueError(
                f"this is not what Consumer.state_dict() of this version of tsnb returned: {dict(state)!r}"
            )
        _, epoch, batch, offset = numbers
        return cls(epoch, batch, offset, begun=bool(batch or offset))  # type: ignore[arg-type]


class Progress:
    """How far one loop over a consumer has come: all that the consumer keeps of the loop itself.

    It must not keep the loop: the end of a loop's last reference is how `break` is noticed.

    Attributes:
        place: The first sample that the user has not been given.
    """

    def __init__(self, place: Place) -> None:
        self.place = place

    def began(self, epoch: int, batch: int) -> None:
        """The producer says what comes first.

        It may say so again: before the first batch, with the number of a later epoch; or after a restart, when the
        loop has rows that it has not given yet, and its own place is the one that counts.
        """
        if not self.place.begun or not (batch or self.place.batch or self.place.offset):
            self.place = Place(epoch, batch, 0, begun=True)


RANKS_S = 30.0
"""Ranks that are started together attach within seconds of each other."""
METRICS_S = 0.25
"""Numbers of `tsnb.log` are told to the producer at most this often."""

_log = logging.getLogger("tsnb")


class Line:
    """One consumer's line to a stream, over one producer after the other.

    Args:
        entry: The producer.
        name: The consumer's name, or its group's.
        options: How it wants its batches; may be set anew between two epochs.
        reader: What reads the slots.

    Attributes:
        place: The next loader batch.
        epoch: The epoch that is taken, or was taken last; -1 before the first.
        connection: To the producer of now.
        allotment: The cores and threads that its producer has given this process.
        scratch: Where batches are copied to that must be.
        closed: Set to end a wait for a successor.
        saved_epoch: The epoch at whose start a saved state stands, until it is known which one is given.
        stop_asked: What to raise at the next step: somebody asked, between two loops, that this consumer stop.

    Raises:
        NameInUse, JoinRefused, ProducerGone: As `Connection`.
    """

    def __init__(
        self, entry: registry.Entry, name: str, options: Options, reader: type[Unpacker] = Unpacker
    ) -> None:
        self._hello_name = name
        self.name = name if options.world_size < 2 else f"{name}[{options.rank}]"
        self.options = options
        self.notices = Notices(self.name)
        self.scratch = ScratchPool()
        self.allotment = Allotment()
        self.connection = Connection(entry, name, options, self.scratch, reader)
        self.connection.post(self.allotment.report())
        self.place = Place()
        self.epoch = -1
        self.closed = False
        self.stop_asked: StopRequested | None = None
        self.saved_epoch: int | None = None
        self.batches = self.samples = self.skipped = self.reconnects = 0
        self.waited_s = 0.0
        self._on_device_before = 0  # by connections that have gone
        self._skipped_before = 0  # before this epoch
        self._asks = 0
        self._taking: int | None = None  # the epoch whose batches are wanted; others are out of date
        self._parked_as: ms.Parked | None = None  # told so, and asked for the place again
        self._reminded = False  # of the ranks that it may wait for
        self._news = metrics.News(METRICS_S)

    @property
    def patience_s(self) -> float:
        """How long a successor is waited for, should the producer go; 0: not at all."""
        own = self.options.reconnect_s
        return self.connection.successor_s if own is None else own

    @property
    def on_device(self) -> int:
        """Batches that were read on the device."""
        return self._on_device_before + self.connection.on_device.taken

    def prefetch(self) -> Prefetch | None:
        """Return what copies batches to the device ahead, for one loop; None where nobody wants that."""
        ahead, device = self.options.prefetch_to_device, self.options.device
        if not ahead or device is None:
            return None
        uploads = uploads_for(
            torch.device(device), lambda delivered: self.connection.unpacker.pin(delivered.leaves)
        )
        return None if uploads is None else Prefetch(ahead, uploads, lambda: self.connection.arrived)

    def ask(self, place: Place) -> None:
        """Say where this consumer stands, and that it wants to go on from there."""
        self._asks += 1
        self._taking = self._parked_as = None
        self.place = place
        now = self.options.join == "now" and not place.begun
        held = self.connection.unpacker.held
        self.connection.post(ms.Ask(self._asks, place.epoch, place.batch, place.begun, now, held))

    def leave(self) -> None:
        """The epoch has ended, or is left: its place is that of the next one."""
        self._taking = self._parked_as = None
        self.place = self.place.next_epoch()
        self.connection.post(ms.Leave())  # after the end, too: it says when the last step's computing ended

    def next(self, progress: Progress) -> tuple[int, Delivered] | None:
        """Return the epoch's next loader batch and its number; None at its end.

        Args:
            progress: The loop's; told with what it begins.

        Raises:
            ConsumerParked: It stood still for longer than the stream's patience, and its place has gone.
            JoinRefused: It would not wait for an epoch, and the one being given cannot be had whole; or the ranks of
                its group would begin at different places.
            GroupBroken: Another rank of its group has gone, and it has come as far as that one.
            LoaderFailed: The loader raised.
            ProducerGone: The producer has gone, and no successor goes on.
            StopRequested: Somebody asked this consumer to stop.
        """
        while True:
            try:
                taken, ended = self._act(self._next_message(), progress)
            except ProducerGone as gone:
                self._come_back(gone)
            else:
                if ended or taken is not None:
                    self._heed_allotment()
                    return taken

    def tell_metrics(self, *, last: bool = False) -> None:
        """Tell the producer what was given to `tsnb.log`, if that is new.

        Args:
            last: Nothing is told any more.
        """
        numbers = self._news.take(now=last)
        if numbers is not None:
            self.connection.post(ms.Metrics(numbers))
        if last:
            self._news.end()

    def _heed_allotment(self) -> None:
        """Between two steps: follow what this process was given, and say so; or that its user has chosen anew."""
        told, self.connection.allotted = self.connection.allotted, None
        if told is not None:
            self.allotment.take(told)
        if self.allotment.look() or told is not None:
            self.connection.post(self.allotment.report())

    def put_back(self) -> None:
        """Nobody gives this process cores and threads any more: it has its own again."""
        self._heed_allotment()
        self.allotment.put_back()

    def _next_message(self) -> ms.Message:
        if self.options.world_size > 1:
            self.connection.look_ahead()
            error = broken(self._hello_name, self.connection.rank_gone, self.place)
            if error is not None:
                raise error
        message = self.connection.poll()
        if message is not None:
            return message
        began = time.monotonic()
        self.connection.post(ms.Waiting())
        try:
            return self.connection.wait(self._look_for_ranks)
        finally:
            self.waited_s += time.monotonic() - began

    def _look_for_ranks(self, waited_s: float) -> None:
        """Say so, once, when it may be another rank of the group that never comes."""
        group = self.options.world_size > 1 and self._taking is None
        if group and waited_s >= RANKS_S and not self._reminded:
            self._reminded = True
            warnings.warn(
                incomplete(self.options, self._hello_name, self.connection.entry.name, waited_s),
                RuntimeWarning,
                stacklevel=2,
            )

    def _come_back(self, gone: ProducerGone) -> None:
        """Go on with the producer's successor, where there will be one.

        Raises:
            ProducerGone: There will be none, none came, or it gives something else.
        """
        self.put_back()  # before a successor sees it
        old, began = self.connection, time.monotonic()
        successor = None
        if not self.closed:
            successor = connect_to_successor(
                old, self._hello_name, self.options, self.scratch, self.patience_s, lambda: self.closed
            )
        self.waited_s += time.monotonic() - began
        if successor is None:
            raise gone
        successor.rank_gone = old.rank_gone
        self.connection = successor
        successor.post(self.allotment.report())
        self._on_device_before += old.on_device.taken
        old.retire()
        if self.closed:  # by another thread, which retired the old one
            successor.retire()
            raise gone
        self.reconnects += 1
        if self.place.begun and (not old.welcome.order or old.welcome.order != successor.welcome.order):
            raise ProducerGone(
                f"the producer {old.entry.name!r} was started again, and it cannot give the rest of epoch "
                f"{self.place.epoch}: the loader has no seed, or another order than before. Iterate again for a whole "
                "epoch. To go on within an epoch next time, serve with seed=."
            ) from None
        self.ask(self.place)

    def _act(self, message: ms.Message, progress: Progress) -> tuple[tuple[int, Delivered] | None, bool]:
        """Act on one message; return a batch if it is one, and whether the epoch has ended."""
        if isinstance(message, ms.Batch):
            return self._accept(message), False
        if isinstance(message, ms.EpochStarted) and message.ask == self._asks:
            self._begun(message, progress)
        elif isinstance(message, ms.NotJoined) and message.ask == self._asks:
            raise self._not_joined(message)
        elif isinstance(message, ms.HeldUp) and message.ask == self._asks:
            self.notices.held_up(message, self.connection.entry.name, self.connection.welcome.epoch_batches)
        elif isinstance(message, ms.Refused):
            raise JoinRefused(f"{message.reason}.")
        elif isinstance(message, ms.Parked) and self._taking is None:
            self.ask(self.place)  # of an epoch whose beginning was never heard of
        elif isinstance(message, (ms.EpochEnded, ms.Failed, ms.Parked)) and message.epoch == self._taking:
            if isinstance(message, ms.Failed):
                raise LoaderFailed(message.message, message.traceback)
            if isinstance(message, ms.EpochEnded):
                return None, self._complete(message)
            self.ask(self.place)  # what it lacks may still be there
            self._parked_as = message
        return None, False

    def _begun(self, started: ms.EpochStarted, progress: Progress) -> None:
        anywhere = self.place == Place() and self.saved_epoch is None
        self.notices.begins(started.epoch, self.connection.entry.name, anywhere=anywhere)
        self._taking = self.epoch = started.epoch
        self.place = Place(started.epoch, started.seq, 0, begun=True)
        progress.began(started.epoch, started.seq)
        if self.saved_epoch is not None:
            self.notices.given_another(self.saved_epoch, started.epoch, self.connection.entry.name)
            self.saved_epoch = None
        self._parked_as = None

    def _complete(self, ended: ms.EpochEnded) -> bool:
        """Whether nothing of the epoch is missing; what was received and lost is asked for again."""
        missing = ended.batches - self.place.batch
        if missing and self.options.on_lag != "skip":
            self.ask(self.place)
            return False
        self.skipped += missing
        gone = self.skipped - self._skipped_before
        if gone:
            _log.info("%r gave up %d of %d batches of epoch %d", self.name, gone, ended.batches, ended.epoch)
        self._skipped_before = self.skipped
        return True

    def _accept(self, batch: ms.Batch) -> tuple[int, Delivered] | None:
        missing = batch.seq - self.place.batch
        if batch.epoch != self._taking or missing < 0:
            self.connection.release(batch.lease)  # of an epoch that was left: it was on its way
            return None
        if missing and self.options.on_lag != "skip":
            self.connection.release(batch.lease)
            self.ask(self.place)  # one was received and lost, by an interrupt at the wrong moment
            return None
        unpacker = self.connection.unpacker
        layout = self.connection.layouts.lookup(batch.layout)
        delivered = unpacker.read(batch, layout, private=self.options.private)
        self.connection.post(ms.Take())
        self.place = Place(batch.epoch, batch.seq + 1, 0, begun=True)
        self.batches += 1
        self.samples += batch.rows
        self.skipped += missing
        if refusal := self.connection.on_device.refusal:
            self.notices.device_refused(refusal)
        if unpacker.crowded and not self.options.private:
            self.notices.look_for_hoarding(unpacker.hold, unpacker.addresses)
        return batch.seq, delivered

    def _not_joined(self, answer: ms.NotJoined) -> ConsumerParked | JoinRefused:
        place, parked = self.place, self._parked_as
        batches = self.connection.welcome.epoch_batches
        of = f" of {batches}" if batches is not None else ""
        where = f"the stream is at batch {answer.published}{of} of epoch {answer.epoch}"
        if parked is not None:
            return ConsumerParked(
                f"{self.name!r} stood still for {parked.stood_still_s:.0f} s in epoch {parked.epoch} while others "
                f"waited for it, so they went on without it; it has had {place.batch} batches of that epoch, and "
                f"{where}. Iterate again for the next epoch. For long pauses on purpose serve with a larger "
                "patience_s."
            )
        if place.begun:
            return ConsumerParked(
                f"{self.name!r} cannot go on at batch {place.batch} of epoch {place.epoch}: {where}, others take "
                "it, and what has gone is not given again. Iterate again for the next epoch."
            )
        return JoinRefused(
            f"{self.name!r} cannot have all of the epoch now: {where}, and its first {answer.band} batches are "
            'kept for latecomers. Attach with join="epoch" to begin with the next one, or serve with a larger '
            "rubber_band."
        )

    def discard_waiting(self) -> None:
        """Give back what had been sent and not taken.

        Raises:
            ProducerGone: The producer has gone.
        """
        while True:
            try:
                message = self.connection.poll()
            except StopRequested as error:
                self.stop_asked = error  # for the next step of the next loop
                continue
            except RemoteProtocolError:
                continue  # nobody wanted to know what it said
            if message is None:
                return
            if isinstance(message, ms.Batch):
                self.connection.release(message.lease)
