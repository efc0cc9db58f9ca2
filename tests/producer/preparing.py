"""What a simulated loader prepares: samples of a data set that grows, or that are kept in a cache, without a worker.

Both are the product's own: the log and the order of what grows, the memory and the phases of a cache. Simulated are
only the data set, and the clock that tells what a sample costs.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset

import tsnb
from tsnb.caching import keeper as keeping
from tsnb.caching import learning
from tsnb.caching.choice import HitCost
from tsnb.caching.keeper import Keeper
from tsnb.caching.memory import SERVING, WRITTEN, adopt
from tsnb.extensions.growth import GrowingBatches, Growth, growth_of

__all__ = ["BATCH_SIZE", "GrowingSamples", "KeptSamples"]

BATCH_SIZE = 4
MOST = 100
"""Samples that a growing data set gets, but in rounds: epochs that have them all would get longer and longer."""


class GrowingSamples:
    """A data set that grows, under one producer after the other.

    Args:
        directory: For the log of what entered which epoch where.
        rng: Decides what is random.
        rounds: Whether epochs are rounds of new samples.
    """

    def __init__(self, directory: Path, rng: Random, *, rounds: bool) -> None:
        self._directory = directory
        self._rng = rng
        self._rounds = rounds
        self._listed = [str(number) for number in range(rng.randrange(1, 30))]
        self._growth: Growth | None = None
        self._batches: Iterator[list[int]] = iter(())
        self._ahead = rng.choice([0, 0, 2, 5])
        self._ordered: deque[list[int]] = deque()  # by the loader's workers, and not given
        self._number = self._epoch = 0
        self._given: dict[tuple[int, int], list[int]] = {}

    def start(self) -> int:
        """A producer begins; the one before was killed. Return the number of its first epoch."""
        self.close()
        grown = tsnb.data.grow(lambda: self._listed, int, index=self._directory)
        self._growth = growth_of(DataLoader(grown, BATCH_SIZE, shuffle=True), "s", 5)
        assert self._growth is not None
        if self._rounds:
            self._growth.set_rounds(tsnb.data.every(3), "new")
        return self._growth.first_epoch

    def close(self) -> None:
        """Let go of the log, as the system does when a producer is killed."""
        if self._growth is not None:
            self._growth.log.close()

    def arrive(self) -> None:
        """New samples are found."""
        if self._growth is not None and (self._rounds or len(self._listed) < MOST):
            more = self._rng.randrange(1, 7)
            self._listed += [str(number) for number in range(len(self._listed), len(self._listed) + more)]
            self._growth._dataset.refresh()

    @property
    def round_due(self) -> bool:
        """Whether a round should begin."""
        assert self._growth is not None
        return self._growth.round_due({})

    def begin(self, epoch: int, first: int) -> None:
        """Begin a pass over an epoch, at one of its batches."""
        assert self._growth is not None
        batches = GrowingBatches(self._growth)
        batches.set_epoch(epoch)
        self._batches, self._epoch, self._number = iter(batches), epoch, 0
        self._ordered.clear()
        for _ in range(first):
            assert self.batch(), "an epoch is shorter than it was"

    def batch(self) -> list[int]:
        """Return the next batch's samples, as they were if it was given before; empty: the epoch has ended."""
        while len(self._ordered) <= self._ahead and (more := next(self._batches, None)) is not None:
            self._ordered.append(more)
        if not self._ordered:
            return []
        made = self._ordered.popleft()
        key = (self._epoch, self._number)
        assert self._given.setdefault(key, made) == made, "a batch that was given is another one"
        self._number += 1
        return made

    def check(self, epoch: int, taken: list[int], samples: list[int], *, skips: bool) -> None:
        """Verify what somebody has had of an epoch that has ended: each sample once, in the order that all have.

        Args:
            epoch: Its number.
            taken: The batches.
            samples: Those in them, as it was told.
            skips: Whether it may have missed some.
        """
        assert self._growth is not None
        order = self._growth.begin(epoch)
        assert skips or taken == list(range(order.batches)), "an epoch has not been given to its end"
        assert samples == [i for number in taken for i in order.batch(number).tolist()], "of another order"
        whole = [i for number in range(order.batches) for i in order.batch(number).tolist()]
        log = self._growth.log
        first = log.first(epoch) if self._rounds else 0
        assert sorted(whole) == list(range(first, first + len(whole))), "lost, or twice"
        assert len(whole) >= log.samples(epoch) - first, "it has all that were there when it began"
        if self._rounds and log.begun(epoch - 1):
            assert first == log.samples(epoch - 1), "each sample is new in one round"


