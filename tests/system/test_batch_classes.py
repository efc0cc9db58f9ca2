"""Batches of other packages' classes: known ones come as they are, others by `tsnb.data.register`."""

from __future__ import annotations

import enum
import sys
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import tsnb
from tests.system.conftest import Run
from tsnb import data
from tsnb.errors import BatchNotShareable, LoaderFailed
from tsnb.stream.protocol import adapters


class Key(str, enum.Enum):  # as code from before StrEnum has it
    """Names of a batch's parts."""

    IMAGE = "image"
    LABEL = "label"


class Scene:
    """A class that cannot travel by itself: it has a lock, say."""

    __slots__ = ("name", "points")

    def __init__(self, points: torch.Tensor, name: str) -> None:
        self.points = points
        self.name = name


class Room(Scene):
    """One below it."""

    __slots__ = ()


@pytest.fixture
def scenes() -> Any:
    """Scenes are registered, for one test."""
    data.register(
        Scene, lambda x: {"points": x.points, "name": x.name}, lambda p: Scene(p["points"], p["name"])
    )
    yield
    adapters._registered.clear()
    adapters._found.clear()


def loader(collate: Any, workers: int = 0) -> DataLoader[Any]:
    """Ten samples, by twos."""
    return DataLoader(range(10), batch_size=2, collate_fn=collate, num_workers=workers)  # type: ignore[arg-type]


def tokenizer() -> Any:
    """A fast one, made here: nothing is downloaded."""
    models = pytest.importorskip("tokenizers.models")
    tokenizers, transformers = sys.modules["tokenizers"], pytest.importorskip("transformers")
    made: Any = tokenizers.Tokenizer(
        models.WordLevel({"a": 0, "b": 1, "[UNK]": 2, "[PAD]": 3}, unk_token="[UNK]")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]", pad_token="[PAD]")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_fast_tokenizer_gives_is_kept(workers: int) -> None:
    """Its class, its tensors, and its encodings: words, offsets. Rows can be cut, encodings with them."""
    fast = tokenizer()

    def collate(numbers: list[int]) -> Any:
        return fast(
            [" ".join("ab"[k % 2] for k in range(n + 1)) for n in numbers], return_tensors="pt", padding=True
        )

    wanted = [collate([k, k + 1]) for k in range(0, 10, 2)]
    with tsnb.serve(loader(collate, workers), name="s"), tsnb.attach("one", "s", private=True) as one:
        for ours, theirs in zip(one, wanted, strict=True):
            assert type(ours) is type(theirs) and ours.is_fast and ours.n_sequences == theirs.n_sequences
            assert torch.equal(ours["input_ids"], theirs["input_ids"])
            for row in range(2):
                assert ours.tokens(row) == theirs.tokens(row) and ours.word_ids(row) == theirs.word_ids(row)
                assert ours.token_to_chars(row, 0) == theirs.token_to_chars(row, 0)

    same = lambda numbers: fast(["a b"] * len(numbers), return_tensors="pt")  # noqa: E731
    with tsnb.serve(loader(same, workers), name="s"), tsnb.attach("one", "s", batch_size=4) as one:
        assert [(len(x["input_ids"]), len(x.encodings)) for x in one] == [(4, 4), (4, 4), (2, 2)]


def test_graphs_of_pyg_are_kept() -> None:
    """A Batch of Data: its class, where each graph lies, and each graph again."""
    pyg = pytest.importorskip("torch_geometric.data")

    def collate(numbers: list[int]) -> Any:
        graphs = [
            pyg.Data(
                x=torch.full((n + 1, 3), float(n)),
                edge_index=torch.zeros(2, n, dtype=torch.long),
                y=torch.tensor([n]),
            )
            for n in numbers
        ]
        return pyg.Batch.from_data_list(graphs)

    with tsnb.serve(loader(collate), name="s"), tsnb.attach("one", "s") as one:
        for first, batch in zip(range(0, 10, 2), one, strict=True):
            wanted = collate([first, first + 1])
            assert type(batch) is type(wanted) and batch.num_graphs == 2 and batch.keys() == wanted.keys()
            for ours, theirs in zip(batch.to_data_list(), wanted.to_data_list(), strict=True):
                assert (
                    type(ours) is pyg.Data and torch.equal(ours.x, theirs.x) and torch.equal(ours.y, theirs.y)
                )
        assert one.stats().samples == 10


