"""Epochs of a DataLoader: begun anywhere, given again bit for bit, whatever the workers."""

from __future__ import annotations

import gc
import multiprocessing.util
import random
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
    default_collate,
    get_worker_info,
)
from torch.utils.data._utils import collate

import tsnb
from tests.producer.sources import Fails, Noisy, NoisyTogether, Numbers, Stand, Stream, same
from tsnb.errors import LoaderFailed
from tsnb.stream.consumer import detach_all
from tsnb.stream.loader import dataloader
from tsnb.stream.loader.crew import WorkerCrew
from tsnb.stream.loader.tickets import TICKET_S

pytestmark = pytest.mark.system

BATCHES = 7  # 50 samples in batches of 8, the last of 2


class Shuffled(BatchSampler):
    """A user's own: gives the batches in random order."""

    def __init__(self, samples: int) -> None:
        super().__init__(range(samples), 8, drop_last=False)
        self.generator: torch.Generator | None = None

    def __iter__(self) -> Iterator[list[int]]:
        batches = list(super().__iter__())
        return iter([batches[i] for i in torch.randperm(len(batches), generator=self.generator).tolist()])


class Epochal:
    """A user's own: makes its order from the epoch."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return BATCHES

    def __iter__(self) -> Iterator[list[int]]:
        return iter([[(i + self.epoch) % 50, i] for i in range(BATCHES)])


class Whimsical:
    """A user's own that cannot be seeded."""

    def __iter__(self) -> Iterator[int]:
        return iter(random.sample(range(50), 50))


def collate_with_a_name(rows: list[torch.Tensor]) -> Any:
    return default_collate(rows).flip(0)


