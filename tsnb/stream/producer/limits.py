"""Looks before allocating: the memory that a stream uses for certain, against what is free.

The arena is sparse, so its size says nothing; what counts is how many batches lie in it at once. In bytes, with b
the size of the first batch, `band` the batches that the late-join window keeps and `ahead` those that the loader's
workers prepare:

    certain = b x (kept + 1 + ahead + 2)        kept = max(window, band), at most an epoch

the batches kept for the slowest consumer and for latecomers, the one being granted, and the slots that the workers
have in hand or wait for. It is reached in every epoch in which two consumers drift apart. What consumers hold beyond
comes on top (docs/architecture.md has the bound), so this refuses only what could not go well.

A trial that stops, to validate say, may lag further than the window (`decisions.pacing.drift`): in batches at most

    lag = max(window, min(4096, window_bytes / b, free / (8 b)))      `window_bytes` is 1 GiB unless `window=` is a size

and free / (2 b) where a size was asked for. It counts beside what lies there already, and while a trial lags it is
looked at again each second. The arena is sparse: memory is used only while a trial lags, and given back afterwards.

In the ways of pacing `free` and `weights` a wide window takes the place of the stream's own:

    reach = min(256 batches, 1 GiB / b)                  the arena has slots for so many, as addresses
    wide  = max(window, min(reach, free / (2 b)))        free: when the pacing is chosen, and again at the first batch

so that one that falls behind costs at most half of the memory that is free at that moment, and never more than 1 GiB.

The arena's slots are addresses too, 4 TiB of them in all. The first batch may be a small one (the rest of an epoch,
short texts, a folder that has just begun to fill), and a later one that does not fit would end the epoch for all.

Where consumers take turns (`rotate=`), the window is as wide as a turn, at most `reach` and what is free.

`machine.memory` says how much is free. Memory that gets short later is watched only while a trial lags.
"""

from __future__ import annotations

import mmap
import resource

from tsnb.errors import ArenaFull
from tsnb.machine.memory import Free
from tsnb.text.words import size_text

__all__ = [
    "MOST_LAG",
    "addresses",
    "certain_batches",
    "least_room",
    "most_lag",
    "no_room_for_turns",
    "reach_of",
    "require_memory",
    "whole_pages",
    "wide_window",
]

WIDE_BATCHES = 256
"""A consumer that is further behind than this will not catch up by a wider window."""
WIDE_BYTES = 1 << 30
"""A wide window keeps no more than this."""
MOST_LAG = 4096
"""Batches that a trial which stops may be behind, however small they are: each costs the producer some time."""
LAG_SHARE, ASKED_SHARE = 8, 2
"""A trial that stops may cost this part of what is free: an eighth; half of it where a size was asked for."""

ADDRESSES = 1 << 42
"""What the arena's slots may reach over in all: a process has 32 times as much, on most systems."""
ROOM = 4
"""A slot has room for at least this many times the first batch."""
MIN_SLOT_BYTES = 1 << 16


