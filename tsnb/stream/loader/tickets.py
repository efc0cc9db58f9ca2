"""Tickets: they tell a DataLoader's worker which batches to prepare next, and come back with the answer.

A DataLoader sends its workers what its batch sampler yields, and hands out what its collate function returns.
Between the two, for map-style datasets with workers, stand three parts of ours:

    loading thread                         worker
    Tickets (batch sampler)   --Ticket-->  TicketDataset (passes it on)  ->  TicketCollate (fetches, collates)
    producer.dataloader unpacks  <-------------------------------------------  Prepared

A ticket holds the indices of one batch, or of several that cost so little that the DataLoader's queues would
cost more than the batches. Each batch is fetched and collated on its own, so an error ends the ticket at its own
batch, and the ones before it arrive.

Where the workers have a line of their own (`queues`), the DataLoader sends `BLANK`s, and a worker that gets to one
takes the next ticket from the line.

A ticket also knows the numbers of its batches in the epoch: with a seed, the random generators of the worker
process are seeded before each batch. The random numbers of a batch are thus a function of (seed, epoch, batch number),
whichever worker prepares it, whatever that worker did before, and wherever the epoch was begun.
"""

from __future__ import annotations

import hashlib
import random
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from itertools import islice
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import get_worker_info

from tsnb.stream.loader.queues import PacketQueue
from tsnb.stream.loader.repeating import too_short

__all__ = ["BLANK", "TICKET_S", "Prepared", "Ticket", "TicketCollate", "TicketDataset", "Tickets", "mix"]

TICKET_S = 0.002
"""Batches go to a worker several at a time while that takes no longer than this: ten times what the DataLoader's
queues cost, and still nothing that a consumer could notice at an epoch's start."""


class Ticket(NamedTuple):
    """The order for one or more batches; crosses the DataLoader's queue in place of a batch's indices."""

    keys: list[Any]
    """What the loader's own (batch) sampler gave for each; None for a batch of which nothing is wanted."""
    first: int
    """The number, in the epoch, of the first of them."""
    seed: int | None
    """The epoch's seed; None leaves the worker's random numbers alone."""


class Prepared(NamedTuple):
    """The answer to a ticket."""

    batches: list[Any]
    """Of each batch what the collate function returned: a `Placed`, or the batch itself."""
    error: ExceptionWrapper | None
    """Why there are fewer than were ordered."""
    batch_s: float
    """Seconds that one of them took."""
    first: int
    """The number, in the epoch, of the first of them."""
    took: Sequence[bytes] = ()
    """By batch, the seconds of each of its samples, float32; empty where they were cheap."""


BLANK = Ticket([], -1, None)
"""Lets a worker take a ticket from the line; in the line itself, an order for nothing."""


class Tickets:
    """Stands in for the loader's batch sampler, or for its sampler where `batch_size=None`.

    Attributes:
        size: How many batches the next ticket orders; may change at any time. 0 yields what the sampler yields,
            for loaders without workers.
        by_line: Whether the next iteration yields blanks, since workers take tickets from a line.
        blanks: How many it has yielded.
        cover: The samples that are wanted: bool [samples]; None: all.
        ordered: What the sampler gave for each batch that is out, by its number in the epoch.
        drawn: What it gave for batches that are not ordered yet.
        all_drawn: Whether it has no more.
        error: What the sampler raised; it ends the epoch at its place.
    """

    def __init__(self, sampler: Iterable[Any], size: int) -> None:
        self.sampler = sampler
        self.size = size
        self.by_line = False
        self.blanks = 0
        self.cover: npt.NDArray[np.bool_] | None = None
        self.ordered: dict[int, Any] = {}
        self.error: BaseException | None = None
        self._epoch = 0
        self._start = 0
        self._seed: int | None = None
        self._turn = 0  # which of the iterations over one epoch gives tickets
        self._keys: Iterator[Any] | None = None
        self._next = 0  # the number of the next batch that is drawn
        self.drawn: dict[int, Any] = {}
        self.all_drawn = False

    def begin(self, epoch: int, start: int, seed: int | None) -> None:
        """Choose what the next iteration gives: an epoch from its batch `start` on."""
        self._epoch, self._start, self._seed = epoch, start, seed
        self.ordered.clear()
        self.drawn.clear()
        self._keys, self._next = None, start
        self.error, self.all_drawn = None, False
        self.blanks = 0

    def hand_over(self) -> None:
        """End the iteration that goes on; the next one gives the rest of the epoch."""
        self._turn += 1
        self.blanks = 0

    def __len__(self) -> int:
        return len(cast("Sized", self.sampler))

    def __iter__(self) -> Iterator[Any]:
        # a generator: the DataLoader calls iter() twice and takes from one, and samplers may draw in iter()
        turn = self._turn
        while self.by_line and turn == self._turn:
            self.blanks += 1
            yield BLANK
        while turn == self._turn and self._draw():
            if self.size:
                yield self.ticket()
                continue
            ((number, wanted),) = self.drawn.items()
            self.drawn.clear()
            self.ordered[number] = wanted
            if wanted is not None:
                yield wanted
        if turn == self._turn and not self.size and self.error is not None:
            raise self.error

    @property
    def all_given(self) -> bool:
        """Whether the sampler has come to its end, and every batch that it gave was given to whoever iterates."""
        return self.all_drawn and self.error is None and not self.drawn and not self.ordered

    def drawn_until(self, number: int) -> Iterator[tuple[int, Any]]:
        """Draw the batches before a number that were not drawn before; give their numbers and keys."""
        while self._next < number and not self.all_drawn:
            one = self._draw_one()
            if one is not None:
                yield one

    def ticket(self, first: int | None = None, batch_s: Mapping[int, float] | None = None) -> Ticket:
        """Order a batch that was drawn, and those behind it that go along.

        Args:
            first: Its number; None: the first.
            batch_s: Seconds that those which were drawn take: a slow one goes alone, and no others are drawn.
        """
        number = first = next(iter(self.drawn)) if first is None else first
        keys: list[Any] = []
        while len(keys) < max(1, self.size):
            if number not in self.drawn and (
                batch_s is not None or number != self._next or not self._draw_one()
            ):
                break
            if keys and batch_s is not None and batch_s[number] > TICKET_S:
                break
            self.ordered[number] = key = self.drawn.pop(number)
            keys.append(key)
            number += 1
        return Ticket(keys, first, self._seed)

    def _draw(self) -> bool:
        """Return whether a batch is drawn that was not ordered; draw one if none is."""
        return bool(self.drawn) or self._draw_one() is not None

    def _draw_one(self) -> tuple[int, Any] | None:
        if self.all_drawn:
            return None
        try:
            if self._keys is None:
                self._keys = iter(self.sampler)
                passed = sum(1 for _ in islice(self._keys, self._start))
                if passed < self._start:
                    raise too_short(self._epoch, passed, self._start)
            key = self._covered(next(self._keys))
        except StopIteration:
            self.all_drawn = True
            return None
        except BaseException as error:  # noqa: BLE001  # of a user's sampler
            self.all_drawn, self.error = True, error
            return None
        number, self._next = self._next, self._next + 1
        self.drawn[number] = key
        return number, key

    def _covered(self, key: Any) -> Any:
        """Return what of a batch is wanted; None: nothing of it."""
        if self.cover is None:
            return key
        try:
            return [index for index in key if self.cover[index]] or None
        except (
            IndexError,
            TypeError,
        ):  # a sampler of the user's gives something else: its batches stay whole
            return key


