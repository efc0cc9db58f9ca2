"""Every kind of loader, tried with its real package on data made here: the rows of docs/what-can-be-served.md.

A row says what the served loader does; `test_loaders.py` asserts it, and that the page has just these rows.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import grain
import numpy as np
import spdl.dataloader
import spdl.pipeline
import torch
import torchdata.nodes
import webdataset
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)
from torchdata.stateful_dataloader import StatefulDataLoader

from tests.ecosystem.apart import LITDATA, RAY_DATA
from tests.ecosystem.rows import BATCH, SAMPLES, SEED, Images, Row


class Flow(IterableDataset[Any]):
    """The same samples from an iterator, a part to each worker."""

    def __len__(self) -> int:
        return SAMPLES

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        return map(Images().__getitem__, range(first, SAMPLES, step))


class Again:
    """A user's own loader: a class whose `__iter__` begins anew, shuffled by the epoch it is told."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(in_turn())

    def __iter__(self) -> Iterator[Any]:
        order = np.random.default_rng(self.epoch).permutation(len(self))
        return (in_turn()[i] for i in order)


def in_turn() -> list[Any]:
    """Return the batches as a list."""
    return list(DataLoader(Images(), BATCH))


def drawn(seed: int = 3) -> torch.Generator:
    """Return a generator that gives the same to whoever makes it."""
    return torch.Generator().manual_seed(seed)


def collate_words(samples: list[Any]) -> dict[str, Any]:
    """Return a batch with strings in it."""
    images, labels = zip(*samples, strict=True)
    return {"images": torch.stack(images), "words": [f"label {i}" for i in labels], "rows": len(labels)}


def table() -> datasets.Dataset:
    """Return a Hugging Face dataset."""
    rows = [Images()[i] for i in range(SAMPLES)]
    return datasets.Dataset.from_dict({"image": [x.tolist() for x, _ in rows], "label": [y for _, y in rows]})


def flowing() -> datasets.IterableDataset:
    """Return one that is streamed, and shuffled anew in each epoch that it is told."""
    return table().to_iterable_dataset(num_shards=2).shuffle(seed=5, buffer_size=16)


def weighted() -> WeightedRandomSampler:
    """Return a sampler that draws some samples more often than others."""
    return WeightedRandomSampler(list(range(1, SAMPLES + 1)), SAMPLES, generator=drawn())


def grain_map() -> Any:
    """Return a grain dataset of batches."""
    return grain.MapDataset.source(GrainSource()).batch(BATCH)


