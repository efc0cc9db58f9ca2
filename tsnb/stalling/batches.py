"""Loaders that are gone through without disturbing their owner, and the samples in a batch."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

__all__ = ["Continued", "fresh", "length_of", "rows"]


class Continued:
    """A loader whose next loop goes on where the last one was left; at an epoch's end it begins the next.

    New workers of a served loader meet its memory for the first time, which costs them as much as a batch for each
    slot: in a long epoch that is nothing, in a measurement of half a second it would be most of it.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._loop: Iterator[Any] | None = None

    @property
    def begins(self) -> bool:
        """Whether the next batch is the first of an epoch."""
        return self._loop is None

    def __iter__(self) -> Continued:
        return self

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            StopIteration: The epoch has ended.
        """
        if self._loop is None:
            self._loop = iter(self._loader)
        try:
            return next(self._loop)
        except StopIteration:
            self._loop = None
            raise


def fresh(loader: Any) -> Any:
    """Return a loader that may be iterated without disturbing the user's own loop over it."""
    if not isinstance(loader, DataLoader):
        return loader
    mine = copy.copy(loader)
    mine.__dict__["_iterator"] = None  # that of persistent workers
    return mine


def length_of(loader: Any) -> int | None:
    """Return the batches in an epoch, where the loader says so."""
    try:
        return len(loader)
    except TypeError:
        return None


def rows(batch: Any) -> int:
    """Return the samples in a batch: the first dimension of its first tensor or array; 1 if it has none."""
    return _rows(batch) or 1


def _rows(part: Any) -> int:
    shape = getattr(part, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else 0
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        part = vars(part)
    inside = part.values() if isinstance(part, dict) else part if isinstance(part, (list, tuple)) else ()
    return next((found for each in inside if (found := _rows(each))), 0)
