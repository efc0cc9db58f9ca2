"""One consumer's line to its stream: carries out what its session decides, over one producer after the other.

It sends and receives (`connection`), reads the slots (`unpacking`), waits for a successor, and tells the user
what is worth telling. The session knows where the consumer stands and what a message means (`session`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import torch

from tsnb.discovery import registry
from tsnb.errors import ProducerGone, RemoteProtocolError, StopRequested
from tsnb.stream.consumer.batches.device import Prefetch, uploads_for
from tsnb.stream.consumer.batches.parts import Part
from tsnb.stream.consumer.batches.unpacking import Delivered, Unpacker
from tsnb.stream.consumer.counts import Count
from tsnb.stream.consumer.notices import Notices
from tsnb.stream.consumer.options import Options, incomplete
from tsnb.stream.consumer.place import Loop
from tsnb.stream.consumer.talking import waits
from tsnb.stream.consumer.talking.connection import Connection
from tsnb.stream.consumer.talking.session import Begins, ConsumerSession
from tsnb.stream.memory.scratch import ScratchPool
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.extension import by_name, overriding
from tsnb.stream.this_process import this_process

__all__ = ["Line"]

LOOK_S = 0.001
"""How often it is looked, before a batch is given, whether somebody wants it to pause. A look is a system call: steps
of less time than this do not pay for it each time, and all others pause at the very next batch."""
RANKS_S = 30.0
"""Ranks that are started together attach within seconds of each other."""
WANTS_BYTES = 100_000
"""Of a mask are told in one message."""
ANSWER_S = 5.0
"""How long a clone waits for its place, while its parent stands still: milliseconds, unless the producer does."""

_log = logging.getLogger("tsnb")


class Line:
    """One consumer's line to a stream, over one producer after the other.

    Args:
        entry: The producer.
        name: The consumer's name, or its group's.
        options: How it wants its batches.
        reader: What reads the slots.

    Attributes:
        session: Where the consumer stands, and what a message means to it.
        connection: To the producer of now.
        scratch: Where batches are copied to that must be.
        count: The rows that it was given.
        closed: Set to end a wait for a successor.
        look_s: When to look again whether somebody wants it to pause (monotonic seconds).
        waits: Called now and then while it waits, with the stream's name and this consumer's.
        stop_asked: What to raise at the next step: this consumer was asked to stop between two loops.

    Raises:
        NameInUse, JoinRefused, ProducerGone: As `Connection`.
    """

    def __init__(
        self, entry: registry.Entry, name: str, options: Options, reader: type[Unpacker] = Unpacker
    ) -> None:
        self._hello_name = name
        self.name = name if options.world_size < 2 else f"{name}[{options.rank}]"
        self.notices = Notices(self.name)
        self.scratch = ScratchPool()
        self.count = Count()
        self._extensions = by_name(make() for make in this_process.extensions)
        self._ticks = overriding(self._extensions.values(), "tick")
        self._steps = overriding(self._extensions.values(), "step")
        own, paused = self._extensions, this_process.paused and options.world_size < 2
        self.connection = Connection(
            entry, name, options, self.scratch, reader, paused=paused, extensions=own
        )
        self.session = ConsumerSession(self.name, name, options, lambda: self.connection.unpacker.held)
        if paused:
            self.session.paused, this_process.paused = True, False
        self._progress_told = ms.Progress()
        self._taken_before = (0, 0)  # epochs and batches, by those that it goes on from
        self._epochs_behind = 0  # of the loop's: those that the trial it is a clone of took in this very loop
        self.session.connected(self.connection.welcome)
        self._part: Part | None = None  # that the producer was told
        self.closed = False
        self.look_s = self._tell_s = 0.0
        self.waits: Callable[[str, str], None] | None = None
        self.stop_asked: StopRequested | None = None
        self.batches = self.reconnects = 0
        self.waited_s = self._paused_s = 0.0
        self._stands_since_s: float | None = None
        self._on_device_before = 0  # by connections that have gone
        self._skipped_before = 0  # before this epoch
        self._reminded = False  # of the ranks that it may wait for
        self._tell_anew()

    @property
    def stall_timeout_s(self) -> float:
        """How long a successor is waited for, should the producer go; 0: not at all."""
        own = self.session.options.reconnect_s
        return self.connection.successor_s if own is None else own

    @property
    def on_device(self) -> int:
        """Batches that were read on the device."""
        return self._on_device_before + self.connection.on_device.taken

    def prefetch(self) -> Prefetch | None:
        """Return what copies batches to the device ahead, for one loop; None where that is not wanted."""
        ahead, device = self.session.options.prefetch_to_device, self.session.options.device
        if not ahead or device is None:
            return None
        uploads = uploads_for(
            torch.device(device), lambda delivered: self.connection.unpacker.pin(delivered.leaves)
        )
        return None if uploads is None else Prefetch(ahead, uploads, lambda: self.connection.arrived)

    def say(self, *messages: ms.Message) -> None:
        """Tell the producer of now."""
        for message in messages:
            self.connection.post(message)

    def tell_part(self, part: Part | None) -> None:
        """Tell the producer which samples are wanted, before they are asked for.

        Args:
            part: The samples; None: all, of which nothing need be said.
        """
        self._part, indexed = part, self.connection.welcome.indexed
        self.count.mask = None
        if part is not None and indexed is not None:
            self.count.mask, mask = part.mask(indexed), part.packed(indexed)
            for offset in range(0, len(mask), WANTS_BYTES):
                self.connection.post(ms.Wants(offset, mask[offset : offset + WANTS_BYTES]))

    def leave(self) -> None:
        """The epoch has ended, or is left."""
        self.say(self.session.leave())

    def settle(self) -> None:
        """The loop is over: put right how many rows the producer was told that it got."""
        self.say(*self.count.settled())

    def next(self) -> Delivered | None:
        """Return the epoch's next loader batch; None at its end.

        Raises:
            ConsumerTimedOut, JoinRefused, LoaderFailed: As `ConsumerSession.hear`.
            GroupBroken: Another rank of its group has gone, and it has come as far as that one.
            ProducerGone: The producer has gone, and no successor goes on.
            StopRequested: This consumer was asked to stop.
        """
        session, stop, self.stop_asked = self.session, self.stop_asked, None
        if stop is not None:
            raise stop
        while True:
            if session.paused:
                self._stand_still()
            try:
                message = self.connection.poll() if session.options.world_size < 2 else self._with_ranks()
                turn = session.hear(message if message is not None else self._wait())
                batch = turn.batch
                delivered = None if batch is None else self._read(batch)
            except ProducerGone as gone:
                self._come_back(gone)
                continue
            if batch is not None and delivered is not None:
                self.connection.post(self.count.took(batch, delivered.drawn, session.options))
            else:
                self.say(*turn.say)
            if turn.news is not None:
                self._tell(turn.news)
            if turn.ended:
                self.connection.ended += 1
                self._ended()
            if delivered is not None or turn.ended:
                for step in self._steps:
                    step()
                return delivered

    def await_epoch(self, most_s: float) -> None:
        """Before a batch is taken: hear which epoch, or place in one, the producer lets this consumer into.

        Raises:
            TimeoutError: It is not said within so many seconds: others may have to ask before.
            Exception: As `next`.
        """
        look = waits.telling(self.tell_metrics, waits.answered_by(time.monotonic() + most_s))
        while self.session.waits_for_epoch and not self.session.paused:
            try:
                turn = self.session.hear(self.connection.wait(look))
            except ProducerGone as gone:
                self._come_back(gone)
                continue
            self.say(*turn.say)
            if turn.news is not None:
                self._tell(turn.news)

    def rejoin(self, loop: Loop) -> None:
        """Ask anew for an epoch of which nothing was taken, where the stream has timed this consumer out meanwhile."""
        if self.session.options.world_size < 2 and self.connection.has_been_parked():
            self.discard_waiting()
            loop.place = loop.first
            self.say(self.session.enter(loop))

    def tell_metrics(self, *, last: bool = False) -> None:
        """Tell the producer epochs planned and the trial's run, where that is new, and let extensions tell theirs.

        Args:
            last: Send nothing after this.
        """
        left = min(max(0, this_process.epochs - self._epochs_behind), ms.MAX_LENGTH)
        if (progress := ms.Progress(left, this_process.run, *self._taken_before)) != self._progress_told:
            self._progress_told = progress
            self.connection.post(progress)
        if last:
            for extension in self._extensions.values():
                extension.close()
            return
        now_s = time.monotonic()
        self._tell_s = now_s + LOOK_S
        for tick in self._ticks:
            tick(now_s)

    def count_on(self, epochs: int, batches: int) -> None:
        """Tell the producer how many whole epochs and batches those took that this consumer goes on from."""
        self._taken_before = (epochs, batches)
        self.tell_metrics()

    def _tell_anew(self) -> None:
        """Whoever is at the other end of a new connection knows nothing of what the former one was told."""
        self._progress_told, self._taken_before = ms.Progress(), (0, 0)
        for extension in self._extensions.values():
            extension.met(self.connection)

    def branch(self, name: str, epochs: int) -> None:
        """Go on as a clone's line, by a connection of its own: this process was forked while its parent stands still.

        Returns when what comes next is certain to come. The threads and cores that a balancer gave the parent stay
        until it gives others: with other threads a sum may differ in its last bit.

        Args:
            name: The clone's.
            epochs: Whole ones that its loop has taken. The producer is told how many the clone itself takes.

        Raises:
            NameInUse, JoinRefused, ProducerGone: As `Connection`; there are too many consumers, say.
            ConsumerTimedOut: The rest of the epoch is not kept.
            TimeoutError: The producer does not answer.
            Exception: As `await_epoch`; where the producer goes meanwhile, its successor is waited for.
        """
        old, paused = self.connection, self.session.paused
        options, own = self.session.options, self._extensions
        self.connection = Connection(old.entry, name, options, self.scratch, paused=paused, extensions=own)
        self._hello_name = self.name = name
        self.notices.rename(name)
        self.look_s = 0.0
        self._epochs_behind = epochs
        self._tell_anew()
        self._on_device_before += old.on_device.taken
        old.retire()
        self.count.connected()
        self.tell_part(self._part)
        self.say(*self.session.branched(name, self.connection.welcome))
        if self.session.loop is None or not self.session.place.begun:
            return
        self.await_epoch(ANSWER_S)

    def parted(self) -> None:
        """Let extensions be as if the producer had told nothing."""
        for extension in self._extensions.values():
            extension.parted()

    def hold(self) -> None:
        """Before a batch is given: tell what was logged, and wait while it is paused.

        Raises:
            ProducerGone: The producer has gone, and no successor goes on.
            StopRequested: Somebody asked this consumer to stop.
        """
        self.tell_metrics()
        self.look_s = time.monotonic() + LOOK_S
        for early in self.connection.look_ahead(pauses=self.session.options.world_size < 2):
            self.say(*self.session.hear_early(early).say)
        if self.session.paused:
            self._stand_still()

    def _stand_still(self) -> None:
        """Wait while it is paused. That is neither computing nor waiting for a batch."""
        told, waited_s = this_process.standing, self.waited_s
        look = waits.telling(self.tell_metrics, waits.look_for_wish)
        self._stands_since_s = time.monotonic()
        try:
            if told is not None:
                told(True)
            while self.session.paused:
                try:
                    self.say(*self.session.hear(self.connection.wait(look)).say)
                except waits.Wished:
                    waits.pass_boundary()
                except ProducerGone as gone:
                    self._come_back(gone)
        finally:
            self.waited_s, self._paused_s, self._stands_since_s = waited_s, self.paused_s, None
            if told is not None:
                told(False)

    @property
    def paused_s(self) -> float:
        """Seconds that it has stood still because it was paused."""
        since_s = self._stands_since_s
        return self._paused_s + (0.0 if since_s is None else time.monotonic() - since_s)

    def _with_ranks(self) -> ms.Message | None:
        """Return the next message that has come for a rank of a group."""
        for early in self.connection.look_ahead():
            self.say(*self.session.hear_early(early).say)
        self.session.require_ranks()
        return self.connection.poll()

    def _wait(self) -> ms.Message:
        """Say that nothing has come, and wait for the next message."""
        if time.monotonic() >= self._tell_s:
            self.tell_metrics()
        began, stands = time.monotonic(), self.session.rank_paused
        told = this_process.standing if stands else None
        self.connection.post(ms.Waiting())
        try:
            if told is not None:
                told(True)
            return self.connection.wait(waits.telling(self.tell_metrics, self._look_for_ranks), polled=True)
        finally:
            if stands:
                self._paused_s += time.monotonic() - began
            else:
                self.waited_s += time.monotonic() - began
            if told is not None:
                told(False)

    def _look_for_ranks(self, waited_s: float) -> None:
        """Say which consumers of this thread stand meanwhile; and once when a rank of the group may never come."""
        if self.waits is not None:
            self.waits(self.connection.entry.name, self.name)
        options = self.session.options
        group = options.world_size > 1 and self.session.waits_for_epoch and not self.session.rank_paused
        if group and waited_s >= RANKS_S and not self._reminded:
            self._reminded = True
            why = incomplete(options, self._hello_name, self.connection.entry.name, waited_s)
            self.notices.lacks_ranks(why)

    def _come_back(self, gone: ProducerGone) -> None:
        """Go on with the producer's successor, where there will be one.

        Raises:
            ProducerGone: No successor will come, none came in time, or it serves something else.
        """
        self.parted()  # before a successor sees it
        old, began, successor = self.connection, time.monotonic(), None
        if not self.closed:
            successor = waits.connect_to_successor(
                old,
                self._hello_name,
                self.session.options,
                self.scratch,
                self.stall_timeout_s,
                lambda: self.closed,
                paused=self.session.paused or self.session.rank_paused,
                extensions=self._extensions,
            )
        self.waited_s += time.monotonic() - began
        if successor is None:
            raise gone
        self.connection = successor
        self.count.connected()
        self._tell_anew()
        self._on_device_before += old.on_device.taken
        old.retire()
        if self.closed:  # by another thread, which retired the old one
            successor.retire()
            raise gone
        self.reconnects += 1
        try:
            said = self.session.connected(successor.welcome)
            self.tell_part(self._part)
            self.say(*said)
        except ProducerGone as error:
            raise error from None

    def _tell(self, news: Begins | ms.HeldUp) -> None:
        stream = self.connection.welcome
        if isinstance(news, ms.HeldUp):
            self.notices.held_up(news, stream.name, stream.epoch_batches)
            return
        self.notices.begins(news.epoch, stream.name, anywhere=news.anywhere)
        if news.batch:
            self.notices.begins_within(news.epoch, news.batch, stream.name, here=news.here)
        if news.saved is not None:
            self.notices.given_another(news.saved, news.epoch, stream.name)

    def _ended(self) -> None:
        """Log what was given up, if anything was."""
        if (gone := self.session.skipped - self._skipped_before) > 0:
            of, number = self.session.place.batch, self.session.epoch + 1
            _log.info("%r skipped %d of %d batches of pass %d", self.name, gone, of, number)
        self._skipped_before = self.session.skipped

    def _read(self, batch: ms.Batch) -> Delivered:
        connection = self.connection
        unpacker = connection.unpacker
        layout = connection.layouts.lookup(batch.layout)
        delivered = unpacker.read(batch, layout, private=self.session.options.private)
        self.batches += 1
        connection.batches += 1
        if (drawn := connection.drawn) is not None and drawn.lease == batch.lease:
            delivered.drawn, delivered.weights = drawn.indices, drawn.weights
        if refusal := connection.on_device.refusal:
            self.notices.device_refused(refusal)
        if unpacker.crowded and not self.session.options.private:
            self.notices.look_for_hoarding(unpacker.hold, unpacker.addresses)
        delivered.seq = batch.seq
        return delivered

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
                continue  # its answer is of no use any more
            if message is None:
                return
            if isinstance(message, ms.Batch):
                self.connection.release(message.lease)
            elif isinstance(message, ms.Steered):
                self.session.hear(message)
