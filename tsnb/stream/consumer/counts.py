"""What consumers were given: rows of one, and the totals of a process.

A *row* is one sample of a batch that the user's loop got. A consumer of a part is given some of a loader batch's rows,
a rank its share, and what `drop_last` leaves out is given to nobody. The stream's own counts (batches, place, lag) go
by loader batches: `Line` and `Session` have those.

The producer is told of rows as batches are received (`Take`), a moment before the loop has them. Where that was wrong
in the end, because a loop was left or its last batch dropped, `Got` says the true number.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from tsnb.machine.clocks import cpu_here_s
from tsnb.stream.consumer.batches.parts import own_rows
from tsnb.stream.consumer.batches.rebatching import share
from tsnb.stream.protocol import messages as ms

if TYPE_CHECKING:
    from tsnb.stream.consumer.options import Options, Stats

__all__ = ["TAKE_ALL", "Count", "CpuTime", "Total", "Totals", "shared"]


TAKE_ALL = ms.Take()
"""Most batches are taken whole: `Connection.post` has its packet ready."""


def shared(rows: int, options: Options) -> int:
    """Return how many rows of a batch a consumer is given: a rank its share, any other all."""
    if not options.sharded:
        return rows
    own = share(rows, options.rank, options.world_size)
    return int(own.stop - own.start)


class Count:
    """The rows that one consumer was given, and what the producer of now knows of them.

    Attributes:
        given: Rows so far, of all producers. The loop sets it.
        mask: Which samples are its own, by index; None: all.
    """

    def __init__(self) -> None:
        self.given = 0
        self.mask: npt.NDArray[np.bool_] | None = None
        self._before = 0  # given when the producer of now was found
        self._told = 0

    def connected(self) -> None:
        """Another producer counts from 0."""
        self._before, self._told = self.given, 0

    def took(self, batch: ms.Batch, drawn: bytes, options: Options) -> ms.Take:
        """Return what tells the producer that a batch was received, and how many of its rows are this consumer's.

        Args:
            batch: The batch that was taken.
            drawn: Which samples its rows are, as `Drawn.indices`.
            options: How the consumer wants its batches.
        """
        rows = batch.rows
        if self.mask is not None or options.world_size > 1:
            rows = self._own(rows, drawn, options)
        self._told += rows
        return TAKE_ALL if rows == batch.rows else ms.Take(rows)

    def _own(self, rows: int, drawn: bytes, options: Options) -> int:
        if self.mask is not None:
            samples = np.frombuffer(drawn, "<u4")
            rows = len(own_rows(self.mask, samples[samples < len(self.mask)]))
        return shared(rows, options)

    def settled(self) -> tuple[ms.Message, ...]:
        """Return what puts right what the producer was told, between two loops; nothing where it was right."""
        given = self.given - self._before
        if given == self._told:
            return ()
        self._told = given
        return (ms.Got(given),)


class Total(NamedTuple):
    """What the consumers of one name on one stream did in this process, one after the other."""

    stream: str
    epoch: int
    """The stream's epoch that was taken last, from 0; -1 before the first."""
    batch: int | None
    """Loader batches taken of it; None where that is not known."""
    batches: int
    """Loader batches in all."""
    samples: int
    """Rows given."""
    epochs: int
    """Taken to their end."""
    inside_s: float
    """Seconds inside epochs."""
    waited_s: float
    """Seconds of them waiting for batches."""
    begun: int = 0
    """Epochs begun."""
    attached_s: float = 0.0
    """Seconds attached."""
    paused_s: float = 0.0
    """Seconds of them for which it stood still, as it was paused."""

    @classmethod
    def of(
        cls,
        stream: str,
        epoch: int,
        batch: int | None,
        stats: Stats,
        begun: int,
        attached_s: float,
        paused_s: float,
    ) -> Total:
        """Return that of one consumer."""
        done = stats.batches, stats.samples, stats.epochs
        return cls(stream, epoch, batch, *done, stats.inside_s, stats.waited_s, begun, attached_s, paused_s)

    def and_then(self, later: Total) -> Total:
        """Return that of both."""
        place = later[1:3] if later.epoch >= 0 else self[1:3]
        sums = [mine + more for mine, more in zip(self[3:], later[3:], strict=True)]
        return Total(self.stream, *place, *sums)  # type: ignore[arg-type]  # field by field


class CpuTime(NamedTuple):
    """What a process has computed since it attached to a stream for the first time."""

    since_s: float
    """When that was: wall clock, seconds since 1970."""
    cpu_s: float
    """CPU seconds since, of the process and of all below it."""


class Totals:
    """What all consumers of a process did, those that were closed included. Safe from any thread."""

    def __init__(self) -> None:
        self._closed: dict[tuple[str, str], Total] = {}
        self._attached: CpuTime | None = None
        self.changing = threading.RLock()
        """Held while a consumer goes from the open ones to the closed ones: so each counts once."""

    def forked(self) -> None:
        """This process is a fork (`native.forks`, 3). What was taken before counts in a clone."""
        self.changing = threading.RLock()
        if self._attached is not None:  # a fork's CPU seconds begin with it
            self._attached = CpuTime(time.time(), 0.0)

    def attaching(self) -> None:
        """Count CPU seconds from now on, if this is the process's first consumer."""
        if self._attached is None:
            self._attached = CpuTime(time.time(), cpu_here_s())

    def cpu_time(self) -> CpuTime | None:
        """Return the CPU seconds since the first consumer attached; None: none has."""
        if self._attached is None:
            return None
        since_s, before_s = self._attached
        return CpuTime(since_s, max(0.0, cpu_here_s() - before_s))  # a child that nobody waited for is lost

    def keep(self, key: tuple[str, str], total: Total) -> None:
        """Keep that of a consumer that is closed. Called under the lock.

        Args:
            key: Its stream and its name.
            total: Its own.
        """
        before = self._closed.get(key)
        self._closed[key] = total if before is None else before.and_then(total)

    def with_open(self, consumers: Iterable[tuple[tuple[str, str], Total]]) -> list[Total]:
        """Return all, a name's together, with those of consumers that are open. Called under the lock."""
        found = dict(self._closed)
        for key, total in consumers:
            before = found.get(key)
            found[key] = total if before is None else before.and_then(total)
        return list(found.values())
