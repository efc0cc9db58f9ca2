"""Where batches come from: a DataLoader, any other iterable, or a function that makes one for each epoch."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

import torch
from torch.utils.data import DataLoader

from tsnb.stream.loader.dataloader import DataLoaderSource
from tsnb.stream.loader.facts import Indices, as_iterated, epoch_samples, is_plain
from tsnb.stream.loader.generators import draw_apart, stream_generator
from tsnb.stream.loader.identity import identity
from tsnb.stream.loader.queues import ordinary
from tsnb.stream.loader.repeating import length, loader_order, replayed
from tsnb.stream.loader.seams import Given, OwnOrder, SampleStore, Workers
from tsnb.stream.memory.arena import Arena
from tsnb.stream.memory.slots import SlotPipe

__all__ = ["Source", "as_source", "why_one_epoch"]

_ANEW = (
    "Serve a function that creates a fresh iterable for each epoch: tsnb.serve(lambda epoch: "
    "make_loader(), name=...)."
)


_OF_AN_EPOCH = (
    "The number of workers cannot change: each epoch's DataLoader comes from a function. Set its "
    "num_workers there."
)

_NOT_INDEXED = Indices(
    why_not=(
        "it is not torch's own DataLoader, whose samples have an index. Serve a DataLoader over a "
        "map-style dataset"
    )
)


@runtime_checkable
class Source(Protocol):
    """Gives epochs of batches. Used by the producer's loading thread; facts are read from any thread."""

    batch_size: int | None
    """The loader's, where it has one."""
    batches: int | None
    """In an epoch, where known."""
    samples: int | None
    """In an epoch, where known."""
    order: str
    """Identity of the order in which epochs are given: equal strings promise equal batches for an equal epoch and
    batch number. Empty when an epoch cannot be given again in the same order."""
    indices: Indices
    """Whether batches can tell which samples they hold."""

    @property
    def workers(self) -> Workers | None:
        """The processes that load; None: it has none of its own. May change with the epoch."""

    @property
    def ordinary(self) -> str:
        """Why its workers use the queues of `multiprocessing`; empty where they use others, or there are none."""

    @property
    def stays(self) -> bool:
        """Whether what loads stays for the next epoch: `close` ends it."""

    def most_ahead(self, batch_bytes: int) -> int:
        """Return how many batches will ever be prepared ahead, if they are of this size; asked once."""

    def begin(self, epoch: int, start: int = 0, cover: int | None = None) -> Iterator[Given]:
        """Begin a pass: give the batches of an epoch in their order.

        Skips those before `start` where there is no cheaper way past them.

        Args:
            epoch: Its number. Where `start` is 0 and only a later epoch is available, that one is given.
            start: The number of its first batch.
            cover: The samples of the dataset that are wanted, a bit each; None: all. Heeded where they are indexed.

        Raises:
            LoaderFailed: It has fewer batches than `start`. The iterator may raise it, too.
        """

    def why_empty(self, epoch: int) -> str:
        """Return what may be the reason for an epoch having no batch, and what to do about it."""

    def close(self) -> None:
        """Let go of workers that would stay for the next epoch. It may be begun again."""


def as_source(
    loader: Any,
    arena: Arena,
    pipe: SlotPipe,
    *,
    seed: int | None,
    workers: int | None,
    keeper: SampleStore | None = None,
    growth: OwnOrder | None = None,
) -> Source:
    """Return the source for whatever the user wants to serve.

    Args:
        loader: A DataLoader, any iterable of batches, or a function `make_epoch(epoch)` that returns one.
        arena: For the workers to write into.
        pipe: Where they get free slots.
        seed: Makes the order, and the workers' random numbers, a function of (seed, epoch).
        workers: Worker processes instead of the DataLoader's own number.
        keeper: Keeps samples that were prepared; None: nothing is kept.
        growth: Lets new samples into the epochs; None: the samples are those that there are now.

    Raises:
        TypeError: It cannot be iterated.
        ValueError: `seed`, `workers` or a cache for something that is not a DataLoader, or one for samples that cannot
            be kept.
        ArenaFull: The cache is too small, or larger than what is free.
    """
    if isinstance(loader, Source):
        return loader  # a stream from elsewhere
    if is_plain(loader):
        return DataLoaderSource(loader, arena, pipe, seed, workers, keeper, growth)
    if keeper is not None:
        raise ValueError(
            "cache= works with torch's own DataLoader, whose samples have numbers, and this is a "
            f"{type(loader).__name__}. Leave cache= out."
        )
    iterable = hasattr(loader, "__iter__") or hasattr(loader, "__getitem__")
    if isinstance(loader, (str, bytes, type)) or not (iterable or callable(loader)):
        raise TypeError(
            f"An object of type {type(loader).__name__} cannot be served. Pass a torch DataLoader, any iterable of "
            "batches, or a function make_epoch(epoch) that returns one."
        )
    if seed is not None or workers is not None:
        option, instead = (
            ("seed", "Derive its order from the epoch number, in a function make_epoch(epoch)")
            if seed is not None
            else ("workers", "Set the number of workers where you create the loader")
        )
        kind = type(loader).__name__
        raise ValueError(f"{option}= works with torch's own DataLoader, and this is a {kind}. {instead}.")
    if iterable:
        return _IterableSource(loader)
    _require_epoch_argument(loader)
    return _FactorySource(loader, arena, pipe)


def why_one_epoch(loader: Any) -> str:
    """Return why a loader seems to have one epoch only, and what to serve in its place; "" if nothing says so.

    An iterator is used up when it has been gone through once, unless its own `__iter__` begins it anew; which of
    the two it is cannot be told without going through it.
    """
    if not hasattr(loader, "__next__"):
        return ""
    return f"A {type(loader).__name__} is an iterator, which usually gives only one epoch. {_ANEW}"


