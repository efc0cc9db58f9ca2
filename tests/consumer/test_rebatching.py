"""Any pair of batch sizes: each sample once, in order, in batches of the size asked for."""

from __future__ import annotations

import errno
import os
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tsnb.errors import BatchNotShareable
from tsnb.stream.consumer.batches import rebatching
from tsnb.stream.consumer.batches.rebatching import Rebatcher, part
from tsnb.stream.consumer.batches.unpacking import Delivered, Unpacker
from tsnb.stream.loader.packing import SlotWriter
from tsnb.stream.memory.arena import Arena
from tsnb.stream.memory.scratch import ScratchPool
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.layout import Layout

SPEC = ["dict", ["x", "n", "s"], ["a", "tensor"], ["a", "numpy"], ["v"]]
LAYOUT = Layout(SPEC, (), True)


def delivered(start: int, rows: int) -> Delivered:
    ids = range(start, start + rows)
    tensor = torch.tensor([[float(i), -float(i)] for i in ids]).view(rows, 2)
    return Delivered(LAYOUT, [tensor, np.array(list(ids), "<i4"), [f"s{i}" for i in ids]], rows, shared=True)


@settings(deadline=None)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=12), st.integers(1, 30))
def test_every_sample_comes_once_in_order(sizes: list[int], batch_size: int) -> None:
    """Loader batches of any sizes, another size wanted: nothing lost, doubled or swapped."""
    rebatcher = Rebatcher(batch_size, ScratchPool())
    out: list[Delivered] = []
    start = 0
    for rows in sizes:
        out += rebatcher.feed(delivered(start, rows))
        start += rows
    assert all(d.rows == batch_size for d in out)
    rest = rebatcher.rest()
    out += [rest] if rest is not None else []
    assert [i for d in out for i in d.leaves[1].tolist()] == list(range(start))
    assert [i for d in out for i in d.leaves[0][:, 0].tolist()] == list(range(start))
    assert [s for d in out for s in d.leaves[2]] == [f"s{i}" for i in range(start)]


@pytest.mark.parametrize("batch_size", [10**9, 2**62, 10**30])
def test_a_batch_for_more_samples_than_there_are_is_the_one_of_all(batch_size: int) -> None:
    """Its room follows the samples that come."""
    rebatcher = Rebatcher(batch_size, ScratchPool())
    for start in (0, 8, 16):
        assert not list(rebatcher.feed(delivered(start, 8)))
    rest = rebatcher.rest()
    assert rest is not None and rest.leaves[1].tolist() == list(range(24))


def test_room_that_doubles_loses_no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors, arrays and values, with what the batches tell of their rows."""
    monkeypatch.setattr(rebatching, "AT_ONCE_BYTES", 100)
    rebatcher = Rebatcher(50, ScratchPool())
    out: list[Delivered] = []
    for start in range(0, 126, 7):
        batch = delivered(start, 7)
        batch.drawn = np.arange(start, start + 7, dtype="<u4").tobytes()
        out += rebatcher.feed(batch)
    rest = rebatcher.rest()
    assert rest is not None
    out.append(rest)
    assert [len(batch.leaves[1]) for batch in out] == [50, 50, 26]
    for values in (
        [i for batch in out for i in batch.leaves[1].tolist()],
        [i for batch in out for i in batch.leaves[0][:, 0].tolist()],
        [int(word[1:]) for batch in out for word in batch.leaves[2]],
        [i for batch in out for i in np.frombuffer(batch.drawn, "<u4").tolist()],
    ):
        assert values == list(range(126))


def test_samples_that_no_memory_holds_are_refused_with_the_size() -> None:
    """As where the system gives none."""

    class Full(ScratchPool):
        def take(self, size: int) -> tuple[Any, int]:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    with pytest.raises(BatchNotShareable, match=r"batch_size=9 needs 108 bytes for 9 samples.*Use a smaller"):
        list(Rebatcher(9, Full()).feed(delivered(0, 8)))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 20), st.booleans()), min_size=1, max_size=12),
    st.integers(1, 30),
    st.data(),
)
def test_each_row_keeps_its_sample_when_batches_are_cut_joined_and_chosen_from(
    batches: list[tuple[int, bool]], batch_size: int, data: st.DataObject
) -> None:
    """The sample that is told of a row is the row's; where one of those joined does not tell, nothing is told."""
    rebatcher, untold, start = Rebatcher(batch_size, ScratchPool()), set[int](), 0
    out: list[Delivered] = []
    for rows, tells in batches:
        batch = delivered(start, rows)
        batch.drawn = np.arange(1000 + start, 1000 + start + rows, dtype="<u4").tobytes() if tells else b""
        own = data.draw(st.none() | st.sets(st.integers(0, rows - 1)), label="own")
        untold |= set() if tells else set(range(start, start + rows))
        out += rebatcher.feed(batch, None if own is None else np.array(sorted(own), np.int64))
        start += rows
    rest = rebatcher.rest()
    for batch in [*out, *([] if rest is None else [rest])]:
        ids = batch.leaves[1].tolist()
        told = np.frombuffer(batch.drawn, "<u4").tolist()
        assert told == ([] if untold & set(ids) else [1000 + i for i in ids])
        second = part(batch, 1, 2)
        if told and len(ids) > 1:
            assert np.frombuffer(second.drawn, "<u4").tolist() == [
                1000 + i for i in second.leaves[1].tolist()
            ]


