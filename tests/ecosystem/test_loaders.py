"""Loaders of other packages, served: each batch once, as the loader alone gives it (docs/what-can-be-served.md)."""

from __future__ import annotations

import re
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import torchdata.nodes
from torch.utils.data import DataLoader, Subset
from torchdata.stateful_dataloader import StatefulDataLoader

import tsnb
from tests.ecosystem.apart import RAY_DATA
from tests.ecosystem.loaders import LOADERS, ONE_SHOT, UNSEEN, Again, in_turn, nodes, table
from tests.ecosystem.rows import SAMPLES, Images, Row
from tests.ecosystem.trying import assert_an_epoch_can_be_gone_on_with, assert_two_epochs_are_as_alone
from tests.house.test_docs import table_after
from tsnb.errors import JoinRefused, LoaderFailed
from tsnb.hosting.served import seed_of

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "what-can-be-served.md"


class Bare(DataLoader[Any]):
    """A loader that forgot to begin as one."""

    def __init__(self) -> None:
        self.images = Images()


REFUSED: dict[str, list[tuple[Any, dict[str, Any], str]]] = {
    "a class, or a function without a parameter for the epoch": [
        (Again, {}, "Pass a torch DataLoader"),
        (in_turn, {}, "call it first"),
    ],
    "`seed=` with a loader other than torch's `DataLoader`": [
        (in_turn(), {"seed": 1}, r"make_epoch\(epoch\)"),
        (
            StatefulDataLoader(Images()),
            {"seed": 1},
            "torch's own DataLoader, and this is a StatefulDataLoader",
        ),
    ],
    "`workers=` with a loader other than torch's `DataLoader`": [
        (in_turn(), {"workers": 1}, "where you create the loader"),
    ],
    "a `DataLoader` subclass without `DataLoader.__init__` and without `__iter__`": [
        (Bare(), {}, r"Call super\(\).__init__"),
    ],
    "more than 8,192 tensors in a batch": [
        ([[torch.zeros(1) for _ in range(8193)]], {}, "(?i)stack"),
    ],
    "a loader that yields no batch": [
        (DataLoader(Subset(Images(), [0]), 2, drop_last=True), {}, "fewer than one batch"),
        (DataLoader(Subset(Images(), []), 2), {}, "its dataset is empty"),
    ],
    "a value in a batch that cannot be shared": [
        ([{"file": object()}], {}, r"\['file'\].*Convert it in your collate_fn"),
    ],
    "a tensor on the GPU": [([torch.empty(2, device="meta")], {}, r"Return a tensor on the CPU")],
}
"""By what the page calls them: what is served, how, and what the error says."""


def here(rows: list[Row]) -> list[Any]:
    """Return the rows that are tried here: not the one that a cluster is needed for."""

    def wants(row: Row) -> pytest.MarkDecorator:
        lacking = bool(row.needs) and find_spec(row.needs) is None
        return pytest.mark.skipif(
            lacking, reason=f"{row.needs} is not installed: tests/ecosystem/apart.py says how"
        )

    return [pytest.param(row, id=row.source, marks=wants(row)) for row in rows if row is not RAY_DATA]


@pytest.mark.parametrize("row", here(LOADERS))
def test_two_epochs_are_what_the_loader_gives_alone(row: Row, tmp_path: Path) -> None:
    """Each batch once, in order, bit for bit; by the way, with the length and the resuming that the page says."""
    assert_two_epochs_are_as_alone(row, tmp_path)


@pytest.mark.parametrize("row", here([row for row in LOADERS if row.resume != "no"]))
def test_the_rest_of_an_epoch_can_be_had_later_from_another_producer(row: Row, tmp_path: Path) -> None:
    """From a state after three batches of the second epoch, in order and bit for bit."""
    assert_an_epoch_can_be_gone_on_with(row, tmp_path)


@pytest.mark.parametrize("kind", ONE_SHOT)
def test_what_can_be_gone_through_once_gives_one_epoch_and_then_says_what_to_serve(kind: str) -> None:
    """Never an epoch that is silently empty; and whatever is an iterator is told so where it is served."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", RuntimeWarning)
        producer = tsnb.serve(ONE_SHOT[kind](), name="once")
    early = [
        warned
        for warned in said
        if "gives only one epoch. Serve a function that creates" in str(warned.message)
    ]
    assert [warned.filename for warned in early] == ([] if kind == UNSEEN else [__file__])
    with producer, tsnb.attach("one") as consumer:
        assert sum(1 for _ in consumer) == len(in_turn())
        with pytest.raises(LoaderFailed, match=r"no batch in pass 2.*Serve a function that creates"):
            next(iter(consumer))


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_served_is_refused_at_once_with_the_way_out(kind: str) -> None:
    """By `tsnb.serve` itself, and nothing of it is served then."""
    for loader, options, says in REFUSED[kind]:
        with pytest.raises((TypeError, ValueError, LoaderFailed), match=says):
            tsnb.serve(loader, name="refused", **options).stop()
    assert not [entry for entry in tsnb.streams.list() if entry.name == "refused"]


def test_a_loader_that_orders_its_samples_itself_is_started_again_without_a_seed() -> None:
    """`--restart on-crash` finds a seed for torch's own DataLoader only: any other would be refused with it."""
    assert seed_of(DataLoader(Images(), 2), None, 5) == 5
    stateful = StatefulDataLoader(Images(), 2)
    assert seed_of(stateful, None, 5) is None
    with tsnb.serve(stateful, name="again", seed=seed_of(stateful, None, 5)) as producer:
        assert producer.order, "it shuffles nothing, and needs none"


def test_a_loader_without_an_order_says_so_where_somebody_would_resume() -> None:
    """Nobody is given other batches than those that the state stands for."""
    with tsnb.serve(torchdata.nodes.Loader(nodes()), name="nodes"), tsnb.attach("one") as consumer:
        next(iter(consumer))
        with pytest.raises(JoinRefused, match="cannot repeat an epoch: it is not a torch DataLoader"):
            consumer.load_state_dict(consumer.state_dict())


def test_the_page_has_these_loaders_and_says_what_they_do() -> None:
    """docs/what-can-be-served.md: its tables are the ones that the tests above go by."""
    text = PAGE.read_text(encoding="utf-8")
    assert table_after(text, "## Tested loaders") == [row.cells for row in LOADERS]
    assert [row[0] for row in table_after(text, "## Loaders that give one epoch")] == list(ONE_SHOT)
    assert [row[0] for row in table_after(text, "## When something is refused")] == list(REFUSED)


def test_the_pages_example_gives_every_epoch() -> None:
    """The code block of docs/what-can-be-served.md, as it stands there."""
    (block,) = re.findall(
        r"<!-- run by tests/ecosystem/test_loaders.py -->\n```python\n(.*?)```",
        PAGE.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    names: dict[str, Any] = {"tsnb": tsnb, "table": table()}
    exec(block, names)
    with names["producer"], tsnb.attach("one") as consumer:
        for _ in range(2):
            assert [i for batch in consumer for i in batch["label"].tolist()] == list(range(SAMPLES))