SEEDED: dict[str, Callable[[], dict[str, Any]]] = {
    "in order": lambda: {"batch_size": 8},
    "shuffled": lambda: {"batch_size": 8, "shuffle": True},
    "drop_last": lambda: {"batch_size": 8, "shuffle": True, "drop_last": True},
    "single samples": lambda: {"batch_size": None, "shuffle": True},
    "collate_fn": lambda: {"batch_size": 8, "shuffle": True, "collate_fn": collate_with_a_name},
    "weighted": lambda: {
        "batch_size": 8,
        "sampler": WeightedRandomSampler([float(i) for i in range(1, 51)], 50),
    },
    "subset": lambda: {"batch_size": 8, "sampler": SubsetRandomSampler(range(0, 50, 2))},
    "distributed": lambda: {"batch_size": 8, "sampler": DistributedSampler(Numbers(), 2, 1)},
    "own batch sampler": lambda: {"batch_sampler": Shuffled(50)},
    "own sampler inside": lambda: {
        "batch_sampler": BatchSampler(RandomSampler(range(50)), 8, drop_last=False)
    },
    "set_epoch": lambda: {"batch_sampler": Epochal()},
}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", SEEDED)
def test_an_epoch_begun_in_the_middle_gives_the_rest_of_it(kind: str, workers: int) -> None:
    """Promise 10: from any batch on, in another process as in the same, the order is that of the whole epoch."""
    with Stand(DataLoader(Numbers(), num_workers=workers, **SEEDED[kind]()), seed=5) as stand:
        whole = [stand.epoch(number) for number in range(2)]
        order = stand.source.order
        assert order
        assert stand.in_place == (2 * len(whole[0]))
    with Stand(DataLoader(Numbers(), num_workers=workers, **SEEDED[kind]()), seed=5) as stand:
        assert stand.source.order == order
        for start in (1, len(whole[1]) // 2, len(whole[1]), 0):
            assert same(stand.epoch(1, start), whole[1][start:]), start
        assert same(stand.epoch(0), whole[0])
        assert not stand.skipped
    if kind != "in order":
        assert not same(whole[0], whole[1])


def test_samples_before_the_start_are_not_even_loaded() -> None:
    """Skipping costs indices, not decoding."""
    with Stand(DataLoader(Fails(50, bad=3), batch_size=8, num_workers=1)) as stand:
        assert [batch[0].item() for batch in stand.epoch(0, 1)] == list(range(8, 50, 8))


@pytest.mark.slow
@pytest.mark.parametrize("dataset", [Noisy(), NoisyTogether()])
def test_augmentation_is_the_same_bit_for_bit_whatever_the_workers(dataset: Any) -> None:
    """What a batch draws depends on the seed, the epoch and its number, and on nothing else."""

    def loader(workers: int, **options: Any) -> DataLoader[Any]:
        return DataLoader(dataset, 8, shuffle=True, num_workers=workers, **options)

    with Stand(loader(1), seed=1) as stand:
        first, second = stand.epoch(0), stand.epoch(1)
    assert not same(first, second)
    noise = torch.cat(first)[:, 1:]
    assert (
        len(set(noise.flatten().tolist())) == noise.numel()
    )  # no two samples, nor two generators, draw alike
    for workers, ticket, options in [
        (2, 1, {}),
        (3, 4, {}),
        (1, 8, {}),
        (2, 3, {"persistent_workers": True}),
    ]:
        with Stand(loader(workers, **options), seed=1) as stand:
            stand.tickets_of(ticket)
            for number, start in [(1, 3), (0, 0), (1, 6), (1, 0)]:
                whole = second if number else first
                assert same(stand.epoch(number, start), whole[start:]), (workers, ticket, number, start)
    with Stand(loader(1), seed=2) as stand:
        assert not same(stand.epoch(0), first)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_that_do_not_fork_draw_the_same(method: str) -> None:
    """Tickets travel to them too."""
    with Stand(DataLoader(Noisy(20), 8, num_workers=1), seed=1) as stand:
        want = stand.epoch(0)
    with Stand(DataLoader(Noisy(20), 8, num_workers=1, multiprocessing_context=method), seed=1) as stand:
        assert same(stand.epoch(0, 1), want[1:])


def test_without_workers_the_process_keeps_its_random_state() -> None:
    """The process is the user's own, who may be training in it."""

    def state() -> tuple[list[int], Any, Any]:
        legacy: Any = np.random.get_state()  # noqa: NPY002
        return torch.get_rng_state().tolist(), random.getstate(), legacy[1].tolist()

    before = state()
    with Stand(DataLoader(Numbers(), 8, shuffle=True), seed=1) as stand:
        stand.epoch(0, 2)
    assert state() == before


def test_the_users_loader_and_samplers_are_left_as_they_were() -> None:
    """Its own sampler, generator and batch sampler stay in place, unseeded and unused."""
    sampler: DistributedSampler[Any] = DistributedSampler(Numbers(), 2, 1)
    loader = DataLoader(Numbers(), 8, sampler=sampler, num_workers=1)
    before = dict(vars(loader))
    with Stand(loader, seed=1) as stand:
        stand.epoch(3, 1)
    assert vars(loader) == before
    assert sampler.epoch == 0


class Labelled(Numbers):
    """Lets its worker give it a number."""

    label = -1

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        assert info is not None
        assert info.dataset is self
        return torch.tensor(self.label)


def label_the_dataset(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.label = 10 + worker  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_get_worker_info_knows_the_users_own_dataset(method: str) -> None:
    """A worker_init_fn may prepare it, as torch's documentation shows."""
    loader = DataLoader(
        Labelled(8), 4, num_workers=2, worker_init_fn=label_the_dataset, multiprocessing_context=method
    )
    with Stand(loader) as stand:
        assert [batch.tolist() for batch in stand.epoch(0)] == [[10] * 4, [11] * 4]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_epoch_that_is_too_short_to_go_on_says_so(workers: int) -> None:
    """A dataset that shrank between two starts."""
    with Stand(DataLoader(Numbers(20), 8, num_workers=workers)) as stand:
        with pytest.raises(
            LoaderFailed, match="Pass 3 should continue at batch 9, but the loader now has only 3"
        ):
            stand.epoch(2, 9)
        assert stand.epoch(2, 3) == []


def test_an_iterable_dataset_is_gone_through_again() -> None:
    """With a seed its workers draw the same, so the batches before the start are dropped, and their slots are free."""

    def loader() -> DataLoader[Any]:
        return DataLoader(Stream(), 3, num_workers=2, persistent_workers=True)

    with Stand(loader(), seed=1) as stand:
        assert not stand.source.workers.stay  # workers that stay could not be seeded for the next epoch
        first, second = stand.epoch(0), stand.epoch(1)
    assert not same(first, second)
    with Stand(loader(), seed=1) as stand:
        assert same(stand.epoch(1, 4), second[4:])
        assert (stand.skipped, stand.in_place) == (4, len(second))
        with pytest.raises(LoaderFailed, match="only 14 batches"):
            stand.epoch(1, 20)


class OwnWay(DataLoader[Any]):
    """Is iterated in a way of its own, so its workers' answers come as torch gives them."""

    def __iter__(self) -> Any:
        return super().__iter__()


def order(loader: DataLoader[Any], seed: int | None = None, workers: int | None = None) -> str:
    with Stand(loader, seed, workers, fit=False) as stand:
        return str(stand.source.order)


def test_only_what_can_be_repeated_has_an_order() -> None:
    """No promise where samples are shuffled in a way that we cannot seed."""
    assert order(DataLoader(Numbers(), 8))
    assert order(DataLoader(Numbers(), None))
    assert order(DataLoader(Numbers(), 8, sampler=[3, 1, 2]))
    assert order(DataLoader(Numbers(), 8, shuffle=True), seed=0)
    assert order(DataLoader(Stream(), 8, num_workers=1), seed=0)
    for unknown in (
        DataLoader(Numbers(), 8, shuffle=True),
        DataLoader(Numbers(), batch_sampler=Shuffled(50)),
        DataLoader(Numbers(), batch_sampler=Epochal()),
        DataLoader(Stream(), 8, num_workers=1),
    ):
        assert order(unknown) == ""
    assert order(DataLoader(Numbers(), 8, sampler=Whimsical()), seed=0) == ""
    assert order(DataLoader(Stream(), 8), seed=0) == ""  # draws from the process's own generators
    if hasattr(DataLoader(Numbers()), "in_order"):
        assert order(DataLoader(Stream(), 8, num_workers=2, in_order=False), seed=0) == ""
        assert order(OwnWay(Numbers(), 8, num_workers=2, in_order=False)) == ""


def test_what_decides_about_the_order_is_in_its_identity() -> None:
    """A producer that was started again with anything else changed must not pass for its predecessor."""

    def loader(samples: int = 50, size: int = 8, **options: Any) -> DataLoader[Any]:
        return DataLoader(Numbers(samples), size, **options)

    split = [3, 1, 2]
    orders = [
        order(loader()),
        order(loader(), seed=1),
        order(loader(shuffle=True), seed=1),
        order(loader(shuffle=True), seed=2),
        order(loader(51, shuffle=True), seed=1),
        order(loader(50, 9, shuffle=True), seed=1),
        order(loader(shuffle=True, drop_last=True), seed=1),
        order(loader(sampler=split)),
        order(loader(sampler=[1, 2, 3])),
        order(loader(sampler=SubsetRandomSampler(split)), seed=1),
        order(loader(sampler=SubsetRandomSampler([1, 2, 3])), seed=1),
        order(loader(sampler=DistributedSampler(Numbers(), 2, 0)), seed=1),
        order(loader(sampler=DistributedSampler(Numbers(), 2, 1)), seed=1),
        order(loader(sampler=WeightedRandomSampler([1.0, 2.0], 50)), seed=1),
        order(loader(sampler=WeightedRandomSampler([2.0, 1.0], 50)), seed=1),
        order(DataLoader(Subset(Numbers(), split), 8)),
        order(DataLoader(Subset(Numbers(), [1, 2, 3]), 8)),
        order(DataLoader(Noisy(), 8)),
        order(DataLoader(Stream(), 8, num_workers=1), seed=1),
        order(DataLoader(Stream(), 8, num_workers=2), seed=1),
    ]
    assert "" not in orders
    assert len(set(orders)) == len(orders)
    assert order(loader(shuffle=True), seed=1, workers=3) == order(loader(shuffle=True), seed=1)


@pytest.mark.parametrize("bad", [0, 17, 26, 49])
@pytest.mark.parametrize("ticket", [1, 3, 8])
def test_an_error_ends_the_epoch_at_its_own_batch(ticket: int, bad: int) -> None:
    """Batches that were ordered together with a bad one, and stand before it, arrive."""
    got: list[Any] = []
    with Stand(DataLoader(Fails(50, bad), 2, num_workers=1)) as stand:
        stand.tickets_of(ticket)
        said = ""
        try:
            got.extend(stand.give(0))
        except ValueError as error:  # not pytest.raises: it would keep the frames, and so the workers
            said = str(error)
            traceback.clear_frames(error.__traceback__)
    assert f"sample {bad} is rotten" in said
    assert [i for batch in got for i in batch.tolist()] == list(range(bad // 2 * 2))


def test_workers_end_with_the_epoch_that_failed() -> None:
    """They must not outlive it until some garbage collection: the slots they write into go to others."""
    before = set(psutil.Process().children())
    failing = DataLoader(Fails(50, 30), 2, num_workers=2)
    gc.disable()
    try:
        with tsnb.serve(failing, name="failing"):
            with pytest.raises(LoaderFailed, match="at batch 15 of pass 1: ValueError: sample 30 is rotten"):
                for _ in tsnb.attach("c"):
                    pass
            deadline = time.monotonic() + 60
            while set(psutil.Process().children()) - before:
                assert time.monotonic() < deadline, "workers are still there"
                time.sleep(0.05)
    finally:
        gc.enable()


def test_several_batches_travel_together_only_while_they_are_cheap() -> None:
    """What is slow or large is ordered one by one; what is cheap shares a ticket."""
    with Stand(DataLoader(Numbers(20), 4, num_workers=1, prefetch_factor=2)) as stand:
        source, tickets = stand.source, stand.source._tickets
        its = source.workers
        its._measured(1e-6)
        assert tickets.size == 1  # nothing is known about their size yet
        assert source.most_ahead(1000) == 2 * dataloader.MAX_TICKET
        its._measured(1e-6)
        assert tickets.size == dataloader.MAX_TICKET
        assert its.ahead == 2 * dataloader.MAX_TICKET
        for _ in range(50):
            its._measured(TICKET_S / 2.5)
        assert tickets.size == 2
        for _ in range(50):
            its._measured(1.0)
        assert tickets.size == 1
    with Stand(DataLoader(Numbers(20), 4, num_workers=1, prefetch_factor=2)) as stand:
        assert stand.source.most_ahead(dataloader.AHEAD_BYTES) == 2
        stand.source.workers._measured(1e-6)
        assert stand.source._tickets.size == 1


class Mixed(Numbers):
    """Some samples are of another dtype."""

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([1 / 3], dtype=torch.float64 if index % 2 else torch.float32)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("dataset", [Mixed(8), Numbers(8)])
def test_what_default_collate_makes_of_samples_is_what_arrives(dataset: Any, workers: int) -> None:
    """Mixed dtypes too: torch promotes them without workers, and rounds to the first one's in a worker."""
    with Stand(DataLoader(dataset, 4, num_workers=workers)) as stand:
        assert same(stand.epoch(0), list(DataLoader(dataset, 4, num_workers=workers)))


class Stops(Numbers):
    """Ends the epoch in the middle, as torch lets a dataset do."""

    def __getitem__(self, index: int) -> Any:
        if index == 33:
            raise StopIteration
        return torch.tensor(index)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", ["num_workers=0", "num_workers=2", "num_workers=2, persistent_workers=True"]
)
def test_stop_iteration_ends_the_epoch_as_in_torch(options: str) -> None:
    """What workers had in hand beyond comes back, whether they stay or not."""
    loader = DataLoader(Stops(640), 8, **eval(f"dict({options})"))
    torchs = [batch.tolist() for batch in loader]
    assert torchs == [list(range(start, start + 8)) for start in range(0, 32, 8)]
    with tsnb.serve(loader, name="s", window=2) as producer:
        for _ in range(2):
            assert [batch.tolist() for batch in tsnb.attach("c")] == torchs
        core = producer.core
        deadline = time.monotonic() + 60
        missing = -1
        while missing and time.monotonic() < deadline:
            detach_all()
            with core.lock:
                free = len(core.slots._stack) + len(core.slots._issued) + core.dispatch.epochs.kept
                missing = core.arena.slots - free
        assert missing == 0


def test_this_process_collates_as_before_while_and_after_a_loader_is_served() -> None:
    """`default_collate` stacks into slots inside our own call alone; what a user's function puts there stays."""
    functions: dict[Any, Any] = collate.default_collate_fn_map
    before = dict(functions)
    with tsnb.serve(DataLoader(Numbers(), 8), name="s"):
        assert dict(functions) == before
        list(tsnb.attach("c"))
    assert dict(functions) == before

    def mine(batch: Any, *, collate_fn_map: Any = None) -> Any:
        return -torch.stack(batch)

    def user(samples: Any) -> Any:
        functions[torch.Tensor] = mine
        return default_collate(samples)

    try:
        with tsnb.serve(DataLoader(Numbers(), 8, collate_fn=user), name="s"):
            assert next(iter(tsnb.attach("c"))).tolist() == [-i for i in range(8)]
        assert functions[torch.Tensor] is mine
    finally:
        functions.update(before)


@pytest.mark.slow
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("tickets", [1, 3])
def test_workers_change_in_the_middle_of_an_epoch_and_no_batch_does(tickets: int, persistent: bool) -> None:
    """One, three, two: the same stream bit for bit, its random draws too; the next epoch has as many."""
    loader = DataLoader(Noisy(200), 8, shuffle=True, num_workers=1, persistent_workers=persistent)
    with Stand(loader, seed=5) as plain:
        expected = [plain.epoch(0), plain.epoch(1)]
    with Stand(loader, seed=5) as stand:
        stand.tickets_of(tickets)
        given, seen = [], set()
        for number, batch in enumerate(stand.give(0)):
            given.append(batch)
            seen.add((stand.source.workers.number, stand.source.workers.handing_over))
            if number in {3, 12}:
                stand.source.workers.change(3 if number == 3 else 2)
        assert seen >= {(1, False), (3, True), (2, True)} and {1, 3, 2} == {workers for workers, _ in seen}
        assert not stand.source.workers.handing_over
        assert all(same(one, other) for one, other in zip(given, expected[0], strict=True))
        assert all(same(one, other) for one, other in zip(stand.epoch(1), expected[1], strict=True))
        stand.source.workers.change(1)  # between two epochs
        assert all(same(one, other) for one, other in zip(stand.epoch(1), expected[1], strict=True))
        assert stand.source.workers.number == 1


def test_unseeded_epochs_lose_no_sample_while_workers_change() -> None:
    """Each sample once, whatever the order; an epoch that is begun later than at its start, too."""
    with Stand(DataLoader(Numbers(120), 4, shuffle=True, num_workers=2)) as stand:
        given: list[int] = []
        for number, batch in enumerate(stand.give(0, 5)):
            given += batch.tolist()
            stand.source.workers.change(1 + number % 3)
        assert len(set(given)) == 100 == len(given)


def test_an_error_stands_at_its_place_though_workers_change() -> None:
    """The batches before it arrive, from workers of either number."""
    given: list[Any] = []

    def take(stand: Stand) -> None:
        for batch in stand.give(0):
            given.append(batch)
            if len(given) == 3:
                stand.source.workers.change(2)

    with Stand(DataLoader(Fails(80, bad=41), 4, num_workers=1)) as stand:
        with pytest.raises(ValueError, match="sample 41 is rotten"):
            take(stand)
        assert len(given) == 10


def test_what_cannot_change_its_workers_says_why() -> None:
    """Without workers, with an IterableDataset, to none."""
    with Stand(DataLoader(Numbers(), 8)) as stand, pytest.raises(ValueError, match="workers=1 or more"):
        stand.source.workers.change(2)
    with (
        Stand(DataLoader(Stream(), 4, num_workers=1)) as stand,
        pytest.raises(ValueError, match="IterableDataset"),
    ):
        stand.source.workers.change(2)
    with (
        Stand(DataLoader(Numbers(), 8, num_workers=1)) as stand,
        pytest.raises(ValueError, match="1 or more"),
    ):
        stand.source.workers.change(0)


class Lingers:
    """A `worker_init_fn`: its worker ends only when it is told to, or after half a minute."""

    def __init__(self, told: Path) -> None:
        self.told = told

    def __call__(self, _worker: int) -> None:
        multiprocessing.util.Finalize(None, self.linger, exitpriority=0)

    def linger(self) -> None:
        until_s = time.monotonic() + 30
        while not self.told.exists():
            if time.monotonic() > until_s:
                self.told.with_name("late").touch()
                return
            time.sleep(0.01)


@pytest.mark.parametrize("kind", ["in turn", "by a line", "of a function"])
def test_an_epochs_end_is_told_before_its_workers_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Whoever validates after an epoch need not wait for processes that have nothing more to give."""
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 60.0)  # it kills them after that
    told = tmp_path / "told"
    loader = DataLoader(Numbers(), 8, num_workers=2, worker_init_fn=Lingers(told))
    served: Any = (lambda _epoch: loader) if kind == "of a function" else loader
    with tsnb.serve(served, name="lingering", seed=5 if kind == "by a line" else None):
        consumer = tsnb.attach("c")
        assert [int(row) for batch in consumer for row in batch] == list(range(50))
        told.touch()
        assert [int(row) for batch in consumer for row in batch] == list(range(50))
    assert not (tmp_path / "late").exists()


def test_what_is_raised_once_the_end_is_told_is_shown_and_the_next_epoch_is_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that dies on its way out has nothing more to give: the epoch was whole, and who watches is told."""
    calls: list[WorkerCrew] = []

    def end(self: WorkerCrew) -> Any:
        prepared = told(self)
        if prepared is None and not calls:
            calls.append(self)
            raise RuntimeError("a worker died on its way out")
        return prepared

    told = WorkerCrew.next
    monkeypatch.setattr(WorkerCrew, "next", end)
    with tsnb.serve(DataLoader(Numbers(), 8, num_workers=2), name="died", window=2) as producer:
        consumer = tsnb.attach("c")
        loop = iter(consumer)
        assert [int(row) for batch in loop for row in batch] == list(range(50))
        deadline = time.monotonic() + 30
        while "on its way out" not in (producer.status().failure or ""):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert [int(row) for batch in consumer for row in batch] == list(range(50))
        assert not producer.status().failure