class _IterableSource:
    """Anything that can be iterated; the producer copies its batches into the arena.

    A sequence of batches, and an iterable that is told the epoch by `set_epoch`, are expected to give the same batches
    for the same epoch. Others may be shuffled in ways of their own, so no order is promised for them: a user who knows
    better serves a function of the epoch. Workers of a DataLoader that is iterated in a way of its own are not ours.
    """

    workers = None
    stays = False
    indices = _NOT_INDEXED
    ordinary = ""

    def __init__(self, loader: Any, generator: torch.Generator | None = None) -> None:
        size = getattr(loader, "batch_size", None)
        self.batch_size: int | None = size if isinstance(size, int) else None
        self.batches = length(loader)
        self.samples: int | None = None
        self._once = hasattr(loader, "__next__")
        sequence = hasattr(loader, "__getitem__") and self.batches is not None
        tells = not self._once and (sequence or hasattr(loader, "set_epoch"))
        kind = f"{type(loader).__qualname__} batches={self.batches}"
        self.order = f"{kind} {identity(loader)}" if tells and not isinstance(loader, DataLoader) else ""
        if isinstance(loader, DataLoader):  # of a kind that is iterated in a way of its own
            self.samples = epoch_samples(loader)
            self.order = loader_order(loader, loader.num_workers, None)
            self.stays = loader.persistent_workers
            if loader.num_workers:
                self.ordinary = ordinary(f"a {type(loader).__name__} is iterated in its own way")
            loader = copy.copy(loader)  # its workers belong to the loading thread, and end with it
            loader._iterator = None
            draw_apart(loader, generator or stream_generator())
        self._loader = loader

    def most_ahead(self, batch_bytes: int) -> int:
        """Return 0: batches are made when they are asked for."""
        return 0

    def begin(self, epoch: int, start: int = 0, cover: int | None = None) -> Iterator[Given]:
        """As `Source.begin`, whatever is wanted."""
        if hasattr(self._loader, "set_epoch"):
            self._loader.set_epoch(epoch)
        return replayed(iter(self._loader), epoch, start)

    def close(self) -> None:
        """Let go of a DataLoader's persistent workers."""
        if isinstance(self._loader, DataLoader):
            self._loader._iterator = None

    def why_empty(self, _epoch: int) -> str:
        """Say that it seems to have been used up."""
        kind = type(self._loader).__name__
        can = (
            f"a {kind} can be iterated only once"
            if self._once
            else f"this {kind} returned no (further) batch"
        )
        return f"{can}. {_ANEW}"


class _FactorySource:
    """A function `make_epoch(epoch)`: each epoch comes from what it returns.

    A DataLoader that it returns is served as if it had been given itself: its workers write into the arena.
    Since it is given the epoch's number, the same batches are expected for the same epoch.
    """

    batch_size: int | None = None
    batches: int | None = None
    samples: int | None = None
    stays = False
    indices = _NOT_INDEXED

    def __init__(self, make_epoch: Callable[[int], Iterable[Any]], arena: Arena, pipe: SlotPipe) -> None:
        self._make_epoch = make_epoch
        self._arena = arena
        self._pipe = pipe
        self._inner: Source | None = None
        self._room: tuple[int, int] | None = None
        self._generator = stream_generator()  # one for all: each epoch's loader draws on
        kind = make_epoch if hasattr(make_epoch, "__qualname__") else type(make_epoch)
        self.order = f"{kind.__qualname__}(epoch) {identity(make_epoch)}"

    @property
    def workers(self) -> Workers | None:
        """Of the present epoch's DataLoader."""
        return self._inner.workers if self._inner is not None else None

    @property
    def ordinary(self) -> str:
        """Of the present epoch's DataLoader."""
        return self._inner.ordinary if self._inner is not None else ""

    def most_ahead(self, batch_bytes: int) -> int:
        """Return what the first epoch's DataLoader needs; one that needs more later is copied from."""
        ahead = self._inner.most_ahead(batch_bytes) if self._inner is not None else 0
        self._room = (batch_bytes, ahead)
        return ahead

    def begin(self, epoch: int, start: int = 0, cover: int | None = None) -> Iterator[Given]:
        """As `Source.begin`, of what the function returns; whatever is wanted."""
        self._inner = self._source_of(self._make_epoch(epoch))
        return self._inner.begin(epoch, start)

    def _source_of(self, made: Any) -> Source:
        made = as_iterated(made)
        if not hasattr(made, "__iter__") and not hasattr(made, "__getitem__"):
            raise TypeError(
                f"make_epoch(epoch) returned a {type(made).__name__}. Let it return an iterable of batches."
            )
        if is_plain(made):
            source = DataLoaderSource(made, self._arena, self._pipe, None, None, generator=self._generator)
            source.workers.fixed = _OF_AN_EPOCH
            if self._room is None or source.most_ahead(self._room[0]) <= self._room[1]:
                return source
        return _IterableSource(made, self._generator)

    def close(self) -> None:
        """Let go of the workers of one epoch."""
        if self._inner is not None:
            self._inner.close()

    def why_empty(self, epoch: int) -> str:
        """Say that what the function returned was empty."""
        return f"make_epoch({epoch}) returned an empty iterable. Let it create a fresh iterable at each call."


def _require_epoch_argument(make_epoch: Callable[..., Any]) -> None:
    try:
        inspect.signature(make_epoch).bind(0)
    except ValueError:  # its signature cannot be read
        return
    except TypeError:
        raise TypeError(
            f"{getattr(make_epoch, '__qualname__', make_epoch)} must take one argument, the epoch "
            "number: def make_epoch(epoch) returns an iterable of the batches of that epoch. To serve "
            "the result of a function, call it first."
        ) from None