def test_members_of_an_enumeration_may_be_keys() -> None:
    """The very members, in a dict and in a subclass of one; rows can be cut. A combination of flags is refused."""
    kept = {Key.IMAGE: torch.arange(6), "more": OrderedDict({Key.LABEL: torch.arange(6)})}
    with tsnb.serve([kept] * 2, name="s"), tsnb.attach("one", "s", batch_size=4) as one:
        for batch in one:
            assert [type(key) for key in batch] == [Key, str] and next(iter(batch)) is Key.IMAGE
            assert list(batch["more"]) == [Key.LABEL] and len(batch["more"][Key.LABEL]) == 4

    class Flags(enum.Flag):
        A = 1
        B = 2

    with pytest.raises(LoaderFailed, match="has the key"):
        tsnb.serve([{Flags.A | Flags.B: torch.zeros(1)}], name="s")


@pytest.mark.usefixtures("scenes")
@pytest.mark.parametrize("workers", [0, 1])
def test_a_class_that_was_registered_travels(workers: int) -> None:
    """Alone, in a dict, in a list; a subclass is refused rather than changed into the class above it."""
    made = lambda numbers: {"scenes": [Scene(torch.full((3,), float(n)), str(n)) for n in numbers]}  # noqa: E731
    with tsnb.serve(loader(made, workers), name="s"), tsnb.attach("one", "s") as one:
        found = [scene for batch in one for scene in batch["scenes"]]
        assert [type(x) for x in found] == [Scene] * 10 and [x.name for x in found] == [
            str(n) for n in range(10)
        ]
        assert all(float(x.points[2]) == n for n, x in enumerate(found))
    with pytest.raises(LoaderFailed, match=r"Room, but would arrive as a .*Scene"):
        tsnb.serve([Room(torch.zeros(1), "x")], name="s")


def test_a_consumer_that_knows_nothing_of_it_is_told(scenes: Any) -> None:
    """And what cannot be registered is refused."""
    with tsnb.serve([Scene(torch.zeros(2), "x")] * 2, name="s"), tsnb.attach("one", "s") as one:
        adapters._registered.clear()
        adapters._found.clear()
        with pytest.raises(BatchNotShareable, match=r"tsnb.data.register was called in the loader's process"):
            list(one)
    for wrong in (("Scene", len, len), (Scene, 3, len), (Scene, len, None)):
        with pytest.raises(TypeError, match="Pass a class"):
            tsnb.data.register(*wrong)
    with pytest.raises(LoaderFailed, match="cannot be shared between processes"):
        tsnb.serve([Scene(torch.zeros(2), "x")], name="s")


@pytest.mark.slow
@pytest.mark.usefixtures("scenes")
def test_background_kernels_take_along_what_was_registered(run: Run) -> None:
    """A trial, and a class that is its script's own."""
    script = run(
        """
    import tsnb.data
    class Pair:
        __slots__ = ("x",)
        def __init__(self, x): self.x = x
    tsnb.data.register(Pair, lambda pair: pair.x, Pair)
    def train():
        for batch in tsnb.attach():
            assert type(batch) is Pair, type(batch)
            tsnb.log(seen=float(batch.x.sum()))
    with tsnb.serve([Pair(torch.ones(3))] * 2, name="s"):
        trial = tsnb.run(train, name="t")
        trial.wait()
        say("state", trial.state, getattr(trial, "error", ""))
    """
    )
    assert script.expect("state").startswith("done")
