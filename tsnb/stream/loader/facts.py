"""What can be told of a DataLoader without iterating it: whether it is torch's own, its samples, their indices.

`dataset_facts` is what consumers can know of its dataset: its length, and small attributes such as `classes` and
`targets`. They travel once, with the welcome, each as a batch of its own would: with its types, or not at all. Samples
do not.
"""

from __future__ import annotations

import base64
import contextlib
import json
import zlib
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from tsnb.errors import BatchNotShareable
from tsnb.stream.loader.collate import image_of
from tsnb.stream.loader.packing import batch_bytes
from tsnb.stream.loader.repeating import is_plain, length

__all__ = [
    "GROWS",
    "Indices",
    "as_iterated",
    "dataset_facts",
    "epoch_samples",
    "indices_of",
    "is_plain",
    "why_deaf",
    "why_frozen",
    "why_not_persistent",
    "why_reordered",
]

_WRITES = ("add", "append", "extend", "push", "store")
"""How something is put into a replay buffer, which also has a `sample`."""
MIN_DISORDER = 2
"""One worker gives its batches in order anyway."""


class _Iterated:
    """A loader of a subclass of DataLoader that never called `DataLoader.__init__`: nothing but an iterable."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __iter__(self) -> Any:
        return iter(self._loader)

    def __len__(self) -> int:
        if type(self._loader).__len__ is DataLoader.__len__:
            raise TypeError("This loader has no length.")
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # while it is being copied
            raise AttributeError(name)
        return getattr(self._loader, name)


def as_iterated(loader: Any) -> Any:
    """Return a loader, or what stands for one that is a DataLoader by its class alone.

    Raises:
        TypeError: Nothing can be iterated there.
    """
    if not isinstance(loader, DataLoader) or "dataset" in vars(loader):
        return loader
    kind = type(loader)
    if kind.__iter__ is not DataLoader.__iter__:
        return _Iterated(loader)
    raise TypeError(
        f"{kind.__qualname__} is a DataLoader without a dataset, because its __init__ does not call "
        "DataLoader.__init__. Call super().__init__(dataset, ...) there, or define its __iter__."
    )


def why_deaf(loader: DataLoader[Any], seed: int | None) -> str:
    """Return why workers that stay would hear neither of an epoch's number nor of its seed; "": they need not."""
    if hasattr(loader.dataset, "set_epoch"):
        return "its dataset has a set_epoch method"
    return "seed= is set" if isinstance(loader.dataset, IterableDataset) and seed is not None else ""


def why_not_persistent(loader: Any, seed: int | None, workers: int | None) -> str:
    """Return why workers that are meant to stay cannot; "" if they can, or are not meant to.

    Args:
        loader: The loader to serve.
        seed: As `tsnb.serve`.
        workers: As `tsnb.serve`.
    """
    if (
        not is_plain(loader)
        or not loader.persistent_workers
        or workers == 0
        or not (why := why_deaf(loader, seed))
    ):
        return ""
    way_out = (
        "Serve without seed= to keep the workers"
        if why.startswith("seed")
        else "Remove set_epoch to keep the workers"
    )
    return (
        f"persistent_workers=True has no effect on this stream: {why}, which reaches only workers "
        "started for that epoch. Whatever their copies of the dataset keep between epochs (caches, "
        f"open files) is lost. {way_out}, or keep it in a file."
    )


def why_reordered(loader: Any, workers: int | None) -> str:
    """Return why batches come in order though the loader need not give them so; "" if it has no say in that.

    Args:
        loader: The loader to serve.
        workers: As `tsnb.serve`.
    """
    several = workers if workers is not None else getattr(loader, "num_workers", 0)
    if not is_plain(loader) or getattr(loader, "in_order", True) or several < MIN_DISORDER:
        return ""
    if isinstance(loader.dataset, IterableDataset):
        return ""
    return (
        "in_order=False has no effect on this stream: all trials get the batches in the sampler's "
        "order. Remove it from the DataLoader. If a few samples are slow, pass seed=. tsnb then starts "
        "slow batches earlier."
    )


def why_frozen(loader: Any) -> str:
    """Return what to know of a loader over a store that its readers write to, as agents do; "" for any other."""
    for store in (loader, getattr(loader, "dataset", None)):
        kind = type(store)
        if hasattr(kind, "sample") and any(hasattr(kind, name) for name in _WRITES):
            return (
                f"Trials read a {kind.__qualname__} from this stream. What they add to their own "
                "copies does not come back, because the stream uses the copy in its own process. Let "
                "the served loader collect new samples itself, or serve again after each collection."
            )
    return ""


class Indices(NamedTuple):
    """Whether batches can tell which samples they hold."""

    samples: int | None = None
    """Of the dataset; None: they cannot tell."""
    each_once: bool = False
    """Whether an epoch has each of them exactly once."""
    why_not: str = ""
    """Why they cannot tell, and what would change that."""


