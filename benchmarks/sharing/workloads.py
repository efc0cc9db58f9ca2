"""What is loaded: six kinds of batches, from samples that lie in memory, by one and the same DataLoader settings."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from itertools import count
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler

__all__ = ["EPOCH_BATCHES", "WORKLOADS", "Samples", "Workload", "first_tensor", "make_loader"]

POOL = 128
"""Different samples in memory; indices go round among them."""
REST_S = 0.004
"""Long enough for nine processes to be done with a batch before the next one comes."""
EPOCH_BATCHES = 100_000
"""Longer than any measurement: a run ends when it has measured long enough, never at an epoch's end."""


class Samples(Dataset[Any]):
    """`POOL` samples.

    Args:
        get: Returns the sample of an index; called in the loader's worker.
    """

    def __init__(self, get: Callable[[int], Any]) -> None:
        self._get = get

    def __len__(self) -> int:
        return POOL

    def __getitem__(self, index: int) -> Any:
        return self._get(index % POOL)


@dataclass(frozen=True)
class Workload:
    """One kind of batch."""

    name: str
    batch_size: int
    batch_bytes: int
    """Of its tensors, about."""
    tuples: bool
    """Whether a batch is a tuple of tensors, all that some systems can carry."""
    make: Callable[[], Samples]
    """Called in the process that will iterate the loader."""
    calm: bool = False
    """Whether the loader rests most of the time: it tells how long a batch is on its way, and nothing else."""
    train: Callable[[], Callable[[Any], None]] | None = None
    """Called in each consumer's process; what it returns trains on a batch. None: the consumers only touch it."""


@cache
def photos() -> list[bytes]:
    """64 JPEG files of 256x256: crops of the two photos that scikit-learn ships."""
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_sample_images

    rng = np.random.default_rng(0)
    files = []
    for photo in load_sample_images().images:
        for _ in range(32):
            top, left = (int(rng.integers(0, side - 256)) for side in photo.shape[:2])
            file = BytesIO()
            Image.fromarray(photo[top : top + 256, left : left + 256]).save(file, "JPEG", quality=90)
            files.append(file.getvalue())
    return files


def _jpeg() -> Samples:
    """Decode, crop and flip."""
    import numpy as np
    from PIL import Image

    files = photos()

    def get(index: int) -> tuple[torch.Tensor, int]:
        top, left, flip = (int(torch.randint(bound, ())) for bound in (32, 32, 2))
        photo = np.asarray(Image.open(BytesIO(files[index % len(files)])).convert("RGB"))
        crop = photo[top : top + 224, left : left + 224]
        pixels = torch.from_numpy(np.ascontiguousarray(crop[:, ::-1] if flip else crop))
        return pixels.permute(2, 0, 1).float().div_(255), index % 2

    return Samples(get)


def _ready(shape: tuple[int, ...], dtype: torch.dtype) -> Samples:
    """Nothing to prepare but the collation."""
    if dtype.is_floating_point:
        samples = torch.randn(POOL, *shape, dtype=dtype)
    else:
        samples = torch.randint(0, 255, (POOL, *shape), dtype=dtype)
    return Samples(lambda index: (samples[index], index % 10))


def _calm() -> Samples:
    """As `tiny`, with a rest before each batch."""
    ready = _ready((784,), torch.float32)
    asked = count()

    def get(index: int) -> Any:
        if next(asked) % 64 == 0:
            time.sleep(REST_S)
        return ready[index]

    return Samples(get)


def _nested() -> Samples:
    """Several tensors of several types, with numbers and strings beside them."""
    left = torch.randn(POOL, 3, 64, 64)
    right = torch.randint(0, 255, (POOL, 3, 64, 64), dtype=torch.uint8)
    tokens = torch.randint(0, 30_000, (POOL, 128))

    def get(index: int) -> dict[str, Any]:
        return {
            "views": {"left": left[index], "right": right[index]},
            "tokens": tokens[index],
            "caption": f"sample number {index}",
            "meta": {"id": index, "weight": index / POOL, "source": "made up"},
        }

    return Samples(get)


_IMAGES = (3, 224, 224)
_PIXELS = math.prod(_IMAGES)

WORKLOADS: dict[str, Workload] = {
    w.name: w
    for w in (
        Workload("jpeg", 32, 32 * _PIXELS * 4, True, _jpeg),
        Workload("img-f32", 64, 64 * _PIXELS * 4, True, lambda: _ready(_IMAGES, torch.float32)),
        Workload("img-u8", 64, 64 * _PIXELS, True, lambda: _ready(_IMAGES, torch.uint8)),
        Workload("tiny", 64, 64 * 784 * 4, True, lambda: _ready((784,), torch.float32)),
        Workload("nested", 64, 64 * (12_288 * 5 + 128 * 8), False, _nested),
        Workload("calm", 64, 64 * 784 * 4, True, _calm, calm=True),
    )
}


def make_loader(
    workload: Workload,
    workers: int,
    *,
    samples: int | None = None,
    collate: Callable[[Any], Any] | None = None,
) -> DataLoader[Any]:
    """Return the DataLoader of a workload; called in the process that will iterate it.

    Args:
        workload: What it gives.
        workers: Its worker processes.
        samples: In an epoch; by default more than a measurement takes.
        collate: In place of torch's own `default_collate`.
    """
    dataset = workload.make()
    number = samples or EPOCH_BATCHES * workload.batch_size
    # with replacement: it draws as it goes, where shuffling would first make a list of the whole endless epoch
    sampler = RandomSampler(dataset, replacement=True, num_samples=number)
    return DataLoader(dataset, workload.batch_size, sampler=sampler, num_workers=workers, collate_fn=collate)


def first_tensor(batch: Any) -> torch.Tensor:
    """Return the first tensor of a batch, whatever its nesting."""
    while not isinstance(batch, torch.Tensor):
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    return batch
