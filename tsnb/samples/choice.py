"""Which samples to keep, and when to give their memory back. Pure: numbers in, numbers out.

With one permutation an epoch, what was kept of the last one is all that the next can find, and every sample is asked
for once: no rule has more *hits* than what fits (CoorDL, VLDB 2021). So the gain lies in *which* samples are kept:

    gain     = cost of preparing it - cost of a hit
    density  = gain / bytes it takes

and the best set for a memory of B bytes is, except for the last sample, the densest ones up to B. They are laid out in
this order, the densest first: memory that has to be given back is cut off the end, and with it goes what saves least.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "ALIGN_BYTES",
    "LEAST_COST_S",
    "Chosen",
    "HitCost",
    "choose",
    "floor_of",
    "stalls_for_memory",
    "to_give_back",
]

ALIGN_BYTES = 64
"""Samples begin at cache lines."""
LEAST_COST_S = 1e-4
"""A sample that is prepared faster is not worth its memory: taking it costs some tens of microseconds, too."""
ROUNDS = 4
"""How often the room that is left is tried with smaller samples."""
LEAST_FLOOR_BYTES, MOST_FLOOR_BYTES = 64 << 20, 1 << 30
FLOOR_SHARE = 0.1
"""Memory counts as short where less than this share of it is free, between the two bounds."""
STALLED_SHARE = 0.1
"""Share of the time in which processes stood still for want of memory (PSI) from which on it counts as short."""
STEP_SHARE = 0.125
"""Given back at a time while processes stand still though there seems to be memory."""
LEAST_STEP_BYTES = 1 << 24


class HitCost(NamedTuple):
    """What it costs to take a sample from the memory."""

    each_s: float
    """Seconds a sample."""
    byte_s: float
    """Seconds a byte."""


class Chosen(NamedTuple):
    """The samples to keep."""

    indices: np.ndarray[Any, Any]
    """int64 [kept], the densest first."""
    offsets: np.ndarray[Any, Any]
    """int64 [kept]: where each begins in the memory."""
    used_bytes: int
    """The end of the last one."""


def choose(
    cost_s: np.ndarray[Any, Any], sizes: np.ndarray[Any, Any], room_bytes: int, hit: HitCost
) -> Chosen:
    """Return the samples that save the most when kept.

    Args:
        cost_s: float [samples]: seconds that preparing each takes; nan or 0 for those that cannot be kept.
        sizes: int [samples]: bytes of each.
        room_bytes: Memory for them.
        hit: What taking one costs.
    """
    taken = -(-sizes.astype(np.int64) // ALIGN_BYTES) * ALIGN_BYTES
    gain = np.nan_to_num(cost_s.astype(np.float64)) - (hit.each_s + hit.byte_s * sizes)
    candidates = np.flatnonzero((cost_s >= LEAST_COST_S) & (gain > 0) & (taken > 0) & (taken <= room_bytes))
    # stable: equal samples are kept in the order of their numbers, on every machine
    order = candidates[np.argsort(-gain[candidates] / taken[candidates], kind="stable")]
    kept: list[np.ndarray[Any, Any]] = []
    room = room_bytes
    for _ in range(ROUNDS):
        order = order[taken[order] <= room]
        fits = np.searchsorted(np.cumsum(taken[order]), room, side="right")
        kept.append(order[:fits])
        room -= int(taken[order[:fits]].sum())
        order = order[fits:]
    indices = np.concatenate(kept)
    ends = np.cumsum(taken[indices])
    return Chosen(indices, ends - taken[indices], int(ends[-1]) if len(ends) else 0)


def floor_of(total_bytes: int) -> int:
    """Return the free memory below which some has to be given back.

    Args:
        total_bytes: The machine's memory, or the limit of the control group.
    """
    return int(min(MOST_FLOOR_BYTES, max(LEAST_FLOOR_BYTES, FLOOR_SHARE * total_bytes)))


def stalls_for_memory(free_bytes: float, floor_bytes: int, stalled: float) -> bool:
    """Return whether processes stand still for want of memory, though there may seem to be some.

    Args:
        free_bytes: Free memory now.
        floor_bytes: As `floor_of`.
        stalled: Share of the time since the last look in which they did (PSI).
    """
    return stalled >= STALLED_SHARE and free_bytes < 4 * floor_bytes


def to_give_back(used_bytes: int, free_bytes: int, floor_bytes: int, stalled: float) -> int:
    """Return how much to give back now.

    Args:
        used_bytes: What samples take.
        free_bytes: Free memory now.
        floor_bytes: As `floor_of`.
        stalled: Share of the time since the last look in which processes stood still for want of memory.
    """
    wanted = 0
    if free_bytes < floor_bytes:  # twice the floor is free afterwards, so that it does not go on byte by byte
        wanted = 2 * floor_bytes - free_bytes
    elif stalls_for_memory(free_bytes, floor_bytes, stalled):
        wanted = max(LEAST_STEP_BYTES, int(STEP_SHARE * used_bytes))
    return min(used_bytes, wanted)
