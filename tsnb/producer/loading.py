"""Where batches come from: a DataLoader, whose workers write into the arena, or any other iterable.

The user's loader object is never changed: its shallow copy gets another `collate_fn`, `worker_init_fn` and,
with a seed, samplers of its own.
"""

from __future__ import annotations

import copy
import ctypes
import hashlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, cast

import cloudpickle
import torch
from torch.utils.data import DataLoader, IterableDataset

from tsnb.arena.memory import Arena
from tsnb.arena.slots import SlotPipe
from tsnb.producer.collate import SlotCollate

__all__ = ["Source", "as_source", "die_with_parent"]


class Source(Protocol):
    """Gives epochs of batches; used by the producer's loading thread only."""

    batch_size: int | None
    """The loader's, where it has one."""
    batches: int | None
    """In an epoch, where known."""
    samples: int | None
    """In an epoch, where known."""
    workers: int
    """Processes that load."""
    ahead: int
    """Batches that are prepared ahead of the one asked for."""
    persistent: bool
    """Whether its workers stay for the next epoch."""
    order: str
    """Equal strings promise equal batches for equal (epoch, batch); empty where an epoch cannot be given again."""

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        """Begin an epoch, at one of its batches."""

    def drop_workers(self) -> None:
        """Let go of workers that would stay for the next epoch."""


def as_source(loader: Any, arena: Arena, pipe: SlotPipe, *, seed: int | None, workers: int | None) -> Source:
    """Return the source for whatever the user wants to serve.

    Args:
        loader: A DataLoader, any iterable of batches, or a function `make_epoch(epoch)` that returns one.
        arena: For the workers to write into.
        pipe: Where they get free slots.
        seed: Makes the order, and the workers' random numbers, a function of (seed, epoch).
        workers: Worker processes instead of the DataLoader's own number.

    Raises:
        TypeError: It is nothing that can be iterated.
        ValueError: `seed` or `workers` for something that is no DataLoader.
    """
    if isinstance(loader, DataLoader):
        return _DataLoaderSource(loader, arena, pipe, seed, workers)
    iterable = hasattr(loader, "__iter__") or hasattr(loader, "__getitem__")
    if isinstance(loader, (str, bytes, type)) or not (iterable or callable(loader)):
        raise TypeError(
            f"a {type(loader).__name__} cannot be served: give a torch DataLoader, any iterable of batches, or a "
            "function make_epoch(epoch) that returns one."
        )
    if seed is not None or workers is not None:
        option = "seed" if seed is not None else "workers"
        raise ValueError(f"{option}= needs a torch DataLoader; a {type(loader).__name__} has its own ways.")
    return _IterableSource(loader)


class _IterableSource:
    """Anything that can be iterated; the producer copies its batches into the arena."""

    workers = 0
    ahead = 0
    persistent = False
    samples: int | None = None
    order = ""

    def __init__(self, loader: Iterable[Any] | Callable[[int], Iterable[Any]]) -> None:
        self._loader = loader
        size = getattr(loader, "batch_size", None)
        self.batch_size: int | None = size if isinstance(size, int) else None
        self.batches = _length(loader)

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        if callable(self._loader) and not hasattr(self._loader, "__iter__"):
            return iter(self._loader(number))
        _set_epoch(number, self._loader)
        return iter(cast("Iterable[Any]", self._loader))  # as_source has checked

    def drop_workers(self) -> None:
        """There are none."""