def test_only_batches_that_straddle_two_are_copied() -> None:
    """Cutting 64 into 32s copies nothing; 48s need one copy in three."""
    even = Rebatcher(32, ScratchPool())
    source = delivered(0, 64)
    parts = list(even.feed(source))
    assert even.copied == 0
    assert parts[1].leaves[0].data_ptr() == source.leaves[0][32:].data_ptr()
    odd = Rebatcher(48, ScratchPool())
    count = sum(len(list(odd.feed(delivered(64 * i, 64)))) for i in range(3))
    assert (count, odd.copied) == (4, 2)


def test_what_cannot_be_cut_is_named() -> None:
    """The message names the leaf and the way out."""
    rebatcher = Rebatcher(2, ScratchPool())
    scalar = Delivered(
        Layout(["tuple", ["a", "tensor"], ["a", "tensor"]], (), False),
        [torch.zeros(4), torch.tensor(1)],
        4,
        shared=True,
    )
    with pytest.raises(BatchNotShareable, match=r"batch\[1\] does not. Leave batch_size out"):
        list(rebatcher.feed(scalar))


def kinds(rows: int) -> dict[str, Any]:
    """Return a batch whose rows lie in many ways."""
    image = torch.arange(rows * 24.0).view(rows, 2, 3, 4)
    return {
        "last": image.contiguous(memory_format=torch.channels_last),
        "first": torch.arange(rows * 3).view(3, rows).mT,
        "wide": torch.arange(rows).view(rows, 1).expand(rows, 5),
        "leaf": torch.ones(rows, 2, requires_grad=True),
        "own": Own(x=torch.arange(rows), names=["n"] * rows),
        "mask": np.ma.array(np.arange(rows), mask=np.arange(rows) % 2 == 1, fill_value=7),
        "fortran": np.asfortranarray(np.arange(rows * 2).reshape(rows, 2)),
        "twice": image,
        "again": image,
    }


class Own(dict[str, Any]):
    """A class of the user's, with an attribute."""

    def __init__(self, **items: Any) -> None:
        super().__init__(**items)
        self.scale = 2


def read(arena: Arena, batch: Any, *, private: bool = False) -> Delivered:
    placed = SlotWriter(arena, 0).write(batch)
    told = ms.Batch(0, 0, 0, 0, placed.rows, 7, placed.values_offset, placed.values_bytes)
    unpacker = Unpacker(arena, 4, ScratchPool(), lambda lease: None)
    return unpacker.read(told, Layout.decode(placed.layout), private=private)


@pytest.mark.parametrize("private", [False, True])
def test_rows_keep_their_kind_cut_and_joined(private: bool) -> None:
    """Classes, masks, gradients, what stands twice; dimensions lie in the same order, without gaps where joined."""
    arena = Arena.create()
    arena.fit(1, 1 << 16)
    try:
        rebatcher = Rebatcher(6, ScratchPool())
        out = [d.tree() for _ in range(3) for d in rebatcher.feed(read(arena, kinds(8), private=private))]
    finally:
        arena.close()
    for number, batch in enumerate(out):
        want = (torch.arange(24) % 8)[6 * number : 6 * number + 6].tolist()
        assert batch["mask"].data.tolist() == want and batch["mask"].mask.tolist() == [
            i % 2 == 1 for i in want
        ]
        assert batch["mask"].fill_value == 7 and type(batch["mask"]) is np.ma.MaskedArray
        assert [x.tolist() for x in batch["first"]] == [[i, i + 8, i + 16] for i in want]
        assert batch["last"].is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(batch["last"], batch["twice"]) and batch["twice"] is batch["again"]
        assert batch["wide"].tolist() == [[i] * 5 for i in want]
        assert batch["leaf"].requires_grad and batch["leaf"].is_leaf
        assert type(batch["own"]) is Own and batch["own"].scale == 2 and batch["own"]["x"].tolist() == want
        assert batch["fortran"].strides[0] < batch["fortran"].strides[1]
        assert batch["fortran"].flags.writeable is private is batch["mask"].flags.writeable
    assert len(out) == 4


def test_batches_that_differ_in_kind_are_not_joined() -> None:
    """One with gradients and one without, one of another class, an attribute that changes."""
    arena = Arena.create()
    arena.fit(1, 1 << 16)
    other = Own(x=torch.arange(2))
    other.scale = 3
    try:
        for one, two in (
            (torch.ones(2), torch.ones(2, requires_grad=True)),
            ({"x": torch.arange(2)}, Own(x=torch.arange(2))),
            (Own(x=torch.arange(2)), other),
        ):
            rebatcher = Rebatcher(3, ScratchPool())
            assert list(rebatcher.feed(read(arena, one))) == []
            with pytest.raises(BatchNotShareable, match="their structure differs"):
                list(rebatcher.feed(read(arena, two)))
    finally:
        arena.close()


def test_parts_that_do_not_fit_together_are_refused() -> None:
    """Padded text of two lengths cannot be one batch."""
    rebatcher = Rebatcher(3, ScratchPool())
    layout = Layout(["a", "tensor"], (), False)
    assert list(rebatcher.feed(Delivered(layout, [torch.zeros(2, 5)], 2, shared=True))) == []
    with pytest.raises(BatchNotShareable, match=r"from \(5,\) to \(7,\)"):
        list(rebatcher.feed(Delivered(layout, [torch.zeros(2, 7)], 2, shared=True)))
