"""`Consumer`: one attachment to a stream; iterate it like a DataLoader, one epoch at a time."""

from __future__ import annotations

import contextlib
import threading
import time
from types import TracebackType

from tsnb.consumer.connection import Connection
from tsnb.consumer.loop import EpochIterator
from tsnb.consumer.options import Options, Stats
from tsnb.consumer.rebatching import Rebatcher
from tsnb.consumer.unpacking import Delivered, Unpacker
from tsnb.errors import ConsumerParked, ConsumerReplaced, LoaderFailed, ProducerGone, StopRequested
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

    def __init__(self, connection: Connection, name: str, options: Options) -> None:
        self.name = name
        self.producer = connection.welcome.name
        self.epoch = -1
        self.options = options
        self.thread = threading.get_ident()
        self._connection = connection
        self._unpacker = Unpacker(connection.arena, connection.welcome.hold, self._release)
        self._current: EpochIterator | None = None
        self._asks = 0
        self._taking: int | None = None  # the epoch whose batches are wanted; others are out of date
        self._closed = False
        self._lock = threading.Lock()  # closing only
        self._batches = self._samples = self._epochs = 0
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
        """Ask for this consumer's next epoch.

        Raises:
            ProducerGone: The producer has gone.
        """
        self._require_open()
        self.thread = threading.get_ident()
        self._asks += 1
        self._taking = None
        self._leave_clock()
        self._current, self._entered_s = EpochIterator(self), time.monotonic()
        self._connection.post(ms.Ask(self._asks))
        return self._current

    def stats(self) -> Stats:
        """Return what was taken so far."""
        copied = self._unpacker.scratch.taken
        held = len(self._unpacker.held)
        now_s = 0.0 if self._entered_s is None else time.monotonic() - self._entered_s
        inside_s = self._inside_s + now_s
        return Stats(self._batches, self._samples, self._epochs, inside_s, copied, held, self._waited_s)

    def close(self) -> None:
        """Detach. Batches that are still held stay valid; the name is free. Calling it again does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._current = None
        self._connection.closing = True
        self._leave_clock()
        self._unsubscribe()
        self._tell_metrics()
        self._connection.post(ms.Bye())
        with contextlib.suppress(ProducerGone):
            self._discard_waiting()
        self._close_when_idle()

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

    def close_if_gone(self) -> None:
        """Notice a producer that ended between two loops, so that its arena is let go of."""
        if self._current is None and not self._closed:
            with contextlib.suppress(ProducerGone):
                self._discard_waiting()
                return
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

    def take(self, loop: EpochIterator) -> Delivered | None:
        """Return the epoch's next loader batch; None at its end.

        Raises:
            ConsumerReplaced: A newer loop over this consumer took over, or it was detached.
            ConsumerParked: It stood still for longer than the stream's patience.
            LoaderFailed: The loader raised.
            ProducerGone: The producer has gone.
        """
        if self._current is not loop:
            raise self._not_current()
        if self._stop_asked is not None:
            error, self._stop_asked = self._stop_asked, None
            raise error
        try:
            self._tell_metrics()
            while True:
                message = self._next_message()
                delivered, ended = self._act(message)
                if ended:
                    self._current = None
                    self._connection.post(ms.Leave())  # says when the last step's computing ended
                    self._epochs += 1
                    self._leave_clock()
                if ended or delivered is not None:
                    return delivered
        except (LoaderFailed, ConsumerParked):
            self._current = None
            self._connection.post(ms.Leave())
            self._leave_clock()
            raise
        except ProducerGone:
            if self._closed:
                raise self._not_current() from None  # by `close` in another thread
            self._leave_clock()
            self.close()  # lets go of the arena too: its memory is freed with the last batch that is held
            raise

    def leave(self, loop: EpochIterator) -> None:
        """Leave the epoch: the loop was left by `break`, an exception, or deleted."""
        if self._current is loop:
            self._current = None
            self._taking = None
            self._leave_clock()
            self._connection.post(ms.Leave())
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

    def _act(self, message: ms.Message) -> tuple[Delivered | None, bool]:
        """Act on one message; return a batch if it is one, and whether the epoch has ended."""
        if isinstance(message, ms.Batch):
            if message.epoch != self._taking:
                self._release(message.lease)  # of an epoch that was left: it was on its way
                return None, False
            return self._accept(message), False
        if isinstance(message, ms.EpochStarted):
            if message.ask == self._asks:
                self._taking = self.epoch = message.epoch
            return None, False
        if isinstance(message, (ms.EpochEnded, ms.Failed, ms.Parked)) and message.epoch == self._taking:
            self._taking = None
            if isinstance(message, ms.Failed):
                raise LoaderFailed(message.message, message.traceback)
            if isinstance(message, ms.Parked):
                raise self._parked(message)
            return None, True
        return None, False

    def _accept(self, batch: ms.Batch) -> Delivered:
        layout = self._connection.layouts.lookup(batch.layout)
        delivered = self._unpacker.read(batch, layout, private=self.options.private)
        self._connection.post(ms.Take())
        self._took_since_rest = True
        self._batches += 1
        self._samples += batch.rows
        return delivered

    def rebatcher(self) -> Rebatcher | None:
        """Return what cuts batches to this consumer's own size; None where the loader's are wanted."""
        own = self.options.batch_size
        if own is None or own == self._connection.welcome.batch_size:
            return None
        return Rebatcher(own, self._unpacker.scratch)

    def _not_current(self) -> ConsumerReplaced:
        return ConsumerReplaced(
            f"this loop over {self.name!r} has ended: the consumer was detached, or a newer loop took its place. "
            "One consumer feeds one loop at a time; attach with another name for a second one."
        )

    def _parked(self, parked: ms.Parked) -> ConsumerParked:
        return ConsumerParked(
            f"{self.name!r} stood still for {parked.stood_still_s:.0f} s in epoch {parked.epoch} while others waited "
            f"for it, so they went on without it; it has had {parked.seq} batches of that epoch. Iterate again for "
            "the next epoch. For long pauses on purpose serve with a larger patience_s."
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
                self._release(message.lease)

    def _require_open(self) -> None:
        if self._closed:
            raise ConsumerReplaced(
                f"{self.name!r} was detached from {self.producer!r}. Attach again: "
                f'tsnb.attach("{self.name}", producer="{self.producer}").'
            )

    # -- finalizers and listeners: any thread ------------------------------------------------------------

    def _release(self, lease: int) -> None:
        """Give a batch back. Runs in finalizers: must not raise, block, or take a lock."""
        with contextlib.suppress(Exception):  # the producer has gone, or the interpreter is going
            self._connection.post(ms.Release(lease))
            if self._closed:
                self._close_when_idle()

    def _close_when_idle(self) -> None:
        """Close the line once nothing of the arena is held: until then its slots must stay ours."""
        if not self._unpacker.held:
            self._connection.close()
            self._connection.arena.close()

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
