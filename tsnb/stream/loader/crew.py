"""The workers of one iterator of a DataLoader: what they were ordered to prepare, and what is ordered next.

A crew gets its tickets in one of two ways:

| | tickets go | a batch is begun | answers come |
|---|---|---|---|
| in turn | through the DataLoader's own queues | in the order of the epoch | in that order |
| by a line (`queues`) | to whichever worker is free | in time (`decisions.slow_samples`) | as they are ready |

By a line, where the stream has a seed: what a batch draws is then a function of its number, and it makes no difference
which worker prepares it, or when. Without one, a batch stays with the worker that torch gives it to.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch._utils import ExceptionWrapper

from tsnb.stream.decisions.slow_samples import SampleCosts, begun_next
from tsnb.stream.loader.queues import PacketQueue
from tsnb.stream.loader.seams import AllGiven, Given, Ready, Skipped
from tsnb.stream.loader.tickets import BLANK, Prepared, Ticket, Tickets

__all__ = ["BatchPace", "WorkerCrew", "file_sizes", "in_order"]

HORIZON = 4
"""How far ahead slow batches are looked for, in times the room."""
MOST_AHEAD = 256
"""Batches."""
SMOOTHING = 0.1


class BatchPace:
    """Seconds between two batches that are given."""

    def __init__(self) -> None:
        self.batch_s = 0.0
        self._last_s: float | None = None

    def given(self) -> None:
        """A batch has been given."""
        now_s = time.monotonic()
        if self._last_s is not None:
            took_s = now_s - self._last_s
            if self.batch_s:  # a pause (validation, a checkpoint) is not the pace
                self.batch_s += SMOOTHING * (min(took_s, 4 * self.batch_s) - self.batch_s)
            else:
                self.batch_s = took_s
        self._last_s = now_s


class WorkerCrew:
    """Workers, their answers, and how they get tickets.

    Args:
        answers: The DataLoader's iterator; the crew owns it.
        tickets: Where tickets come from.
        line: Theirs; None: the DataLoader sends the tickets in turn.
        room: Tickets that may be begun and not given.
        costs: What samples take.
    """

    def __init__(
        self,
        answers: Iterator[Prepared],
        tickets: Tickets,
        line: PacketQueue | None,
        room: int,
        costs: SampleCosts | None,
    ) -> None:
        self._answers: Iterator[Prepared] | None = answers
        self._tickets = tickets
        self.line = line
        self._room = room
        self._costs = costs
        self._begun: set[int] = set()
        self._last: dict[int, int] = {}  # of each ticket the last batch: its first
        # seconds of each batch that was drawn, by another crew perhaps, and is not begun
        self._waiting = {number: self._cost_s(keys) for number, keys in tickets.drawn.items()}
        self._put = 0
        self._finished = False

    def order(self, given: int, pace_s: float) -> None:
        """Order as much as there is room for. Called before each batch, while this is the crew that gets tickets.

        Args:
            given: The number of the batch that is given next.
            pace_s: Seconds between two that are given.
        """
        if self.line is None or self._finished:
            return
        self.line.push()
        tickets = self._tickets
        while len(self._begun) < self._room:
            for number, keys in tickets.drawn_until(given + min(MOST_AHEAD, HORIZON * self._room)):
                self._waiting[number] = self._cost_s(keys)
            first = begun_next(given, self._begun, self._waiting, pace_s, self._room)
            if first is None:
                break
            ticket = tickets.ticket(first, self._waiting)
            last = first + len(ticket.keys) - 1
            for number in range(first, last + 1):
                del self._waiting[number]  # all of them were drawn for this
            self._begun.add(first)
            self._last[last] = first
            self._send(ticket)
        if not self._waiting and tickets.all_drawn:
            self.finish()

    def _cost_s(self, keys: Any) -> float:
        return 0.0 if self._costs is None else self._costs.batch_s(keys)

    def _send(self, ticket: Ticket) -> None:
        assert self.line is not None
        self._put += 1
        self.line.put(ticket)

    def gave(self, number: int, pace_s: float) -> None:
        """A batch is given: order as much as there is room for then.

        Args:
            number: The batch's.
            pace_s: As for `order`.
        """
        if self.line is not None:
            self._begun.discard(self._last.pop(number, -1))
            self.order(number + 1, pace_s)

    def next(self) -> Prepared | None:
        """Wait for an answer; None: all have been given. Workers that need not stay have ended then."""
        if self._answers is None:
            return None
        prepared = next(self._answers, None)
        if prepared is None:
            self._answers = None
        return prepared

    def note(self, prepared: Prepared) -> None:
        """Note what samples have taken."""
        costs = self._costs
        for number, took in enumerate(prepared.took, prepared.first):
            keys = self._tickets.ordered.get(number)
            if costs is None or keys is None:
                continue
            if took:
                costs.note(keys, np.frombuffer(took, np.float32))
            elif costs.measured:  # cheap ones count once there are others
                costs.note(keys, prepared.batch_s / (len(keys) if isinstance(keys, list) else 1))

    def finish(self) -> None:
        """Order nothing more: each worker answers what it has, and the answers end."""
        if self._finished:
            return
        self._finished = True
        unanswered = self._tickets.blanks - self._put
        self._tickets.hand_over()
        if self.line is not None:
            for _ in range(unanswered):  # the DataLoader waits for an answer to each
                self._send(BLANK)

    @property
    def all_given(self) -> bool:
        """Whether all batches of the epoch have been given; its workers may not have ended."""
        return self._tickets.all_given

    def end(self) -> None:
        """Let workers that wait for a ticket go, in whatever state all is; they are of no use after that."""
        if self.line is not None:
            self.line.end()
        self._answers = None


def in_order(
    crews: list[WorkerCrew],
    start: int,
    pace: BatchPace,
    measured: Callable[[float], None],
    drawn: Callable[[int], Sequence[Any] | None],
    others: Callable[[WorkerCrew], WorkerCrew | None],
) -> Iterator[Given]:
    """Give the batches of an epoch in their order, in whatever order they are ready, and an error at its place.

    After the last one comes `AllGiven`: what remains is to wait for the workers' end.

    Args:
        crews: The one that works on it. Another one is added when it takes over, and each goes when it has ended.
        start: The number of the first batch.
        pace: At which batches are given, in the epochs before too.
        measured: Is told what a batch of each ticket has cost.
        drawn: Returns, once, what the sampler gave for the rows of the batch of a number; None: that is not told.
        others: Returns the crew that takes over from now on; None: the same goes on.
    """
    given, told = start, False
    crew = crews[-1]
    ready: dict[int, Any] = {}
    failed: dict[int, ExceptionWrapper] = {}
    while True:
        if given in ready:
            rows = drawn(given)
            pace.given()
            crew.gave(given, pace.batch_s)
            given += 1
            yield Ready(ready.pop(given - 1), rows)
            if len(crews) == 1 and (following := others(crew)) is not None:
                crew = following
                crews.append(crew)
            continue
        crew.order(given, pace.batch_s)
        if given in failed:
            error = failed.pop(given)
            if not issubclass(error.exc_type, StopIteration):
                error.reraise()  # type: ignore[no-untyped-call]
            yield from map(Skipped, ready.values())  # as torch: the epoch ends here
            yield from _in_hand(crews)
            return
        elif not told and len(crews) == 1 and crews[0].all_given:
            told = True
            yield AllGiven()
        elif (prepared := crews[0].next()) is None:
            if len(crews) == 1:
                return
            crews.pop(0).end()
        elif prepared.first >= 0:
            measured(prepared.batch_s)
            crews[0].note(prepared)
            ready.update(enumerate(prepared.batches, prepared.first))
            failed.update(_error_in(prepared))


def _error_in(prepared: Prepared) -> dict[int, ExceptionWrapper]:
    """Return what a ticket's answer failed of, by the number of the batch."""
    return {} if prepared.error is None else {prepared.first + len(prepared.batches): prepared.error}


