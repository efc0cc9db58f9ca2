"""Epochs that can be begun in the middle only by going through what comes before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tsnb.errors import LoaderFailed

__all__ = ["EpochIs", "Skipped", "replayed", "too_short"]


class Skipped(NamedTuple):
    """A batch before the one with which the epoch should begin: nobody gets it, and its slot is free."""

    batch: Any


class EpochIs(NamedTuple):
    """Comes before an epoch's batches where the source gives another epoch than was asked for."""

    number: int


def replayed(batches: Iterator[Any], epoch: int, start: int) -> Iterator[Any]:
    """Return an epoch's batches with the first `start` of them marked as `Skipped`.

    Raises:
        LoaderFailed: There are fewer; on the way.
    """
    return _replayed(batches, epoch, start) if start else batches


def _replayed(batches: Iterator[Any], epoch: int, start: int) -> Iterator[Any]:
    for number in range(start):
        try:
            batch = next(batches)
        except StopIteration:
            raise too_short(epoch, number, start) from None
        yield Skipped(batch)
        del batch
    yield from batches


def too_short(epoch: int, batches: int, start: int) -> LoaderFailed:
    """Return the error of an epoch that cannot be begun where it should."""
    return LoaderFailed(
        f"epoch {epoch} should go on at batch {start}, and the loader has only {batches} batches in it now: "
        "its dataset or its batch size has changed. Take the next epoch from its start instead."
    )