class _DataLoaderSource:
    """A DataLoader whose workers collate into the arena."""

    def __init__(
        self, loader: DataLoader[Any], arena: Arena, pipe: SlotPipe, seed: int | None, workers: int | None
    ) -> None:
        self._seed = seed
        self._generators = (torch.Generator(), torch.Generator())
        mine = self._loader = copy.copy(loader)
        # DataLoader forbids to set these after construction; on a copy that has not been iterated it is safe
        fields = mine.__dict__
        fields["_iterator"] = None
        fields["pin_memory"] = False  # batches are in shared memory; a consumer that wants CUDA pins its own
        if workers is not None:
            fields["num_workers"] = workers
            fields["prefetch_factor"] = (loader.prefetch_factor or 2) if workers else None
            fields["timeout"] = loader.timeout if workers else 0
            fields["persistent_workers"] = bool(workers) and loader.persistent_workers
        if seed is not None:
            self._own_samplers(fields)
        self.workers: int = mine.num_workers
        self.persistent: bool = mine.persistent_workers
        self.ahead = self.workers * (mine.prefetch_factor or 0)
        collate: Any = SlotCollate(arena, pipe, _travelling(loader.collate_fn, mine))
        fields["collate_fn"] = collate
        fields["dataset"] = _travelling(loader.dataset, mine)
        fields["worker_init_fn"] = _WorkerStart(_travelling(loader.worker_init_fn, mine))
        self.batch_size = loader.batch_size
        self.batches = _length(loader)
        self.samples = _samples(loader)
        self.order = "" if seed is None else f"seed {seed}"

    def _own_samplers(self, fields: dict[str, Any]) -> None:
        """Give the copy samplers that draw from our own generator, so that an epoch can be seeded."""
        sampler = copy.copy(fields["sampler"])
        if hasattr(sampler, "generator"):
            sampler.generator = self._generators[0]
        batch_sampler = copy.copy(fields["batch_sampler"])
        if hasattr(batch_sampler, "sampler"):
            batch_sampler.sampler = sampler
        fields.update(sampler=sampler, batch_sampler=batch_sampler, generator=self._generators[1])

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        loader = self._loader
        _set_epoch(number, loader, loader.batch_sampler, loader.sampler, loader.dataset)
        if self._seed is not None:
            for index, generator in enumerate(self._generators):
                generator.manual_seed(_mix(self._seed, number, index))
        batches = iter(loader)
        for _ in range(start):
            next(batches)
        return batches

    def drop_workers(self) -> None:
        self._loader.__dict__["_iterator"] = None  # persistent workers: the iterator owns them


class _WorkerStart:
    """Runs first in each worker: it must die with the producer, even by SIGKILL."""

    def __init__(self, user: Callable[[int], None] | None) -> None:
        self._user = user

    def __call__(self, worker: int) -> None:
        die_with_parent(os.getppid())
        if self._user is not None:
            self._user(worker)


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when the thread that started it ends.

    Args:
        parent: The pid of the process that started this one. It may be 1: a container's only program.
    """
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)  # it ended before the line above


class _Travelling:
    """Carries an object over the ordinary pickle of spawn and forkserver, by cloudpickle.

    Classes and functions defined in a notebook do not pickle otherwise. On the other side the object itself
    arrives, not this wrapper; in this process it answers for the object.
    """

    def __init__(self, carried: Any) -> None:
        self._carried = carried

    def __reduce__(self) -> tuple[Any, ...]:
        return cloudpickle.loads, (cloudpickle.dumps(self._carried),)

    def __getattr__(self, name: str) -> Any:
        if name == "_carried":  # while being copied, before it is set
            raise AttributeError(name)
        return getattr(self._carried, name)

    def __call__(self, *args: Any) -> Any:
        return self._carried(*args)

    def __len__(self) -> int:
        return len(self._carried)

    def __getitem__(self, index: Any) -> Any:
        return self._carried[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._carried)


def _travelling(carried: Any, loader: DataLoader[Any]) -> Any:
    context = loader.multiprocessing_context
    method = context.get_start_method() if context is not None else multiprocessing.get_start_method()
    return carried if carried is None or not loader.num_workers or method == "fork" else _Travelling(carried)


def _set_epoch(number: int, *candidates: Any) -> None:
    for candidate in candidates:
        if hasattr(candidate, "set_epoch"):
            candidate.set_epoch(number)
            return


def _mix(*parts: int) -> int:
    """Return a 63-bit seed from several numbers; the same on every machine."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except (TypeError, NotImplementedError, AttributeError):
        return None


def _samples(loader: DataLoader[Any]) -> int | None:
    """Return the samples in an epoch, where the loader's own parts tell."""
    if loader.batch_size is None:
        return None
    if isinstance(loader.dataset, IterableDataset):
        return None if loader.drop_last else _length(loader.dataset)
    samples = _length(loader.sampler)
    if samples is not None and loader.drop_last:
        return samples // loader.batch_size * loader.batch_size
    return samples
