"""A consumer as a torch `DataLoader`, for trainers that demand one: Fabric, resuming in Hugging Face, accelerate.

Nothing is loaded again: its dataset is the consumer, in this process, and its batches are the consumer's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader, IterableDataset

from tsnb.consumer.dataset import StreamSampler

if TYPE_CHECKING:
    from tsnb.consumer.consumer import Consumer

__all__ = ["ConsumerDataset", "ConsumerLoader"]


class ConsumerDataset(IterableDataset[Any]):
    """The stream's dataset, with its length and attributes, as torch's loader iterates it: batch by batch."""

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

    def __iter__(self) -> Iterator[Any]:
        return iter(self.consumer)


class ConsumerLoader(DataLoader[Any]):
    """Made by `Consumer.as_dataloader`: an iterable-style loader without batching or workers of its own.

    Its `batch_size` is None, as of each loader that batches nothing itself: trainers make loaders again from it. The
    consumer's `batch_size` is the stream's.
    """

    def __init__(self, dataset: ConsumerDataset, **options: Any) -> None:
        """Make the loader, or make it again, as trainers do with what they read of it (Lightning, to predict).

        Args:
            dataset: The consumer's.
            options: Of torch's `DataLoader`, as they are anyway.

        Raises:
            ValueError: One of them is another.
        """
        fixed: dict[str, Any] = {"batch_size": None, "num_workers": 0, "collate_fn": _as_it_is}
        # collate_fn: torch's own for batch_size=None would turn arrays into tensors
        super().__init__(dataset, **fixed)
        for name, value in options.items():
            if value != getattr(self, name, None) and not (name == "sampler" and value is None):
                raise ValueError(
                    f"the DataLoader of a consumer gives the stream's batches as they come: {name}={value!r} has "
                    "no place here. Set it on the served loader, or give it to tsnb.attach (batch_size, drop_last)."
                )
        consumer = self._consumer = dataset.consumer
        if consumer.options.world_size > 1:
            # accelerate would read an iterable dataset on rank 0 alone, and give its batches out once more
            self._is_accelerate_prepared = True
        # past torch's guard against another sampler: this one has the length that a training script asks for
        self.__dict__["sampler"] = StreamSampler(consumer, endless=True)

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


def _as_it_is(batch: Any) -> Any:
    return batch
