"""One loop over one epoch: what `for batch in consumer` iterates.

Trials that begin together have a common start: each waits at a gate before its first batch. It waits behind its *ask*:
all of them have asked for the epoch, and none has taken a batch of it. So while the gate is shut the epoch can still
be joined from its start, and all trials at the gate get the same first batch. At `attach` would be too early: a trial
that asks a moment after the others may find the epoch under way.
"""

from __future__ import annotations

import contextlib
import copy
from collections import deque
from collections.abc import Iterator
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

import torch

from tsnb.errors import LoaderFailed, NameInUse, TsnbError
from tsnb.native.endings import Bound, ending
from tsnb.stream.consumer.batches.device import Prefetch
from tsnb.stream.consumer.batches.rebatching import DRAWN_BYTES, chosen, cut, part
from tsnb.stream.consumer.batches.unpacking import Delivered
from tsnb.stream.consumer.counts import shared
from tsnb.stream.consumer.losses import Given
from tsnb.stream.consumer.place import Loop, Place
from tsnb.stream.consumer.talking.waits import pass_boundary
from tsnb.stream.protocol.forms import widest
from tsnb.stream.this_process import this_process

if TYPE_CHECKING:
    from tsnb.stream.consumer.attachment import Attachment

__all__ = ["EpochIterator", "pass_gate"]

_UNKNOWN = Given(b"")
LET_IN_S = 10.0
"""So long at most the producer's word is waited for before a gate: a rank's comes once all of its group have asked."""


def pass_gate(stall_timeout_s: float) -> None:
    """Tell that this process is about to take its first batch, and wait at its gate, if it has one.

    Called before a batch is taken, in the thread that takes it; does nothing after the first time. An interrupt ends
    the waiting.

    Args:
        stall_timeout_s: For how long the stream waits for one that stands still.
    """
    if this_process.first_batch is None and this_process.gate is None:
        return
    told, this_process.first_batch = this_process.first_batch, None
    gate, this_process.gate = this_process.gate, None
    if told is not None:
        told()
    if gate is not None:
        gate(stall_timeout_s)


