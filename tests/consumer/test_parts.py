"""Parts of a stream: subsets and folds, each sample of them once, in the common order, in the consumer's own batches.

That nothing is lost in any order of events is proven in `tests/producer/test_dispatch.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import Array
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, RandomSampler, WeightedRandomSampler

import tsnb
from tests.consumer.test_rebatching import delivered
from tests.producer.sources import Stream
from tsnb.errors import BatchNotShareable, JoinRefused
from tsnb.stream.consumer.batches.parts import Part, fold_of
from tsnb.stream.consumer.batches.rebatching import Rebatcher
from tsnb.stream.consumer.batches.unpacking import Delivered
from tsnb.stream.memory.scratch import ScratchPool

SAMPLES = 50


class Labelled(Dataset[Any]):
    """Sample i is a row filled with i, i itself, and its name."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, str]:
        return torch.full((3,), float(index)), index, f"s{index}"


class Counted(Labelled):
    """Counts how often each sample was prepared, by any process."""

    def __init__(self, counts: Any) -> None:
        self.counts = counts

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, str]:
        with self.counts.get_lock():
            self.counts[index] += 1
        return super().__getitem__(index)


def loader(**options: Any) -> DataLoader[Any]:
    return DataLoader(**{"dataset": Labelled(), "batch_size": 8, "shuffle": True, **options})


@pytest.fixture(params=[0, 2], ids="{} workers".format)
def stream(request: pytest.FixtureRequest) -> Iterator[tsnb.streams.Producer]:
    with tsnb.serve(loader(num_workers=request.param), name="s", seed=3, window=16) as producer:
        yield producer


def labels_of(batches: Any) -> list[int]:
    """Return the labels in order; rows, labels and names must belong together."""
    taken: list[int] = []
    for images, labels, names in batches:
        assert images[:, 0].tolist() == labels.tolist() and list(names) == [f"s{i}" for i in labels]
        taken += labels.tolist()
    return taken


@given(st.integers(2, 60), st.integers(2, 12), st.integers(-5, 5))
def test_the_folds_of_a_split_have_each_sample_once_and_are_of_one_size(
    n: int, folds: int, seed: int
) -> None:
    """For any number of samples and folds; sizes differ by one at most, training is what is not held out."""
    if n < folds:
        return
    held = [Part(fold=(k, folds, seed), held_out=True).mask(n) for k in range(folds)]
    sizes = [int(mask.sum()) for mask in held]
    assert np.sum(held, axis=0).tolist() == [1] * n
    assert max(sizes) - min(sizes) <= 1
    for k, mask in enumerate(held):
        assert (Part(fold=(k, folds, seed)).mask(n) == ~mask).all()


def test_a_fold_is_the_same_split_everywhere() -> None:
    """These numbers stand here for good: another machine, version or process must give them too."""
    assert fold_of(np.arange(12), 3, 0).tolist() == [2, 1, 1, 1, 0, 0, 2, 2, 0, 0, 2, 1]
    assert (fold_of(np.arange(1000), 5, 0) != fold_of(np.arange(1000), 5, 1)).any()


def test_folds_say_nothing_of_the_order_of_the_samples() -> None:
    """A data set sorted by class: each half of it is spread over all folds, far within what chance allows."""
    counts = np.bincount(fold_of(np.arange(10_000), 5, 0)[:5000], minlength=5)
    assert abs(counts - 1000).max() < 130, counts


@given(st.lists(st.integers(0, 20), min_size=1, max_size=8), st.integers(1, 9), st.randoms())
def test_chosen_rows_come_once_in_order_in_full_batches(sizes: list[int], size: int, rng: Any) -> None:
    """Any rows of loader batches of any sizes: tensors, arrays and lists alike."""
    rebatcher, start = Rebatcher(size, ScratchPool()), 0
    out: list[Delivered] = []
    wanted: list[int] = []
    for rows in sizes:
        own = np.array([row for row in range(rows) if rng.random() < rng.choice([0.1, 0.6, 1.0])], np.int64)
        out += rebatcher.feed(delivered(start, rows), own)
        wanted += [start + int(row) for row in own]
        start += rows
    assert all(d.rows == size for d in out)
    rest = rebatcher.rest()
    out += [] if rest is None else [rest]
    assert [i for d in out for i in d.leaves[1].tolist()] == wanted
    assert [i for d in out for i in d.leaves[0][:, 1].neg().int().tolist()] == wanted
    assert [s for d in out for s in d.leaves[2]] == [f"s{i}" for i in wanted]