def whole_pages(size: int) -> int:
    """Return what bytes take of memory: whole pages, and at least one."""
    return max(1, -(-size // mmap.PAGESIZE)) * mmap.PAGESIZE


def least_room(batch_bytes: int) -> int:
    """Return the bytes of a slot where addresses are scarce.

    Args:
        batch_bytes: What the first batch takes.
    """
    return max(MIN_SLOT_BYTES, ROOM * batch_bytes)


def addresses() -> int:
    """Return how many bytes the arena may reach over: less where processes or files are kept small (`ulimit`)."""
    limits = (resource.getrlimit(which)[0] for which in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE))
    return min(ADDRESSES, *(limit // 8 if limit != resource.RLIM_INFINITY else ADDRESSES for limit in limits))


def reach_of(batch_bytes: int, most_bytes: int = WIDE_BYTES, most_batches: int = WIDE_BATCHES) -> int:
    """Return how many batches a wide window may keep at most.

    Args:
        batch_bytes: What the first batch takes.
        most_bytes: What they may take in all.
        most_batches: And how many they may be.
    """
    return min(most_batches, most_bytes // max(1, batch_bytes))


def most_lag(window_bytes: int, batch_bytes: int, free_bytes: int | None, kept: int, *, asked: bool) -> int:
    """Return how many batches a trial that stops may be behind.

    Args:
        window_bytes: What they may take in all.
        batch_bytes: What the largest batch takes so far.
        free_bytes: What can be had; None where the system does not tell.
        kept: Batches that it is behind now: their memory is not free any more.
        asked: Whether the user chose that size.
    """
    most = reach_of(batch_bytes, window_bytes, MOST_LAG)
    if free_bytes is None:
        return most
    share = ASKED_SHARE if asked else LAG_SHARE
    return min(most, kept + free_bytes // (share * max(1, batch_bytes)))


def wide_window(window: int, batch_bytes: int, free: Free | None) -> int:
    """Return the window of the ways of pacing that do not keep consumers in step.

    Args:
        window: The stream's own.
        batch_bytes: What the largest batch takes so far.
        free: What can be had; None where the system does not tell.
    """
    most = reach_of(batch_bytes)
    if free is not None:
        most = min(most, free.size // (2 * max(1, batch_bytes)))
    return max(window, most)


def no_room_for_turns(batches: int, window: int, reach: int, batch_bytes: int, free: Free | None) -> str:
    """Return why a window of batches cannot be kept until all have had their turn; empty where it can.

    Args:
        batches: A turn's.
        window: The stream's own window: there is room for that.
        reach: Batches that the arena has slots for.
        batch_bytes: What the largest batch takes so far.
        free: What can be had; None where the system does not tell.
    """
    fits = free is None or batches * batch_bytes <= free.size
    if batches <= window or (batches <= reach and fits):
        return ""
    most = max(window, reach if free is None else min(reach, free.size // max(1, batch_bytes)))
    where = "" if fits or free is None else f", and {size_text(free.size)} are free ({free.where})"
    wider = f", or serve with window={batches}" if fits else ""
    return (
        f"rotate={batches} keeps {batches:,} batches of {size_text(batch_bytes)} until all trials have "
        f"had their turn, {size_text(batches * batch_bytes)} in total, but there is room for "
        f"{most}{where}. Pass rotate={most} or less{wider}"
    )


def certain_batches(window: int, band: int, batches: int | None, ahead: int) -> int:
    """Return how many batches will lie in the arena at once.

    Args:
        window: Batches that the fastest consumer may be ahead of the slowest.
        band: Batches that the late-join window keeps.
        batches: In an epoch, where known.
        ahead: Batches that the loader's workers prepare ahead.
    """
    kept = max(window, band)
    return (kept if batches is None else min(kept, batches)) + 1 + ahead + 2


def require_memory(
    window: int, band: int, batches: int | None, ahead: int, batch_bytes: int, free: Free | None
) -> None:
    """Check that a stream has the memory that it will use for certain.

    Args:
        window: As `certain_batches`.
        band: As `certain_batches`.
        batches: As `certain_batches`.
        ahead: As `certain_batches`.
        batch_bytes: What the largest batch takes so far.
        free: What can be had; None where the system does not tell.

    Raises:
        ArenaFull: It has not; names the numbers, and the option that is worth lowering.
    """
    count = certain_batches(window, band, batches, ahead)
    if free is None or count * batch_bytes <= free.size:
        return
    moving = 1 + ahead + 2
    raise ArenaFull(
        f"This stream would keep {count:,} batches of {size_text(batch_bytes)} in memory at once, "
        f"{size_text(count * batch_bytes)} in total, but only {size_text(free.size)} are free "
        f"({free.where}). {count - moving:,} batches are for "
        f"{'the late-join window' if band > window else 'the window'}, {moving} are being loaded or "
        f"sent. {_way_out(window, band, ahead, free.size // max(1, batch_bytes))}"
    )


def _way_out(window: int, band: int, ahead: int, fits: int) -> str:
    """Return what to lower first, by how much at least."""
    least = 1 + ahead + 2
    if band > window and fits > least + window:
        return "Serve with a smaller late_join= (0 keeps no more than the window)."
    if fits > least + 1:
        return f"Serve with window={fits - least - 1} or less and late_join=0."
    if ahead and fits > 4:
        return "Serve with window=1, late_join=0 and fewer workers= (or a smaller prefetch_factor)."
    return "Give the loader a smaller batch_size."