def shards(directory: Path) -> str:
    """Write two tar files; return how WebDataset names them."""
    for shard in range(2):
        with tarfile.open(directory / f"digits-{shard}.tar", "w") as tar:
            for i in range(shard * SAMPLES // 2, (shard + 1) * SAMPLES // 2):
                content = io.BytesIO()
                np.save(content, Images()[i][0].numpy())
                for suffix, data in (("npy", content.getvalue()), ("cls", str(i).encode())):
                    entry = tarfile.TarInfo(f"{i:04}.{suffix}")
                    entry.size = len(data)
                    tar.addfile(entry, io.BytesIO(data))
    return str(directory / "digits-{0..1}.tar")


def web(directory: Path) -> Any:
    """Return a WebDataset of those, in their order."""
    # shardshuffle: no shuffling of shards; empty_check: a worker may have no shard
    return (
        webdataset.WebDataset(shards(directory), shardshuffle=False, empty_check=False)
        .decode()
        .to_tuple("npy", "cls")
    )


def numbers(label: int) -> dict[str, Any]:
    """Return a sample as numpy, which SPDL and grain batch."""
    return {"image": Images()[label][0].numpy(), "label": np.int64(label)}


def stacked(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a batch of such samples."""
    return {name: torch.as_tensor(np.stack([s[name] for s in samples])) for name in samples[0]}


def nodes() -> Any:
    """Return torchdata nodes up to a batch."""
    root: Any = torchdata.nodes.IterableWrapper(range(SAMPLES))
    root = torchdata.nodes.Batcher(torchdata.nodes.Mapper(root, numbers), BATCH, drop_last=False)
    return torchdata.nodes.Mapper(root, stacked)


def grain_loader() -> Any:
    """Return grain's own DataLoader: one epoch, in order."""
    sampler = grain.samplers.IndexSampler(SAMPLES, shuffle=False, num_epochs=1, seed=0)
    steps = [grain.transforms.Batch(BATCH, drop_remainder=False)]
    return grain.DataLoader(data_source=GrainSource(), sampler=sampler, operations=steps, worker_count=0)


class GrainSource:
    """What grain calls a random access source."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        return numbers(int(index))

    def __repr__(self) -> str:
        return "GrainSource()"


def spdl_loader() -> Any:
    """Return SPDL's own DataLoader, in order."""
    make: Any = spdl.dataloader.DataLoader
    return make(
        range(SAMPLES),
        preprocessor=numbers,
        batch_size=BATCH,
        aggregator=stacked,
        num_threads=2,
        output_order="input",
    )


def pipeline() -> Any:
    """Return a bare SPDL pipeline, started."""
    built: Any = spdl.pipeline.PipelineBuilder()
    built = built.add_source(range(SAMPLES)).pipe(numbers).aggregate(BATCH)
    made = built.pipe(stacked).add_sink(2).build(num_threads=1)
    made.start()
    return made


def make_epoch(epoch: int) -> Iterator[Any]:
    """Give an epoch's batches, from a generator."""
    for images, labels in in_turn():
        yield images + epoch, labels


def make_loader(epoch: int) -> Any:
    """Return the DataLoader of an epoch."""
    return DataLoader(Images(), BATCH, shuffle=True, generator=drawn(epoch))


LOADERS = [
    Row("`DataLoader`", lambda _: DataLoader(Images(), BATCH, num_workers=2), True, True, "", "yes"),
    Row(
        "`DataLoader(shuffle=True)`",
        lambda _: DataLoader(Images(), BATCH, shuffle=True, generator=drawn()),
        True,
        True,
        "",
        SEED,
    ),
    Row(
        "`DataLoader` of an `IterableDataset`",
        lambda _: DataLoader(Flow(), BATCH, num_workers=2),
        True,
        True,
        "",
        SEED,
    ),
    Row(
        "`DataLoader(batch_sampler=...)`",
        lambda _: DataLoader(
            Images(),
            batch_sampler=BatchSampler(RandomSampler(Images(), generator=drawn()), BATCH, drop_last=False),
        ),
        True,
        True,
        "",
        SEED,
    ),
    Row(
        "`DataLoader(collate_fn=...)`",
        lambda _: DataLoader(Images(), BATCH, num_workers=2, collate_fn=collate_words),
        True,
        True,
        "",
        "yes",
    ),
    Row(
        "`DataLoader(sampler=WeightedRandomSampler(...))`",
        lambda _: DataLoader(Images(), BATCH, sampler=weighted()),
        True,
        True,
        "",
        SEED,
    ),
    Row(
        "`DataLoader(sampler=DistributedSampler(...))`",
        lambda _: DataLoader(Images(), BATCH, sampler=DistributedSampler(Images(), 2, 1)),
        True,
        True,
        "sampler",
        SEED,
    ),
    Row(
        "torchdata `StatefulDataLoader`",
        lambda _: StatefulDataLoader(Images(), BATCH, num_workers=2),
        False,
        True,
        "",
        "yes",
    ),
    Row("torchdata `nodes.Loader`", lambda _: torchdata.nodes.Loader(nodes()), False, False, "", "no"),
    Row(
        "`DataLoader` of a Hugging Face `Dataset`",
        lambda _: DataLoader(table().with_format("torch"), BATCH, num_workers=2),
        True,
        True,
        "",
        "yes",
    ),
    Row(
        "Hugging Face `Dataset.batch(n)`",
        lambda _: table().batch(BATCH).with_format("torch"),
        False,
        True,
        "",
        "yes",
    ),
    Row(
        "Hugging Face `IterableDataset.batch(n)`",
        lambda _: flowing().batch(BATCH).with_format("torch"),
        False,
        False,
        "loader",
        "yes",
    ),
    Row(
        "`DataLoader` of a Hugging Face `IterableDataset`",
        lambda _: DataLoader(flowing().with_format("torch"), BATCH, num_workers=2),
        True,
        False,
        "dataset",
        SEED,
    ),
    Row("WebDataset `.batched(n)`", lambda shards: web(shards).batched(BATCH), False, False, "", "no"),
    Row(
        "`DataLoader` of a WebDataset",
        lambda shards: DataLoader(web(shards), BATCH, num_workers=2),
        True,
        False,
        "",
        SEED,
    ),
    Row(
        "WebDataset `WebLoader`",
        lambda shards: webdataset.WebLoader(web(shards), batch_size=BATCH, num_workers=2),
        False,
        False,
        "",
        "no",
    ),
    *LITDATA,
    RAY_DATA,
    Row(
        "SPDL `DataLoader`",
        lambda _: spdl_loader(),
        False,
        False,
        "",
        "no",
    ),
    Row("grain `MapDataset.batch(n)`", lambda _: grain_map(), False, True, "", "yes"),
    Row("grain `IterDataset.batch(n)`", lambda _: grain_map().to_iter_dataset(), False, False, "", "no"),
    Row("grain `DataLoader`", lambda _: grain_loader(), False, False, "", "no"),
    Row("a list of batches", lambda _: in_turn(), False, True, "", "yes"),
    Row("any object with `__iter__`", lambda _: Again(), False, True, "loader", "yes"),
    Row("a function of the epoch: a generator", lambda _: make_epoch, False, False, "argument", "yes"),
    Row("a function of the epoch: a `DataLoader`", lambda _: make_loader, True, False, "argument", "yes"),
]

UNSEEN = "an SPDL `Pipeline`"
"""The one of these that does not look like an iterator, and is found out at its second epoch only."""
ONE_SHOT = {
    "a generator object": lambda: make_epoch(0),
    "a `map`, `zip` or other iterator": lambda: iter(in_turn()),
    "Hugging Face `Dataset.iter(n)`": lambda: table().with_format("torch").iter(BATCH),
    "a torchdata node": nodes,
    UNSEEN: pipeline,
}
"""What can be gone through only once: its first epoch is whole, the second an error that says what to serve."""
