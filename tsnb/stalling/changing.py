"""Answers "what if": what was measured, with other workers, another disk or another share of it in memory. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tsnb.stalling import asked
from tsnb.stalling.sharing import Way, with_workers
from tsnb.stalling.storage import Hits, Storage, loading_s, preparing_s

if TYPE_CHECKING:
    from tsnb.stalling.result import Stalls

__all__ = ["changed", "what_if"]


def changed(
    told: Stalls,
    *,
    workers: int | None = None,
    storage: Storage | None = None,
    hits: Hits | None = None,
) -> Stalls:
    """Return measurements as they would be with something else.

    Args:
        told: As they are.
        workers: Another number of workers.
        storage: Another disk. Where nothing was said of the page cache, everything is read from it.
        hits: Another share of the samples in memory.

    Raises:
        ValueError: It depends on the cost of the disk, which is not known.
    """
    now = storage or told.storage
    if hits is not None and (now is None or now.wait_s is None):
        why = f": {now.why_not}" if now is not None and now.why_not else ""
        if now is None and told.cold:
            raise ValueError(
                "The cost of the disk is unknown, because the loader is not a DataLoader or opened no "
                "visible file. Its figures are for data in memory. Read files in the dataset's __getitem__."
            )
        raise ValueError(
            f"The cost of the disk is unknown{why}. Measure it with tsnb.stalls(loader, cold=True), or pass "
            'its rate first: found.with_disk("100MB/s").'
        )
    nothing = Hits(0.0, 0.0, 0.0)
    has = hits or told.hits or (nothing if storage is not None else None)
    # always from what was measured: what a worker needs cannot be told from a pace that the disk has limited
    first = told.measured or told
    had, number = _as_measured(first.storage), workers or told.plain.workers

    def moved(way: Way) -> Way:
        was = way.loading
        made = way if number == first.plain.workers else with_workers(way, number)
        if now is None or now.wait_s is None:
            return made
        prepare_s = preparing_s(
            was.wall_s, was.workers, first.storage, had.likely, batch_size=told.batch_size
        )
        wall_s = loading_s(number, prepare_s, now, (has or had).likely, batch_size=told.batch_size)
        return Way(replace(made.loading, wall_s=max(wall_s, made.loading.taking_s)), way.computing)

    return replace(told, own=moved(first.own), one=moved(first.one), storage=now, hits=has, measured=first)


def what_if(
    *,
    workers: int | None = None,
    disk: str | float | None = None,
    memory: str | float | None = None,
    cached: float | None = None,
) -> Callable[[Stalls], Stalls]:
    """Return what `tsnb stalls` calculates from its measurements: other workers, disk or memory, where it is given.

    Args:
        workers: As `Stalls.with_workers` takes it.
        disk: As `Stalls.with_disk`.
        memory: As `Stalls.with_memory`.
        cached: As `Stalls.with_cached`.

    Raises:
        ValueError: One of them cannot be asked for; nothing needs to have been measured by then.
    """
    number = None if workers is None else asked.WORKERS.checked("workers", workers)
    rate = None if disk is None else asked.RATE.checked("disk", disk)
    size = None if memory is None else asked.ALSO_CACHED.checked("memory", memory)
    share = None if cached is None else asked.SHARE.checked("cached", cached)

    def told(found: Stalls) -> Stalls:
        found = found if number is None else found.with_workers(number)
        found = found if rate is None else found.with_disk(rate)
        found = found if size is None else found.with_memory(size)
        return found if share is None else found.with_cached(share)

    return told


def _as_measured(storage: Storage | None) -> Hits:
    """Return the share that was in memory where nothing was assumed."""
    share = 1.0 if storage is None or storage.cached is None else storage.cached
    return Hits(share, share, share)
