"""Equal seeds, equal numbers: who serves a loader beside a training draws from none of that training's generators."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler, SubsetRandomSampler, WeightedRandomSampler

import tsnb
from tsnb.draws import Draws

pytestmark = pytest.mark.system


class Rows(Dataset[Any]):
    """Sample i is i; `noise` draws from all three global generators for each."""

    def __init__(self, noise: bool = False) -> None:
        self.noise = noise

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        drawn = torch.rand(()) + np.random.rand() + random.random() if self.noise else 0.0  # noqa: NPY002
        return torch.tensor([float(index), float(drawn)])


class Own(DataLoader[Any]):
    """Iterated in a way of its own, by torch's."""

    def __iter__(self) -> Any:
        yield from super().__iter__()


LOADERS: dict[str, Callable[[], DataLoader[Any]]] = {
    "in order": lambda: DataLoader(Rows(), 4, num_workers=1),
    "in order, no workers": lambda: DataLoader(Rows(), 4),
    "shuffled": lambda: DataLoader(Rows(noise=True), 4, shuffle=True, num_workers=1),
    "shuffled, workers stay": lambda: DataLoader(
        Rows(noise=True), 4, shuffle=True, num_workers=1, persistent_workers=True
    ),
    "its own generator": lambda: DataLoader(Rows(), 4, shuffle=True, generator=torch.Generator()),
    "its sampler's": lambda: DataLoader(
        Rows(), 4, sampler=RandomSampler(Rows(), generator=torch.Generator())
    ),
    "of its own class": lambda: Own(Rows(), 4),
}
OTHER_ORDERS: dict[str, Callable[[], Any]] = {
    "subset": lambda: DataLoader(Rows(), 4, sampler=SubsetRandomSampler(range(9))),
    "weighted": lambda: DataLoader(Rows(), 4, sampler=WeightedRandomSampler([1.0] * 12, 12)),
    "function": lambda: lambda epoch: DataLoader(Rows(), 4, shuffle=True),
    "list": lambda: [torch.zeros(4, 2)] * 3,
}


def seeded() -> Draws:
    """Seed all three as a script does."""
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    random.seed(3)
    return Draws.now()


def drawn_between(loader: Any) -> list[float]:
    """Loop over two epochs, in which the training draws, too; return what it has drawn."""
    drawn = []
    for _ in range(2):
        for _ in loader:
            drawn += [float(torch.rand(())), random.random(), float(np.random.rand())]  # noqa: NPY002
    return drawn


@pytest.mark.parametrize("name", [*LOADERS, *OTHER_ORDERS])
def test_serving_draws_nothing_from_the_generators_of_its_process(name: str) -> None:
    """Neither the first batch, before a net is made, nor the epochs after it."""
    loader = (LOADERS | OTHER_ORDERS)[name]()
    before = seeded()
    with tsnb.serve(loader, name="rows"):
        assert Draws.now().same(before)
        others: list[int] = []
        consumer = tsnb.attach("one", "rows")
        assert Draws.now().same(before)
        loop = iter(consumer)
        after = Draws.now()
        others += [len(batch) for batch in loop]
        assert others and Draws.now().same(after)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["consumer", "as_dataloader"])
@pytest.mark.parametrize("name", LOADERS)
def test_a_loop_over_a_stream_draws_what_a_loop_over_the_loader_draws(name: str, way: str) -> None:
    """So dropout, noise and whatever else a training draws are the plain script's."""
    seeded()
    plain = drawn_between(LOADERS[name]())
    seeded()
    with tsnb.serve(LOADERS[name](), name="rows"), tsnb.attach("one", "rows") as consumer:
        served = drawn_between(consumer if way == "consumer" else consumer.as_dataloader())
    assert served == plain


def test_a_shuffled_loader_has_the_order_that_the_seed_gives() -> None:
    """As the plain loader, where nothing else was drawn before it; another in each epoch; another seed, another one."""
    orders = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        with tsnb.serve(LOADERS["shuffled"](), name="rows"), tsnb.attach("one", "rows") as consumer:
            orders.append([[float(row[0]) for batch in consumer for row in batch] for _ in range(2)])
    torch.manual_seed(1)
    assert [float(row[0]) for batch in LOADERS["shuffled"]() for row in batch] == orders[0][0]
    assert orders[0] == orders[1] != orders[2] and orders[0][0] != orders[0][1]


def test_a_function_of_the_epoch_shuffles_each_anew() -> None:
    """Each epoch's loader draws on where the one before has stopped."""
    with tsnb.serve(OTHER_ORDERS["function"](), name="rows"), tsnb.attach("one", "rows") as consumer:
        first, second = ([float(row[0]) for batch in consumer for row in batch] for _ in range(2))
    assert sorted(first) == sorted(second) and first != second


def test_a_data_set_that_draws_in_the_training_s_own_process_is_told() -> None:
    """Without workers its draws and the training's take turns, in another order each time: nothing can mend that."""
    with (
        tsnb.serve(DataLoader(Rows(noise=True), 4), name="rows"),
        pytest.warns(RuntimeWarning, match="num_workers=1"),
    ):
        tsnb.attach("one", "rows").close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for quiet in (DataLoader(Rows(noise=True), 4, num_workers=1), DataLoader(Rows(), 4, shuffle=True)):
            with tsnb.serve(quiet, name="quiet"):
                tsnb.attach("one", "quiet").close()
