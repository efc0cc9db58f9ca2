"""Whether an epoch can be given again in the same order, and by what that order is known.

A producer that is started again goes on in the middle of an epoch only if its own order has the same identity
as its predecessor's. So the identity names whatever decides which sample stands where: equal identities promise
equal batches for an equal epoch and batch number. What cannot be promised has the identity "".

Of a dataset the tables count that have a row for each sample: paths, labels, numbers, records and tensors. Rows of
other kinds (opened images, a library's own objects) do not: reading them could take minutes, and they may change by
themselves.

An epoch of a loader that cannot begin in the middle is replayed up to there: one goes through what comes before.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import msgspec
import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, Subset

from tsnb.errors import LoaderFailed
from tsnb.stream.loader.identity import identity, is_installed
from tsnb.stream.loader.seams import Given, Ready, Skipped

__all__ = [
    "is_plain",
    "length",
    "loader_order",
    "replayed",
    "sampler_chain",
    "too_short",
    "why_unordered",
]

_LISTS = (range, list, tuple)
_PLAIN = (SequentialSampler, BatchSampler, *_LISTS)
"""Samplers that add no choice of their own; exactly these, since a subclass may."""
_TELLING = (
    "batch_size",
    "drop_last",
    "seed",
    "shuffle",
    "num_replicas",
    "rank",
    "replacement",
    "num_samples",
)
"""Attributes of torch's samplers that decide about the order."""
_CONTENTS = ("indices", "weights")
HEAD_BYTES = 4096
"""Of each array in a list of arrays: another order moves all of them."""


def is_plain(loader: Any) -> bool:
    """Whether it is a DataLoader that is iterated in torch's own way, so that parts of it may be replaced."""
    kind = type(loader)
    return isinstance(loader, DataLoader) and all(
        getattr(kind, name, None) is getattr(DataLoader, name, None) for name in ("__iter__", "_get_iterator")
    )


def loader_order(loader: DataLoader[Any], workers: int, seed: int | None) -> str:
    """Return the identity of the order in which a DataLoader gives its samples, "" if it cannot be promised.

    It can be promised if nothing is shuffled, or with a `seed` if every sampler can be seeded, because it has a
    `generator`, or hears of the epoch, by `set_epoch`. An IterableDataset decides for itself; there `seed` is the
    user's word that it is repeatable, and means something only in workers, whose random numbers we seed. Each of
    its workers gives a part, so that their number belongs to the order; for other datasets it does not matter.
    """
    if _as_they_come(loader, workers):
        return ""
    facts: list[object] = [f"seed={seed}", f"batch_size={loader.batch_size}", f"drop_last={loader.drop_last}"]
    if isinstance(loader.dataset, IterableDataset):
        if seed is None or not workers:
            return ""
        facts.append(f"workers={workers}")
        if not is_installed(type(loader.dataset).__module__):
            facts.append(identity(loader.dataset))
    else:
        samplers = list(
            sampler_chain(loader.sampler if loader.batch_sampler is None else loader.batch_sampler)
        )
        if not all(_repeats(sampler, seed) for sampler in samplers):
            return ""
        facts += [_describe(sampler) + _own_choice(sampler, loader.dataset) for sampler in samplers]
        facts.append(_contents(loader.dataset))
    dataset = loader.dataset
    facts.append(f"samples={length(dataset)}")
    while isinstance(dataset, Subset):
        facts.append(_describe(dataset))
        dataset = dataset.dataset
    facts.append(type(dataset).__qualname__)
    return " ".join(map(str, facts))


def _as_they_come(loader: DataLoader[Any], workers: int) -> bool:
    """Whether batches are given as they are ready: those of a map-style dataset are put in order by their numbers."""
    numbered = is_plain(loader) and not isinstance(loader.dataset, IterableDataset)
    return not numbered and workers > 1 and not getattr(loader, "in_order", True)


def _own_choice(sampler: Any, dataset: Any) -> str:
    """Return what a sampler of the user's own, or of another package, decides by: its code, and all it has."""
    if type(sampler) in _PLAIN or type(sampler).__module__.partition(".")[0] in ("torch", "torchdata"):
        return ""
    inner = [getattr(sampler, name, None) for name in ("sampler", "batch_sampler", "generator")]
    return identity(sampler, leave_out=[dataset, *(one for one in inner if one is not None)])


def _row_word(value: Any, rows: int | None) -> str:
    """Return what stands for a table's rows in their order; "" for what is no table of so many rows.

    Args:
        value: An attribute of a dataset.
        rows: The dataset's samples; None: it does not tell.
    """
    if not rows or isinstance(value, (str, bytes, dict)) or length(value) != rows:
        return ""
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return identity(value)
    if isinstance(value, (list, tuple)):
        return _listed(value)
    return _framed(value)


def _listed(values: Any) -> str:
    """Return the word of a list of plain values, records of them, or arrays; "" for any other list."""
    if values[0] is None:  # to be filled on the way
        return ""
    digest = hashlib.blake2b(digest_size=12)
    encoder = msgspec.msgpack.Encoder(enc_hook=_plain, order="deterministic")
    try:
        for value in values:
            digest.update(encoder.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError, NotImplementedError):
        return ""
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    """Return what stands for a value that msgspec does not know.

    Raises:
        TypeError: Nothing does.
    """
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.device.type != "cpu":
            raise TypeError("a tensor that is not in CPU memory")
        head = value.detach().reshape(-1)[:HEAD_BYTES].resolve_conj().resolve_neg()
        return [str(value.dtype), list(value.shape), head.contiguous().view(torch.uint8).numpy().tobytes()]
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return [value.dtype.str, list(value.shape), value.reshape(-1)[:HEAD_BYTES].tobytes()]
    raise TypeError(f"a {type(value).__qualname__} is no plain value")


