"""Which machine of a cluster keeps which sample for the producer's. Pure: numbers in, numbers out.

Each sample has an order in which it would lie on the machines, by a hash of its number and each machine's name
(rendezvous hashing): it goes to the first of them that has room. So the machines get equal shares without a table, and
where one of them leaves, or is another, the samples of the others stay where they are.

The producer's own memory gets the densest samples first (`choice`); these are what comes behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tsnb.caching.choice import ALIGN_BYTES, HitCost
from tsnb.stream.hashing import mixed, salt_of

__all__ = ["FETCH_TIMES", "Lender", "Owned", "owners_of", "worth_fetching"]

FETCH_TIMES = 2.0
"""A sample is placed on another machine if preparing it costs so many times what fetching it takes, when nothing else
uses the link: later the batches do, too."""


class Lender(NamedTuple):
    """A machine that lends memory."""

    machine: str
    """Its name in the cluster."""
    host: str
    """The address of its shard, IPv4 or IPv6."""
    port: int
    """TCP."""
    room_bytes: int
    """What it lends."""


class Owned(NamedTuple):
    """Samples and their places on other machines."""

    indices: np.ndarray[Any, Any]
    """int64 [placed]."""
    owners: np.ndarray[Any, Any]
    """uint8 [placed]: the place of each one's machine in the list."""
    offsets: np.ndarray[Any, Any]
    """int64 [placed]: where each begins in that machine's memory."""


def worth_fetching(
    cost_s: np.ndarray[Any, Any], sizes: np.ndarray[Any, Any], fetch: HitCost
) -> np.ndarray[Any, Any]:
    """Return the costs, 0 for samples that are not clearly cheaper to fetch than to prepare.

    Args:
        cost_s: float [samples]: seconds that preparing each takes.
        sizes: int [samples]: bytes of each.
        fetch: What fetching one costs.
    """
    clear = cost_s >= FETCH_TIMES * (fetch.each_s + fetch.byte_s * sizes)
    return np.where(clear, cost_s, 0.0)


def owners_of(indices: np.ndarray[Any, Any], sizes: np.ndarray[Any, Any], lenders: Sequence[Lender]) -> Owned:
    """Place samples on machines; those that fit nowhere are left out.

    Args:
        indices: int64 [wanted]: their numbers, the densest first.
        sizes: int [wanted]: bytes of each.
        lenders: The machines, at most 256.
    """
    count = len(indices)
    taken = -(-sizes.astype(np.int64) // ALIGN_BYTES) * ALIGN_BYTES
    owners, offsets = np.full(count, -1), np.zeros(count, np.int64)
    score = np.full(count, np.iinfo(np.uint64).max, np.uint64)
    used = [0] * len(lenders)
    salts = [salt_of(lender.machine) for lender in lenders]
    left = np.arange(count)
    for _ in lenders:
        best, score[left] = _next_best(indices[left], salts, score[left])
        for number, lender in enumerate(lenders):
            mine = left[best == number]
            ends = used[number] + np.cumsum(taken[mine])
            fits = int(np.searchsorted(ends, lender.room_bytes, side="right"))
            mine, ends = mine[:fits], ends[:fits]
            owners[mine], offsets[mine] = number, ends - taken[mine]
            used[number] = int(ends[-1]) if fits else used[number]
        left = left[owners[left] < 0]
    placed = owners >= 0
    return Owned(indices[placed], owners[placed].astype(np.uint8), offsets[placed])


def _next_best(
    indices: np.ndarray[Any, Any], salts: Sequence[int], below: np.ndarray[Any, Any]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the machine with the highest score below the last one, for each sample, and that score."""
    best, score = np.full(len(indices), -1), np.zeros(len(indices), np.uint64)
    for number, salt in enumerate(salts):
        mine = mixed(indices.astype(np.uint64) ^ np.uint64(salt))
        better = (mine < below) & (mine >= score)
        best[better], score[better] = number, mine[better]
    return best, score
