"""Batches from anything that is no plain DataLoader: iterables, generators, functions of the epoch."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import DataLoader
from torch.utils.data.datapipes.iter import IterableWrapper

import tsnb
from tests.producer.sources import Counting, Fails, Noisy, Numbers, Stand, Stream, same
from tsnb.errors import LoaderFailed

pytestmark = pytest.mark.system


def batches(count: int = 5) -> list[torch.Tensor]:
    return [torch.arange(3) + i for i in range(count)]


class Lengthless:
    """A user's loader: it can be iterated again, and has no length."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(batches())


class Epochal(Lengthless):
    """Makes its batches from the epoch."""

    epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter([torch.tensor([self.epoch, i]) for i in range(5)])


class Moving(DataLoader[Any]):
    """A DataLoader that does something to each batch."""

    def __iter__(self) -> Any:
        return (batch + 1000 for batch in super().__iter__())


def make_epoch(epoch: int) -> Iterator[torch.Tensor]:
    return (torch.tensor([epoch, i]) for i in range(5))


USED = make_epoch(0)


def list_of_batches() -> list[torch.Tensor]:
    return batches()


@pytest.mark.parametrize("loader", [batches(), Lengthless(), Epochal(), make_epoch, lambda _: batches()])
def test_an_epoch_begun_in_the_middle_is_the_rest_of_it(loader: Any) -> None:
    """What comes before is gone through, and dropped."""
    with Stand(loader) as stand:
        whole = stand.epoch(1)
        assert len(whole) == 5
        for start in (2, 5, 0):
            stand.skipped = 0
            assert same(stand.epoch(1, start), whole[start:])
            assert stand.skipped == start
        with pytest.raises(
            LoaderFailed, match="Pass 2 should continue at batch 6, but the loader now has only 5"
        ):
            stand.epoch(1, 6)


def test_only_what_is_told_the_epoch_or_lies_there_has_an_order() -> None:
    """Whether anything else gives the same batches again cannot be known."""
    orders = {}
    for name, loader in {
        "list": batches(),
        "longer": batches(6),
        "set_epoch": Epochal(),
        "function": make_epoch,
        "iterable": Lengthless(),
        "generator": make_epoch(0),
        "iterator": iter(batches()),
        "own DataLoader": Moving(Numbers(), 8, shuffle=True),
        "own DataLoader in order": Moving(Numbers(), 8),
    }.items():
        with Stand(loader) as stand:
            orders[name] = stand.source.order
    known = {name for name, order in orders.items() if order}
    assert known == {"list", "longer", "set_epoch", "function", "own DataLoader in order"}
    assert len({orders[name] for name in known}) == len(known)


def test_a_dataloader_that_is_iterated_in_its_own_way_is_left_its_way() -> None:
    """What its __iter__ does to batches happens, so they come as it gives them, by the copying path."""
    with Stand(Moving(Numbers(20), 8, num_workers=1)) as stand:
        assert [b[0].item() for b in stand.epoch(0, 1)] == [1008, 1016]
        assert not stand.in_place
    with tsnb.serve(Moving(Numbers(20), 8, num_workers=1), name="own") as producer:
        assert [int(b[0]) for b in tsnb.attach("c")] == [1000, 1008, 1016]
        source = producer._core.source
        assert source is not None
        assert source.samples == 20


def test_the_dataloader_of_a_function_writes_in_place() -> None:
    """The function may return a new one for each epoch, with more workers than before too."""

    def make(epoch: int) -> DataLoader[Any]:
        return DataLoader(Numbers(40 + epoch), 4, num_workers=2 if epoch == 1 else 1, persistent_workers=True)

    with tsnb.serve(make, name="made") as producer:
        in_place = []
        for epoch in range(3):
            assert [i for batch in tsnb.attach("c") for i in batch.tolist()] == list(range(40 + epoch))
            in_place.append(producer.status().in_place)
    assert 0 < in_place[0] == in_place[1]  # the arena has slots for what the first one's workers have in hand
    assert in_place[2] - in_place[1] == 11


