"""One loop over one epoch: what `for batch in consumer` iterates."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

import torch

from tsnb.consumer.options import Options
from tsnb.consumer.rebatching import Rebatcher
from tsnb.consumer.unpacking import Delivered
from tsnb.errors import TsnbError

__all__ = ["EpochIterator"]


class _Taker(Protocol):
    """What a loop needs of its consumer; called in the thread that iterates."""

    options: Options

    @property
    def batch_size(self) -> int | None:
        """Samples in a full batch, where known."""

    def rebatcher(self) -> Rebatcher | None:
        """Return what cuts batches to another size, where one is wanted."""

    def take(self, loop: EpochIterator) -> Delivered | None:
        """Return the epoch's next loader batch; None at its end."""

    def leave(self, loop: EpochIterator) -> None:
        """Leave the epoch before its end; does nothing for a loop that is over."""


class EpochIterator(Iterator[Any]):
    """One loop over one epoch. Leaving it early, by any way, leaves the epoch."""

    def __init__(self, consumer: _Taker) -> None:
        self._consumer = consumer
        self._ready: Iterator[Delivered] = iter(())
        self._rebatcher = consumer.rebatcher()
        self._full_rows = consumer.batch_size
        self._ended = False
        self._held_back: Delivered | None = None
        self._failed: TsnbError | None = None

    def __iter__(self) -> EpochIterator:
        return self

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            StopIteration: The epoch has ended.
            ConsumerReplaced, ConsumerParked, LoaderFailed, ProducerGone: See those.
        """
        if self._failed is not None:
            raise self._failed
        options = self._consumer.options
        try:
            delivered = self._next_full() if options.drop_last else self._next_delivered()
        except TsnbError as error:
            self._failed = error  # a loop that goes on regardless is told the same again
            raise
        if options.device is not None:
            delivered.leaves = [_moved(leaf, options.device) for leaf in delivered.leaves]
        batch = delivered.tree()
        return options.transform(batch) if options.transform is not None else batch

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
            fresh = self._consumer.take(self)
            if fresh is None:
                self._ended = True
                rest = self._rebatcher.rest() if self._rebatcher else None
                self._ready = iter(() if rest is None else (rest,))
            elif self._rebatcher is None:
                return fresh
            else:
                self._ready = self._rebatcher.feed(fresh)

    def __del__(self) -> None:
        # the last reference to the loop has gone: after `break`, an exception, or at the epoch's end
        with contextlib.suppress(Exception):
            self._consumer.leave(self)


def _moved(leaf: Any, device: str | torch.device) -> Any:
    return leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf
