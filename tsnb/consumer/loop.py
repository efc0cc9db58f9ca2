"""One loop over one epoch: what `for batch in consumer` iterates."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

import torch

from tsnb.consumer.options import Options
from tsnb.consumer.rebatching import Rebatcher
from tsnb.consumer.unpacking import Delivered

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

    def __iter__(self) -> EpochIterator:
        return self

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            StopIteration: The epoch has ended.
            ConsumerReplaced, ConsumerParked, LoaderFailed, ProducerGone: See those.
        """
        options = self._consumer.options
        delivered = self._next_delivered()
        while options.drop_last and self._is_partial(delivered):
            delivered = self._next_delivered()
        if options.device is not None:
            delivered.leaves = [_moved(leaf, options.device) for leaf in delivered.leaves]
        batch = delivered.tree()
        return options.transform(batch) if options.transform is not None else batch

    def _is_partial(self, delivered: Delivered) -> bool:
        return self._full_rows is not None and 0 < delivered.rows < self._full_rows

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