def _framed(value: Any) -> str:
    """Return the word of a table of pandas; "" for any other object."""
    pandas: Any = sys.modules.get("pandas")
    if pandas is None or not isinstance(value, (pandas.DataFrame, pandas.Series, pandas.Index)):
        return ""
    try:
        hashed = pandas.util.hash_pandas_object(value)
    except (TypeError, ValueError):  # a column of lists, say
        return _listed(value.to_numpy().tolist())
    return identity(np.asarray(hashed))


def _contents(dataset: Any) -> str:
    """Return the words of a dataset's tables, and of those of the datasets that it reads from.

    Not its code, and no other attribute: another transform does not make it another order.
    """
    if isinstance(dataset, (list, tuple)):
        return identity(dataset)
    inner = (*getattr(dataset, "datasets", ()), getattr(dataset, "dataset", None))
    found = [_contents(one) for one in inner if one is not dataset and hasattr(one, "__getitem__")]
    rows = length(dataset)
    values = getattr(dataset, "__dict__", {})
    tables = [(name, value) for name, value in values.items() if isinstance(name, str)]
    tables += [
        (f"{name}.{i}", v) for name, value in tables if type(value) is tuple for i, v in enumerate(value)
    ]
    words = {name: _row_word(value, rows) for name, value in tables}
    found += [f"{name}:{word}" for name, word in sorted(words.items()) if word]
    return f"({', '.join(found)})" if found else ""


def why_unordered(loader: Any, seed: int | None, workers: int | None) -> str:
    """Return why an epoch of a loader cannot be given again, and what would change that; "" where it can.

    Args:
        loader: The loader to serve.
        seed: As `tsnb.serve`.
        workers: As `tsnb.serve`.
    """
    if not isinstance(loader, DataLoader):
        return (
            "it is not a torch DataLoader. Serve a function make_epoch(epoch) that returns the same "
            "batches for the same epoch"
        )
    number = loader.num_workers if workers is None else workers
    if loader_order(loader, number, seed):
        return ""
    if _as_they_come(loader, number):
        return "in_order=False lets its workers decide which batch comes first. Leave it out"
    if seed is None:
        return "it was served without seed=. Serve it with seed="
    if isinstance(loader.dataset, IterableDataset):
        return (
            "seed= reaches only what an IterableDataset draws in workers, and this loader has no "
            "workers. Pass num_workers=1 or more"
        )
    samplers = sampler_chain(loader.sampler if loader.batch_sampler is None else loader.batch_sampler)
    name = next(type(one).__name__ for one in samplers if not _repeats(one, seed))
    return (
        f"its {name} cannot be seeded. Give that class an attribute `generator` (the torch.Generator "
        "it draws from), or a method set_epoch(epoch)"
    )


def sampler_chain(sampler: Any) -> Iterator[Any]:
    """Give a sampler and those it draws from, outermost first."""
    while sampler is not None:
        yield sampler
        sampler = getattr(sampler, "sampler", None)


def _repeats(sampler: Any, seed: int | None) -> bool:
    if type(sampler) in _PLAIN or _is_stateful(sampler):
        return True
    return seed is not None and (hasattr(sampler, "generator") or hasattr(sampler, "set_epoch"))


def _is_stateful(sampler: Any) -> bool:
    """Whether it is torchdata's batch sampler, which adds a `state_dict` to torch's and no choice."""
    return isinstance(sampler, BatchSampler) and type(sampler).__module__.startswith("torchdata.")


def _describe(part: Any) -> str:
    """Return the type of a sampler or subset, and the facts that are known to decide about its order."""
    facts = [f"{name}={getattr(part, name)}" for name in _TELLING if _is_plain(getattr(part, name, None))]
    # a split that is drawn anew at every start of a script must not pass for the same
    facts += [f"{name}:{_digest(getattr(part, name))}" for name in _CONTENTS if hasattr(part, name)]
    if type(part) in _LISTS:
        facts.append(_digest(part))
    return f"{type(part).__qualname__}({', '.join(facts)})"


def _is_plain(value: object) -> bool:
    return isinstance(value, (bool, int, float, str))


def _digest(values: Any) -> str:
    try:
        table = np.asarray(values)
    except (TypeError, ValueError, RuntimeError):  # batches of several sizes, say
        return identity(values)
    if table.dtype.hasobject:
        return identity(values)
    return hashlib.blake2b(table.tobytes(), digest_size=8).hexdigest()


def length(loader: Any) -> int | None:
    """Return the length of a loader, dataset or sampler that has one."""
    try:
        return len(loader)
    except (TypeError, NotImplementedError, AttributeError):
        return None


def replayed(batches: Iterator[Any], epoch: int, start: int) -> Iterator[Given]:
    """Give an epoch's batches, the first `start` of them as `Skipped`. To close it closes a generator of the user's.

    Raises:
        LoaderFailed: There are fewer.
    """
    try:
        for number in range(start):
            try:
                batch = next(batches)
            except StopIteration:
                raise too_short(epoch, number, start) from None
            yield Skipped(batch)
            del batch
        yield from map(Ready, batches)  # which keeps none of them
    except GeneratorExit:
        if (close := getattr(batches, "close", None)) is not None:
            close()
        raise


def too_short(epoch: int, batches: int, start: int) -> LoaderFailed:
    """Return the error of an epoch that cannot be begun where it should."""
    return LoaderFailed(
        f"Pass {epoch + 1} should continue at batch {start}, but the loader now has only {batches} "
        "batches: its dataset or its batch size has changed. Take the next epoch from its start "
        "instead."
    )
