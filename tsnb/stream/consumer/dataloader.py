"""A consumer as a torch `DataLoader`, for trainers that demand one: Fabric, resuming in Hugging Face, accelerate.

Nothing is loaded again: its dataset is the consumer, in this process, and its batches are the consumer's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Sampler

from tsnb.stream.consumer.dataset import StreamSampler
from tsnb.stream.consumer.options import require_rank

if TYPE_CHECKING:
    from tsnb.stream.consumer.consumer import Consumer

__all__ = ["ConsumerDataset", "ConsumerLoader"]

_NOTHING = object()
_BESIDE_A_BATCH_SAMPLER: dict[str, Any] = {
    "batch_size": 1,
    "shuffle": False,
    "sampler": None,
    "drop_last": False,
}
"""What torch's `DataLoader` takes for these where there is a batch sampler."""


class ConsumerDataset(Dataset[Any]):
    """The stream's dataset, with its length and attributes. Torch's loader fetches what a `BatchIndices` holds."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer

    def __len__(self) -> int:
        """Return the samples in the dataset, as `Consumer.dataset` has them.

        Raises:
            TypeError: The stream's loader has no dataset with a length.
        """
        return len(self.consumer.dataset)

    def __getattr__(self, name: str) -> Any:
        if name[:1] == "_" or name == "consumer":  # while it is being copied
            raise AttributeError(name)
        return getattr(self.consumer.dataset, name)

    def __getitem__(self, index: Any) -> Any:
        return self.consumer.dataset[index]

    def __getitems__(self, turn: Any) -> Any:
        if not isinstance(turn, BatchIndices):  # of a Subset, say
            return self.consumer.dataset[turn]
        return turn.take()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.consumer.dataset)


class BatchIndices(list[int]):
    """What a batch sampler gives for a batch: the indices of its samples, of which this process knows none.

    It holds the batch until torch's loader fetches it. So whoever keeps the indices (Lightning, to predict) or skips
    some (accelerate, to resume) keeps no batch.
    """

    def __init__(self, batch: Any) -> None:
        super().__init__()
        self._batch = [batch]

    def take(self) -> Any:
        """Return the batch, once."""
        return self._batch.pop()


class StreamBatchSampler(Sampler[BatchIndices]):
    """Asks the stream for the batches of an epoch, one after the other.

    Trainers make it again from these three, as torch's own `BatchSampler`.

    Args:
        sampler: The stream's.
        batch_size: Samples in a full batch, where they are known.
        drop_last: Whether the last batch of an epoch is left out if it is not full.

    Raises:
        ValueError: The sampler is one that splits the data among processes.
    """

    def __init__(self, sampler: StreamSampler, batch_size: int | None, drop_last: bool = False) -> None:
        if not isinstance(sampler, StreamSampler):
            raise ValueError(
                f"A {type(sampler).__name__} cannot choose the samples of a stream, because its loader "
                "has already chosen them. Give each process its share with tsnb.attach(rank=..., "
                "world_size=...)."
            )
        self.sampler = sampler
        self._batch_size = batch_size
        self.drop_last = drop_last

    @property
    def batch_size(self) -> int | None:
        """Return the samples in a full batch. Accelerate reads it to divide the batches between its processes.

        Raises:
            TsnbError: It would: the loader was made before it had several processes, and is no rank's.
        """
        self._require_rank()
        return self._batch_size

    def _require_rank(self) -> None:
        consumer = self.sampler.consumer
        if not consumer.closed:  # a stand-in for one that stayed in another process says so itself
            require_rank(consumer._inner.options, consumer.name)

    def __len__(self) -> int:
        """Return the batches in an epoch.

        Raises:
            TypeError: The stream's loader has no length.
        """
        return len(self.sampler.consumer)

    def __iter__(self) -> Iterator[BatchIndices]:
        self._require_rank()
        return map(BatchIndices, self.sampler.consumer)


class RankSampler(StreamSampler, DistributedSampler[Any]):
    """The sampler of one rank: Lightning puts a `DistributedSampler` of its own wherever there is none."""


class ConsumerLoader(DataLoader[Any]):
    """Made by `Consumer.as_dataloader`. Its batch sampler is the stream, and it has no workers of its own.

    Its `batch_size` is None, as of each loader with a batch sampler. The consumer's `batch_size` is the stream's.
    """

    def __init__(self, dataset: ConsumerDataset, **options: Any) -> None:
        """Make the loader, or make it again, as trainers do with what they read of it (Lightning, to predict).

        Args:
            dataset: The consumer's.
            options: Of torch's `DataLoader`, as they are anyway.

        Raises:
            ValueError: One of them is another.
        """
        consumer = self._consumer = dataset.consumer
        split = consumer._inner.options.world_size > 1
        sampler = (RankSampler if split else StreamSampler)(consumer)
        drops = _drops_last(consumer)
        batches = options.pop("batch_sampler", None) or StreamBatchSampler(
            sampler, consumer.batch_size, drops
        )
        # collate_fn: torch's own would turn arrays into tensors
        # generator: `iter` here draws a seed from it, and the consumer's own draws what the plain loader's would
        super().__init__(
            dataset, batch_sampler=batches, num_workers=0, collate_fn=_as_it_is, generator=torch.Generator()
        )
        # past torch's guard: scripts ask it for its length, and trainers for the kind of the one that they replace
        self.__dict__.update(sampler=sampler, drop_last=drops)
        for name, value in options.items():
            same = (getattr(self, name, None), _BESIDE_A_BATCH_SAMPLER.get(name, _NOTHING))
            if name != "generator" and value not in same:
                raise ValueError(
                    f"{name}={value!r} has no effect on the DataLoader of a consumer, which returns "
                    "the stream's batches unchanged. Set it on the served loader, or pass batch_size= "
                    "and drop_last= to tsnb.attach."
                )
        if split:  # accelerate would give these batches out to its processes once more
            self._is_accelerate_prepared = True

    def __len__(self) -> int:
        """Return the batches in an epoch.

        Raises:
            TypeError: The stream's loader has no length.
        """
        return len(self._consumer)

    def state_dict(self) -> dict[str, Any]:
        """Return where the consumer stands."""
        return self._consumer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where `state_dict` was taken.

        Raises:
            ValueError: `state_dict` did not make this state.
            JoinRefused: The stream cannot give the rest of that epoch.
        """
        self._consumer.load_state_dict(state)

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: the stream counts its epochs itself."""


def _drops_last(consumer: Consumer) -> bool:
    """Return whether an epoch has fewer samples than the dataset: accelerate counts the rest of its length."""
    try:
        one = consumer._inner.options.world_size == 1
        return one and consumer._inner.epoch_samples < len(consumer.dataset)
    except TypeError:
        return False


def _as_it_is(batch: Any) -> Any:
    return batch
