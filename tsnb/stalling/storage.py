"""What a loader reads from files, and how fast it is at another share of the page cache or on another disk. Pure.

A `DataLoader`'s worker reads a sample and prepares it, one after the other, so a slow disk is not hidden behind the
preparing as in a pipeline: with w workers, preparing p and waiting d for a sample that is not in memory, the loader
needs (p + (1 - h) d) / w seconds a sample at hits h, as long as the disk has room; the disk itself, busy b with each
such sample, needs (1 - h) b. Between the two bounds workers wait for each other in front of the disk, and the loop
waits for the batch that happens to have more misses than the others. `loading_s` plays that through, sample by sample,
with seeded luck, as torch hands its orders out.

DS-Analyzer (Mohan et al., VLDB 2021) answers t = x S / memory rate + (1 - x) S / disk rate and takes the slower of that
and of preparing. It is right where preparing is another stage of a pipeline with deep queues.

Hits are not the share that fits. Every epoch has an order of its own, so what was read long ago is as likely as
anything to be read next, and a cache that forgets what was not used for longest has forgotten most of it: at a share f,
f + (1 - f) ln(1 - f) of the reads hit. Nothing can do better than f (CoorDL). Linux lies about halfway: in a control
group of that size it was measured to hit 13 %, 33 % and 68 % at f = 25 %, 50 % and 75 %, where the bounds are 3 to
25 %, 15 to 50 % and 40 to 75 %. `hits` gives all three.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

__all__ = ["Hits", "Storage", "busy_of", "hits", "loading_s", "preparing_s"]

PREFETCH = 2
"""Batches that a worker may be ahead."""
SAMPLES = 1500
"""Played through: luck moves the result by less than 2 %."""
MET = 0.1
"""Workers have met the disk's limit where it is busy for this share of the wait; less is solved out of noise."""
_STEPS = 18
"""Halvings when a formula is solved backwards: to within 1/250,000."""


@dataclass(frozen=True)
class Storage:
    """What a loader reads from files, a sample; seen in a worker."""

    sample_bytes: float
    """Bytes of files that a sample needs."""
    files: float
    """Files opened for a sample."""
    total_bytes: float | None
    """The size of all files of an epoch; None where their number is not told."""
    cached: float | None
    """Share of the bytes that were in the page cache when they were asked for, 0 to 1; None where it is not told."""
    unseen: float
    """Share of the bytes read from files that no Python code opened (a C library did), 0 to 1."""
    samples: int
    """So many were looked at."""
    wait_s: float | None = None
    """Seconds that a worker waits longer for a sample whose files are not in memory; None: not measured."""
    busy_s: float | None = None
    """Of these the disk is busy so long, and no other worker can have it; None: not measured."""
    off: float = 0.0
    """How far `wait_s` may be off, as a share of it: two standard errors."""
    why_not: str = ""
    """Why reading from the disk could not be measured though it was asked for."""

    @property
    def disk_bytes_per_s(self) -> float | None:
        """What the disk gives to all workers together; None: not measured, or no limit was met."""
        limited = self.busy_s is not None and self.wait_s is not None and self.busy_s >= MET * self.wait_s
        return self.sample_bytes / self.busy_s if self.busy_s and limited else None


@dataclass(frozen=True)
class Hits:
    """Share of the reads that come from memory, 0 to 1."""

    least: float
    """Where what was not used for longest is forgotten."""
    likely: float
    """Halfway, as Linux was measured."""
    most: float
    """The best case, in which files stay in memory once they are there: no cache does better."""


def hits(memory_bytes: float, total_bytes: float) -> Hits:
    """Return the share of reads that come from memory in the long run, each epoch in a random order.

    Args:
        memory_bytes: For the page cache.
        total_bytes: Of all files of an epoch.
    """
    share = min(1.0, max(0.0, memory_bytes / max(total_bytes, 1.0)))
    lost = 1.0 - share
    least = max(0.0, share + lost * math.log(lost)) if lost else 1.0
    return Hits(least, (least + share) / 2, share)