@pytest.mark.parametrize(
    "dtype", [torch.uint16, torch.bool, torch.bfloat16, torch.complex64, torch.float8_e4m3fn]
)
def test_rows_of_every_dtype_can_be_chosen(dtype: torch.dtype) -> None:
    """Those too for which torch has no kernel that selects."""
    source = delivered(0, 6)
    source.leaves[0] = torch.arange(12).view(6, 2).to(dtype)
    (out,) = Rebatcher(3, ScratchPool()).feed(source, np.array([0, 2, 5]))
    expected = (
        source.leaves[0].view(torch.uint8).view(6, -1)[[0, 2, 5]]
    )  # torch 2.4 cannot index each of them
    assert out.leaves[0].dtype == dtype
    assert torch.equal(out.leaves[0].view(torch.uint8).view(3, -1), expected)


@pytest.mark.system
def test_training_and_validation_of_a_fold_share_the_samples_of_one_stream(
    stream: tsnb.streams.Producer,
) -> None:
    """Together they have each sample once an epoch; each in the stream's order, in batches of the loader's size."""
    train = tsnb.attach("train", fold=(1, 5))
    held = tsnb.attach("held", fold=(1, 5), held_out=True)
    whole = tsnb.attach("whole")
    assert (len(train), len(held)) == (5, 2)
    told = {consumer.name: consumer.part for consumer in tsnb.streams.status("s").consumers}
    assert told == {"train": "fold 1 of 5", "held": "held out of fold 1 of 5", "whole": ""}
    for _ in range(2):
        loops = [iter(consumer) for consumer in (whole, train, held)]
        order, *parts = [labels_of(loop) for loop in loops]
        assert len({consumer.epoch for consumer in (whole, train, held)}) == 1, "they were to share an epoch"
        for consumer, part in zip((train, held), parts, strict=True):
            mask = consumer._inner.options.part.mask(SAMPLES)  # type: ignore[union-attr]
            assert part == [index for index in order if mask[index]]
        assert sorted(parts[0] + parts[1]) == sorted(order) == list(range(SAMPLES))
    assert [len(labels) for _, labels, _ in train] == [8] * 5


