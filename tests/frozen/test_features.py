"""Features kept by sample: from the second epoch on neither the dataset nor the network runs."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

import tsnb
from tests.frozen.networks import SAMPLES, Counting, Named, Pictures, loader, trunk
from tsnb.caching.memory import SampleMemory
from tsnb.frozen.rows import Unkeepable, joined, split

pytestmark = pytest.mark.system


def epoch(name: str = "a", **options: Any) -> list[Any]:
    return [[part.clone() for part in batch] for batch in tsnb.attach(name, "s", **options)]


def by_label(batches: list[Any]) -> list[torch.Tensor]:
    """Return each sample's parts, in the order of the labels, which are last."""
    columns = [torch.cat(parts) for parts in zip(*batches, strict=True)]
    return [column[columns[-1].argsort()] for column in columns]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 0},
        {},
        {"multiprocessing_context": "spawn", "num_workers": 1},
        {"persistent_workers": True},
    ],
)
@pytest.mark.parametrize("inputs", [False, True])
def test_from_the_second_epoch_on_nothing_is_computed(options: dict[str, Any], inputs: bool) -> None:
    """And the features of each sample stay bit for bit, in another order."""
    pictures, network = Pictures(), Counting()
    with tsnb.serve(
        loader(pictures, **options),
        "s",
        then=network,
        inputs=inputs,
        seed=1,
        cache="8MiB",
        window=1,
        late_join=0,
    ) as s:
        first = epoch(inputs=inputs)
        prepared, seen = pictures.prepared.clone(), int(network.seen)
        others = [epoch(inputs=inputs) for _ in range(3)]
        told = s.status().cache
        if options.get("multiprocessing_context") != "spawn":  # a spawned worker counts for itself
            assert torch.equal(pictures.prepared, prepared)
            assert int(network.seen) == seen
    assert told is not None
    assert (told.state, told.samples, told.kept, told.why) == ("serving", SAMPLES, SAMPLES, "")
    assert told.hits >= 3 * SAMPLES
    for other in others:
        assert not torch.equal(other[0][-1], first[0][-1])
        for one, same in zip(by_label(first), by_label(other), strict=True):
            assert torch.equal(one, same)


def test_where_there_is_room_for_some_only_the_others_are_computed() -> None:
    """A batch is put together of both."""
    pictures, network = Pictures(), Counting()
    notes = 24_576  # of the lists; the rest has room for some of the rows
    with tsnb.serve(
        loader(pictures), "s", then=network, seed=1, cache=notes + 65_536 + 20_000, window=1, late_join=0
    ) as s:
        runs = [by_label(epoch()) for _ in range(2)]
        first = pictures.prepared.clone()
        runs += [by_label(epoch())]
        told = s.status().cache
    assert told is not None
    assert 0 < told.kept < SAMPLES
    assert ((pictures.prepared - first) > 0).sum() >= SAMPLES - told.kept
    for run in runs[1:]:
        for one, same in zip(runs[0], run, strict=True):
            assert torch.allclose(one, same, atol=1e-6)


class Drawing(Pictures):
    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return image + torch.rand(()), label


class Changing(Pictures):
    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return image + int(self.prepared[index]), label


@pytest.mark.parametrize(
    ("pictures", "why"),
    [
        (Drawing(), "draws random numbers"),
        (Changing(), "differs when it is prepared a second time"),
        (Named(), "only arrays"),
    ],
)
def test_what_is_random_is_not_kept_and_the_reason_is_told(pictures: Pictures, why: str) -> None:
    """The stream goes on without the cache."""
    with tsnb.serve(loader(pictures), "s", then=trunk(), seed=1, cache="8MiB") as s:
        for _ in range(2):
            assert sum(1 for _ in tsnb.attach("a", "s")) == 7
        told = s.status().cache
    assert told is not None
    assert told.state == "off"
    assert why in told.why


def test_features_are_never_older_than_their_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A memory that a predecessor filled is used again for the same weights alone."""
    memory = SampleMemory.create()
    found = []
    for change in (0.0, 0.0, 1.0):
        network = Counting()
        next(network.inner.buffers()).add_(change)
        # as the process that serves a restarted stream does
        monkeypatch.setattr("tsnb.caching.keeper.adopted", lambda: os.dup(memory.fd))
        with tsnb.serve(loader(), "s", then=network, seed=1, cache="8MiB"):
            features = by_label(epoch())
        found.append((int(network.seen), features[0]))
    memory.close()
    assert found[0][0] >= SAMPLES
    assert found[1][0] == 0
    assert torch.equal(found[0][1], found[1][1])
    assert found[2][0] >= SAMPLES
    assert not torch.equal(found[0][1], found[2][1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_rows_of_every_dtype_come_back(dtype: torch.dtype) -> None:
    """With what has no elements, too; and numpy arrays as such."""
    batch = {
        "x": torch.arange(12).reshape(4, 3).to(dtype),
        "y": torch.zeros(4, 0),
        "n": torch.arange(4).numpy(),
    }
    form, rows = split(batch, 4)
    again = joined(form, rows[[2, 0]])
    assert torch.equal(again["x"], batch["x"][[2, 0]])  # type: ignore[index]
    assert again["y"].shape == (2, 0)
    assert again["n"].tolist() == [2, 0]
    assert type(form).decode(form.encode()) == form


def test_what_has_no_row_per_sample_is_not_taken_apart() -> None:
    """And says what it is."""
    with pytest.raises(Unkeepable, match="an array of shape"):
        split((torch.ones(4), torch.ones(3)), 4)
    with pytest.raises(Unkeepable, match="holds a list"):
        split((torch.ones(2), ["a", "b"]), 2)
