"""What people do with a DataLoader, by the list of cases of PyTorch's own tests: a stream gives what torch gives.

Each case is a loader that torch iterates alone and that a source iterates as the producer would, with a worker and
without; batches, types, errors and warnings are to be the same.
"""

from __future__ import annotations

import collections
import copy
import gc
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    StackDataset,
    Subset,
    TensorDataset,
    default_convert,
    get_worker_info,
)

from tests.producer.sources import Stand
from tests.system.sameness import differences


class Row(NamedTuple):
    x: Any
    y: Any


class Mine(dict[str, Any]):
    """A mapping of the user's own."""


class Sequence(list[Any]):
    """A sequence of the user's own."""


class Custom:
    """A batch of the user's own, as torch's documentation has it."""

    def __init__(self, rows: Any) -> None:
        self.x = torch.stack([row[0] for row in rows])
        self.names = [str(row[1]) for row in rows]

    def pin_memory(self) -> Custom:
        self.x = self.x.pin_memory()
        return self


class Made(Dataset[Any]):
    """Samples that a function makes."""

    def __init__(self, make: Callable[[int], Any], samples: int = 6) -> None:
        self.make, self.samples = make, samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


class Counted(IterableDataset[Any]):
    """Gives another number of samples than it says."""

    def __init__(self, says: int, gives: int) -> None:
        self.says, self.gives = says, gives

    def __len__(self) -> int:
        return self.says

    def __iter__(self) -> Iterator[Any]:
        return iter(torch.arange(self.gives))


class Sharded(IterableDataset[Any]):
    """Each worker gives its own part, of its own length."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(torch.arange(first, 11, step))


def numbers(count: int) -> Any:
    return torch.arange(count)


def images(indices: Any) -> Any:
    return [image(index) for index in indices]


def pair(index: int) -> Any:
    return image(index), np.float32(index)


def anything(_: int) -> Any:
    return object()


def image(index: int) -> torch.Tensor:
    return torch.full((2, 3), float(index))


SAMPLES: dict[str, Callable[[int], Any]] = {
    "numpy scalars": lambda i: (np.float32(i), np.int64(i), np.bool_(i % 2), np.float64(i / 3), np.uint8(i)),
    "python numbers": lambda i: (i, i / 3, bool(i % 2), 10**12 + i),
    "texts": lambda i: (f"s{i}", b"b%d" % i),
    "numpy arrays": lambda i: {"a": np.full((2, 2), i), "b": np.array(i, "f4")},
    "named tuples": lambda i: Row(image(i), i),
    "a mapping of one's own": lambda i: Mine(x=image(i), y=i),
    "ordered": lambda i: collections.OrderedDict(b=image(i), a=i),
    "default dict": lambda i: collections.defaultdict(int, x=image(i)),
    "user dict": lambda i: collections.UserDict(x=image(i)),
    "a sequence of one's own": lambda i: Sequence([image(i), i]),
    "nested": lambda i: {"a": [Row({"x": (i, image(i))}, [])], "n": "x"},
    "no elements": lambda _: torch.empty(0, 3),
    "0-d": torch.tensor,
    "strange dtypes": lambda i: (
        torch.tensor(i, dtype=torch.uint16),
        torch.tensor([i], dtype=torch.bfloat16),
    ),
    "channels last": lambda i: torch.ones(1, 3, 4, 5).to(memory_format=torch.channels_last)[0] * i,
    "complex": lambda i: torch.tensor([complex(i, -i)]),
}
LOADERS: dict[str, dict[str, Any]] = {
    "batches": {"batch_size": 4},
    "drop_last": {"batch_size": 4, "drop_last": True},
    "larger than the data": {"batch_size": 100},
    "no batches": {"batch_size": None},
    "no batches, converted by hand": {"batch_size": None, "collate_fn": default_convert},
    "a list as batch_sampler": {"batch_sampler": [[0, 5], [3], [1, 1, 1]]},
    "a list as sampler": {"sampler": [4, 2, 0], "batch_size": 2},
    "no batches, a batch_sampler as sampler": {
        "sampler": BatchSampler(SequentialSampler(range(6)), 4, drop_last=False),
        "batch_size": None,
        "collate_fn": list,
    },
}


def one_epoch(loader: Any) -> list[Any]:
    with Stand(loader) as stand:
        return stand.epoch(0)


def compare(loader: Callable[[], DataLoader[Any]]) -> list[str]:
    """Return where the batches of two epochs, the first copied and the second in place, differ from torch's."""
    alone = loader()
    want = [list(alone) for _ in range(2)]
    with Stand(loader(), fit=False) as stand:
        got = [stand.epoch(0)]
        stand.fit()
        got.append(stand.epoch(1))
    return differences(want, got)


def all_kinds(index: int) -> Any:
    return {name: make(index) for name, make in SAMPLES.items()}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_whatever_the_samples_are(workers: int) -> None:
    """Torch's collating, of every kind of sample; types that it keeps are kept."""
    assert not compare(lambda: DataLoader(Made(all_kinds), 4, num_workers=workers))


