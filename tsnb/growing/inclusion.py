"""Which samples a round draws where some are likelier than others, and the weights that undo that. Pure.

Of N samples a round has n, sample i with probability pi(i) (the pi add up to n). Its weight is

    weight(i) = n / (N * pi(i)) = 1 / (N * p(i)),    p(i) = pi(i) / n

so that (weights * losses).mean() over the round has the mean loss over all N samples as its expectation (Horvitz and
Thompson), whatever the pi are.

    hard       pi(i) ~ EVEN + (1 - EVEN) * loss(i) / mean loss, and never above 1. What has not been reported counts as
               the mean does, a loss below 0 as 0. EVEN keeps each sample possible, and weights below 1 / EVEN
    balanced   of each class as many, of one that has fewer all: pi(i) = taken of its class / samples of its class

The n are drawn systematically (Madow): the samples in an order by hashes, each as long as its pi on a line, and those
are taken on which u, u + 1, u + 2, ... fall. So there are n, neither more nor fewer, and no sample twice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tsnb.growing.order import keys_of

__all__ = ["Selected", "balanced", "hard", "probabilities"]

EVEN = 0.1
"""Share of a round that is drawn whatever the losses are."""
_PLACES, _START, _CLASS = 1, 2, 3  # what hashes are for

Numbers = npt.NDArray[np.float64]
Samples = npt.NDArray[np.int64]


class Selected(NamedTuple):
    """The samples of a round."""

    samples: Samples
    """In the order in which they were found."""
    weights: npt.NDArray[np.float32]
    """One for each."""


def probabilities(losses: Numbers, wanted: int) -> Numbers:
    """Return how likely each sample is to be in a round by its loss: they add up to `wanted`, and none is above 1.

    Args:
        losses: float64 [samples]; nan: not reported.
        wanted: Samples of the round, as many as there are at most.
    """
    known = losses[~np.isnan(losses)]
    mean = np.maximum(known, 0).mean() if len(known) else 0.0
    hardness = np.maximum(losses, 0) / mean if mean > 0 else np.ones_like(losses)
    hardness = EVEN + (1 - EVEN) * np.where(np.isnan(losses), 1.0, hardness)
    sure = np.zeros(len(losses), np.bool_)
    while True:  # what would be above 1 is taken surely, and the others share the rest
        left = wanted - np.count_nonzero(sure)
        share = left / hardness[~sure].sum() if left and not sure.all() else 0.0
        above = ~sure & (hardness * share >= 1)
        if not above.any():
            return np.where(sure, 1.0, hardness * share)
        sure |= above


def hard(losses: Numbers, wanted: int, *seed: int) -> Selected:
    """Draw a round, the likelier the higher the loss.

    Args:
        losses: As `probabilities`.
        wanted: As `probabilities`.
        *seed: Equal numbers draw the same samples of the same losses.
    """
    likely = probabilities(losses, wanted)
    places = np.argsort(keys_of(np.arange(len(losses), dtype=np.int64), *seed, _PLACES), kind="stable")
    ends = np.cumsum(likely[places])
    start = float(keys_of(np.zeros(1, np.int64), *seed, _START)[0] >> np.uint64(11)) / (1 << 53)
    # the last end is `wanted` up to rounding, which may not cost the last one
    at = np.minimum(np.searchsorted(ends, start + np.arange(wanted), side="right"), len(losses) - 1)
    samples = np.unique(places[at])
    weights = wanted / (len(losses) * likely[samples])
    return Selected(samples, weights.astype(np.float32))


def balanced(labels: Samples, wanted: int | None, *seed: int) -> Selected:
    """Draw a round in which all classes have as many samples, as far as they have them.

    Args:
        labels: int64 [samples]: the class of each, numbered from 0.
        wanted: Samples of the round; None: as many of each class as the smallest one has.
        *seed: Equal numbers draw the same samples of the same labels.
    """
    counts = np.bincount(labels)
    there = np.flatnonzero(counts)
    taken = np.zeros(len(counts), np.int64)
    if wanted is None:
        taken[there] = counts[there].min(initial=len(labels))
    else:
        taken[there] = _shared(counts[there], min(wanted, len(labels)))
    keys = keys_of(np.arange(len(labels), dtype=np.int64), *seed, _CLASS)
    order = np.lexsort((keys, labels))
    place = np.arange(len(labels)) - np.searchsorted(labels[order], labels[order])  # of each within its class
    samples = np.sort(order[place < taken[labels[order]]])
    likely = taken[labels[samples]] / counts[labels[samples]]
    return Selected(samples, (len(samples) / (len(labels) * likely)).astype(np.float32))


def _shared(counts: Samples, wanted: int) -> Samples:
    """Return how many samples each class gives, as evenly as what they have allows; they add up to `wanted`."""
    taken = np.zeros_like(counts)
    left = wanted
    for rank, number in enumerate(order := np.argsort(counts, kind="stable")):
        taken[number] = min(counts[number], left // (len(order) - rank))
        left -= taken[number]
    return taken
