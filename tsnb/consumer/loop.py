"""One loop over one epoch: what `for batch in consumer` iterates."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol

import torch

from tsnb.consumer.notices import Notices
from tsnb.consumer.options import Options
from tsnb.consumer.place import Place
from tsnb.consumer.rebatching import Rebatcher, cut
from tsnb.consumer.unpacking import Delivered
from tsnb.errors import TsnbError

__all__ = ["EpochIterator"]


class _Taker(Protocol):
    """What a loop needs of its consumer; called in the thread that iterates."""

    options: Options
    notices: Notices

    @property
    def batch_size(self) -> int | None:
        """Samples in a full batch, where known."""

    def rebatcher(self) -> Rebatcher | None:
        """Return what cuts batches to another size, where one is wanted."""

    def take(self, loop: EpochIterator) -> tuple[int, Delivered] | None:
        """Return the epoch's next loader batch and its number; None at its end."""

    def go_back(self, loop: EpochIterator, place: Place) -> None:
        """Have it given again from a place on."""

    def leave(self, loop: EpochIterator) -> None:
        """Leave the epoch before its end; does nothing for a loop that is over."""


class EpochIterator(Iterator[Any]):
    """One loop over one epoch. Leaving it early, by any way, leaves the epoch.

    Args:
        consumer: Whose.
        place: Where it begins.

    Attributes:
        place: The first sample that the user has not been given.
    """

    def __init__(self, consumer: _Taker, place: Place) -> None:
        self.place = place
        self._consumer = consumer
        self._full_rows = consumer.batch_size
        self._failed: TsnbError | None = None
        self._in_step = False
        self._begin()

    def _begin(self) -> None:
        """Forget what was received; all that comes follows on `place`."""
        self._rebatcher = self._consumer.rebatcher()
        self._ready: Iterator[Delivered] = iter(())
        self._held_back: Delivered | None = None
        self._ended = False
        self._behind = self.place.offset  # rows of the first loader batch that were given before
        self._parts: deque[tuple[int, int]] = deque()  # loader batches not wholly given: number, rows left

    def began(self, epoch: int, batch: int) -> None:
        """The producer says what comes first."""
        if (epoch, batch) != self.place[:2]:
            self._behind = 0
            self.place = Place(epoch, batch, 0, begun=True)
        else:
            self.place = self.place._replace(begun=True)

    def __iter__(self) -> EpochIterator:
        return self

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            StopIteration: The epoch has ended.
            ConsumerReplaced, ConsumerParked, JoinRefused, LoaderFailed, ProducerGone: See those.
        """
        if self._failed is not None:
            raise self._failed
        notices = self._consumer.notices
        notices.look_for_writes()
        try:
            if self._in_step:  # Ctrl-C, say, hit the last step: what it had received may have got lost
                self._consumer.go_back(self, self.place)
                self._begin()
            self._in_step = True
            options = self._consumer.options
            delivered = self._next_full() if options.drop_last else self._next_delivered()
        except TsnbError as error:
            self._failed = error  # a loop that goes on regardless is told the same again
            raise
        except StopIteration:
            self.place = self.place.next_epoch()
            self._in_step = False
            raise
        notices.given(delivered)
        place = self._place_after(delivered)
        if options.device is not None:
            delivered.leaves = [_moved(leaf, options.device) for leaf in delivered.leaves]
        batch = delivered.tree()
        if options.transform is not None:
            try:
                batch = options.transform(batch)
            except Exception:
                self._settle(place)  # this batch was given; whoever goes on gets the next one
                raise
        self._settle(place)
        return batch

    def _settle(self, place: Place) -> None:
        self.place = place
        self._in_step = False

    def _place_after(self, delivered: Delivered) -> Place:
        """Return the place after a batch that is about to be given."""
        if self._rebatcher is None:
            return self.place._replace(batch=delivered.seq + 1, offset=0)
        rows, place = delivered.rows, self.place
        while self._parts and rows >= self._parts[0][1]:
            last, left = self._parts.popleft()
            rows -= left
            place = self.place._replace(batch=last + 1, offset=0)
        if rows:
            number, left = self._parts[0]
            self._parts[0] = (number, left - rows)
            offset = rows if number != self.place.batch else self.place.offset + rows
            place = self.place._replace(batch=number, offset=offset)
        return place

    def _next_full(self) -> Delivered:
        """Return the next batch, unless it is the epoch's last and not full: then the epoch has ended."""
        current = self._held_back if self._held_back is not None else self._next_delivered()
        self._held_back = None
        if self._is_full(current):
            return current
        self._held_back = self._next_delivered()  # raises StopIteration where `current` was the last
        return current

    def _is_full(self, delivered: Delivered) -> bool:
        rows = delivered.common_rows()
        return self._full_rows is None or rows is None or rows >= self._full_rows

    def _next_delivered(self) -> Delivered:
        while True:
            for delivered in self._ready:
                return delivered
            if self._ended:
                raise StopIteration
            taken = self._consumer.take(self)
            if taken is None:
                self._ended = True
                rest = self._rebatcher.rest() if self._rebatcher else None
                self._ready = iter(() if rest is None else (rest,))
                continue
            number, fresh = taken
            fresh.seq = number
            if self._behind:
                behind, self._behind = self._behind, 0
                fresh = cut(fresh, behind, fresh.require_rows(fresh.rows))
                fresh.seq = number
            if self._rebatcher is None:
                return fresh
            self._parts.append((number, fresh.rows))
            self._ready = self._rebatcher.feed(fresh)

    def __del__(self) -> None:
        # the last reference to the loop has gone: after `break`, an exception, or at the epoch's end
        with contextlib.suppress(Exception):
            self._consumer.leave(self)


def _moved(leaf: Any, device: str | torch.device) -> Any:
    return leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf
