"""Loaders of other packages, served: each batch once, as the loader alone gives it; docs/loaders.md says the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchdata.nodes

import tsnb
from tests.ecosystem.loaders import LOADERS, ONE_SHOT, SAMPLES, SEED, Row, in_turn, nodes, table
from tests.house.test_docs import table_after
from tsnb.errors import JoinRefused, LoaderFailed

PAGE = Path(__file__).parents[2] / "docs" / "loaders.md"
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


@pytest.mark.parametrize("row", LOADERS, ids=lambda row: row.source)
def test_two_epochs_are_what_the_loader_gives_alone(row: Row, tmp_path: Path) -> None:
    """Each batch once, in order, bit for bit; by the way, with the length and the resuming that the page says."""
    want = list(alone(row.make(tmp_path), 2))
    with tsnb.serve(row.make(tmp_path), name="any") as producer:
        with tsnb.attach("one") as consumer:
            for epoch, expected in enumerate(want):
                for number, (ours, theirs) in enumerate(zip_longest(consumer, expected, fillvalue=NEVER)):
                    assert same(ours, theirs), (epoch, number, ours, theirs)
            reading = producer.status()
            assert reading.in_place + reading.copied == sum(map(len, want))
            assert (reading.in_place > 0) == row.in_place, (reading.in_place, reading.copied)
            if row.length:
                assert len(consumer) == len(row.make(tmp_path))
            else:
                with pytest.raises(TypeError, match="does not say how many"):
                    len(consumer)
        assert bool(producer.order) == (row.resume == "yes")


@pytest.mark.parametrize("row", [r for r in LOADERS if r.resume != "no"], ids=lambda row: row.source)
def test_the_rest_of_an_epoch_can_be_had_later_from_another_producer(row: Row, tmp_path: Path) -> None:
    """From a state after three batches of the second epoch, in order and bit for bit."""
    seed = 11 if row.resume == SEED else None
    with tsnb.serve(row.make(tmp_path), name="before", seed=seed), tsnb.attach("one") as consumer:
        for _ in consumer:
            pass
        taken = [copied(batch) for batch in islice(consumer, 3)]
        state = consumer.state_dict()
    with tsnb.serve(row.make(tmp_path), name="after", seed=seed), tsnb.attach("one") as consumer:
        consumer.load_state_dict(state)
        rest = [copied(batch) for batch in consumer]
    with tsnb.serve(row.make(tmp_path), name="whole", seed=seed), tsnb.attach("one") as consumer:
        for _ in consumer:
            pass
        whole = [copied(batch) for batch in consumer]
    assert consumer.epoch == 1
    assert len(taken) == 3 and same(taken + rest, whole)


def copied(batch: Any) -> Any:
    """Return a batch of its own memory, so that nobody hoards the stream's."""
    if isinstance(batch, torch.Tensor):
        return batch.clone()
    if isinstance(batch, np.ndarray):
        return batch.copy()
    if isinstance(batch, dict):
        return {name: copied(part) for name, part in batch.items()}
    return type(batch)(map(copied, batch)) if isinstance(batch, (list, tuple)) else batch


@pytest.mark.parametrize("kind", ONE_SHOT)
def test_what_can_be_gone_through_once_gives_one_epoch_and_then_says_what_to_serve(kind: str) -> None:
    """Never an epoch that is silently empty."""
    with tsnb.serve(ONE_SHOT[kind](), name="once"), tsnb.attach("one") as consumer:
        assert sum(1 for _ in consumer) == len(in_turn())
        with pytest.raises(LoaderFailed, match=r"no batch in epoch 1.*Serve a function instead"):
            next(iter(consumer))


def test_a_loader_without_an_order_says_so_where_somebody_would_resume() -> None:
    """Nobody is given other batches than those that the state stands for."""
    with tsnb.serve(torchdata.nodes.Loader(nodes()), name="nodes"), tsnb.attach("one") as consumer:
        next(iter(consumer))
        with pytest.raises(JoinRefused, match="no order of its own"):
            consumer.load_state_dict(consumer.state_dict())


def test_the_page_has_these_loaders_and_says_what_they_do() -> None:
    """docs/loaders.md: its tables are the ones that the tests above go by."""
    text = PAGE.read_text(encoding="utf-8")
    assert table_after(text, "## What was tried") == [row.cells for row in LOADERS]
    assert [row[0] for row in table_after(text, "## What gives one epoch only")] == list(ONE_SHOT)


def test_the_pages_example_gives_every_epoch() -> None:
    """The code block of docs/loaders.md, as it stands there."""
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {"tsnb": tsnb, "table": table()}
    exec(block, names)
    with names["producer"], tsnb.attach("one") as consumer:
        for _ in range(2):
            assert [i for batch in consumer for i in batch["label"].tolist()] == list(range(SAMPLES))
