"""What is asserted of every row: two whole epochs as the loader alone gives them, and the rest of an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tsnb
from tests.ecosystem.rows import SEED, Row

NEVER = object()


def same(ours: Any, theirs: Any) -> bool:
    """Whether two batches are equal: the nesting, the types, every bit."""
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, torch.Tensor):
        return ours.dtype == theirs.dtype and torch.equal(ours, theirs)
    if isinstance(ours, np.ndarray):
        return ours.dtype == theirs.dtype and np.array_equal(ours, theirs)
    if isinstance(ours, dict):
        return list(ours) == list(theirs) and all(same(ours[k], theirs[k]) for k in ours)
    if isinstance(ours, (list, tuple)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return bool(ours == theirs)


def alone(loader: Any, epochs: int) -> Iterator[list[Any]]:
    """Go through it as a training script would that has it for itself."""
    for epoch in range(epochs):
        made = loader if hasattr(loader, "__iter__") or hasattr(loader, "__getitem__") else loader(epoch)
        part: Any
        for part in (made, getattr(made, "sampler", None), getattr(made, "dataset", None)):
            if hasattr(part, "set_epoch"):
                part.set_epoch(epoch)
        yield list(made)


def copied(batch: Any) -> Any:
    """Return a batch of its own memory, so that nobody hoards the stream's."""
    if isinstance(batch, torch.Tensor):
        return batch.clone()
    if isinstance(batch, np.ndarray):
        return batch.copy()
    if isinstance(batch, dict):
        return {name: copied(part) for name, part in batch.items()}
    return type(batch)(map(copied, batch)) if isinstance(batch, (list, tuple)) else batch


def assert_two_epochs_are_as_alone(row: Row, directory: Path) -> None:
    """Each batch once, in order, bit for bit; by the way, with the length and the resuming that the page says."""
    want = list(alone(row.make(directory), 2))
    with tsnb.serve(row.make(directory), name="any") as producer:
        with tsnb.attach("one", stream="any") as consumer:
            for epoch, expected in enumerate(want):
                for number, (ours, theirs) in enumerate(zip_longest(consumer, expected, fillvalue=NEVER)):
                    assert same(ours, theirs), (epoch, number, ours, theirs)
            reading = producer.status()
            assert reading.in_place + reading.copied == sum(map(len, want))
            assert (reading.in_place > 0) == row.in_place, (reading.in_place, reading.copied)
            if row.length:
                assert len(consumer) == len(row.make(directory))
            else:
                with pytest.raises(TypeError, match="does not say how many"):
                    len(consumer)
        assert bool(producer.order) == (row.resume == "yes")


def assert_an_epoch_can_be_gone_on_with(row: Row, directory: Path) -> None:
    """From a state after three batches of the second epoch, at another producer: in order and bit for bit."""
    seed = 11 if row.resume == SEED else None
    with tsnb.serve(row.make(directory), name="before", seed=seed), tsnb.attach("one") as consumer:
        for _ in consumer:
            pass
        taken = [copied(batch) for batch in islice(consumer, 3)]
        state = consumer.state_dict()
    with tsnb.serve(row.make(directory), name="after", seed=seed), tsnb.attach("one") as consumer:
        consumer.load_state_dict(state)
        rest = [copied(batch) for batch in consumer]
    with tsnb.serve(row.make(directory), name="whole", seed=seed), tsnb.attach("one") as consumer:
        for _ in consumer:
            pass
        whole = [copied(batch) for batch in consumer]
    assert consumer.epoch == 1
    assert len(taken) == 3 and same(taken + rest, whole)
