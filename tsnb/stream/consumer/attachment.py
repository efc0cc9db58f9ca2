"""What is behind a `Consumer`: one attachment to a stream, as tsnb's own modules use it.

A loop holds the attachment itself, so a batch takes no step through the `Consumer`.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from tsnb.discovery import registry
from tsnb.draws import draw_seed
from tsnb.errors import (
    ArenaFull,
    ConsumerReplaced,
    ConsumerTimedOut,
    GroupBroken,
    JoinRefused,
    LoaderFailed,
    NameInUse,
    ProducerGone,
    RemoteProtocolError,
    StreamStopped,
    TsnbError,
)
from tsnb.native.endings import Bound
from tsnb.stream.consumer.batches.rebatching import Rebatcher
from tsnb.stream.consumer.consumer import Consumer
from tsnb.stream.consumer.counts import Count
from tsnb.stream.consumer.loop import EpochIterator
from tsnb.stream.consumer.losses import Given, checked, in_payloads, with_rows
from tsnb.stream.consumer.notices import Notices
from tsnb.stream.consumer.options import (
    Options,
    Stats,
    batches_left,
    epoch_length,
    epoch_samples,
    require_fit,
)
from tsnb.stream.consumer.place import Loop, Place, require_same
from tsnb.stream.consumer.talking.line import Line
from tsnb.stream.consumer.tasks import task_of, when_task_ends
from tsnb.stream.protocol import messages as ms
from tsnb.text.foreign import pack

__all__ = ["Attachment", "rest_siblings"]

_Done = TypeVar("_Done")
_ENDS = (
    LoaderFailed,
    ConsumerTimedOut,
    JoinRefused,
    GroupBroken,
    ProducerGone,
    ArenaFull,
    RemoteProtocolError,
)
"""With these errors the line ends, or the epoch on it."""
_made: weakref.WeakSet[Attachment] = weakref.WeakSet()


def rest_siblings(stream: str, name: str) -> None:
    """Stop others waiting for this thread's other consumers of a stream: it cannot run their loops meanwhile.

    Args:
        stream: The stream's name.
        name: The consumer whose loop begins.
    """
    for other in list(_made):
        same = other.stream == stream and other.name != name and other.thread == threading.get_ident()
        if same and not other.closed and (not other.iterating or other.given_all):
            other.rest()


def _rest_those_of(thread: int) -> None:
    """Stop others waiting for a thread's consumers: the task in which it took them has ended."""
    for consumer in list(_made):
        if consumer.thread == thread and not consumer.closed:
            consumer.rest()


def stand_siblings(stream: str, name: str) -> None:
    """Tell the stream which consumers cannot go on while this thread waits for another one's batch, or never will.

    Args:
        stream: The stream's name.
        name: The consumer for whose batch it waits.
    """
    for other in list(_made):
        if other.stream != stream or other.name == name or other.closed:
            continue
        if other.thread == threading.get_ident():
            other.stand()
        elif other.task not in (None, task_of(other.thread)):
            other.abandon()


