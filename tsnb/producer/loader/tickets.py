"""Tickets: they tell a DataLoader's worker which batches to prepare next, and come back with the answer.

A DataLoader sends its workers what its batch sampler yields, and hands out what its collate function returns.
Between the two, for map-style datasets with workers, stand three parts of ours:

    loading thread                         worker
    Tickets (batch sampler)   --Ticket-->  TicketDataset (passes it on)  ->  TicketCollate (fetches, collates)
    producer.dataloader unpacks  <-------------------------------------------  Prepared

A ticket holds the indices of one batch, or of several that cost so little that the DataLoader's queues would
cost more than the batches. Each batch is fetched and collated on its own, so an error ends the ticket at its own
batch, and the ones before it arrive.

A ticket also knows the numbers of its batches in the epoch: with a seed, the random generators of the worker
process are seeded before each batch. The random numbers of a batch are thus a function of (seed, epoch, batch number),
whichever worker prepares it, whatever that worker did before, and wherever the epoch was begun.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from itertools import islice
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import get_worker_info

from tsnb.producer.loader.repeating import too_short

__all__ = ["Prepared", "Ticket", "TicketCollate", "TicketDataset", "Tickets", "mix"]


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


class Tickets:
    """Stands in for the loader's batch sampler, or for its sampler where `batch_size=None`.

    Attributes:
        size: How many batches the next ticket orders; may change at any time. 0 yields what the sampler yields,
            for loaders without workers.
        enough: Set to end the epoch with the tickets that are out.
        cover: The samples that are wanted: bool [samples]; None: all.
        ordered: What the sampler gave for each batch that is out, by its number in the epoch.
    """

    def __init__(self, sampler: Iterable[Any], size: int) -> None:
        self.sampler = sampler
        self.size = size
        self.enough = False
        self.cover: npt.NDArray[np.bool_] | None = None
        self.ordered: dict[int, Any] = {}
        self._epoch = 0
        self._start = 0
        self._seed: int | None = None
        self._turn = 0  # which of the iterations over one epoch gives tickets
        self._rest: tuple[Iterator[Any], int] | None = None  # keys, and the number of the next batch

    def begin(self, epoch: int, start: int, seed: int | None) -> None:
        """Choose what the next iteration gives: an epoch from its batch `start` on."""
        self._epoch, self._start, self._seed = epoch, start, seed
        self.enough = False
        self.ordered.clear()
        self._rest = None

    def hand_over(self) -> None:
        """End the iteration that goes on; the next one gives the rest of the epoch."""
        self._turn += 1

    def __len__(self) -> int:
        return len(cast("Sized", self.sampler))

    def __iter__(self) -> Iterator[Any]:
        # a generator: the DataLoader calls iter() twice and takes from one, and samplers may draw in iter()
        turn = self._turn
        keys, number = self._rest or self._from_start()
        if not self.size:
            for each, key in enumerate(keys, number):
                self.ordered[each] = wanted = self._covered(key)
                if wanted is not None:
                    yield wanted
        while (
            turn == self._turn
            and not self.enough
            and (several := [self._covered(key) for key in islice(keys, self.size)])
        ):
            first, number = number, number + len(several)
            self._rest = keys, number
            self.ordered.update(enumerate(several, first))
            yield Ticket(several, first, self._seed)

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

    def _from_start(self) -> tuple[Iterator[Any], int]:
        keys = iter(self.sampler)
        number = sum(1 for _ in islice(keys, self._start))
        if number < self._start:
            raise too_short(self._epoch, number, self._start)
        self._rest = keys, number
        return self._rest


class TicketDataset:
    """Stands in for the dataset: hands tickets on to `TicketCollate`, which fetches the samples itself."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getitem__(self, ticket: Ticket) -> tuple[Any, Ticket]:
        return self.dataset, ticket

    __getitems__ = __getitem__


class TicketCollate:
    """Stands in for the collate function: prepares a ticket's batches, in the worker.

    Args:
        collate: Makes a batch of samples.
        batched: Whether a key is a list of indices, not the index of a ready batch.
    """

    def __init__(self, collate: Callable[[Any], Any], *, batched: bool) -> None:
        self._collate = collate
        self._batched = batched

    def __call__(self, fetched: tuple[Any, Ticket]) -> Prepared:
        """Prepare the batches of a ticket, up to the first that fails."""
        dataset, (keys, first, seed) = fetched
        batches: list[Any] = []
        error = None
        began = time.monotonic()
        try:
            for number, key in enumerate(keys, first):
                if seed is not None:
                    _seed_draws(seed, number)
                batches.append(() if key is None else self._collate(self._fetch(dataset, key)))
        except Exception:  # noqa: BLE001  # whatever the user's dataset raises
            worker = get_worker_info()
            where = f"in DataLoader worker process {worker.id if worker else 0}"
            error = ExceptionWrapper(where=where)  # type: ignore[no-untyped-call]
        batch_s = (time.monotonic() - began) / max(1, len(batches))
        return Prepared(batches, error, batch_s, first)

    def _fetch(self, dataset: Any, key: Any) -> Any:
        """Fetch as a DataLoader does."""
        if not self._batched:
            return dataset[key]
        if getattr(dataset, "__getitems__", None):
            return dataset.__getitems__(key)
        return [dataset[index] for index in key]


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
