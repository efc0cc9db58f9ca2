"""A loader whose batches have gone through a frozen part. The user's loader is not changed.

A DataLoader's workers compute it, after the user's `collate_fn`. The serving process computes a part on a GPU. It also
does so for any other iterable, and for what a function `make_epoch(epoch)` returns other than a DataLoader.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader

from tsnb.frozen.on_device import HOST
from tsnb.frozen.part import FrozenPart
from tsnb.frozen.rows import FeatureRow
from tsnb.stream.loader.collate import outside_slot
from tsnb.stream.loader.facts import as_iterated, is_plain

__all__ = ["FrozenCollate", "frozen_loader", "original_of", "part_of"]


class FrozenCollate:
    """Stands in for a loader's `collate_fn`.

    Args:
        user: The loader's own.
        part: What its batches go through.

    Attributes:
        part: As given.
    """

    def __init__(self, user: Callable[[Any], Any], part: FrozenPart) -> None:
        self._user = user
        self.part = part

    def __call__(self, samples: Any) -> Any:
        """Return the batch, from what was kept where it was."""
        if isinstance(samples, list) and samples and isinstance(samples[0], FeatureRow):
            return samples[0].kept.batch(samples, self._computed, self.part.uses_more)
        return self._computed(samples)

    def _computed(self, samples: Any) -> Any:
        with outside_slot():  # inputs that no consumer wants take no shared memory
            batch = self._user(samples)
        return self.part(batch)


class _Epochs:
    """Hears of each epoch of a DataLoader, as its samplers do."""

    def __init__(self, part: FrozenPart, users: Callable[[int], None] | None) -> None:
        self._part = part
        self._users = users

    def __call__(self, epoch: int) -> None:
        self._part.require_unchanged()
        if self._users is not None:
            self._users(epoch)


class FrozenIterable:
    """Stands for an iterable of batches.

    Args:
        loader: The user's.
        part: What its batches go through.

    Attributes:
        original, part: As given.
    """

    def __init__(self, loader: Any, part: FrozenPart) -> None:
        self.original = loader
        self.part = part

    def __iter__(self) -> Iterator[Any]:
        self.part.require_unchanged()
        for batch in self.original:
            yield self.part(batch)

    def __getattr__(self, name: str) -> Any:
        if name in ("original", "part"):  # while it is being copied
            raise AttributeError(name)
        return getattr(self.original, name)

    def __len__(self) -> int:
        return len(self.original)


class FrozenFactory:
    """Stands for a function `make_epoch(epoch)`; as `FrozenIterable`."""

    def __init__(self, make_epoch: Callable[[int], Any], part: FrozenPart) -> None:
        self.original = make_epoch
        self.part = part

    def __call__(self, epoch: int) -> Any:
        self.part.require_unchanged()
        made = as_iterated(self.original(epoch))
        return (
            _collated(made, self.part)
            if is_plain(made) and self.part.device == HOST
            else _Once(made, self.part)
        )


class _Once(FrozenIterable):
    """What a function returned for one epoch, whose beginning was looked at already."""


def frozen_loader(loader: Any, part: FrozenPart) -> Any:
    """Return what stands for a loader whose batches go through a frozen part.

    Args:
        loader: The user's; as `tsnb.serve` takes it.
        part: The frozen part.

    Raises:
        TypeError: Nothing can be iterated there.
    """
    loader = as_iterated(loader)
    if is_plain(loader) and part.device == HOST:
        return _collated(loader, part)
    if hasattr(loader, "__iter__") or hasattr(loader, "__getitem__"):
        return FrozenIterable(loader, part)
    return FrozenFactory(loader, part) if callable(loader) and not isinstance(loader, type) else loader


def _collated(loader: DataLoader[Any], part: FrozenPart) -> DataLoader[Any]:
    mine = copy.copy(loader)
    fields = mine.__dict__  # DataLoader forbids to set these after construction; on a copy it is safe
    fields["_iterator"] = None
    fields["collate_fn"] = FrozenCollate(loader.collate_fn, part)
    fields["set_epoch"] = _Epochs(part, getattr(loader, "set_epoch", None))
    return mine


def part_of(loader: Any) -> FrozenPart | None:
    """Return the frozen part of a loader that has one."""
    if isinstance(loader, (FrozenIterable, FrozenFactory)):
        return loader.part
    collate = vars(loader).get("collate_fn") if isinstance(loader, DataLoader) else None
    return collate.part if isinstance(collate, FrozenCollate) else None


def original_of(loader: Any) -> Any:
    """Return the loader whose order a loader's is; a DataLoader's copy has its own."""
    return loader.original if isinstance(loader, (FrozenIterable, FrozenFactory)) else loader