@pytest.mark.parametrize(
    ("loader", "says"),
    [
        (make_epoch(0), "a generator can be iterated only once. Serve a function that creates"),
        (iter(batches()), "a list_iterator can be iterated only once. Serve a function that creates"),
        (lambda _: USED, r"make_epoch\(1\) returned an empty iterable"),
        (
            DataLoader(Numbers(), 8, sampler=iter(range(50))),
            "its sampler can be iterated only once",
        ),
        (DataLoader(Stream(), 8, collate_fn=None), None),
    ],
)
def test_an_epoch_that_is_empty_because_the_loader_is_used_up_says_so(loader: Any, says: str | None) -> None:
    """Epoch 0 is complete; epoch 1 is an error in the consumer, with what to do about it."""
    with tsnb.serve(loader, name="once"):
        consumer = tsnb.attach("c")
        assert [len(batch) for batch in consumer]
        if says is None:
            assert [len(batch) for batch in consumer]
        else:
            with pytest.raises(LoaderFailed, match="no batch in pass 2: .*" + says):
                next(iter(consumer))


@pytest.mark.parametrize(
    ("loader", "says"),
    [
        ([], "this list returned no"),
        (lambda _: [], r"make_epoch\(0\) returned an empty iterable"),
        (DataLoader(Numbers(0), 8), "its dataset is empty"),
        (DataLoader(Numbers(5), 8, drop_last=True), "its dataset has 5 samples, fewer than one batch of 8"),
        (DataLoader(Stream(0), 8), "its IterableDataset returned no sample"),
    ],
)
def test_a_loader_that_gives_nothing_at_all_fails_where_it_is_served(loader: Any, says: str) -> None:
    """Each kind is told what may be the reason."""
    with pytest.raises(LoaderFailed, match="no batch at all: .*" + says):
        tsnb.serve(loader, name="empty")


def test_a_function_that_cannot_make_epochs_is_refused_with_the_reason() -> None:
    """It takes no epoch, or returns nothing that can be iterated."""
    with pytest.raises(TypeError, match="must take one argument, the epoch number"):
        tsnb.serve(list_of_batches, name="wrong")
    with pytest.raises(LoaderFailed, match=r"returned a NoneType\. Let it return an iterable"):
        tsnb.serve(lambda _epoch: None, name="wrong")


@pytest.mark.parametrize(
    ("loader", "options"),
    [
        (DataLoader(Stream(200), 3, num_workers=2), {"seed": 1}),
        (DataLoader(Noisy(70), 1, shuffle=True, num_workers=1), {"seed": 1}),
        (Epochal(), {}),
    ],
)
def test_a_producer_that_is_started_again_gives_the_rest_of_an_epoch(
    loader: Any, options: dict[str, Any]
) -> None:
    """By way of the consumer's saved place; what is dropped on the way there costs no slot."""
    with tsnb.serve(loader, name="again", **options):
        whole = [[b.clone() for b in tsnb.attach("c")] for _ in range(2)][1]
    with tsnb.serve(loader, name="again", **options):
        consumer = tsnb.attach("c")
        assert sum(1 for _ in consumer) == len(whole)
        begun = iter(consumer)
        first = [next(begun).clone() for _ in range(3)]
        state = consumer.state_dict()
        consumer.close()
        del begun
    assert same(first, whole[:3])
    with tsnb.serve(loader, name="again", **options) as producer:
        consumer = tsnb.attach("c")
        consumer.load_state_dict(state)
        assert same([b.clone() for b in consumer], whole[3:])
        core = producer._core
        with core.lock:
            there = len(core.slots._stack) + len(core.slots._issued) + core.dispatch.epochs.kept
            assert core.arena.slots - there <= 1  # the batch that this loop held last