GROWS = Indices(
    why_not="its dataset grows, so its samples are not known in advance. Attach without subset= and fold="
)


def epoch_samples(loader: DataLoader[Any]) -> int | None:
    """Return the samples in an epoch, where the loader's own parts tell."""
    if loader.batch_size is None:
        return None
    if isinstance(loader.dataset, IterableDataset):
        return None if loader.drop_last else length(loader.dataset)
    samples = length(loader.sampler)
    if samples is not None and loader.drop_last:
        return samples // loader.batch_size * loader.batch_size
    return samples


def indices_of(loader: DataLoader[Any]) -> Indices:
    """Return whether a loader's batches can tell which samples they hold."""
    if isinstance(loader.dataset, IterableDataset):
        return Indices(
            why_not="its dataset can only be iterated, so its samples have no index. Serve a map-style dataset"
        )
    samples, batches = length(loader.dataset), loader.batch_sampler
    if batches is None:
        return Indices(
            why_not="with batch_size=None its dataset makes the batches. Let the DataLoader make them"
        )
    if samples is None or samples >= 1 << 32:
        return Indices(why_not="its dataset has no len(), or too many samples. Define __len__ in the dataset")
    sampler: Any = getattr(batches, "sampler", None)
    permuted = type(sampler) is SequentialSampler or (
        type(sampler) is RandomSampler and not sampler.replacement
    )
    whole = isinstance(batches, BatchSampler) and not (
        loader.drop_last and samples % (loader.batch_size or 1)
    )
    return Indices(samples, permuted and whole and length(sampler) == samples)


MOST_LETTERS = 90_000
"""Of all attributes together: the welcome is one packet."""
MOST_BYTES = 1 << 24
"""Of one attribute, before it is compressed: the labels of some million samples."""
MOST_ENTRIES = 10_000
"""Of nested lists and dicts, where they are not numbers alone: the names of classes, and not those of all files."""
WITHIN = 3
"""Datasets in one another: a Subset of a Subset, say."""
_COMPUTED = (
    "classes",
    "class_to_idx",
    "targets",
    "labels",
    "num_classes",
    "num_features",
    "num_node_features",
)
"""Often a property, which does not stand among an object's attributes."""


def dataset_facts(loader: Any) -> str:
    """Return what is told of a loader's dataset, as JSON; empty where it has none."""
    dataset = getattr(loader, "dataset", None)
    if dataset is None:
        return ""
    room = [MOST_LETTERS]
    return json.dumps(_facts(dataset, room, WITHIN), separators=(",", ":"))


def _facts(dataset: Any, room: list[int], within: int) -> dict[str, Any]:
    found: dict[str, str] = {}
    inner: dict[str, Any] = {}
    for name, value in _attributes(dataset).items():
        if isinstance(value, Dataset):
            if within > 1:
                inner[name] = _facts(value, room, within - 1)
        elif text := _travelling(value):
            found[name] = text
    kept = {}
    for name in sorted(found, key=lambda name: len(found[name])):
        room[0] -= len(name) + len(found[name])
        if room[0] < 0:
            break
        kept[name] = found[name]
    return {
        "kind": type(dataset).__qualname__,
        "samples": length(dataset),
        "attributes": kept,
        "inner": inner,
    }


def _attributes(dataset: Any) -> dict[str, Any]:
    names = [name for name in getattr(dataset, "__dict__", ()) if name[:1] != "_"]
    found = {}
    for name in dict.fromkeys((*names, *_COMPUTED)):
        with contextlib.suppress(
            Exception
        ):  # a property of the user's may raise anything; it is not there then
            found[name] = getattr(dataset, name)
    return found


def _travelling(value: Any) -> str:
    """Return an attribute as text; empty where it cannot travel, or is too large."""
    try:
        if not _is_small(value) or batch_bytes(value) > MOST_BYTES:
            return ""
        image = image_of(value)
    except (BatchNotShareable, ValueError, TypeError):
        return ""
    head = f"{len(image.layout)},{image.values_offset},{image.values_bytes}\n".encode()
    packed = zlib.compress(head + image.layout + image.memory.tobytes(), 6)
    return base64.b64encode(packed).decode() if len(packed) < MOST_LETTERS else ""


def _is_small(value: Any) -> bool:
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return bool(value.nbytes <= MOST_BYTES)
    if isinstance(value, (str, bytes)):
        return len(value) <= MOST_ENTRIES
    if (
        isinstance(value, (list, tuple))
        and len(value) * 8 <= MOST_BYTES
        and {*map(type, value)} <= {int, float, bool}
    ):
        return True
    left = [MOST_ENTRIES]
    return _counted(value, left)


def _counted(value: Any, left: list[int]) -> bool:
    """Count what lies in lists and dicts; return whether there is room for all of it."""
    parts: Any = (
        value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    )
    left[0] -= 1 + len(parts)
    return left[0] >= 0 and all(_counted(part, left) for part in parts)
