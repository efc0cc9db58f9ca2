"""The order of one epoch of a data set that grows: a function of the seed, the epoch and the log of what entered.

An epoch begins with a permutation of the samples that there are. At a *place*, the number of a batch, new samples
enter: each gets a seeded place among what has not been ordered yet, so whatever stands before the place stays as it is,
and the rest, shuffled as it was with the new ones in between, is a uniform permutation of both.

    epoch       sorted by key(seed, epoch, sample)
    entering    of the r samples left and n new ones, the new ones stand where the n smallest of the r + n
                keys(seed, epoch, first new sample, slot) are, in the order of their own keys

Keys are hashes by integer arithmetic, so the order is the same on every machine, with every version of Python, numpy
and torch. Pure: no torch, no I/O, no clock.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tsnb.stream.hashing import hashed

__all__ = ["Arrivals", "EpochOrder", "keys_of"]

Samples = npt.NDArray[np.int64]


class Arrivals(NamedTuple):
    """New samples that entered an epoch."""

    place: int
    """The number of the first batch that may hold one of them."""
    first: int
    """The first of them."""
    size: int
    """How many."""


def keys_of(numbers: npt.NDArray[np.int64], *seed: int) -> npt.NDArray[np.uint64]:
    """Return a hash of each number (splitmix64): uint64 [len(numbers)]."""
    return hashed(numbers, repr(seed))


class EpochOrder:
    """Which samples the batches of one epoch hold.

    Args:
        samples: Those that it begins with, each once.
        seed: The stream's.
        epoch: Its number.
        batch_size: Samples in a batch.
        shuffle: Whether they are shuffled; else they come in the order of their numbers, new ones last.
        drop_last: Whether a last batch that is not full is left out.
    """

    def __init__(
        self, samples: Samples, *, seed: int, epoch: int, batch_size: int, shuffle: bool, drop_last: bool
    ) -> None:
        self._seed = seed
        self._epoch = epoch
        self._batch_size = batch_size
        self._shuffle = shuffle
        self._drop_last = drop_last
        self._order = self._shuffled(samples)

    def _shuffled(self, samples: Samples) -> Samples:
        if not self._shuffle:
            return samples
        return samples[np.argsort(keys_of(samples, self._seed, self._epoch), kind="stable")]

    @property
    def samples(self) -> int:
        """Samples that its batches hold."""
        count = len(self._order)
        return count - count % self._batch_size if self._drop_last else count

    @property
    def batches(self) -> int:
        """Batches that it has."""
        count = len(self._order)
        return count // self._batch_size if self._drop_last else -(-count // self._batch_size)

    def batch(self, number: int) -> Samples:
        """Return the samples of one batch; none after the last."""
        if number >= self.batches:
            return self._order[:0]
        return self._order[number * self._batch_size : (number + 1) * self._batch_size]

    def takes(self, place: int) -> bool:
        """Whether samples can enter before this batch: something is left to be given."""
        return place * self._batch_size < len(self._order)

    def enter(self, entry: Arrivals) -> None:
        """Let new samples in.

        Args:
            entry: Which, and where; what stands before that place does not change.
        """
        begin = min(entry.place * self._batch_size, len(self._order))
        rest = self._order[begin:]
        new = self._shuffled(np.arange(entry.first, entry.first + entry.size, dtype=np.int64))
        total = len(rest) + len(new)
        mixed = np.empty(total, np.int64)
        places = np.zeros(total, np.bool_)
        if self._shuffle:
            slots = keys_of(np.arange(total, dtype=np.int64), self._seed, self._epoch, entry.first)
            places[np.argsort(slots, kind="stable")[: len(new)]] = True
        else:
            places[len(rest) :] = True
        mixed[places] = new
        mixed[~places] = rest
        self._order = np.concatenate([self._order[:begin], mixed])