class EpochIterator(Iterator[Any], Bound):
    """One loop over one epoch. Leaving it early, by any way, leaves the epoch.

    Args:
        consumer: The consumer that it iterates.
        loop: Where it begins, and how far it has come.
    """

    __slots__ = ("__del__", "__dict__", "__weakref__")
    _instead = (
        "Send batches instead, or attach in the process that needs them: tsnb.attach(NAME, stream=STREAM)."
    )

    def __init__(self, consumer: Attachment, loop: Loop) -> None:
        self._loop = loop
        self._consumer = consumer
        self._line = consumer._line
        self._session = consumer._line.session
        self._full_rows = consumer.full_rows
        self._failed: TsnbError | None = None
        self._in_step = False
        self._mask = consumer.mask()
        self._prefetch: Prefetch | None = None
        self._ahead: list[Prefetch] = []  # the same, for the loop's end
        self._begin()
        # the last reference to the loop goes after `break`, an exception, or at the epoch's end
        self.__del__ = ending(partial(_left, consumer, loop, self._ahead))

    def _begin(self) -> None:
        """Forget what was received; all that comes follows on the place that was reached."""
        if self._prefetch is not None:
            self._prefetch.close()
        self._prefetch = self._consumer.prefetch()
        self._ahead[:] = [] if self._prefetch is None else [self._prefetch]
        self._rebatcher = self._consumer.rebatcher()
        self._ready: Iterator[Delivered] = iter(())
        self._held_back: Delivered | None = None
        self._ended = False
        self._first = True  # the next loader batch is the first to come
        self._parts: deque[tuple[int, int]] = deque()  # loader batches not wholly given: number, rows left

    def __iter__(self) -> EpochIterator:
        return self

    def __len__(self) -> int:
        """Return the batches in an epoch, as torch's own iterator does.

        Raises:
            TypeError: The loader has no length.
        """
        return len(self._consumer)

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            StopIteration: The epoch has ended.
            ConsumerReplaced, ConsumerTimedOut, JoinRefused, LoaderFailed, NameInUse, ProducerGone: See those.
        """
        if self._failed is not None or self._loop.over or this_process.boundary is not None:
            self._look_first()
        line, options = self._line, self._session.options
        notices = line.notices
        notices.look_for_writes()
        try:
            if monotonic() >= line.look_s and self._session.loop is self._loop:
                # else its epoch has been received whole, or another loop goes on
                self._consumer.alone(self._loop, line.hold)
            if this_process.between is not None and not self._in_step:
                this_process.between(self._consumer, self._loop)
            if self._in_step and not self._consumer.idle:  # Ctrl-C, say: what was received may have got lost
                self._consumer.go_back(self._loop)
                self._begin()
            self._in_step = True
            ahead, whole = self._prefetch, options.world_size < 2 and not options.drop_last
            step = self._next_delivered if whole else self._next_plain
            delivered = step() if ahead is None else ahead.next(step)
        except LoaderFailed as error:  # it says itself where it happened; where it was received helps nobody
            self._remember(error)
            raise error.with_traceback(None) from error.__cause__
        except TsnbError as error:
            self._remember(error)
            raise
        except StopIteration:
            self._come_to_end()
            raise
        notices.given(delivered, guard=options.guard or line.connection.welcome.guard)
        place = (
            Place(self._loop.place.epoch, delivered.seq + 1, 0, begun=True)
            if self._rebatcher is None
            else self._place_after(delivered.rows)
        )
        count = line.count
        rows = delivered.rows if options.world_size < 2 else shared(delivered.rows, options)
        delivered.leaves = (
            _moved(delivered.leaves, options.device) if options.device is not None else delivered.leaves
        )
        batch = widest(delivered.tree()) if options.inputs else delivered.tree()
        given = Given(delivered.drawn, delivered.weights) if delivered.drawn else _UNKNOWN
        if options.transform is not None:
            try:
                batch = options.transform(batch)
            except Exception:
                # it was given: a loop that goes on gets the next one
                self._loop.place, self._in_step, self._consumer.given = place, False, given
                self._loop.given += 1
                count.given += rows
                raise
        # no call from here on: Python looks for signals at calls, and an interrupt here would lose the batch
        self._loop.place = place
        self._loop.given += 1
        count.given += rows
        self._in_step = False
        self._consumer.given = given
        return batch

    def _come_to_end(self) -> None:
        """The epoch has ended, and its user has been given all of it."""
        self._loop.place = self._loop.place.next_epoch()
        self._in_step = False
        self._consumer.given = None
        self._consumer.settle()

    def _remember(self, error: TsnbError) -> None:
        """Note why the loop failed: one that goes on regardless is told the same again.

        A copy has no traceback, which would keep the user's frame, and the batch in it. An error of another thread that
        is in this loop is not ours to note.
        """
        if not isinstance(error, NameInUse):
            self._failed = copy.copy(error)

    def _look_first(self) -> None:
        """Raise what ended this loop; else do what was wished for at the boundary between two batches."""
        if self._failed is not None:
            raise copy.copy(self._failed)
        if self._loop.over:
            raise StopIteration
        if self._loop.place.begun and not self._in_step:
            pass_boundary()

    def _place_after(self, rows: int) -> Place:
        """Return the place after so many rows, which were cut from loader batches and are about to be given."""
        start = place = self._loop.place
        while self._parts and rows >= self._parts[0][1]:
            last, left = self._parts.popleft()
            rows -= left
            place = start._replace(batch=last + 1, offset=0)
        if rows:
            number, left = self._parts[0]
            self._parts[0] = (number, left - rows)
            offset = rows if number != start.batch else start.offset + rows
            place = start._replace(batch=number, offset=offset)
        return place

    def _next_plain(self) -> Delivered:
        options = self._session.options
        whole = self._next_full() if options.drop_last else self._next_delivered()
        if options.world_size < 2 or not options.sharded:
            return whole
        return part(whole, options.rank, options.world_size)

    def _next_full(self) -> Delivered:
        """Return the next batch, unless it is the epoch's last and not full: then the epoch has ended."""
        current = self._held_back = self._held_back or self._next_delivered()
        # held back until the next one is there: a wait may be interrupted
        self._held_back = None if self._is_full(current) else self._next_delivered()  # or StopIteration
        return current

    def _is_full(self, delivered: Delivered) -> bool:
        return self._full_rows is None or not delivered.rows or delivered.rows >= self._full_rows

    def _arrive(self) -> None:
        """Wait at the gate, if there is one, for those that begin together.

        It must be in its epoch by then: one that has only asked may find the others past the late-join window.
        """
        gated = this_process.gate is not None
        if gated:
            with contextlib.suppress(TimeoutError):
                self._consumer.alone(self._loop, partial(self._line.await_epoch, LET_IN_S))
        pass_gate(self._consumer.stream_stall_timeout_s)
        if gated:
            self._consumer.alone(self._loop, partial(self._line.rejoin, self._loop))

    def _next_delivered(self) -> Delivered:
        while True:
            for delivered in self._ready:
                return delivered
            if self._ended:
                raise StopIteration
            if this_process.first_batch is not None:  # only in a trial, before its first batch
                self._arrive()
            fresh = self._consumer.alone(self._loop, self._line.next, takes=True)
            if fresh is None:
                self._ended = True
                rest = self._rebatcher.rest() if self._rebatcher else None
                self._ready = iter(() if rest is None else (rest,))
                continue
            number = fresh.seq
            if self._mask is not None:
                assert self._rebatcher is not None
                own = chosen(fresh, self._mask)[self._loop.place.offset if self._first else 0 :]
                self._first = False
                self._parts.append((number, len(own)))
                self._ready = self._rebatcher.feed(fresh, own) if len(own) else iter(())
                continue
            if len(fresh.drawn) != DRAWN_BYTES * fresh.rows:
                fresh.drawn = b""  # not a row for each sample
            if self._first and self._loop.place.offset:
                rows = fresh.require_rows(
                    f"Continuing at row {self._loop.place.offset}", "Start with a whole epoch"
                )
                fresh = cut(fresh, self._loop.place.offset, rows)
                fresh.seq = number
            self._first = False
            if self._rebatcher is None:
                return fresh
            self._parts.append((number, fresh.rows))
            self._ready = self._rebatcher.feed(fresh)


def _left(consumer: Attachment, loop: Loop, ahead: list[Prefetch]) -> None:
    for prefetch in ahead:
        with contextlib.suppress(Exception):
            prefetch.close()
    with contextlib.suppress(Exception):
        consumer.leave(loop)


def _moved(leaves: list[Any], device: str | torch.device) -> list[Any]:
    return [leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