class _Costly(Dataset[Any]):
    """Samples of different sizes, and what each costs."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.prepared = 0
        self.spent_s = 0.0

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> bytes:
        self.prepared += 1
        self.spent_s += 0.01 * (1 + index % 5)
        return bytes(np.full(100 + 50 * (index % 7), index % 251, np.uint8))


class KeptSamples:
    """A data set of which a cache keeps some samples, under one producer after the other.

    Args:
        samples: In the data set.
        rng: Decides what is random.
        monkeypatch: Replaces the clock by what the data set says.
    """

    def __init__(self, samples: int, rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
        self._rng = rng
        self._dataset = _Costly(samples)
        self._plain = _Costly(samples)
        self._keeper: Keeper | None = None
        self._limit = rng.choice([32, 64, 64]) << 10
        self._held = -1  # the memory, as the process holds it that starts a producer again
        self._first = self._epoch = 0
        monkeypatch.setattr(learning, "cost_clock", lambda: self._dataset.spent_s)
        monkeypatch.setattr(keeping, "_hit_cost", lambda: HitCost(0.0, 0.0))

    def start(self) -> None:
        """A producer begins; the one before was killed: nothing of it is closed in good order."""
        if self._held >= 0:
            adopt(os.dup(self._held))
        self._let_go()
        keeper = self._keeper = Keeper(self._limit)
        keeper._ended.set()  # nobody looks at this machine's memory
        loader = DataLoader(self._dataset, BATCH_SIZE)
        self._kept = keeper.dataset(self._dataset, loader, 1)
        if self._held < 0:
            self._held = os.dup(keeper._memory.fd)

    def _let_go(self) -> None:
        if self._keeper is not None:
            self._keeper._watch.join()
            self._keeper._memory.close()

    def close(self) -> None:
        """Let go of the memory."""
        self._let_go()
        if self._held >= 0:
            os.close(self._held)

    def begin(self, first: int) -> None:
        """Begin a pass over an epoch, at one of its batches."""
        self._first = first

    def prepare(self, samples: list[int]) -> None:
        """Prepare a batch: each sample is what it is without a cache."""
        for index in samples:
            assert self._kept[index] == self._plain[index], f"sample {index} is another one"

    def end(self) -> None:
        """A pass has come to the epoch's end."""
        assert self._keeper is not None
        self._keeper.epoch_over(whole=not self._first)

    def press(self) -> None:
        """Memory gets short."""
        assert self._keeper is not None
        with contextlib.suppress(OSError):
            self._keeper._memory.give_back(self._rng.choice([1000, 4096, 4096, 5000, 9000]))

    @property
    def serving(self) -> bool:
        """Whether it has got so far that samples are taken from it."""
        assert self._keeper is not None
        return self._keeper._memory.phase == SERVING

    def check_misses(self) -> None:
        """Verify that exactly what is not kept is prepared, once it serves and nothing is given back meanwhile."""
        assert self._keeper is not None
        states = self._keeper._memory.states
        kept = int(np.count_nonzero(states == WRITTEN))
        before = self._dataset.prepared
        self.prepare(list(range(len(self._dataset))))
        assert self._dataset.prepared - before == len(self._dataset) - kept
