"""`Consumer`: what `tsnb.attach` returns, with what a training loop needs; `Attachment` is behind it."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from tsnb.native.endings import Bound
from tsnb.stream.consumer.dataloader import ConsumerDataset, ConsumerLoader
from tsnb.stream.consumer.dataset import StreamDataset, StreamSampler, told_of
from tsnb.stream.consumer.options import Stats, full_batch_size, require_rank

if TYPE_CHECKING:
    import torch

    from tsnb.stream.consumer.attachment import Attachment
    from tsnb.stream.consumer.loop import EpochIterator

__all__ = ["Consumer"]

_OF_DATALOADER = frozenset(
    {
        "collate_fn", "drop_last", "generator", "in_order", "multiprocessing_context", "num_workers",
        "persistent_workers", "pin_memory", "pin_memory_device", "prefetch_factor", "timeout", "worker_init_fn",
    }
)  # fmt: skip
"""Attributes of torch's `DataLoader` that a consumer lacks."""


class Consumer(Bound):
    """Hold one attachment to a stream. Each iteration takes one epoch.

    Made by `tsnb.attach`.

    Example:
        >>> consumer = tsnb.attach("my-model", "digits")
        >>> for epoch in range(2):
        ...     for images, labels in consumer:
        ...         ...
    """

    _instead = (
        "Attach in the process that needs it, with another name: tsnb.attach(NAME, stream=STREAM). To "
        "continue there from this position, send its state_dict() and load it."
    )

    def __init__(self, inner: Attachment) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        """Name of the trial. A rank has its number in it, such as `bert[0]`."""
        return self._inner.name

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self._inner.stream

    @property
    def epoch(self) -> int:
        """Number of the current or last epoch. -1 before the first."""
        return self._inner.epoch

    @property
    def batch_size(self) -> int | None:
        """Samples per full batch, where known.

        This consumer's own size, else the loader's. For a rank, its largest part.
        """
        return full_batch_size(self._inner.welcome, self._inner.options)

    def __len__(self) -> int:
        """Return the batches in an epoch.

        Raises:
            TypeError: The loader has no length.
        """
        return len(self._inner)

    def __iter__(self) -> EpochIterator:
        """Ask for this consumer's next epoch, or for the rest of the one that `load_state_dict` named.

        It draws from torch's global generator what `iter` of the served DataLoader would draw: a seed for its workers,
        and one for its order if it shuffles. So what a training draws is what it draws with the plain loader.

        Raises:
            ConsumerReplaced: It was detached.
            NameInUse: A loop over it waits for a batch in another thread.
        """
        return iter(self._inner)

    def state_dict(self) -> dict[str, Any]:
        """Return this consumer's place in the stream, as plain values.

        The place is after the batch that it gave last. Resuming within an epoch needs a stream whose order can be
        given again: a `DataLoader` served with a seed.

        Example:
            >>> state = tsnb.attach("my-model", "digits").state_dict()
        """
        return self._inner.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved place: the next iteration gives the rest.

        Example:
            >>> consumer = tsnb.attach("my-model", "digits")
            >>> consumer.load_state_dict(consumer.state_dict())

        Args:
            state: Value that `state_dict` returned, in this process or another.

        Raises:
            ValueError: If `state_dict` did not make this state.
            JoinRefused: If the stream cannot give the rest of that epoch, because it has no seed or another order.
            NameInUse: If a loop over this consumer waits for a batch in another thread.
        """
        self._inner.load_state_dict(state)

    def set_epoch(self, epoch: int) -> None:
        """Do nothing, because the stream counts its epochs itself.

        Trainers call this on every loader.

        Example:
            >>> tsnb.attach("my-model", "digits").set_epoch(1)

        Args:
            epoch: Number of the epoch, which is ignored.
        """

    @property
    def dataset(self) -> StreamDataset:
        """Stand-in for the loader's dataset: its length and small attributes.

        The samples stay with the loader. With `subset=` or `fold=`, the length counts only the samples of this trial.
        """
        stream, part = self._inner.welcome, self._inner.options.part
        facts = told_of(stream.dataset)
        samples = stream.epoch_samples if stream.grows else stream.indexed
        if part is not None and stream.indexed is not None:
            samples = part.count(stream.indexed)
        elif samples is None:
            samples = facts.get("samples") or stream.epoch_samples
        return StreamDataset(self.stream, samples, facts)

    @property
    def sampler(self) -> StreamSampler:
        """Stand-in for the loader's sampler, with samples per epoch as length."""
        return StreamSampler(self)

    @property
    def batch_sampler(self) -> None:
        """None, as in a `DataLoader(batch_size=None)`.

        Lightning reads it from every loader that has a `sampler`.
        """
        return None

    def as_dataloader(self) -> ConsumerLoader:
        """Return this consumer as a torch `DataLoader`, for trainers.

        Example:
            >>> trainer_loader = tsnb.attach("my-model", "digits").as_dataloader()

        Raises:
            TsnbError: If Accelerate runs several processes, and this consumer does not know which of them it is in.
        """
        require_rank(self._inner.options, self.name)
        return ConsumerLoader(ConsumerDataset(self))

    def stats(self) -> Stats:
        """Return what was taken so far.

        Example:
            >>> tsnb.attach("my-model", "digits").stats().samples
        """
        return self._inner.stats()

    def report(self, losses: Any) -> None:
        """Report the loss of each sample of the batch that was given last.

        Rounds choose samples by them (`tsnb.data.rounds(..., select="hard:0.3")`). The graph is not kept. Losses on
        a GPU are waited for and copied.

        Example:
            >>> with tsnb.serve(DataLoader(tsnb.data.grow("photos", parse), 2), name="photos"):
            ...     consumer = tsnb.attach("cnn", "photos")
            ...     for batch in consumer:
            ...         consumer.report(torch.rand(len(batch)))

        Args:
            losses: One finite number per row, in order: a tensor on any device, an array or a list.

        Raises:
            TypeError, ValueError: If `losses` has another type or another number of rows. Nothing was reported.
            TsnbError: If there is no batch to report, its losses were reported before, the stream's dataset does
                not grow, or the rows' samples are unknown.
        """
        self._inner.report(losses)

    @property
    def weights(self) -> torch.Tensor:
        """Weights of the rows of the last batch: float32, one per row.

        They are on this consumer's device. In a round that prefers some samples ("hard:0.3", "balanced"), the mean
        of weights * losses has the mean loss over all samples as its expectation. In all other epochs each weight
        is 1.

        Raises:
            TsnbError: If there is no such batch, the stream's dataset does not grow, or the rows' samples are
                unknown.
        """
        return self._inner.weights

    def close(self) -> None:
        """Detach from the stream, so that the name is free.

        Batches that you still hold stay valid. A second call does nothing.

        Example:
            >>> consumer = tsnb.attach("my-model", "digits")
            >>> consumer.close()
        """
        self._inner.close()

    @property
    def closed(self) -> bool:
        """Whether it is detached, or its stream is gone."""
        return self._inner.closed

    def __getattr__(self, name: str) -> NoReturn:
        if name in _OF_DATALOADER:
            raise AttributeError(
                f"A consumer has no {name!r}, because the DataLoader stays with its stream. Code that reads "
                "the attributes of a DataLoader takes consumer.as_dataloader()."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._inner)