class Attachment(Bound):
    """One attachment to a stream. Iterating it takes one epoch.

    Args:
        entry: The producer.
        name: The name of the consumer, or of its group.
        options: How it wants its batches.

    Attributes:
        name: The consumer's name; that of a rank is like `bert[0]`.
        stream: The stream's name.
        given: What is known of the rows of the batch that its loop was given last; None: it is not in a loop.
        begun: Epochs that it has begun.
        since_s: When it attached; monotonic.
    """

    def __init__(self, entry: registry.Entry, name: str, options: Options) -> None:
        self.stream = entry.name
        self.thread = threading.get_ident()
        self._line = Line(entry, name, options)
        self._line.waits = stand_siblings
        self.task: int | None = None  # in which its last loop began
        self._session = self._line.session
        try:
            require_fit(self._line.connection.welcome, options)
            self._line.tell_part(options.part)
            if self._line.connection.welcome.draws and self._line.connection.welcome.pid == os.getpid():
                self.notices.drawn_beside(self.stream)
        except BaseException:
            self._line.connection.post(ms.Bye())
            self._line.connection.retire()
            raise
        self.name = self._line.name
        self.prefetch = self._line.prefetch
        self._closed = False
        self._lock = threading.Lock()  # closing only
        self._inside: int | None = None  # the thread that takes a batch now
        self._looped = False
        self._epochs = 0
        self.begun = 0  # epochs
        self._begun_at = -1  # batches that had been taken then
        self.since_s = time.monotonic()
        self._before = (0, 0)
        self._inside_s = 0.0
        self._entered_s: float | None = None  # while inside an epoch
        self._batches_at_rest = 0
        self.given: Given | None = None
        self._at_last: Loop | None = None  # its epoch was left, and it is still busy with the last batch
        self._reported: Given | None = None
        self._face: weakref.ref[Consumer] | None = None
        self.stopped_with: StreamStopped | None = None  # heard between two loops
        _made.add(self)

    @property
    def face(self) -> Consumer:
        """What its user has of it; another one where the user has dropped that."""
        face = None if self._face is None else self._face()
        if face is None:
            face = Consumer(self)
            self._face = weakref.ref(face)
        return face

    # -- what its `Consumer` shows --------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The stream's number of the epoch that is being taken, or was taken last; -1 before the first."""
        return self._session.epoch

    @property
    def options(self) -> Options:
        """How it wants its batches."""
        return self._session.options

    @options.setter
    def options(self, options: Options) -> None:
        require_fit(self._line.connection.welcome, options)
        self._session.options = options

    @property
    def welcome(self) -> ms.Welcome:
        """What the producer of now says of its stream."""
        return self._line.connection.welcome

    @property
    def stream_stall_timeout_s(self) -> float:
        """How long the stream waits for a consumer that stands still."""
        return self._line.connection.welcome.stall_timeout_s

    @property
    def notices(self) -> Notices:
        """What its user is told once."""
        return self._line.notices

    def __len__(self) -> int:
        """Return the batches in an epoch.

        Raises:
            TypeError: The loader has no length.
        """
        return epoch_length(self._line.connection.welcome, self.options)

    def __iter__(self) -> EpochIterator:
        """Ask for this consumer's next epoch, or for the rest of the one that `load_state_dict` named.

        It draws from torch's global generator what `iter` of the served DataLoader would draw: a seed for its workers,
        and one for its order if it shuffles. So what a training draws is what it draws with the plain loader.

        Raises:
            ConsumerReplaced: It was detached.
            NameInUse: A loop over it waits for a batch in another thread.
        """
        self._require_open()
        self.require_free()
        session = self._session
        self._note_end()
        former, loop = session.loop, session.begin()
        if self.busy_elsewhere:  # it began to wait just now: `take` looks the other way round
            session.loop = former
            raise self._in_use()
        self.thread = threading.get_ident()
        self._leave_clock()
        self.given = self._at_last = None
        epoch = EpochIterator(self, loop)
        self._entered_s = time.monotonic()
        # not after a loop that took none: Lightning begins two for an epoch
        if self._line.batches != self._begun_at:
            self._begun_at = self._line.batches
            self.begun += 1
        rest_siblings(self.stream, self.name)
        self._line.tell_part(self.options.part)
        self._line.say(session.enter(loop))
        when_task_ends(partial(_rest_those_of, self.thread))
        self.task = task_of(self.thread)
        self._draw_seeds()
        return epoch

    def _draw_seeds(self) -> None:
        welcome = self._line.connection.welcome
        for _ in range(welcome.later_seeds if self._looped else welcome.first_seeds):
            draw_seed()
        self._looped = True

    def state_dict(self) -> dict[str, Any]:
        """Return where this consumer stands, as plain values: after the batch that it gave last.

        To go on from there, in this process or another, `load_state_dict` it before iterating. Within an epoch
        that needs a stream whose order can be given again: a `DataLoader` served with a seed.
        """
        state = self._session.given.to_state(self.stream, self._line.connection.welcome.order)
        return {**state, "part": identity} if (identity := self._part_identity) else state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where `state_dict` was taken: the next iteration gives the rest of that epoch.

        Raises:
            ValueError: `state_dict` did not make this state.
            JoinRefused: The stream cannot give the rest of that epoch: it has no seed, or another order.
            NameInUse: A loop over it waits for a batch in another thread.
        """
        self._go_on(Place.from_state(state), state, patient=False)

    def go_on_from(self, state: Mapping[str, Any], *, exact: bool, in_order: bool = False) -> None:
        """Go on from there as `load_state_dict`; wait where others are past that place.

        Args:
            state: What `state_dict` returned.
            exact: At an epoch's start: take just that epoch, which the stream gives again if it can, and no later one.
            in_order: Take all epochs after it in order, as the consumer did whose state this is.

        Raises:
            ValueError, JoinRefused, NameInUse: As that.
        """
        place, order = Place.from_state(state), self._line.connection.welcome.order
        if exact and order and state.get("order") == order:
            place = place._replace(begun=True)
        self._go_on(place, state, patient=True)
        self._session.in_order = in_order and exact and bool(order) and state.get("order") == order

    def _go_on(self, place: Place, state: Mapping[str, Any], *, patient: bool) -> None:
        self.require_free()
        require_same(place, state, self._line.connection.welcome, self._part_identity)
        order = self._line.connection.welcome.order
        if self._session.loop is not None:
            self.leave(self._session.loop)
        self._session.load(place, same_order=bool(order) and state.get("order") == order, patient=patient)

    @property
    def _part_identity(self) -> str:
        part, indexed = self.options.part, self._line.connection.welcome.indexed
        return "" if part is None or indexed is None else part.identity(indexed)

    @property
    def epoch_samples(self) -> int:
        """Samples that this consumer gets in an epoch; of a rank, its own.

        Raises:
            TypeError: The loader does not say how many there are.
        """
        return epoch_samples(self._line.connection.welcome, self.options)

    @property
    def paused_s(self) -> float:
        """Seconds for which it has stood still because it was paused."""
        return self._line.paused_s

    def stats(self) -> Stats:
        """Return what was taken so far."""
        now_s = 0.0 if self._entered_s is None else time.monotonic() - self._entered_s
        return Stats(
            batches=self._line.batches,
            samples=self._line.count.given,
            epochs=self._epochs + (self._left == 0),
            inside_s=max(0.0, self._inside_s + now_s - self._line.paused_s),
            copied=self._line.scratch.taken,
            held=len(self._line.connection.unpacker.held),
            waited_s=self._line.waited_s,
            skipped=self._session.skipped,
            reconnects=self._line.reconnects,
            on_device=self._line.on_device,
        )

    def report(self, losses: Any) -> None:
        """Report the loss of each sample of the batch that the loop was given last.

        Rounds choose samples by them (`tsnb.data.rounds(..., select="hard:0.3")`); for a data set that grows,
        `tsnb.data.grow`. Does not keep the graph of what is reported. Losses on a GPU are waited for and copied.

        Args:
            losses: One finite number for each row, in order: a tensor on any device, an array or a list.

        Raises:
            TypeError, ValueError: They are not that; nothing has been reported then.
            TsnbError: It is not the time to report: no batch was given, or its losses were reported before. Or the
                stream's data set does not grow, or does not tell which samples the rows are.
        """
        given = with_rows("report(losses)", self.name, self._line.connection.welcome, self.given)
        if given is self._reported:
            raise TsnbError(
                f"The losses of this batch of {self.name!r} were already reported. Report them once "
                "per batch, right after you compute them."
            )
        values = checked(losses, given.rows)
        self._reported = given
        for payload in in_payloads(given.drawn, values):
            self._line.connection.tell("rounds", pack(payload))

    @property
    def weights(self) -> torch.Tensor:
        """The weights of the rows of the batch that the loop was given last: float32 [rows], on this consumer's device.

        In a round that has some samples rather than others (`select="hard:0.3"`, "balanced"), the mean of
        weights * losses has the mean loss over all samples as its expectation. In all other epochs each weight is 1.

        Raises:
            TsnbError: There is no such batch, the stream's data set does not grow, or it is not known which samples
                the rows are.
        """
        weights = with_rows("weights", self.name, self._line.connection.welcome, self.given).weighted()
        return weights if self.options.device is None else weights.to(self.options.device)

    def tell_metrics(self) -> None:
        """Tell the producer what was logged since the last time, after the loop too. From any thread."""
        if not self._closed:
            self._line.tell_metrics()

    def close(self) -> None:
        """Detach. Batches that are still held stay valid; the name is free. Calling it again does nothing."""
        with self._lock:
            if self._closed:
                return
            self._note_end()
            self._closed = self._line.closed = True
        self._session.over()
        self._leave_clock()
        self._line.settle()
        self._line.tell_metrics(last=True)
        self._line.connection.post(ms.Bye())
        with contextlib.suppress(ProducerGone, ConsumerReplaced):
            self._line.discard_waiting()
        self._line.parted()
        self._line.connection.retire()

    @property
    def closed(self) -> bool:
        """Whether it was detached, or its producer has gone."""
        return self._closed

    def __repr__(self) -> str:
        under_way = f"pass {self.epoch + 1}" if self.epoch >= 0 else "attached"
        state = "detached" if self._closed else under_way
        return f"<tsnb consumer {self.name!r} of {self.stream!r}: {state}>"

    # -- used by `attaching` -----------------------------------------------------------------------------

    @property
    def iterating(self) -> bool:
        """Whether a loop over it has not come to its end."""
        return self._session.loop is not None

    @property
    def address(self) -> str:
        """The producer it is connected to, or was."""
        return self._line.connection.entry.address

    @property
    def expects_successor(self) -> bool:
        """Whether it goes on with another producer of the name, should its own have gone."""
        return not self._closed and self._line.stall_timeout_s > 0

    @property
    def unclonable(self) -> str:
        """Why the process of this consumer cannot be cloned; nothing where it can."""
        options = self.options
        if options.world_size > 1:
            return f"{self.name} is a rank of a job, which cannot be cloned alone"
        if options.prefetch_to_device or options.shared_device:
            return f"{self.name} has batches on a GPU"
        return ""

    @property
    def taken(self) -> tuple[int, int]:
        """Whole epochs and loader batches taken, by those that it goes on from, too."""
        return self._before[0] + self._epochs, self._before[1] + self._line.batches

    @property
    def epoch_batches_taken(self) -> int | None:
        """Loader batches taken of its epoch, all of them when it is over; None where that is not known."""
        place = self._session.given
        if place.epoch == self.epoch:
            return place.batch
        if self.options.batch_size is None:
            with contextlib.suppress(TypeError):
                return len(self)
        return None

    def count_on(self, epochs: int, batches: int) -> None:
        """Count on from what was taken by those that this consumer goes on from, here and in the stream's readings.

        Args:
            epochs: Whole ones.
            batches: Of the loader.
        """
        self._before = (epochs, batches)
        self._line.count_on(epochs, batches)

    @property
    def given_once(self) -> str:
        """Why its stream cannot give the rest of this epoch to another consumer; nothing where it can."""
        if self.epoch < 0 or self._line.connection.welcome.order:
            return ""
        return self._line.connection.welcome.unordered or "its loader has no reproducible order"

    def branch(self, name: str) -> None:
        """Be a clone's consumer, at the same place. Called in a process that was forked, while its parent stands still.

        Args:
            name: The clone's.

        Raises:
            NameInUse, JoinRefused, ProducerGone, ConsumerTimedOut, TimeoutError: As `Line.branch`.
        """
        self._line.branch(name, self._epochs)
        self.name = self._line.name
        self._line.count_on(*self.taken)
        self._lock = threading.Lock()
        _made.add(self)

    def close_if_gone(self, *, taken_over: bool = False) -> None:
        """Notice a producer that ended between two loops, so that its arena is let go of.

        Args:
            taken_over: It is this thread's from now on. Else one that lives in another thread is left alone: what
                comes for it is that thread's to read.
        """
        if self._closed or not (taken_over or self.in_reach):
            return
        if self._session.loop is not None:  # what has come is the loop's, should there be more to come for it
            if taken_over and self._line.connection.has_ended() and not self.expects_successor:
                self.close()
        else:
            try:
                self._line.discard_waiting()
            except ProducerGone as gone:
                if not self.expects_successor:
                    self.stopped_with = gone if isinstance(gone, StreamStopped) else None
                    self.close()

    def rest(self, *, failed: bool = False) -> None:
        """Stop others waiting for this consumer's next epoch: its cell has ended.

        Args:
            failed: The cell was interrupted or raised. A loop that took batches in it will not go on, though its
                traceback keeps it alive: its epoch is left.
        """
        self._line.tell_metrics()
        took = self._line.batches > self._batches_at_rest
        loop = self._session.loop
        if ((failed and took) or self.given_all) and loop and self.in_reach and not self.busy_elsewhere:
            last = self.given
            self.leave(loop)
            if not failed:
                self.given, self._at_last = last, loop
        self._batches_at_rest = self._line.batches
        self._line.connection.post(ms.Rest())

    def abandon(self) -> None:
        """Leave a loop whose task has failed: its traceback keeps it, and nobody goes on with it."""
        self.task, loop = None, self._session.loop
        if loop is not None:
            self.leave(loop)
        self.rest()

    def stand(self) -> None:
        """Tell the producer that its loop takes nothing for now: this thread waits for another consumer."""
        if self.given_all or not self.iterating:
            self.rest()  # its loop may have gone since, or heard only now that it has had all
        else:
            self._session.stands = True
            self._line.connection.post(ms.Rest(stands=True))

    @property
    def in_reach(self) -> bool:
        """Whether its loops are this thread's, or a thread's that has ended."""
        return self.thread == threading.get_ident() or self.thread not in (
            t.ident for t in threading.enumerate()
        )

    @property
    def busy_elsewhere(self) -> bool:
        """Whether another thread takes a batch now, or waits for one."""
        inside = self._inside
        return inside not in (None, threading.get_ident()) and inside in (
            t.ident for t in threading.enumerate()
        )

    def require_free(self) -> None:
        """Refuse to go on while another thread waits for a batch: each would read what was sent to the other.

        Raises:
            NameInUse: One does.
        """
        if self.busy_elsewhere:
            raise self._in_use()

    # -- used by `EpochIterator` -------------------------------------------------------------------------

    def alone(self, loop: Loop, act: Callable[[], _Done], *, takes: bool = False) -> _Done:
        """Do something with the line that no other thread may do meanwhile; should it end there, end what ends with it.

        Args:
            loop: On whose behalf.
            act: What.
            takes: Whether it takes a batch: then the epoch has ended if there is none.

        Raises:
            ConsumerReplaced: A newer loop over this consumer took over, or it was detached.
            ConsumerTimedOut: It stood still for longer than the stream's stall timeout, and its place has gone.
            GroupBroken: Another rank of its group has gone.
            JoinRefused: It does not wait for an epoch, and cannot get the whole of the current one.
            LoaderFailed: The loader raised.
            NameInUse: Another thread takes from this loop at the same time.
            ProducerGone: The producer has gone.
        """
        if self._session.loop is not loop:
            raise self._not_current()
        if self._inside is not None:
            self.require_free()
        reconnects = self._line.reconnects
        try:
            self._inside = threading.get_ident()
            if self._session.loop is not loop:  # since just now: another thread's loop has begun
                raise self._not_current()
            done = act()
            if takes and done is None:
                self._epochs += 1
                self._line.tell_metrics()
                self._end_epoch()
            return done
        except _ENDS as error:
            self._end_with(error, reconnects)
            raise
        finally:
            self._inside = None

    def _end_with(self, error: TsnbError, reconnects: int) -> None:
        """End what has to end with the line, or with the epoch on it.

        Args:
            error: What it ended with.
            reconnects: How often the line had found another producer before.
        """
        if isinstance(error, GroupBroken):
            self.close()  # the name is free for the group that comes after
        elif isinstance(error, (LoaderFailed, ConsumerTimedOut, JoinRefused)):
            self._end_epoch()
        elif self._closed:  # by `close` in another thread, perhaps as a first batch was about to be mapped
            raise self._not_current() from None
        elif isinstance(error, ProducerGone):
            if self._line.reconnects > reconnects:  # to one that cannot go on within the epoch
                self._end_epoch()
            else:
                self.close()  # lets go of the arena too: its memory is freed with the last batch that is held

    @property
    def idle(self) -> bool:
        """Whether the last step was interrupted while it only waited."""
        return self._line.connection.idle

    def go_back(self, loop: Loop) -> None:
        """Have the rest of the epoch given again from where the loop is.

        Raises:
            ConsumerReplaced: A newer loop over this consumer took over, or it was detached.
            NameInUse: Another thread takes from this loop at the same time.
        """
        if self._closed or self._session.loop not in (None, loop):
            raise self._not_current()
        self.require_free()
        self._line.say(self._session.go_back(loop))

    def _end_epoch(self) -> None:
        self._line.leave()
        self._session.over()  # last: where an interrupt comes before, it is done again
        self._leave_clock()

    def leave(self, loop: Loop) -> None:
        """Leave the epoch: the loop was left by `break`, an exception, or deleted."""
        if self._at_last is loop:
            self.given = self._at_last = None
        if self._session.loop is loop:
            self.given = None
            self._note_end()
            self._end_epoch()
            self._line.settle()
            if self.thread == threading.get_ident():  # else the collector came by in another thread
                with contextlib.suppress(ProducerGone, ConsumerReplaced):  # the next step says so
                    self._line.discard_waiting()

    @property
    def given_all(self) -> bool:
        """Whether its loop has been given all of its epoch, and has not asked for one batch more.

        Trainers that know the length never do. The producer says it where that is not known.
        """
        left, loop = self._left, self._session.loop
        if left is not None or loop is None or self.thread != threading.get_ident() or self.busy_elsewhere:
            return left == 0
        end = ms.EpochEnded(loop.place.epoch, loop.place.batch)
        return self._session.is_at(loop.place) and self._line.connection.has_been_told(end)

    @property
    def _left(self) -> int | None:
        """Batches that its loop has yet to be given; None: it is in none, or that is not known."""
        loop = self._session.loop
        left = None if loop is None else batches_left(self._line.connection.welcome, self.options, loop)
        return None if left is None else max(0, left)

    def _note_end(self) -> None:
        """Count the epoch of a loop that goes and has been given all of it: its place is the next epoch's start."""
        loop = self._session.loop
        if loop is not None and not loop.over and self.given_all:
            loop.over = True
            loop.place = loop.place.next_epoch()
            self._epochs += 1

    def _leave_clock(self) -> None:
        """Count the time inside the epoch that has just ended, if there was one."""
        if self._entered_s is not None:
            self._inside_s += time.monotonic() - self._entered_s
            self._entered_s = None

    @property
    def full_rows(self) -> int | None:
        """Samples of the stream in a full batch, where known; those of all ranks of its group."""
        return self.options.stream_batch_size or self._line.connection.welcome.batch_size

    @property
    def count(self) -> Count:
        """The rows that it was given."""
        return self._line.count

    def settle(self) -> None:
        """A loop has come to its end, and its user has been given all of it."""
        if not self._closed:
            self._line.settle()

    def rebatcher(self) -> Rebatcher | None:
        """Return what cuts batches to this consumer's own size; None where the loader's are wanted."""
        own, loaders = self.options.stream_batch_size, self._line.connection.welcome.batch_size
        if self.options.part is not None:
            own = own or loaders
        elif own == loaders:
            return None
        return None if own is None else Rebatcher(own, self._line.scratch)

    def mask(self) -> npt.NDArray[np.bool_] | None:
        """Return which samples are this consumer's, by index; None where all are.

        Raises:
            JoinRefused, ValueError: The stream was started again, and cannot give them any more.
        """
        part, stream = self.options.part, self._line.connection.welcome
        require_fit(stream, self.options)
        return None if part is None or stream.indexed is None else part.mask(stream.indexed)

    def _not_current(self) -> ConsumerReplaced:
        return ConsumerReplaced(
            f"This loop over {self.name!r} has ended: its consumer was detached, or a newer loop took "
            "its place. A consumer feeds one loop at a time. For a second loop, attach with another "
            "name."
        )

    def _in_use(self) -> NameInUse:
        names = [t.name for t in threading.enumerate() if t.ident == self._inside]
        return NameInUse(
            f"The name {self.name!r} is in use on stream {self.stream!r}: a loop over it waits for a "
            f"batch in another thread of this process ({', '.join(names) or 'which has just ended'}). "
            "A consumer feeds one loop at a time. Attach with another name in this thread, or end that "
            "loop first with consumer.close()."
        )

    def _require_open(self) -> None:
        if self._closed:
            raise ConsumerReplaced(
                f"{self.name!r} was detached from {self.stream!r}. Attach again: "
                f'tsnb.attach("{self.name}", stream="{self.stream}").'
            )


os.register_at_fork(after_in_child=_made.clear)  # `native.forks`, 2
