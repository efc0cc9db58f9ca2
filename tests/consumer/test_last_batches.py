"""Loops that take as many batches as an epoch has, and never ask for one more: trainers, `islice`, `zip`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import tsnb
from tsnb.errors import ConsumerTimedOut
from tsnb.stream.consumer.attaching import detach_all, totals

pytestmark = pytest.mark.filterwarnings("ignore::tsnb.errors.SharedBatchWarning")  # the last ones are held
SAMPLES, BATCH = 60, 4
SOON_S = 30.0
"""Tells a wait for the stall timeout, which is far longer here, from a busy machine."""


class Rows(torch.utils.data.Dataset[Any]):
    """Sample i is the number i."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(index)


@contextmanager
def served(loader: Any = None, **options: Any) -> Iterator[None]:
    """Serve a loader whose stall timeout nobody sees the end of."""
    loader = loader if loader is not None else DataLoader(Rows(), BATCH)
    try:
        with tsnb.serve(loader, **{"name": "s", "stall_timeout_s": 600.0, "late_join": 0.0, **options}):
            yield
    finally:
        detach_all()


kept: list[Any] = []


def by_next(consumer: Any, number: int) -> list[Any]:
    """As Lightning and Hugging Face do: the iterator stays, and is replaced by the next one."""
    kept[:] = [iter(consumer)]
    return [next(kept[0]) for _ in range(number)]


def by_islice(consumer: Any, number: int) -> list[Any]:
    return list(islice(consumer, number))


def by_zip(consumer: Any, number: int) -> list[Any]:
    return [batch for _, batch in zip(range(number), consumer, strict=False)]


def by_break(consumer: Any, number: int) -> list[Any]:
    found = []
    for batch in consumer:
        found.append(batch)
        if len(found) == number:
            break
    return found


WAYS = [by_next, by_islice, by_zip, by_break]
ATTACHMENTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batch_size": {"batch_size": 8},
    "batch_size, drop_last": {"batch_size": 8, "drop_last": True},
    "drop_last": {"drop_last": True},
    "fold": {"fold": (0, 5)},
    "fold, drop_last": {"fold": (1, 7), "drop_last": True},
    "subset": {"subset": range(3), "batch_size": 3},
    "skip": {"on_lag": "skip"},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("attachment", ATTACHMENTS)
def test_an_epoch_is_over_with_its_last_batch(
    attachment: str, way: Callable[[Any, int], list[torch.Tensor]]
) -> None:
    """The next consumer waits for nothing, the epochs are counted, and the next loop is the next epoch, whole."""
    with served():
        one = tsnb.attach("one", stream="s", **ATTACHMENTS[attachment])
        other = tsnb.attach("other", stream="s", fold=(0, 5), held_out=True)
        number = len(one)
        held, epochs = [], []
        for _ in range(3):
            first = [batch.clone() for batch in way(one, number)]
            held.append(way(other, len(other))[-1])
            epochs.append(torch.cat(first).tolist())
            assert len(set(epochs[-1])) == len(epochs[-1]) > 0, "each sample once"
        kept.clear()
        assert epochs[0] == epochs[1] == epochs[2]
        assert (one.stats().epochs, other.stats().epochs) == (3, 3)
        assert one.stats().waited_s + other.stats().waited_s < SOON_S
        assert all(torch.equal(batch, held[0]) for batch in held), "the last batches were held all along"


@pytest.mark.parametrize("way", WAYS)
def test_where_no_length_is_known_the_producers_word_ends_it(way: Callable[[Any, int], list[Any]]) -> None:
    """It came behind the last batch; nobody has asked for it."""
    with served(lambda epoch: iter([[i] for i in range(20)])):
        one, other = tsnb.attach("one", stream="s"), tsnb.attach("other", stream="s")
        for _ in range(2):
            assert way(one, 20) == way(other, 20) == [[i] for i in range(20)]
        kept.clear()
        assert one.stats().waited_s + other.stats().waited_s < SOON_S


def test_what_a_consumer_says_behind_its_last_batch() -> None:
    """In the loop its place is the epoch's end; behind the loop it is the next epoch's start."""
    with served(seed=1):
        one = tsnb.attach("one", stream="s")
        place = one.state_dict
        loop = iter(one)
        for _ in range(len(one)):
            next(loop)
        assert (one.stats().epochs, place()["epoch"], place()["batch"]) == (1, 0, SAMPLES // BATCH)
        one.set_epoch(5)  # trainers do
        tsnb.attach("other", stream="s").close()
        for _ in tsnb.attach("another", stream="s"):
            break
        assert (one.stats().epochs, place()["epoch"], place()["batch"]) == (1, 1, 0)
        assert list(loop) == [] == list(loop), "a loop that asks later is told that it was all"
        assert [len(list(one)), one.stats().epochs, one.epoch >= 1] == [SAMPLES // BATCH, 2, True]
        state = place()
        one.load_state_dict(state)
        assert len(list(islice(one, 5))) == 5 and place()["batch"] == 5, (
            "left in its middle it is where it was left"
        )


def test_what_a_process_has_done_counts_epochs_that_nobody_asked_past() -> None:
    """By detaching, too: a trial's results say so."""
    with served(name="counted"):
        by_next(tsnb.attach("one", stream="counted"), SAMPLES // BATCH)
        detach_all()
        kept.clear()
        assert [total.epochs for total in totals() if total.stream == "counted"] == [1]


def test_ranks_that_take_as_many_batches_as_there_are() -> None:
    """Two of a group in two threads, which end their epochs together; then one that is no rank."""
    waited: list[float] = []

    def train(rank: int) -> None:
        mine = tsnb.attach("job", stream="s", rank=rank, world_size=2, batch_size=3)
        for _ in range(2):
            loop = iter(mine)
            assert len([next(loop) for _ in range(len(mine))]) == SAMPLES // 6
        waited.append(mine.stats().waited_s)

    with served():
        ranks = [threading.Thread(target=train, args=(rank,)) for rank in range(2)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(120)
        assert len(waited) == 2 and max(waited) < SOON_S


def test_a_loop_in_mid_epoch_does_not_hold_up_the_consumer_for_which_its_thread_waits() -> None:
    """Lightning takes two batches of the validation before it trains, and keeps that loop; what it lacks has gone."""
    with served(DataLoader(Rows(), BATCH, shuffle=True), window=4):
        one, other = tsnb.attach("one", stream="s"), tsnb.attach("other", stream="s")
        looked: Any = iter(other)
        for _ in range(2):
            next(looked)
        assert len(list(one)) == SAMPLES // BATCH
        assert one.stats().waited_s < SOON_S
        with pytest.raises(ConsumerTimedOut, match="while its thread waits for another trial"):
            list(looked)
        assert len(list(other)) == SAMPLES // BATCH


@pytest.mark.slow
def test_loops_side_by_side_on_a_slow_stream_are_not_taken_for_standing() -> None:
    """Each waits for the loader longer than it takes to look around."""

    def slow(epoch: int) -> Iterator[Any]:
        for number in range(4):
            time.sleep(1.2)
            yield [number]

    with served(slow, window=2):
        one, other = tsnb.attach("one", stream="s"), tsnb.attach("other", stream="s")
        pairs = list(zip(one, other, strict=True))
        assert pairs == [([n], [n]) for n in range(4)]
