"""A trial that validates between its epochs: the others go on, and it gets all of its own batches later."""

from __future__ import annotations

import threading

import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb

BATCHES = 40
EPOCHS = 4


def epoch_of(consumer: tsnb.Consumer) -> list[int]:
    return [int(numbers) for (numbers,) in consumer]


def train(name: str, began: threading.Barrier, stops: threading.Event, epochs: list[list[int]]) -> None:
    """Train; between the first epoch and the second one, stop until the event is set."""
    with tsnb.attach(name, "s") as consumer:
        began.wait()
        for _ in range(EPOCHS):
            epochs.append(epoch_of(consumer))
            stops.wait()


def test_a_trial_that_validates_holds_no_other_and_misses_nothing() -> None:
    """The other trains to its end meanwhile; after it the memory of what was kept is used by nobody."""
    loader = DataLoader(TensorDataset(torch.arange(BATCHES)), batch_size=1, shuffle=True)
    began, validated, never = threading.Barrier(2), threading.Event(), threading.Event()
    never.set()
    stopped: list[list[int]] = []
    other: list[list[int]] = []
    with tsnb.serve(loader, name="s", seed=1, late_join=1.0) as producer:
        threads = [
            threading.Thread(target=train, args=("stops", began, validated, stopped)),
            threading.Thread(target=train, args=("other", began, never, other)),
        ]
        for thread in threads:
            thread.start()
        threads[1].join(20)
        alive, lag = threads[1].is_alive(), producer.status().slots_used
        validated.set()
        for thread in threads:
            thread.join(20)
        assert not alive, "it waited for the one that validates"
        assert lag >= 3 * BATCHES
        assert stopped == other and all(sorted(epoch) == list(range(BATCHES)) for epoch in other)
        reading = producer.status()
        assert reading.window == 8 and reading.slots_used <= BATCHES + 1


def test_a_number_of_batches_bounds_the_lag_whatever_a_trial_does() -> None:
    """`window=4` is a promise: one that validates is waited for."""
    loader = DataLoader(TensorDataset(torch.arange(BATCHES)), batch_size=1)
    began, validated, never = threading.Barrier(2), threading.Event(), threading.Event()
    never.set()
    stopped: list[list[int]] = []
    other: list[list[int]] = []
    with tsnb.serve(loader, name="s", window=4, late_join=0.0):
        threads = [
            threading.Thread(target=train, args=("stops", began, validated, stopped)),
            threading.Thread(target=train, args=("other", began, never, other)),
        ]
        for thread in threads:
            thread.start()
        threads[1].join(1.0)
        waits = threads[1].is_alive()
        validated.set()
        for thread in threads:
            thread.join(20)
        assert waits and stopped == other
