"""`Consumer`: what `tsnb.attach` returns, with what a training loop needs; `Attachment` is behind it."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tsnb.consumer.dataloader import ConsumerDataset, ConsumerLoader
from tsnb.consumer.dataset import StreamDataset, StreamSampler, told_of
from tsnb.consumer.options import Stats, full_batch_size, require_rank
from tsnb.native.endings import Bound

if TYPE_CHECKING:
    import torch

    from tsnb.consumer.attachment import Attachment
    from tsnb.consumer.loop import EpochIterator

__all__ = ["Consumer"]


class Consumer(Bound):
    """One attachment to a stream, made by `tsnb.attach`. Iterating it takes one epoch.

    Example:
        >>> import torch, tsnb
        >>> with tsnb.serve([torch.zeros(2)] * 3, name="zeros"), tsnb.attach(stream="zeros") as consumer:
        ...     len(consumer), sum(len(batch) for batch in consumer)
        (3, 6)
    """

    _instead = (
        "Attach in the process that needs it, by a name of its own: tsnb.attach(NAME, stream=STREAM). To continue "
        "there from this position, send its state_dict() and load that."
    )

    def __init__(self, inner: Attachment) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        """The consumer's name; that of a rank is like `bert[0]`."""
        return self._inner.name

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self._inner.stream

    @property
    def epoch(self) -> int:
        """The stream's number of the epoch that is being taken, or was taken last; -1 before the first."""
        return self._inner.epoch

    @property
    def batch_size(self) -> int | None:
        """Samples in a full batch, where known: this consumer's own, else the loader's; for a rank its largest part."""
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
        """Return where this consumer stands, as plain values: after the batch that it gave last.

        To go on from there, in this process or another, `load_state_dict` it before iterating. Within an epoch
        that needs a stream whose order can be given again: a `DataLoader` served with a seed.
        """
        return self._inner.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where `state_dict` was taken: the next iteration gives the rest of that epoch.

        Raises:
            ValueError: `state_dict` did not make this state.
            JoinRefused: The stream cannot give the rest of that epoch: it has no seed, or another order.
            NameInUse: A loop over it waits for a batch in another thread.
        """
        self._inner.load_state_dict(state)

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: the stream counts its epochs itself. Trainers call this on every loader."""

    @property
    def dataset(self) -> StreamDataset:
        """What stands for the loader's dataset: its length, and attributes such as `classes`; the samples stay there.

        With `subset=` or `fold=` its length is that of this consumer's part.
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
        """What stands for the loader's sampler: `len` is what this consumer gets in an epoch."""
        return StreamSampler(self)

    @property
    def batch_sampler(self) -> None:
        """None, as of a `DataLoader(batch_size=None)`. Lightning reads it of every loader that has a `sampler`."""
        return None

    def as_dataloader(self) -> ConsumerLoader:
        """Return this consumer as a torch `DataLoader`, for trainers that demand one.

        Raises:
            TsnbError: Accelerate runs several processes, and this consumer does not know which of them it is in.
        """
        require_rank(self._inner.options, self.name)
        return ConsumerLoader(ConsumerDataset(self))

    def stats(self) -> Stats:
        """Return what was taken so far."""
        return self._inner.stats()

    def report(self, losses: Any) -> None:
        """Report the loss of each sample of the batch that the loop was given last.

        Rounds choose samples by them (`tsnb.data.rounds(..., select="hard:0.3")`); for a data set that grows,
        `tsnb.data.grow`. Does not keep the graph of what is reported. Losses on a GPU are waited for and copied.

        Args:
            losses: One finite number for each row, in order: a tensor on any device, an array or a list.

        Raises:
            TypeError, ValueError: They are not that; nothing has been reported then.
            TsnbError: It is not the time to report: no batch was given, or its losses were reported before. Or the
                stream's data set does not grow, or does not tell which samples the rows are.
        """
        self._inner.report(losses)

    @property
    def weights(self) -> torch.Tensor:
        """The weights of the rows of the batch that the loop was given last: float32 [rows], on this consumer's device.

        In a round that has some samples rather than others (`select="hard:0.3"`, "balanced"), the mean of
        weights * losses has the mean loss over all samples as its expectation. In all other epochs each weight is 1.

        Raises:
            TsnbError: There is no such batch, the stream's data set does not grow, or it is not known which samples
                the rows are.
        """
        return self._inner.weights

    def close(self) -> None:
        """Detach. Batches that are still held stay valid; the name is free. Calling it again does nothing."""
        self._inner.close()

    @property
    def closed(self) -> bool:
        """Whether it was detached, or its producer has gone."""
        return self._inner.closed

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._inner)
