"""Which samples to keep, and when to give their memory back. Pure: numbers in, numbers out.

With one permutation an epoch, what was kept of the last one is all that the next can find, and every sample is asked
for once: no rule has more *hits* than what fits (CoorDL, VLDB 2021). So the gain lies in *which* samples are kept:

    gain     = cost of preparing it - cost of a hit
    density  = gain / bytes it takes

and the best set for a memory of B bytes is, except for the last sample, the densest ones up to B. They are laid out in
this order, the densest first: memory that has to be given back is cut off the end, and with it goes what saves least.

A sample may be kept packed (`packed`): fewer bytes, a dearer hit. Where its density is higher so, it counts as two
steps, each with a density of its own: to keep it packed; and to keep it as it is instead, which saves unpacking it each
time, for the bytes that it takes more. The second step is always less dense than the first, so the same rule finds for
each sample the form that is best for all of them together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "ALIGN_BYTES",
    "LEAST_COST_S",
    "Chosen",
    "HitCost",
    "PackedForms",
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


class PackedForms(NamedTuple):
    """What samples are when they are packed."""

    sizes: np.ndarray[Any, Any]
    """int [samples]: bytes; 0 for those that are not to be packed."""
    take_s: np.ndarray[Any, Any]
    """float [samples]: seconds that unpacking takes."""


class Chosen(NamedTuple):
    """The samples to keep."""

    indices: np.ndarray[Any, Any]
    """int64 [kept], the densest first."""
    offsets: np.ndarray[Any, Any]
    """int64 [kept]: where each begins in the memory."""
    packed: np.ndarray[Any, Any]
    """bool [kept]: whether it is kept packed."""
    used_bytes: int
    """The end of the last one."""


def choose(
    cost_s: np.ndarray[Any, Any],
    sizes: np.ndarray[Any, Any],
    room_bytes: int,
    hit: HitCost,
    packed: PackedForms | None = None,
) -> Chosen:
    """Return the samples that save the most when kept, and in which form.

    Args:
        cost_s: float [samples]: seconds that preparing each takes; nan or 0 for those that cannot be kept.
        sizes: int [samples]: bytes of each.
        room_bytes: Memory for them.
        hit: What taking one costs that is not packed.
        packed: What they are when they are packed; None: none is to be.
    """
    whole_bytes = _lines(sizes)
    whole_s = np.nan_to_num(cost_s.astype(np.float64)) - (hit.each_s + hit.byte_s * sizes)
    gain_bytes, gain_s = whole_bytes, whole_s
    pays = np.zeros(len(sizes), bool)
    if packed is not None:
        packed_bytes, packed_s = _lines(packed.sizes), whole_s - packed.take_s
        pays = (packed_bytes > 0) & (packed_bytes < whole_bytes) & (packed_s > 0)
        pays &= packed_s * whole_bytes > whole_s * packed_bytes
        gain_bytes, gain_s = np.where(pays, packed_bytes, whole_bytes), np.where(pays, packed_s, whole_s)
    candidates = np.flatnonzero((cost_s >= LEAST_COST_S) & (gain_s > 0) & (gain_bytes > 0))
    again = candidates[pays[candidates]]  # these count a second time: what it takes to have them unpacked
    samples, unpacks = (
        np.concatenate([candidates, again]),
        np.arange(len(candidates) + len(again)) >= len(candidates),
    )
    steps_bytes = np.concatenate([gain_bytes[candidates], (whole_bytes - gain_bytes)[again]])
    steps_s = np.concatenate([gain_s[candidates], (whole_s - gain_s)[again]])
    # stable: equal samples are kept in the order of their numbers, on every machine
    order = np.argsort(-steps_s / steps_bytes, kind="stable")
    kept, unpacked = _taken(order, samples, unpacks, steps_bytes, len(sizes), room_bytes)
    packs = pays & ~unpacked
    indices = np.flatnonzero(kept)
    taken = np.where(packs, gain_bytes, whole_bytes)[indices]
    saved_s = np.where(packs, gain_s, whole_s)[indices]
    densest = np.argsort(-saved_s / taken, kind="stable")
    indices, ends = indices[densest], np.cumsum(taken[densest])
    return Chosen(indices, ends - taken[densest], packs[indices], int(ends[-1]) if len(ends) else 0)


def _taken(
    order: np.ndarray[Any, Any],
    samples: np.ndarray[Any, Any],
    unpacks: np.ndarray[Any, Any],
    steps_bytes: np.ndarray[Any, Any],
    count: int,
    room: int,
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return which of so many samples are kept, and which of them unpacked though they might be packed.

    Args:
        order: int [steps]: the densest first.
        samples: int [steps]: whose each is.
        unpacks: bool [steps]: whether it is the second one of its sample.
        steps_bytes: int [steps]: what each takes.
        count: Samples in all.
        room: Memory for them, in bytes.
    """
    kept, unpacked = np.zeros(count, bool), np.zeros(count, bool)
    for _ in range(ROUNDS):
        order = order[steps_bytes[order] <= room]
        there = kept.copy()
        there[samples[order[~unpacks[order]]]] = True
        order = order[there[samples[order]]]  # what does not fit packed does not fit unpacked
        fits = np.searchsorted(np.cumsum(steps_bytes[order]), room, side="right")
        now, order = order[:fits], order[fits:]
        kept[samples[now]] = True
        unpacked[samples[now[unpacks[now]]]] = True
        room -= int(steps_bytes[now].sum())
    return kept, unpacked


def _lines(sizes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the bytes that samples take, in whole cache lines."""
    taken: np.ndarray[Any, Any] = -(-sizes.astype(np.int64) // ALIGN_BYTES) * ALIGN_BYTES
    return taken


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