@pytest.mark.system
@pytest.mark.parametrize(
    ("subset", "wanted"),
    [
        ([40, 3, 7], {3, 7, 40}),
        (range(0, SAMPLES, 10), {0, 10, 20, 30, 40}),
        (torch.arange(SAMPLES) < 4, {0, 1, 2, 3}),
        (lambda index: index % 25 == 0, {0, 25}),
        ({1, 2}, {1, 2}),
    ],
    ids=["list", "range", "mask", "function", "set"],
)
def test_a_subset_is_indices_a_mask_or_a_function(
    stream: tsnb.streams.Producer, subset: Any, wanted: set[int]
) -> None:
    """Each gives its samples once an epoch, batched as asked for."""
    consumer = tsnb.attach("c", subset=subset, batch_size=2)
    assert len(consumer) == -(-len(wanted) // 2)
    assert sorted(labels_of(consumer)) == sorted(wanted)
    assert consumer.batch_size == 2


@pytest.mark.slow
@pytest.mark.system
def test_a_subset_is_split_into_folds(stream: tsnb.streams.Producer) -> None:
    """Cross-validation on a part of the data."""
    folds = [tsnb.attach(f"c{k}", subset=range(20), fold=(k, 4), held_out=True) for k in range(4)]
    taken = [labels_of(consumer) for consumer in folds]
    assert [len(part) for part in taken] == [5] * 4
    assert sorted(taken[0] + taken[1] + taken[2] + taken[3]) == list(range(20))


@pytest.mark.system
@pytest.mark.parametrize("after", range(7))
def test_a_state_goes_on_within_an_epoch_of_a_part(stream: tsnb.streams.Producer, after: int) -> None:
    """Saved after any batch, loaded by another consumer: the two halves are the epoch, and only of the same part."""
    whole = tsnb.attach("whole", fold=(0, 5), batch_size=6)
    first = tsnb.attach("first", fold=(0, 5), batch_size=6)
    loops = [iter(whole), iter(first)]
    order = labels_of(loops[0])
    taken = labels_of(next(loops[1]) for _ in range(after))
    state = first.state_dict()
    del loops
    first.close()
    second = tsnb.attach("second", fold=(0, 5), batch_size=6)
    second.load_state_dict(state)
    assert taken + labels_of(second) == order
    if after:
        other = tsnb.attach("other", fold=(1, 5), batch_size=6)
        with pytest.raises(JoinRefused, match="took other samples"):
            other.load_state_dict(state)


@pytest.mark.system
def test_ranks_divide_a_part_and_drop_last_counts_its_own_batches(stream: tsnb.streams.Producer) -> None:
    """40 samples to train on: two ranks get 4 each of every batch of 8; by 12s, without the last, there are 3."""
    short = tsnb.attach("short", fold=(0, 5), batch_size=12, drop_last=True)
    ranks = [tsnb.attach("g", fold=(0, 5), batch_size=4, rank=rank, world_size=2) for rank in range(2)]
    assert [len(consumer) for consumer in (short, *ranks)] == [3, 5, 5]
    loops = [iter(consumer) for consumer in (short, *ranks)]
    assert [len(labels) for _, labels, _ in loops[0]] == [12] * 3
    taken = [labels_of(loop) for loop in loops[1:]]
    mask = Part(fold=(0, 5)).mask(SAMPLES)
    assert [len(part) for part in taken] == [20, 20]
    assert sorted(taken[0] + taken[1]) == np.flatnonzero(mask).tolist()


@pytest.mark.system
@pytest.mark.parametrize("workers", [0, 2])
def test_only_samples_that_somebody_takes_are_prepared(workers: int) -> None:
    """From the second epoch on exactly the union, empty batches too; another one from the epoch after it attached."""
    counts = Array("i", SAMPLES)
    small, other = [3, 4, 41], range(30, 44)
    with tsnb.serve(loader(dataset=Counted(counts), num_workers=workers), name="s", seed=3, window=16):
        one, two = tsnb.attach("one", subset=small), tsnb.attach("two", subset=other, batch_size=5)
        for epoch in range(4):
            before = counts[:]
            loops = [iter(one), iter(two)]
            taken = [labels_of(loop) for loop in loops]
            assert [sorted(part) for part in taken] == [small, list(other)]
            prepared = [i for i in range(SAMPLES) for _ in range(counts[i] - before[i])]
            assert prepared == sorted({*small, *other}) or epoch == 0, (
                "the stream's first epoch has everything"
            )
        loop = iter(one)
        next(loop)
        whole = tsnb.attach("whole")
        assert sorted(labels_of(whole)) == list(range(SAMPLES))
        assert whole.epoch > one.epoch, "the epoch of the first was prepared for subsets"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"fold": (0, 1)}, "1 fold leaves nothing to train on"),
        ({"fold": (5, 5)}, "count from 0 to 4"),
        ({"fold": 3}, r"Pass \(k, n\)"),
        ({"fold": (0, 5.0)}, r"Pass \(k, n\)"),
        ({"held_out": True}, r"Pass fold=\(k, n\)"),
        ({"subset": []}, "is empty"),
        ({"subset": [1, 2, 1]}, "index 1 more than once"),
        ({"subset": "even"}, "Pass a list of indices"),
        ({"subset": [0.5]}, "Pass a list of indices"),
        ({"subset": [[1], [2]]}, "Pass a list of indices"),
        ({"subset": [True, 3]}, "mixes True or False with indices"),
        ({"subset": {False, 3}}, "mixes True or False with indices"),
        ({"subset": np.array([0, 1, 1, 0], np.uint8)}, r"index 0 more than once.*A mask.*astype\(bool\)"),
        ({"fold": (0, 0)}, "0 folds leave nothing to train on"),
        ({"fold": (0, 5), "held_out": "no"}, "held_out='no' is invalid. Pass True or False"),
    ],
)
def test_parts_that_cannot_be_meant_are_refused_before_anything_is_asked(options: Any, why: str) -> None:
    """What is wrong, and what to write instead."""
    with pytest.raises(ValueError, match=why):
        tsnb.attach("c", stream="none is running", **options)


