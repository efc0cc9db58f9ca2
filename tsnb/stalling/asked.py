"""What may be asked: the bounds of every number that `stalls` and its result take, and what is said of others."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

from tsnb.option_kinds import Kind, is_size, share, whole
from tsnb.words import bytes_of

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
    "check_cold",
    "check_loader",
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