@pytest.mark.parametrize("kind", LOADERS)
def test_however_batches_are_made(kind: str) -> None:
    """With and without batch_size, sampler, batch_sampler."""
    indices = kind == "no batches, a batch_sampler as sampler"
    made = Made(images if indices else pair)
    assert not compare(lambda: DataLoader(made, **copy.copy(LOADERS[kind])))


DATASETS: dict[str, Callable[[], Any]] = {
    "tensors": lambda: TensorDataset(torch.arange(7), torch.arange(14.0).view(7, 2)),
    "stacked by name": lambda: StackDataset(x=numbers(7), y=numbers(7)),
    "a part": lambda: Subset(TensorDataset(torch.arange(20)), [3, 1, 19, 0]),
    "one after the other": lambda: ConcatDataset([TensorDataset(torch.arange(n)) for n in (3, 1, 4)]),
    "streams in a chain": lambda: ChainDataset([Sharded(), Sharded()]),
    "a stream by worker": Sharded,
    "a list": lambda: [torch.tensor(i) for i in range(5)],
}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "workers"), [*((kind, 0) for kind in DATASETS), ("a stream by worker", 2)])
def test_every_data_set_of_torchs_own(kind: str, workers: int) -> None:
    """Map-style and iterable, in parts that differ in length."""
    assert not compare(lambda: DataLoader(DATASETS[kind](), 3, num_workers=workers, drop_last=False))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_class_of_ones_own(workers: int) -> None:
    """With pin_memory(), which torch calls in its own thread; there is no GPU here, so that it is not."""
    made = Made(pair)
    assert not compare(lambda: DataLoader(made, 4, collate_fn=Custom, num_workers=workers))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_that_gives_more_than_it_says_warns_as_torch_does(workers: int) -> None:
    """Length of IterableDataset ... was reported to be 3: said by torch, and once is enough."""
    told = []
    for give in (list, one_epoch):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            give(DataLoader(Counted(3, 5), 1, num_workers=workers))
        told.append({str(w.message).split(",")[0].partition("dataset")[0] for w in caught})
    assert told[0] <= told[1]


class Rotten(Exception):
    """Needs two arguments, as torch's own test of it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")


def broken(index: int) -> Any:
    if index == 3:
        raise Rotten(7, "rotten")
    return torch.tensor(index)


def badly_begun(_: int) -> None:
    raise KeyError("no such worker")


def badly_collated(_: Any) -> Any:
    raise FileNotFoundError(2, "No such file", "a.png")


ERRORS: dict[str, tuple[Callable[[int], DataLoader[Any]], str]] = {
    "in the data set": (lambda n: DataLoader(Made(broken), 2, num_workers=n), "rotten"),
    "in collate_fn": (lambda n: DataLoader(Made(image), 2, num_workers=n, collate_fn=badly_collated), "a.png"),
    "lengths that differ": (lambda n: DataLoader(Made(torch.ones), 2, num_workers=n), "stack expects"),
    "what cannot be collated": (lambda n: DataLoader(Made(anything), 2, num_workers=n),
                                "must contain tensors"),
}  # fmt: skip


def error_of(give: Callable[[Any], Any], loader: Any, says: str) -> tuple[type, str]:
    """Return the type and the last line of what is raised, and let go of the frames, which hold workers."""
    with pytest.raises(Exception, match=says) as caught:
        give(loader)
    error: BaseException | None = caught.value
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
    return caught.type, str(caught.value).strip().splitlines()[-1]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", ERRORS)
def test_errors_are_those_of_torch(kind: str, workers: int) -> None:
    """Of the same type, with the same last line."""
    make, says = ERRORS[kind]
    assert error_of(list, make(workers), says) == error_of(one_epoch, make(workers), says)


def test_a_worker_that_cannot_begin_says_so() -> None:
    """Its worker_init_fn raised."""
    with (
        pytest.raises(KeyError, match="no such worker"),
        Stand(DataLoader(Made(image), 2, num_workers=1, worker_init_fn=badly_begun)) as stand,
    ):
        stand.epoch(0)
    del stand  # pytest keeps the error, whose traceback refers to the iterator, and that to its worker
    gc.collect()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_a_generator_gives_the_order_that_it_gives_torch(workers: int) -> None:
    """Epoch after epoch; and the user's loader can be iterated as if nothing had been."""

    def loader() -> DataLoader[Any]:
        generator = torch.Generator().manual_seed(11)
        return DataLoader(Made(torch.tensor, 20), 5, shuffle=True, generator=generator, num_workers=workers)

    assert not compare(loader)


class Drawn(Dataset[Any]):
    """Says which worker it is in, by torch's own account."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        info: Any = get_worker_info()
        return info.id, info.num_workers, type(info.dataset).__name__, isinstance(info.seed, int)


@pytest.mark.slow
def test_workers_know_which_they_are() -> None:
    """get_worker_info() in the data set, and the id given to worker_init_fn."""
    assert not compare(lambda: DataLoader(Drawn(), 2, num_workers=2))