@pytest.mark.system
def test_parts_that_the_dataset_does_not_have_are_refused_and_the_name_is_free() -> None:
    """An index out of range, a mask of another length, nothing left, more folds than samples."""
    with tsnb.serve(loader(), name="s"):
        for options, why in (
            ({"subset": [3, 50]}, "index 50, but the loader's dataset has 50 samples"),
            ({"subset": [-1]}, "index -1"),
            ({"subset": [True] * 49}, "a mask of 49 samples"),
            ({"subset": lambda index: False}, "leaves none of the dataset's 50 samples"),
            ({"subset": lambda index: np.ones(2)}, r"subset= returned array.* for index 0\. .*True or False"),
            ({"fold": (0, 51)}, "cannot divide 50 samples into 51 folds"),
            ({"fold": (0, 5), "share_on_device": True, "device": "cpu"}, "Leave one of them out"),
        ):
            with pytest.raises(ValueError, match=why):
                tsnb.attach("c", **options)
        assert sorted(labels_of(tsnb.attach("c"))) == list(range(SAMPLES))


@pytest.mark.system
@pytest.mark.parametrize(
    ("served", "why"),
    [
        (DataLoader(Stream(20), 4), "only be iterated"),
        (DataLoader(Labelled(), batch_size=None), "batch_size=None"),
        ([torch.arange(4)] * 3, "not torch's own DataLoader"),
        (lambda epoch: loader(), "not torch's own DataLoader"),
    ],
    ids=["iterable dataset", "ready batches", "list", "function"],
)
def test_streams_whose_batches_cannot_tell_their_samples_refuse_parts(served: Any, why: str) -> None:
    """With the reason; they serve others as ever."""
    with tsnb.serve(served, name="s"), pytest.raises(JoinRefused, match=why):
        tsnb.attach("c", fold=(0, 5))


@pytest.mark.system
def test_a_loader_without_a_batch_size_needs_one_for_a_part() -> None:
    """A batch sampler of the user's own: batches of any sizes."""
    batches = [list(range(30)), list(range(30, 50))]
    with tsnb.serve(DataLoader(Labelled(), batch_sampler=batches), name="s"):
        with pytest.raises(ValueError, match="has no batch size"):
            tsnb.attach("c", fold=(0, 5))
        consumer = tsnb.attach("c", fold=(0, 5), batch_size=10)
        assert len(labels_of(consumer)) == 40


@pytest.mark.system
def test_a_collate_function_that_makes_other_rows_is_told_at_the_first_batch() -> None:
    """Rows of which nobody knows the sample belong to nobody's part."""
    doubled = loader(collate_fn=lambda rows: torch.tensor([row[1] for row in rows for _ in range(2)]))
    with tsnb.serve(doubled, name="s"):
        consumer = tsnb.attach("c", fold=(0, 5))
        with pytest.raises(BatchNotShareable, match="16 rows for 8 samples"):
            next(iter(consumer))


@pytest.mark.system
@pytest.mark.parametrize(
    "options",
    [
        {"sampler": WeightedRandomSampler([1.0] * SAMPLES, SAMPLES), "shuffle": None},
        {"sampler": RandomSampler(range(SAMPLES), num_samples=20), "shuffle": None},
        {"drop_last": True},
    ],
    ids=["with replacement", "fewer", "drop_last"],
)
def test_where_an_epoch_does_not_have_each_sample_once_a_part_has_no_length(options: dict[str, Any]) -> None:
    """It has what the epoch has of it."""
    with tsnb.serve(loader(**options), name="s"):
        whole, part = tsnb.attach("whole"), tsnb.attach("part", subset=range(25))
        with pytest.raises(TypeError, match="exactly once"):
            len(part)
        loops = [iter(whole), iter(part)]
        order, mine = map(labels_of, loops)
        assert mine == [index for index in order if index < 25]
