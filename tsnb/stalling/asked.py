"""What may be asked: the bounds of every number that `stalls` and its result take, and what is said of others.

`what_if` answers it from what was measured, with other workers, another disk or another share of it in memory. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any

from tsnb.option_kinds import Kind, is_size, share, whole
from tsnb.stalling.sharing import Way, with_workers
from tsnb.stalling.storage import Hits, Storage, loading_s, preparing_s
from tsnb.text.words import bytes_of

if TYPE_CHECKING:
    from tsnb.stalling.result import Stalls

__all__ = [
    "ALSO_CACHED",
    "CACHED",
    "CORES",
    "EPOCHS",
    "GPUS",
    "MEMORY",
    "PRICE",
    "RATE",
    "SAMPLES",
    "SECONDS",
    "SHARE",
    "THREADS",
    "TRIALS",
    "WORKERS",
    "changed",
    "check_cold",
    "check_loader",
    "what_if",
]

_MOST = 1_000_000


def _number(wanted: str, metavar: str, fits: Callable[[float], bool]) -> Kind:
    """Return the kind of finite numbers, numpy's too. Booleans do not count."""

    def fit(value: Any) -> bool:
        number = isinstance(value, Real) and not isinstance(value, bool)
        return number and math.isfinite(value) and fits(float(value))

    return Kind(wanted, float, fit, metavar, float)


def _bytes(wanted: str, metavar: str, *, a_second: bool) -> Kind:
    """Return the kind of sizes, or of rates, which may have "/s" behind them."""

    def fit(value: Any) -> bool:
        return is_size(value) and (a_second or not str(value).strip().endswith("/s"))

    def read(text: str) -> str:
        return text

    return Kind(wanted, read, fit, metavar, bytes_of)


TRIALS = whole(f"a number of trials, 1 to {_MOST:,}", 1, most=_MOST)
THREADS = whole("a number of torch threads, 1 to 1,024", 1, most=1024)
WORKERS = whole("a number of worker processes, 1 to 4,096", 1, most=4096)
GPUS = whole(f"a number of GPUs, 1 to {_MOST:,}", 1, most=_MOST)
SAMPLES = whole("the number of samples per epoch, 1 or more", 1, most=1 << 53)
SECONDS = _number("a number of seconds, more than 0", "S", lambda value: value > 0)
EPOCHS = _number("the number of epochs that a trial takes, more than 0", "N", lambda value: value > 0)
CORES = _number("a number of cores, 0.01 or more", "N", lambda value: value >= 0.01)
PRICE = _number("a price per hour, 0 or more", "PRICE", lambda value: value >= 0)
SHARE = share("a share of the samples, 0 to 1")
_SIZE = 'a size with its unit, such as "8GiB"'
MEMORY = _bytes(f"{_SIZE}, or omit it for the free memory", "8GiB", a_second=False)
"""For trials."""
CACHED = _bytes(f"{_SIZE} (for nothing in memory: with_cached(0))", "8GiB", a_second=False)
"""For files, as a method takes it."""
ALSO_CACHED = _bytes(f"{_SIZE} (for nothing in memory: --cached 0)", "8GiB", a_second=False)
"""The same as the command line does."""
RATE = _bytes('a disk rate with its unit, such as "100MB/s"', "100MB/s", a_second=True)


def check_cold(cold: Any) -> None:
    """Refuse what does not say whether the disk is measured.

    Raises:
        ValueError: It is not True or False.
    """
    if not isinstance(cold, bool):
        raise ValueError(f"cold={cold!r} is invalid. Pass True or False.")


def check_loader(loader: Any) -> None:
    """Refuse what is not a loader, or a loader that can be gone through only once.

    Raises:
        TypeError: It is one of these.
    """
    if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
        raise TypeError(
            f"loader={type(loader).__name__} is invalid. Pass a DataLoader, or an iterable of batches."
        )
    if hasattr(loader, "__next__"):
        raise TypeError(
            "loader is an iterator, which can be read only once. Pass the DataLoader, not iter(loader)."
        )


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
    number = None if workers is None else WORKERS.checked("workers", workers)
    rate = None if disk is None else RATE.checked("disk", disk)
    size = None if memory is None else ALSO_CACHED.checked("memory", memory)
    share = None if cached is None else SHARE.checked("cached", cached)

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
