"""Samples and rows are not always the same: lists of images, graphs, ready batches. Only samples are cut."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

import tsnb
from tsnb.errors import BatchNotShareable


class Images(Dataset[Any]):
    """22 images of 3 colours, and their numbers."""

    def __len__(self) -> int:
        return 22

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((3, 8, 8), float(index)), index


class Streamed(IterableDataset[Any]):
    """The same, without indices."""

    def __iter__(self) -> Any:
        return (Images()[k] for k in range(22))


def listed(samples: Any) -> list[torch.Tensor]:
    """A list of images."""
    return [image for image, _ in samples]


def graphs(samples: Any) -> dict[str, torch.Tensor]:
    """Graphs with 3 or 4 nodes each, as one."""
    nodes = sum(3 + number % 2 for _, number in samples)
    return {"x": torch.zeros(nodes, 5), "edge_index": torch.zeros(2, 7), "y": torch.zeros(len(samples))}


def clouds(samples: Any) -> torch.Tensor:
    """Points of all samples, one behind the other."""
    return torch.cat([torch.zeros(5 + number, 2) for _, number in samples])


@pytest.mark.parametrize("size", [3, 4, 8])
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("data", [Images(), Streamed()])
def test_a_list_of_images_is_never_cut_in_its_channels(data: Any, size: int, workers: int) -> None:
    """Three images of three colours neither; whole batches come, and what is counted are the images."""
    loader = DataLoader(data, batch_size=size, num_workers=workers, collate_fn=listed)
    with tsnb.serve(loader, name="s"):
        with tsnb.attach("whole", "s") as whole:
            assert sum(len(batch) for batch in whole) == 22 == whole.stats().samples
        with (
            tsnb.attach("other", "s", batch_size=2) as other,
            pytest.raises(BatchNotShareable, match="one row"),
        ):
            list(other)
        with tsnb.attach("full", "s", drop_last=True) as full:
            assert [len(batch) for batch in full] == [size] * (22 // size)
        with ThreadPoolExecutor(2) as both:
            ranks = [both.submit(_taken, rank) for rank in range(2)]
        for rank in ranks:
            assert isinstance(rank.exception(), BatchNotShareable)


def _taken(rank: int) -> None:
    with tsnb.attach("job", "s", rank=rank, world_size=2) as part:
        list(part)


@pytest.mark.parametrize("collate", [graphs, clouds])
def test_samples_are_counted_and_nodes_are_not(collate: Callable[[Any], Any]) -> None:
    """And nodes are not cut."""
    with tsnb.serve(DataLoader(Images(), batch_size=4, collate_fn=collate), name="s"):
        with tsnb.attach("whole", "s") as whole:
            for _ in whole:
                pass
            assert whole.stats().samples == 22
        with tsnb.attach("other", "s", batch_size=2) as other, pytest.raises(BatchNotShareable):
            list(other)


def test_ready_batches_and_streams_without_samples_are_cut_as_ever() -> None:
    """One sample that is a batch has as many samples as rows; of a function's batches their common rows count."""
    ready = DataLoader(Images(), batch_size=1, collate_fn=lambda samples: samples[0][0].view(-1, 4))
    with tsnb.serve(ready, name="s"), tsnb.attach("one", "s", batch_size=10) as one:
        assert sum(map(len, one)) == 22 * 48 == one.stats().samples
    made = tsnb.serve(lambda epoch: [(torch.zeros(6, 2), torch.ones(6))] * 3, name="s")
    with made, tsnb.attach("one", "s", batch_size=4) as one:
        assert [len(x) for x, _ in one] == [4, 4, 4, 4, 2]
    images = [[torch.zeros(3, 8, 8) for _ in range(5)] for _ in range(3)]
    with tsnb.serve(images, name="s"), tsnb.attach("one", "s") as one:
        list(one)
        assert one.stats().samples == 15
        with tsnb.attach("two", "s", batch_size=2) as two, pytest.raises(BatchNotShareable):
            list(two)


@pytest.mark.parametrize("colours", [1, 3, 4])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_short_list_of_images_is_counted_by_its_images(colours: int, count: int) -> None:
    """Of a list, a function or an object nothing says how many samples a batch has: two images of three colours."""
    batches = [[torch.zeros(colours, 8, 8) for _ in range(count)] for _ in range(4)]
    for source in (batches, lambda epoch: iter(batches)):
        with tsnb.serve(source, name="s"):
            with tsnb.attach("whole", "s") as whole:
                assert [len(batch) for batch in whole] == [count] * 4
                assert whole.stats().samples == 4 * count
            with tsnb.attach("other", "s", batch_size=2) as other:
                if colours != count:
                    with pytest.raises(BatchNotShareable, match="one row"):
                        list(other)


@pytest.mark.parametrize("pair", [list, tuple])
def test_a_pair_of_fields_is_cut_also_where_it_has_as_many_rows_as_images_have_colours(pair: Any) -> None:
    """The first batches had more rows, so that the last three are samples."""
    batches = [pair([torch.full((n, 5, 2), 1.0), torch.ones(n, 5, 2)]) for n in (8, 8, 3)]
    with tsnb.serve(batches, name="s"), tsnb.attach("one", "s", batch_size=2) as one:
        assert [len(x) for x, _ in one] == [2] * 9 + [1]
        assert one.stats().samples == 19


def test_full_batches_need_a_size() -> None:
    """A function, a list, an object: drop_last=True would drop nothing. With a batch size it does what it says."""

    class Own:
        def __iter__(self) -> Any:
            return iter([torch.zeros(4), torch.zeros(3)])

    for source in (lambda epoch: Own(), [torch.zeros(4), torch.zeros(3)], Own()):
        with tsnb.serve(source, name="s"):
            with pytest.raises(ValueError, match="drop_last=True needs a batch size"):
                tsnb.attach("one", "s", drop_last=True)
            with tsnb.attach("one", "s", batch_size=2, drop_last=True) as one:
                assert [len(x) for x in one] == [2, 2, 2]
                with pytest.raises(ValueError, match="drop_last=True needs a batch size"):
                    tsnb.attach("one", "s", drop_last=True)
    with (
        tsnb.serve(DataLoader(Images(), batch_size=4), name="s"),
        tsnb.attach("one", "s", drop_last=True) as one,
    ):
        assert [len(x) for x, _ in one] == [4] * 5


@pytest.mark.slow
@pytest.mark.skipif(
    "in_order" not in inspect.signature(DataLoader).parameters,
    reason="torch before 2.6 always keeps the order",
)
def test_a_loader_that_need_not_keep_the_order_is_told_that_it_is_kept() -> None:
    """And of an iterable dataset, whose workers decide, it is not."""
    with pytest.warns(RuntimeWarning, match="in_order=False has no effect"):
        tsnb.serve(DataLoader(Images(), batch_size=4, num_workers=2, in_order=False), name="s").stop()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        shuffled = DataLoader(Images(), batch_size=4, shuffle=True, num_workers=2, in_order=False)
        tsnb.serve(shuffled, name="s", seed=1).stop()
    (said,) = [str(one.message) for one in told if "order" in str(one.message)]
    assert said.startswith("in_order=False has no effect"), "one truth, told once"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tsnb.serve(DataLoader(Streamed(), batch_size=4, num_workers=2, in_order=False), name="s").stop()
