"""What consumers can know of the loader's dataset: its length, and small attributes such as `classes` and `targets`.

They travel once, with the welcome, each as a batch of its own would: with its types, or not at all. Samples do not.
"""

from __future__ import annotations

import base64
import contextlib
import json
import zlib
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from tsnb.errors import BatchNotShareable
from tsnb.stream.loader.collate import image_of
from tsnb.stream.loader.packing import batch_bytes
from tsnb.stream.loader.repeating import length

__all__ = ["dataset_facts"]

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
