"""Loaders of docs/what-can-be-served.md that need a cluster, or packages that do not go with our pins.

Ray Data is tried in tests/cluster/test_cluster.py, where a cluster runs. LitData asks for torchvision, and for a boto3
whose botocore wants an older python-dateutil than constraints.txt has. From a local directory it reads without either:
so `make test` installs it, and no other package that it asks for, from litdata.txt.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from tests.ecosystem.rows import BATCH, SAMPLES, SEED, Images, Row

CHUNK = 7
"""Samples in a chunk of LitData's: no multiple of the batch, so that batches straddle two."""


def litdata(directory: Path) -> Any:
    """Return a LitData dataset, shuffled in each epoch; its chunks are written by its own writer."""
    streaming: Any = import_module("litdata.streaming")
    chunks = directory / "chunks"
    if not chunks.exists():
        cache = streaming.Cache(str(chunks), chunk_size=CHUNK)
        for index in range(SAMPLES):
            image, label = Images()[index]
            cache[index] = {"image": image, "label": label}
        cache.done()
        cache.merge()
    dataset = streaming.StreamingDataset(str(chunks), cache_dir=str(directory / "cache"), shuffle=True)
    dataset.set_batch_size(BATCH)  # its own DataLoader does that; without it each worker has a partial batch
    return dataset


def lit_loader(directory: Path) -> Any:
    """Return LitData's own DataLoader."""
    streaming: Any = import_module("litdata.streaming")
    return streaming.StreamingDataLoader(litdata(directory), batch_size=BATCH, num_workers=2)


def ray_batches(_: Path) -> Any:
    """Return the batches of a Ray dataset; Ray must have been started."""
    data: Any = import_module("ray.data")
    data.DataContext.get_current().enable_progress_bars = False
    rows = [
        {"image": image.numpy(), "label": label} for image, label in map(Images().__getitem__, range(SAMPLES))
    ]
    return data.from_items(rows, override_num_blocks=1).iter_torch_batches(batch_size=BATCH)


LITDATA = [
    Row(
        "`DataLoader` of a LitData `StreamingDataset`",
        lambda directory: DataLoader(litdata(directory), BATCH, num_workers=2),
        True,
        True,
        "dataset",
        SEED,
        "litdata",
    ),
    Row("LitData `StreamingDataLoader`", lit_loader, False, True, "", "no", "litdata"),
]
RAY_DATA = Row("Ray Data `Dataset.iter_torch_batches(...)`", ray_batches, False, False, "", "no")