@pytest.mark.parametrize("kind", [DataLoader, Moving])
def test_workers_that_stay_for_the_next_epoch_end_in_good_order_with_the_producer(kind: Any) -> None:
    """Were they only killed, torch would raise "killed by signal" in a main thread that has loaders of its own."""
    list(DataLoader(Numbers(4), 2, num_workers=1))  # from now on torch watches for children that are killed
    before = set(psutil.Process().children())
    loader = kind(Numbers(20), 8, num_workers=1, persistent_workers=True)
    with tsnb.serve(loader, name="staying") as producer:
        workers = []
        for _ in range(2):
            assert sum(len(batch) for batch in tsnb.attach("c")) == 20
            workers.append(set(psutil.Process().children()) - before)
        assert len(workers[0]) == 1
        assert workers[0] == workers[1]
    assert not set(psutil.Process().children()) - before, producer
    assert loader._iterator is None


def test_slots_of_batches_that_nobody_came_for_come_back() -> None:
    """Batches that were ordered together, and lie ready when everybody leaves, are lost with their workers."""
    with tsnb.serve(DataLoader(Numbers(4000), 2, num_workers=1), name="left", window=2) as producer:
        consumer = tsnb.attach("c")
        for epoch in range(6):
            loop = iter(consumer)
            for _ in itertools.islice(loop, 200 * epoch + 3):
                pass
            del loop
        consumer.close()
        core = producer._core
        with core.lock:
            there = len(core.slots._stack) + len(core.slots._issued) + core.dispatch.epochs.kept
            missing, issued = core.arena.slots - there, len(core.slots._issued)
        assert missing == 0
        assert issued <= 2 * (core.slots.in_pipe + 2)


def test_the_batches_before_an_error_reach_the_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the whole stream, when many share a ticket; also where a loaded machine would send them one by one."""
    monkeypatch.setattr("tsnb.stream.loader.dataloader.TICKET_S", 10.0)
    loader = DataLoader(Fails(3000, 2999), 2, num_workers=1)
    with tsnb.serve(loader, name="rotten") as producer:
        got: list[int] = []
        with pytest.raises(LoaderFailed, match="at batch 1499 of pass 1: ValueError: sample 2999 is rotten"):
            got.extend(i for batch in tsnb.attach("c") for i in batch.tolist())
        assert got == list(range(2998))
        source = producer._core.source
        assert source is not None and source.workers is not None
        assert source.workers.ahead > 2  # tickets of several were in use


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_data_pipe_is_served_by_workers_of_every_kind(method: str) -> None:
    """Its workers shuffle by a seed that torch gives to IterDataPipes alone: every sample once, in two epochs."""
    pipe = IterableWrapper(range(64)).shuffle().sharding_filter()
    loader = DataLoader(
        pipe, 8, num_workers=1, multiprocessing_context=method, shuffle=True, persistent_workers=True
    )
    with tsnb.serve(loader, name="s"):
        epochs = [[int(x) for batch in tsnb.attach("c") for x in batch] for _ in range(2)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(64))] * 2
    assert epochs[0] != epochs[1]


class Told(Counting):
    """Is told the epoch."""

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


@pytest.mark.parametrize(
    ("dataset", "seed", "says"),
    [(Counting(), 1, "seed="), (Told(), None, "set_epoch"), (Counting(), None, None)],
)
def test_workers_that_cannot_stay_though_they_were_asked_to_are_told(
    dataset: Any, seed: int | None, says: str | None
) -> None:
    """What their copies of the dataset keep from epoch to epoch is lost: never in silence."""
    loader = DataLoader(dataset, 4, num_workers=1, persistent_workers=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with tsnb.serve(loader, name="s", seed=seed):
            epochs = [[int(x) for batch in tsnb.attach("c") for x in batch] for _ in range(2)]
    told = [str(one.message) for one in caught if "persistent_workers" in str(one.message)]
    assert [says in one for one in told] == [True] if says else told == []
    assert (epochs[0] != epochs[1]) == (says is None), "a worker that stays goes on counting"
