"""`Consumer`: one attachment to a stream; iterate it like a DataLoader, one epoch at a time."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from tsnb import registry
from tsnb.arena.scratch import ScratchPool
from tsnb.consumer.connection import Connection
from tsnb.consumer.loop import EpochIterator
from tsnb.consumer.notices import Notices
from tsnb.consumer.options import Options, Stats
from tsnb.consumer.place import Place
from tsnb.consumer.rebatching import Rebatcher
from tsnb.consumer.reconnecting import connect_to_successor
from tsnb.consumer.unpacking import Delivered
from tsnb.errors import (
    ConsumerParked,
    ConsumerReplaced,
    JoinRefused,
    LoaderFailed,
    ProducerGone,
    StopRequested,
)
from tsnb.telemetry import metrics
from tsnb.wire import messages as ms

__all__ = ["Consumer"]

METRICS_S = 0.25
"""Numbers of `tsnb.log` are told to the producer at most this often."""


class Consumer:
    """One attachment to a stream, made by `tsnb.attach`. Iterating it takes one epoch.

    Attributes:
        name: The consumer's name.
        producer: The stream's name.
        epoch: The stream's number of the epoch that is being taken, or was taken last; -1 before the first.
    """

    def __init__(self, entry: registry.Entry, name: str, options: Options) -> None:
        self.name = name
        self.producer = entry.name
        self.epoch = -1
        self.options = options
        self.notices = Notices(name)
        self.thread = threading.get_ident()
        self._scratch = ScratchPool()
        self._connection = Connection(entry, name, options.on_lag, self._scratch)
        self._current: EpochIterator | None = None
        self._last: EpochIterator | None = None  # over or not: where it is is where this consumer is
        self._next = Place()  # of the next loader batch
        self._asks = 0
        self._taking: int | None = None  # the epoch whose batches are wanted; others are out of date
        self._parked_as: ms.Parked | None = None  # told so, and asked for the place again
        self._closed = False
        self._lock = threading.Lock()  # closing only
        self._batches = self._samples = self._epochs = self._skipped = self._reconnects = 0
        self._waited_s = self._inside_s = 0.0
        self._entered_s: float | None = None  # while inside an epoch
        self._took_since_rest = False
        self._stop_asked: StopRequested | None = None
        self._unheard = False  # numbers were logged that the producer has not been told
        self._told_s = 0.0
        self._unsubscribe = metrics.subscribe(self._note_metrics)

    # -- what a training loop sees -----------------------------------------------------------------------

    @property
    def batch_size(self) -> int | None:
        """Samples in a batch, where known: this consumer's own, else the loader's."""
        return self.options.batch_size or self._connection.welcome.batch_size

    def __len__(self) -> int:
        """Return the batches in an epoch.

        Raises:
            TypeError: The loader has no length.
        """
        welcome, own = self._connection.welcome, self.options.batch_size
        if own is None and not (self.options.drop_last and welcome.epoch_samples is not None):
            if welcome.epoch_batches is not None:
                return welcome.epoch_batches
        elif welcome.epoch_samples is not None:
            size = own or welcome.batch_size or 1
            return (
                welcome.epoch_samples // size if self.options.drop_last else -(-welcome.epoch_samples // size)
            )
        raise TypeError(
            f"the loader behind {self.producer!r} does not say how many samples an epoch has, "
            "so this consumer has no len(). Iterate it; it ends with the epoch."
        )

    def __iter__(self) -> EpochIterator:
        """Ask for this consumer's next epoch, or for the rest of the one that `load_state_dict` named.

        Raises:
            ConsumerReplaced: It was detached.
        """
        self._require_open()
        self.thread = threading.get_ident()
        self._leave_clock()
        place = self._next if self._current is None else self._next.next_epoch()
        loop = self._last = self._current = EpochIterator(self, place)
        self._entered_s = time.monotonic()
        self._ask(place)
        return loop

    def state_dict(self) -> dict[str, Any]:
        """Return where this consumer stands, as plain values: after the batch that it gave last.

        To go on from there, in this process or another, `load_state_dict` it before iterating. Within an epoch
        that needs a stream whose order can be given again: a `DataLoader` served with a seed.
        """
        place = self._next if self._last is None else self._last.place
        return place.to_state(self.producer, self._connection.welcome.order)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where `state_dict` was taken: the next iteration gives the rest of that epoch.

        Raises:
            ValueError: It is no such state.
            JoinRefused: The stream cannot give the rest of that epoch: it has no seed, or another order.
        """
        place = Place.from_state(state)
        order = self._connection.welcome.order
        if place.begun and (not order or state.get("order") != order):
            why = "comes in another order than when this was saved" if order else "has no order of its own"
            raise JoinRefused(
                f"the stream {self.producer!r} {why}, so epoch {place.epoch} cannot be gone on with at batch "
                f"{place.batch}. Serve the same DataLoader with the same seed=, or leave the state out to begin "
                "with a whole epoch."
            )
        if self._current is not None:
            self.leave(self._current)
        self._last = None
        self._next = place

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: the stream counts its epochs itself. Trainers call this on every loader."""

    def stats(self) -> Stats:
        """Return what was taken so far."""
        now_s = 0.0 if self._entered_s is None else time.monotonic() - self._entered_s
        return Stats(
            batches=self._batches,
            samples=self._samples,
            epochs=self._epochs,
            inside_s=self._inside_s + now_s,
            copied=self._scratch.taken,
            held=len(self._connection.unpacker.held),
            waited_s=self._waited_s,
            skipped=self._skipped,
            reconnects=self._reconnects,
        )

    def close(self) -> None:
        """Detach. Batches that are still held stay valid; the name is free. Calling it again does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._current = None
        self._leave_clock()
        self._unsubscribe()
        self._tell_metrics()
        self._connection.post(ms.Bye())
        with contextlib.suppress(ProducerGone):
            self._discard_waiting()
        self._connection.retire()

    @property
    def closed(self) -> bool:
        """Whether it was detached, or its producer has gone."""
        return self._closed

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "detached" if self._closed else f"epoch {self.epoch}"
        return f"<tsnb consumer {self.name!r} of {self.producer!r}: {state}>"

    # -- used by `attaching` -----------------------------------------------------------------------------

    @property
    def iterating(self) -> bool:
        """Whether a loop over it has not come to its end."""
        return self._current is not None

    @property
    def address(self) -> str:
        """The producer it is connected to, or was."""
        return self._connection.entry.address

    @property
    def expects_successor(self) -> bool:
        """Whether it goes on with another producer of the name, should its own have gone."""
        return not self._closed and self._patience_s() > 0

    def close_if_gone(self) -> None:
        """Notice a producer that ended between two loops, so that its arena is let go of."""
        if self._current is None and not self._closed:
            try:
                self._discard_waiting()
            except ProducerGone:
                if not self.expects_successor:
                    self.close()

    def rest(self, *, failed: bool = False) -> None:
        """Let nobody wait for this consumer's next epoch: its cell has ended.

        Args:
            failed: The cell was interrupted or raised. A loop that took batches in it will not go on, though its
                traceback keeps it alive: its epoch is left.
        """
        self._tell_metrics()
        if failed and self._current is not None and self._took_since_rest:
            self.leave(self._current)
        self._took_since_rest = False
        self._connection.post(ms.Rest())

    # -- used by `EpochIterator` -------------------------------------------------------------------------

    def take(self, loop: EpochIterator) -> tuple[int, Delivered] | None:
        """Return the epoch's next loader batch and its number; None at its end.

        Raises:
            ConsumerReplaced: A newer loop over this consumer took over, or it was detached.
            ConsumerParked: It stood still for longer than the stream's patience, and its place has gone.
            JoinRefused: It would not wait for an epoch, and the one being given cannot be had whole.
            LoaderFailed: The loader raised.
            ProducerGone: The producer has gone.
        """
        if self._current is not loop:
            raise self._not_current()
        if self._stop_asked is not None:
            error, self._stop_asked = self._stop_asked, None
            raise error
        self._tell_metrics()
        while True:
            try:
                taken, ended = self._act(self._next_message())
            except ProducerGone as gone:
                self._come_back(gone)
            except (LoaderFailed, ConsumerParked, JoinRefused):
                self._end_epoch()
                raise
            else:
                if ended:
                    self._epochs += 1
                    self._end_epoch()
                if ended or taken is not None:
                    return taken

    def go_back(self, loop: EpochIterator, place: Place) -> None:
        """Have the rest of the epoch given again from a place on.

        Raises:
            ConsumerReplaced: A newer loop over this consumer took over, or it was detached.
        """
        if self._closed or self._current not in (None, loop):
            raise self._not_current()
        self._current = loop
        self._ask(place)

    def _ask(self, place: Place) -> None:
        """Say where this consumer stands, and that it wants to go on from there."""
        self._asks += 1
        self._taking = None
        self._next = place
        now = self.options.join == "now" and not place.begun
        held = self._connection.unpacker.held
        self._connection.post(ms.Ask(self._asks, place.epoch, place.batch, place.begun, now, held))

    def _end_epoch(self) -> None:
        self._current = self._taking = self._parked_as = None
        self._next = self._next.next_epoch()
        self._connection.post(ms.Leave())  # says when the last step's computing ended
        self._leave_clock()

    def _patience_s(self) -> float:
        own = self.options.reconnect_s
        return self._connection.successor_s if own is None else own

    def _come_back(self, gone: ProducerGone) -> None:
        """Go on with the producer's successor, where there will be one.

        Raises:
            ProducerGone: There will be none, none came, or it gives something else.
            ConsumerReplaced: This consumer was closed meanwhile, by another thread.
        """
        old, began = self._connection, time.monotonic()
        successor = None
        if not self._closed:
            within_s = self._patience_s()
            successor = connect_to_successor(
                old, self.name, self.options.on_lag, self._scratch, within_s, lambda: self._closed
            )
        self._waited_s += time.monotonic() - began
        if self._closed:
            if successor is not None:
                successor.retire()
            raise self._not_current() from None
        if successor is None:
            self._leave_clock()
            self.close()  # lets go of the arena too: its memory is freed with the last batch that is held
            raise gone
        self._connection = successor
        old.retire()
        self._reconnects += 1
        if self._next.begun and (not old.welcome.order or old.welcome.order != successor.welcome.order):
            epoch = self._next.epoch
            self._end_epoch()
            raise ProducerGone(
                f"the producer {self.producer!r} was started again, and it cannot give the rest of epoch {epoch}: "
                "the loader has no seed, or another order than before. Iterate again for a whole epoch. To go on "
                "within an epoch next time, serve with seed=."
            ) from None
        self._ask(self._next)

    def leave(self, loop: EpochIterator) -> None:
        """Leave the epoch: the loop was left by `break`, an exception, or deleted."""
        if self._current is loop:
            self._end_epoch()
            with contextlib.suppress(ProducerGone):  # the next step says so
                self._discard_waiting()

    def _leave_clock(self) -> None:
        """Count the time inside the epoch that has just ended, if there was one."""
        if self._entered_s is not None:
            self._inside_s += time.monotonic() - self._entered_s
            self._entered_s = None

    def _next_message(self) -> ms.Message:
        message = self._connection.poll()
        if message is not None:
            return message
        began = time.monotonic()
        self._connection.post(ms.Waiting())
        try:
            return self._connection.wait()
        finally:
            self._waited_s += time.monotonic() - began

    def _act(self, message: ms.Message) -> tuple[tuple[int, Delivered] | None, bool]:
        """Act on one message; return a batch if it is one, and whether the epoch has ended."""
        if isinstance(message, ms.Batch):
            return self._accept(message), False
        if isinstance(message, ms.EpochStarted) and message.ask == self._asks:
            self._taking = self.epoch = message.epoch
            self._next = Place(message.epoch, message.seq, 0, begun=True)
            if self._parked_as is None and self._current is not None:
                self._current.began(message.epoch, message.seq)
            self._parked_as = None
        elif isinstance(message, ms.NotJoined) and message.ask == self._asks:
            raise self._not_joined(message)
        elif isinstance(message, (ms.EpochEnded, ms.Failed, ms.Parked)) and message.epoch == self._taking:
            if isinstance(message, ms.Failed):
                raise LoaderFailed(message.message, message.traceback)
            if isinstance(message, ms.EpochEnded):
                return None, True
            self._parked_as = message
            self._ask(self._next)  # what it lacks may still be there
        return None, False

    def _accept(self, batch: ms.Batch) -> tuple[int, Delivered] | None:
        missing = batch.seq - self._next.batch
        if batch.epoch != self._taking or missing < 0:
            self._connection.release(batch.lease)  # of an epoch that was left: it was on its way
            return None
        if missing and self.options.on_lag != "skip":
            self._connection.release(batch.lease)
            self._ask(self._next)  # one was received and lost, by an interrupt at the wrong moment
            return None
        unpacker = self._connection.unpacker
        layout = self._connection.layouts.lookup(batch.layout)
        delivered = unpacker.read(batch, layout, private=self.options.private)
        self._connection.post(ms.Take())
        self._next = self._next._replace(batch=batch.seq + 1)
        self._took_since_rest = True
        self._batches += 1
        self._samples += batch.rows
        self._skipped += missing
        if unpacker.crowded and not self.options.private:
            self.notices.look_for_hoarding(len(unpacker.held), unpacker.hold, unpacker.addresses)
        return batch.seq, delivered

    def rebatcher(self) -> Rebatcher | None:
        """Return what cuts batches to this consumer's own size; None where the loader's are wanted."""
        own = self.options.batch_size
        if own is None or own == self._connection.welcome.batch_size:
            return None
        return Rebatcher(own, self._scratch)

    def _not_current(self) -> ConsumerReplaced:
        return ConsumerReplaced(
            f"this loop over {self.name!r} has ended: the consumer was detached, or a newer loop took its place. "
            "One consumer feeds one loop at a time; attach with another name for a second one."
        )

    def _not_joined(self, answer: ms.NotJoined) -> ConsumerParked | JoinRefused:
        place, parked = self._next, self._parked_as
        batches = self._connection.welcome.epoch_batches
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

    def _discard_waiting(self) -> None:
        """Give back what had been sent and not taken.

        Raises:
            ProducerGone: The producer has gone.
        """
        while True:
            try:
                message = self._connection.poll()
            except StopRequested as error:
                self._stop_asked = error  # for the next step of the next loop
                continue
            if message is None:
                return
            if isinstance(message, ms.Batch):
                self._connection.release(message.lease)

    def _require_open(self) -> None:
        if self._closed:
            raise ConsumerReplaced(
                f"{self.name!r} was detached from {self.producer!r}. Attach again: "
                f'tsnb.attach("{self.name}", producer="{self.producer}").'
            )

    # -- listeners: any thread ---------------------------------------------------------------------------

    def _note_metrics(self, _step: int | None, _numbers: dict[str, float]) -> None:
        self._unheard = True

    def _tell_metrics(self) -> None:
        if not self._unheard:
            return
        now = time.monotonic()
        if now - self._told_s >= METRICS_S:
            self._unheard = False
            self._told_s = now
            self._connection.post(ms.Metrics(metrics.latest()))