def loading_s(
    workers: int,
    prepare_s: float | Sequence[float],
    storage: Storage | None,
    hit_share: float,
    *,
    batch_size: int = 8,
) -> float:
    """Return the seconds a sample that workers need together, with no model computing.

    Args:
        workers: Processes; 0 counts as 1.
        prepare_s: Seconds a sample of one worker whose files are in memory; several: in turns.
        storage: What the disk costs; None, or not measured: nothing.
        hit_share: Share of the samples whose files are in memory.
        batch_size: Samples in a batch: a worker prepares a whole one.
    """
    workers = max(1, workers)
    costs = [prepare_s] if isinstance(prepare_s, (int, float)) else list(prepare_s)
    if storage is None or storage.wait_s is None or hit_share >= 1.0:
        if len(costs) == 1:
            return costs[0] / workers
        wait_s = busy_s = 0.0
    else:
        wait_s, busy_s = storage.wait_s, min(storage.busy_s or 0.0, storage.wait_s)
    batches = max((10 + PREFETCH) * workers, SAMPLES // max(1, batch_size))
    return _played(workers, costs, wait_s, busy_s, hit_share, batch_size, batches)


def _played(
    workers: int,
    costs: list[float],
    wait_s: float,
    busy_s: float,
    hit_share: float,
    batch_size: int,
    batches: int,
) -> float:
    """Play so many batches through; return the seconds a sample, from the middle."""
    luck = random.Random(0)  # one luck for all questions: differences are then the question's
    misses = [_misses(luck, 1.0 - hit_share, batch_size) for _ in range(batches)]
    given_s = [0.0] * batches  # when the loop had it, in order
    ready: dict[int, float] = {}
    done_s: dict[int, float] = {}
    free_s = 0.0  # the disk
    handed = 0
    parked: dict[int, int] = {}  # batch whose order waits for another to be given: worker
    at = [(0.0, worker, worker, 0) for worker in range(min(workers, batches))]  # time, worker, batch, sample
    heapq.heapify(at)
    while at:
        now_s, worker, batch, sample = heapq.heappop(at)
        if sample < batch_size:
            if misses[batch][sample]:
                begin_s = max(now_s, free_s)
                free_s = begin_s + busy_s
                now_s = begin_s + wait_s
            cost_s = costs[(batch * batch_size + sample) % len(costs)]
            heapq.heappush(at, (now_s + cost_s, worker, batch, sample + 1))
            continue
        ready[batch] = done_s[worker] = now_s
        following = batch + workers
        if following < batches:
            parked[following] = worker
        while handed in ready:
            given_s[handed] = max(given_s[handed - 1] if handed else 0.0, ready.pop(handed))
            handed += 1
        for waiting in [b for b in parked if b < handed + workers * PREFETCH]:
            ordered_s = given_s[waiting - workers * PREFETCH] if waiting >= workers * PREFETCH else 0.0
            # a worker goes on when it has done its last batch, and has another order
            own = parked.pop(waiting)
            heapq.heappush(at, (max(done_s[own], ordered_s), own, waiting, 0))
    # whole rounds of the workers, from when they have spread until before the first has no more orders
    first = batches // 5
    last = first + (batches - 1 - workers * (PREFETCH + 1) - first) // workers * workers
    return (given_s[last] - given_s[first]) / ((last - first) * batch_size)


def _misses(luck: random.Random, share: float, samples: int) -> list[bool]:
    return [luck.random() < share for _ in range(samples)]


def preparing_s(
    wall_s: float, workers: int, storage: Storage | None, hit_share: float, *, batch_size: int = 8
) -> float:
    """Return what a worker needs for a sample in memory, if so many of them needed `wall_s` at these hits.

    Args:
        wall_s: Seconds a sample of the loader.
        workers: Processes; 0 counts as 1.
        storage: What the disk cost.
        hit_share: Share of the samples whose files were in memory.
        batch_size: Samples in a batch.
    """
    most_s = wall_s * max(1, workers)
    if storage is None or storage.wait_s is None or hit_share >= 1.0:
        return most_s
    return _solved(
        lambda prepare_s: loading_s(workers, prepare_s, storage, hit_share, batch_size=batch_size),
        wall_s,
        most_s,
    )


def busy_of(wait_s: float, wall_s: float, workers: int, prepare_s: float, storage: Storage) -> float:
    """Return how long the disk is busy with a sample, if so many workers needed `wall_s` with nothing in memory.

    Args:
        wait_s: Seconds that one worker alone waits for a sample.
        wall_s: Seconds a sample of all of them.
        workers: Processes, 2 or more.
        prepare_s: Seconds a sample of one in memory.
        storage: What else is known.
    """

    def foretold(busy_s: float) -> float:
        told = replace(storage, wait_s=wait_s, busy_s=busy_s)
        return loading_s(workers, prepare_s, told, 0.0, batch_size=1)

    return _solved(foretold, wall_s, wait_s)


def _solved(rising: Callable[[float], float], wanted: float, most: float) -> float:
    """Return where a rising function has a value, between 0 and a bound."""
    low, high = 0.0, most
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < wanted else (low, middle)
    return (low + high) / 2
