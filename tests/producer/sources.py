"""Loaders for tests, and a stand-in for the producer around a source: takes its batches, gives the slots back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset

from tsnb.caching.keeper import Keeper
from tsnb.stream.consumer.batches.unpacking import Unpacker
from tsnb.stream.decisions.events import Placed
from tsnb.stream.loader.packing import Collated, SlotImage, SlotWriter
from tsnb.stream.loader.seams import Ready, Skipped
from tsnb.stream.loader.sources import as_source
from tsnb.stream.memory.arena import Arena
from tsnb.stream.memory.scratch import ScratchPool
from tsnb.stream.memory.slots import FreeSlots
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.layout import Layout

SLOTS = 256


class Numbers(Dataset[Any]):
    """Sample i is i."""

    def __init__(self, samples: int = 50) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(index)


class Noisy(Numbers):
    """Sample i is i and what three generators give."""

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([index, torch.rand(()), random.random(), np.random.rand()], dtype=torch.float64)  # noqa: NPY002


class NoisyTogether(Noisy):
    """Fetches a batch at once."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        noise = torch.rand(len(indices))
        return [torch.stack([torch.tensor(float(i)), n]) for i, n in zip(indices, noise, strict=True)]


class Fails(Numbers):
    """Cannot give one of its samples."""

    def __init__(self, samples: int, bad: int) -> None:
        super().__init__(samples)
        self.bad = bad

    def __getitem__(self, index: int) -> Any:
        if index == self.bad:
            raise ValueError(f"sample {index} is rotten")
        return torch.tensor(index)


class Stream(IterableDataset[Any]):
    """Gives numbers in a random order that its worker draws."""

    def __init__(self, samples: int = 20) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[Any]:
        return iter(torch.randperm(self.samples))


class Stand:
    """A source, with an arena whose workers may write into it from the start unless told otherwise."""

    def __init__(
        self,
        loader: Any,
        seed: int | None = None,
        workers: int | None = None,
        *,
        fit: bool = True,
        keeper: Keeper | None = None,
    ) -> None:
        self.arena, self.slots = Arena.create(), FreeSlots()
        self.source: Any = as_source(
            loader, self.arena, self.slots.pipe, seed=seed, workers=workers, keeper=keeper
        )
        self.in_place = self.skipped = 0
        if fit:
            self.fit()

    def fit(self) -> None:
        """Let workers write into the arena."""
        self.arena.fit(SLOTS, 1 << 16)
        self.slots.in_pipe = 64
        self.slots.open(SLOTS)

    def __enter__(self) -> Stand:
        return self

    def __exit__(self, *_: object) -> None:
        self.source.close()
        self.slots.close()
        self.arena.close()

    def tickets_of(self, size: int) -> None:
        """Let workers get so many batches at once, always."""
        self.source.most_ahead(1)
        self.source._tickets.size = size
        self.source.workers._measured = lambda _seconds: None

    def epoch(self, number: int, start: int = 0) -> list[Any]:
        """Return an epoch's batches from `start` on."""
        return list(self.give(number, start))

    def give(self, number: int, start: int = 0) -> Iterator[Any]:
        """Give an epoch's batches, one by one, as the producer would."""
        for given in self.source.begin(number, start):
            if not isinstance(given, (Ready, Skipped)):
                continue
            skipped, batch = isinstance(given, Skipped), given.batch
            if isinstance(batch, SlotImage):  # as the producer copies it, into an arena of its own here
                tensors = self._copied(batch)
            else:
                tensors = self._read(batch, self.arena) if isinstance(batch, Placed) else batch
            if isinstance(tensors, Collated):  # the producer's writer opens it
                tensors = tensors.batch
            if isinstance(batch, Placed):
                self.in_place += 1
                self.slots.delivered(batch.slot)
                self.slots.free(batch.slot)
            self.skipped += skipped
            if not skipped:
                yield tensors

    def _copied(self, image: SlotImage) -> Any:
        arena = Arena.create()
        arena.fit(1, max(1, len(image.memory)))
        try:
            return self._read(SlotWriter(arena, 0).write(image), arena)
        finally:
            arena.close()

    def _read(self, placed: Placed, arena: Arena) -> Any:
        message = ms.Batch(0, placed.slot, 0, 0, placed.rows, 0, placed.values_offset, placed.values_bytes)
        unpacker = Unpacker(arena, 1, ScratchPool(), lambda _lease: None)
        return unpacker.read(message, Layout.decode(placed.layout), private=True).tree()


def same(one: Any, other: Any) -> bool:
    """Whether two lists of tensors are bit for bit the same."""
    return len(one) == len(other) and all(
        a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(one, other, strict=True)
    )


class Counting(IterableDataset[Any]):
    """Goes on counting where it was: who iterates it keeps a state."""

    count = 0

    def __iter__(self) -> Iterator[Any]:
        for _ in range(8):
            yield torch.tensor(self.count)
            self.count += 1
