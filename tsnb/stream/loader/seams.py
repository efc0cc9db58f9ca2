"""What may stand in for parts of a DataLoader: an order that changes while it is given, and a store of samples.

Both belong to one stream. `tsnb.serving` makes them, and the producer closes them once its threads have ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from torch.utils.data import DataLoader, get_worker_info

__all__ = ["EpochLength", "OrderedBatches", "OwnOrder", "SampleStore", "StandIn", "number_of", "worker_row"]


class StandIn:
    """Stands for the loader's dataset in its workers.

    Args:
        dataset: The user's; may have been made fit to travel.

    Attributes:
        dataset: The user's.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[index]


def number_of(index: Any, samples: int) -> int | None:
    """Return a sample's number, if an index is one of 0 to `samples` - 1."""
    try:
        number: int = index.__index__()
    except (AttributeError, TypeError):
        return None
    return number if 0 <= number < samples else None


def worker_row() -> int:
    """Return the row of shared memory that this worker counts in: 0 in the serving process, else from 1 on."""
    info = get_worker_info()
    return 0 if info is None else info.id + 1


class EpochLength(Protocol):
    """How long an epoch is by now."""

    @property
    def batches(self) -> int:
        """In it."""

    @property
    def samples(self) -> int:
        """In it."""


class OrderedBatches(Protocol):
    """Orders batches in place of the loader's batch sampler. Used by the loading thread."""

    @property
    def order(self) -> EpochLength | None:
        """Of the epoch that was begun last."""

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration orders."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[list[int]]: ...


class OwnOrder(Protocol):
    """The order of a data set that grows: samples enter an epoch while it is given."""

    @property
    def seed(self) -> int:
        """Of the order and of the workers' random numbers."""

    @property
    def order(self) -> str:
        """As `Source.order`."""

    def batches(self) -> OrderedBatches:
        """Return what orders its batches."""

    def weights_of(self, samples: Sequence[int]) -> bytes:
        """Return the weights of a batch's samples, as `protocol.messages.Weighted`; empty where all are 1.

        Args:
            samples: Of the epoch that was begun last.
        """

    def close(self) -> None:
        """Let go of its files. Called in the thread that stops the stream, without the producer's lock."""


class SampleStore(Protocol):
    """Keeps prepared samples for epochs to come."""

    def dataset(self, dataset: Any, loader: DataLoader[Any], workers: int) -> StandIn:
        """Return what workers see in place of the loader's dataset. Called once, before they start.

        Args:
            dataset: The loader's, made fit to travel.
            loader: The user's.
            workers: How many there will be.

        Raises:
            ValueError: Its samples cannot be kept; says why.
            ArenaFull: There is not enough memory.
        """

    def epoch_over(self, *, whole: bool) -> None:
        """An epoch has been prepared to its end. Called by the loading thread, while no worker prepares anything.

        Args:
            whole: Whether from its start, too.
        """

    def close(self) -> None:
        """Let go of the memory. Called in the thread that stops the stream, under the producer's lock."""
