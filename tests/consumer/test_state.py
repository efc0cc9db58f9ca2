"""A consumer's state, taken anywhere and loaded elsewhere: the parts make the epochs of one that never stopped."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import tsnb
from tests.producer.sources import Fails, Noisy, Stream, same
from tsnb.errors import LoaderFailed
from tsnb.stream.consumer.consumer import Consumer

pytestmark = pytest.mark.system

SAMPLES, BATCHES, EPOCHS = 40, 10, 3


def by_epoch(epoch: int) -> list[torch.Tensor]:
    drawn = torch.Generator().manual_seed(epoch)
    return list(torch.randperm(SAMPLES, generator=drawn).view(BATCHES, 4))


class Plain(Noisy):
    """Draws nothing: without workers there is nobody whose generators tsnb would seed."""

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(index)


LOADERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "map-style, 2 workers that draw": (
        DataLoader(Noisy(SAMPLES), 4, shuffle=True, num_workers=2),
        {"seed": 7},
    ),
    "map-style, 0 workers": (DataLoader(Plain(SAMPLES), 4, shuffle=True), {"seed": 7}),
    "iterable, 2 workers that draw": (DataLoader(Stream(SAMPLES // 2), 4, num_workers=2), {"seed": 7}),
    "a function of the epoch": (by_epoch, {}),
}
PLACES = {
    "before anything": 0,
    "in the middle": 3,
    "at the last batch": BATCHES,
    "in the second epoch": BATCHES + 6,
}


@contextmanager
def served(kind: str, state: str | None = None) -> Iterator[Consumer]:
    """Serve a loader anew, and attach to it where a state was taken."""
    loader, options = LOADERS[kind]
    with tsnb.serve(loader, name="s", late_join=0.0, **options), tsnb.attach("c") as consumer:
        if state is not None:
            consumer.load_state_dict(json.loads(state))
        yield consumer


def batches(consumer: Consumer) -> Iterator[torch.Tensor]:
    """Give one epoch after another."""
    while True:
        for batch in consumer:
            yield batch.clone()


def taken(consumer: Consumer, count: int) -> tuple[list[torch.Tensor], str]:
    """Take so many batches; return them, and the state then."""
    found = list(islice(batches(consumer), count))
    return found, json.dumps(consumer.state_dict())


@functools.cache
def whole(kind: str) -> list[torch.Tensor]:
    """Return the epochs as they are without a stop."""
    with served(kind) as consumer:
        return taken(consumer, EPOCHS * BATCHES)[0]


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", LOADERS)
def test_what_follows_a_state_is_what_would_have_followed(kind: str, place: str) -> None:
    """From a producer started anew each time; a second state, taken after the first was loaded, is as good."""
    expected = whole(kind)
    with served(kind) as consumer:
        first, state = taken(consumer, PLACES[place])
    with served(kind, state) as consumer:
        assert json.dumps(consumer.state_dict()) == state, "until a batch is taken"
        second, again = taken(consumer, 2)
    with served(kind, again) as consumer:
        third, _ = taken(consumer, len(expected) - len(first) - len(second))
    assert same(first + second + third, expected)


@pytest.mark.slow
@pytest.mark.parametrize("kind", LOADERS)
def test_the_state_of_a_whole_epoch_gives_the_next_one(kind: str) -> None:
    """Taken behind the loop. One that has gone on since may load the same state again and again."""
    expected = whole(kind)
    with served(kind) as consumer:
        assert sum(1 for _ in consumer) == BATCHES
        state = json.dumps(consumer.state_dict())
    with served(kind, state) as consumer:
        assert same(taken(consumer, 4)[0], expected[BATCHES : BATCHES + 4])
        middle = consumer.state_dict()
        for _ in range(2):
            consumer.load_state_dict(middle)
            assert same(taken(consumer, 3)[0], expected[BATCHES + 4 : BATCHES + 7])
        assert same(taken(consumer, 3)[0], expected[2 * BATCHES : 2 * BATCHES + 3]), "a loop that was left"


def test_asking_for_the_state_at_every_batch_changes_nothing() -> None:
    """And each of them counts the batches that were given."""
    kind = "map-style, 0 workers"
    expected = whole(kind)
    with served(kind) as consumer:
        found, states = [], []
        for batch in consumer:
            found.append(batch.clone())
            states.append(consumer.state_dict())
        assert same(found, expected[:BATCHES])
    assert [state["batch"] for state in states] == [*range(1, BATCHES + 1)]


def divide_until_it_fails(consumer: Consumer) -> None:
    for step, _ in enumerate(consumer):
        step / (4 - step)


def test_an_error_of_the_loop_or_of_the_loader_leaves_the_state_behind_the_last_batch() -> None:
    """The batch whose step failed was given; the one that the loader could not make was not."""
    kind = "map-style, 0 workers"
    expected = whole(kind)
    with served(kind) as consumer:
        with pytest.raises(ZeroDivisionError):
            divide_until_it_fails(consumer)
        state = json.dumps(consumer.state_dict())
    assert json.loads(state)["batch"] == 5
    with served(kind, state) as consumer:
        assert same(taken(consumer, 8)[0], expected[5:13])
    broken = DataLoader(Fails(SAMPLES, 22), 4)
    with tsnb.serve(broken, name="s", seed=7), tsnb.attach("c") as consumer:
        with pytest.raises(LoaderFailed, match="sample 22 is rotten"):
            sum(1 for _ in consumer)
        state = json.dumps(consumer.state_dict())
    assert (json.loads(state)["epoch"], json.loads(state)["batch"]) == (0, 5)
    mended = DataLoader(Fails(SAMPLES, -1), 4)
    with tsnb.serve(mended, name="s", seed=7), tsnb.attach("c") as consumer:
        consumer.load_state_dict(json.loads(state))
        assert torch.cat([batch.clone() for batch in consumer]).tolist() == list(range(20, SAMPLES))
