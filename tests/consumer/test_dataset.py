"""What a training script asks of `loader.dataset` and `loader.sampler`: lengths and small attributes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

import tsnb


class Digits(Dataset[Any]):
    """As torchvision's are: labels of all samples, names of classes, and images that stay."""

    def __init__(self, samples: int = 50) -> None:
        self.classes = ("zero", "one")
        self.class_to_idx = {"zero": 0, "one": 1}
        self.targets = torch.arange(samples) % 2
        self.data = torch.rand(samples, 100_000 // samples)
        self.transform: Callable[[Any], Any] = lambda x: x

    @property
    def num_classes(self) -> int:
        """As PyG has it."""
        return 2

    @property
    def labels(self) -> Any:
        """A property that cannot be read."""
        raise RuntimeError("not downloaded")

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> Any:
        return self.data[index], self.targets[index]


class Stream(IterableDataset[Any]):
    """One that knows its length."""

    def __len__(self) -> int:
        return 21

    def __iter__(self) -> Any:
        return iter(torch.arange(21))


def test_its_length_is_the_samples_and_not_the_batches() -> None:
    """On the consumer and as a DataLoader: accuracies are divided by it. The sampler's is what this consumer gets."""
    with tsnb.serve(DataLoader(Digits(), batch_size=8, shuffle=True), name="s"):
        with tsnb.attach("one", "s") as one:
            for loader in (one, one.as_dataloader()):
                assert (len(loader.dataset), len(loader.sampler), len(loader)) == (50, 50, 7)  # type: ignore[arg-type]
                assert isinstance(loader.dataset, Dataset)
            # what has a sampler is asked for it: Lightning, of loaders for validation
            assert one.batch_sampler is None
            assert sum(len(y) for _, y in one.as_dataloader()) == 50
            assert (one.batch_size, one.as_dataloader().batch_size) == (8, None)
            one.sampler.set_epoch(3)
        with tsnb.attach("fold", "s", fold=(0, 5)) as fold, tsnb.attach("out", "s", subset=range(7)) as some:
            assert (len(fold.dataset), len(fold.sampler), len(fold.as_dataloader().dataset)) == (40, 40, 40)  # type: ignore[arg-type]
            assert len(some.dataset) == 7
        with tsnb.attach("job", "s", rank=0, world_size=4) as rank:
            assert (len(rank.dataset), len(rank.sampler)) == (50, 13)


def test_small_attributes_come_with_their_types() -> None:
    """Tensors, tuples and dicts; of a dataset inside another too. Large ones and functions stay, and say so."""
    with (
        tsnb.serve(DataLoader(Subset(Digits(), range(10)), batch_size=4), name="s"),
        tsnb.attach("one", "s") as one,
    ):
        for whole in (one.dataset, one.as_dataloader().dataset):
            assert len(whole) == 10 and list(whole.indices) == list(range(10))  # type: ignore[arg-type, attr-defined]
            dataset: Any = whole.dataset  # type: ignore[attr-defined]
            assert len(dataset) == 50 and dataset.classes == ("zero", "one") and dataset.num_classes == 2
            assert dataset.class_to_idx == {"zero": 0, "one": 1}
            assert torch.equal(dataset.targets, torch.arange(50) % 2) and dataset.targets.dtype == torch.int64
            for name in ("data", "transform", "labels", "nothing"):
                assert not hasattr(dataset, name)
            with pytest.raises(AttributeError, match="'data' of the dataset of 's' is not available here"):
                dataset.data  # noqa: B018
            for again in (copy.copy(dataset), pickle.loads(pickle.dumps(dataset))):
                assert len(again) == 50 and again.classes == ("zero", "one")


def test_many_labels_travel_and_what_is_too_much_does_not() -> None:
    """A million sorted labels are a few bytes; random ones, or the names of all files, are not told."""
    dataset: Any = Digits(100)
    dataset.targets_sorted = sorted([k % 1000 for k in range(1_000_000)])
    dataset.noise = torch.rand(1_000_000)
    dataset.samples = [(f"/data/{k}.jpg", k % 7) for k in range(200_000)]
    with tsnb.serve(DataLoader(dataset, batch_size=50), name="s"), tsnb.attach("one", "s") as one:
        there: Any = one.dataset
        assert there.targets_sorted == dataset.targets_sorted and there.classes == dataset.classes
        assert not hasattr(there, "noise") and not hasattr(there, "samples")


def test_samples_are_refused_with_what_to_do() -> None:
    """By index and in a loop; the sampler's indices likewise."""
    with tsnb.serve(DataLoader(Digits(), batch_size=8), name="s"), tsnb.attach("one", "s") as one:
        dataset: Any = one.dataset
        sampler: Any = one.sampler
        ways: list[Callable[[], Any]] = [
            lambda: dataset[3],
            lambda: next(iter(dataset)),
            lambda: next(iter(sampler)),
        ]
        for act in ways:
            with pytest.raises(TypeError, match=r"stays? with its loader"):
                act()


def test_streams_without_a_dataset_say_so() -> None:
    """A list of batches, a function; an iterable dataset may know its length, and a loader of the user's too."""
    for source in ([torch.zeros(2)] * 3, lambda epoch: [torch.zeros(2)]):
        with tsnb.serve(source, name="s"), tsnb.attach("one", "s") as one:
            for loader in (one, one.as_dataloader()):
                with pytest.raises(TypeError, match=r"len\(loader.dataset\) is unknown"):
                    len(loader.dataset)  # type: ignore[arg-type]
            assert len(list(one.as_dataloader())) in (1, 3)
    with tsnb.serve(DataLoader(Stream(), batch_size=4), name="s"), tsnb.attach("one", "s") as one:
        assert len(one.dataset) == 21 and len(one.as_dataloader().dataset) == 21  # type: ignore[arg-type]