def _in_hand(crews: Sequence[WorkerCrew]) -> Iterator[Skipped]:
    """Give what the workers have in hand, order nothing more: they may stay, and slots lie in it."""
    for crew in crews:
        crew.finish()
        while (prepared := crew.next()) is not None:
            yield from map(Skipped, prepared.batches)


def file_sizes(dataset: Any) -> Callable[[int], float] | None:
    """Return what tells the bytes of a sample's file by its index; None where the dataset shows no files.

    Args:
        dataset: The user's: with a list of paths, or of tuples that begin with one, as torchvision's folders have it;
            a `Subset` of such.
    """
    indices, inner = getattr(dataset, "indices", None), getattr(dataset, "dataset", None)
    if inner is not None:
        size_of = file_sizes(inner)
        if size_of is None or indices is None:
            return size_of
        return lambda index: size_of(int(indices[index]))
    for name in ("samples", "imgs", "paths", "files"):
        rows = getattr(dataset, name, None)
        if (
            isinstance(rows, (list, tuple))
            and rows
            and len(rows) == _length(dataset)
            and _path(rows[0]) is not None
        ):
            return lambda index: _size(rows[index])
    return None


def _length(dataset: Any) -> int:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return 0


def _path(row: Any) -> str | os.PathLike[str] | None:
    first = row[0] if isinstance(row, (list, tuple)) and row else row
    return first if isinstance(first, (str, os.PathLike)) and Path(first).is_file() else None


def _size(row: Any) -> float:
    try:
        return float(os.stat(row[0] if isinstance(row, (list, tuple)) else row).st_size)  # noqa: PTH116  # a Path costs more
    except (OSError, TypeError, IndexError, ValueError):
        return 0.0