class TicketDataset:
    """Stands in for the dataset: hands tickets on to `TicketCollate`, which fetches the samples itself."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getitem__(self, ticket: Ticket) -> tuple[Any, Ticket]:
        return self.dataset, ticket

    __getitems__ = __getitem__


class TicketCollate:
    """Stands in for the collate function: prepares a ticket's batches, in the worker.

    Attributes:
        line: Where a worker that is started now takes tickets from; None: the DataLoader sends them.

    Args:
        collate: Makes a batch of samples.
        batched: Whether a key is a list of indices, not the index of a ready batch.
    """

    def __init__(self, collate: Callable[[Any], Any], *, batched: bool) -> None:
        self._collate = collate
        self._batched = batched
        self.line: PacketQueue | None = None

    def __call__(self, fetched: tuple[Any, Ticket]) -> Prepared:
        """Prepare the batches of a ticket, up to the first that fails."""
        dataset, ticket = fetched
        if ticket.first < 0 and self.line is not None:
            ticket = self.line.get()
            if ticket is None:
                return Prepared([], None, 0.0, -1)
        keys, first, seed = ticket
        batches: list[Any] = []
        took: list[bytes] = []
        error = None
        began = time.monotonic()
        try:
            for number, key in enumerate(keys, first):
                if seed is not None:
                    _seed_draws(seed, number)
                if key is None:
                    batches.append(())
                    took.append(b"")
                    continue
                samples, took_s = self._fetch(dataset, key)
                batches.append(self._collate(samples))
                took.append(took_s.tobytes() if self.line is not None and sum(took_s) > TICKET_S else b"")
        except Exception:  # noqa: BLE001  # whatever the user's dataset raises
            worker = get_worker_info()
            where = f"in DataLoader worker process {worker.id if worker else 0}"
            error = ExceptionWrapper(where=where)  # type: ignore[no-untyped-call]
        batch_s = (time.monotonic() - began) / max(1, len(batches))
        return Prepared(batches, error, batch_s, first, took)

    def _fetch(self, dataset: Any, key: Any) -> tuple[Any, array[float]]:
        """Fetch as a DataLoader does; return what each sample has taken too, in seconds."""
        began = time.perf_counter()
        if not self._batched:
            sample = dataset[key]
            return sample, array("f", [time.perf_counter() - began])
        if getattr(dataset, "__getitems__", None):
            samples = dataset.__getitems__(key)
            each_s = (time.perf_counter() - began) / max(1, len(key))
            return samples, array("f", [each_s]) * len(key)
        samples, took_s = [], array("f")
        for index in key:
            samples.append(dataset[index])
            now = time.perf_counter()
            took_s.append(now - began)
            began = now
        return samples, took_s


def _seed_draws(seed: int, number: int) -> None:
    """Seed this worker process's generators for one batch.

    Each gets a seed of its own: torch and numpy run the same algorithm, and would draw the same numbers.
    """
    digest = _digest(seed, number)
    # not torch.manual_seed: it also queues a call for each kind of device, for ever, and takes 100 us
    torch.default_generator.manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    random.seed(digest[8:16])
    np.random.seed(int.from_bytes(digest[16:20], "little"))  # noqa: NPY002  # what users' datasets draw from


def mix(*parts: int) -> int:
    """Return a 63-bit seed from several numbers; the same on every machine."""
    return int.from_bytes(_digest(*parts)[:8], "little") >> 1


def _digest(*parts: int) -> bytes:
    return hashlib.blake2b(repr(parts).encode(), digest_size=24).digest()
