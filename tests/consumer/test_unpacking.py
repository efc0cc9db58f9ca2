"""Whatever a producer says about a batch: it arrives, or it is one error, and never the end of the process."""

from __future__ import annotations

import gc
import json
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.hostile import JUNK, changed_somewhere
from tsnb.errors import BatchNotShareable, RemoteProtocolError
from tsnb.stream.consumer.batches.unpacking import Unpacker
from tsnb.stream.loader.packing import SlotWriter
from tsnb.stream.memory.arena import Arena
from tsnb.stream.memory.scratch import ScratchPool
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.checks import MAX_DEPTH, TENSOR_DTYPES
from tsnb.stream.protocol.layout import Layout
from tsnb.stream.protocol.tree import flatten, unflatten


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Box:
    image: Any
    label: int


GOOD = {
    "image": torch.arange(24, dtype=torch.float32).view(2, 3, 4),
    "label": torch.tensor([1, 2]).numpy(),
    "where": Pair(["a.png", "b.png"], (1, 2)),
    "box": Box(torch.zeros(2, dtype=torch.bfloat16), 3),
    "phase": 2 + 3j,
}


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    made = Arena.create()
    made.fit(2, 4096)
    yield made
    made.close()


def unpacked(
    arena: Arena, layout: bytes, values: bytes = b"", *, private: bool = False, **changes: int
) -> Any:
    """Write values where a producer would, and read a batch of that layout as a consumer does."""
    start = arena.offset_of(0) + 2048
    arena.buffer[start : start + len(values)] = values
    batch = structs.replace(ms.Batch(0, 0, 0, 0, 2, 7, 2048, len(values)), **changes)
    unpacker = Unpacker(arena, 4, ScratchPool(), lambda lease: None)
    return unpacker.read(batch, Layout.decode(layout), private=private).tree()


def packed(arena: Arena, tree: Any) -> tuple[bytes, bytes]:
    writer = SlotWriter(arena, 1)
    placed = writer.write(tree)
    start = arena.offset_of(1) + placed.values_offset
    text = bytes(arena.buffer[start : start + placed.values_bytes])
    writer.close()
    return placed.layout, text


ONE = '[["a","tensor"],[["tensor",{},1,false]],[0],false]\n[4,0]'


class Lagging:
    """A GPU on which one batch after the other waits for its kernels; asked for the next, it lets the oldest go."""

    def has(self, lease: int) -> bool:
        return True

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def view(self, lease: int, size: int, owner: Any) -> torch.Tensor:
        del self.waiting[:-2]
        self.waiting.append(owner)
        return torch.zeros(size, dtype=torch.uint8)


def test_batches_whose_kernels_are_over_do_not_count_as_kept(arena: Arena) -> None:
    """A loop that runs ahead of its GPU was warned that it keeps batches, and had copies."""
    layout = Layout.decode(ONE.format('"uint8"').encode())
    unpacker = Unpacker(arena, 3, ScratchPool(), lambda lease: None, Lagging())  # type: ignore[arg-type]
    for number in range(10):
        batch = ms.Batch(0, 0, 0, number, 2, number, 2048, 0)
        assert unpacker.read(batch, layout, private=False).shared
        assert not unpacker.crowded and len(unpacker.held) <= 3


@pytest.mark.parametrize(
    "dtype",
    [n for n in dir(torch) if isinstance(getattr(torch, n), torch.dtype)] + ["Tensor", "", "x" * 9999],
)
def test_every_dtype_of_torch_is_taken_or_refused(arena: Arena, dtype: str) -> None:
    """A quantized tensor made of bytes alone would end this process."""
    if dtype in TENSOR_DTYPES or f"{getattr(torch, dtype or 'x', None)}" in {
        f"torch.{n}" for n in TENSOR_DTYPES
    }:
        name = str(getattr(torch, dtype)).removeprefix("torch.")
        assert unpacked(arena, ONE.format(json.dumps(name)).encode()).dtype is getattr(torch, dtype)
        assert TENSOR_DTYPES[name] == getattr(torch, dtype).itemsize
    else:
        with pytest.raises(RemoteProtocolError):
            unpacked(arena, ONE.format(json.dumps(dtype)).encode())


def test_what_consumers_refuse_is_refused_where_it_is_loaded(arena: Arena) -> None:
    """By its place in the batch, not as an error of the protocol in every consumer."""
    deep: Any = 1
    for _ in range(MAX_DEPTH + 1):
        deep = [deep, {1: 2}]
    with pytest.raises(BatchNotShareable, match="levels deep"):
        packed(arena, deep)
    endless: list[Any] = [{}]
    endless.append(endless)
    with pytest.raises(BatchNotShareable, match="contains itself"):
        packed(arena, endless)
    with pytest.raises(BatchNotShareable, match=r"batch\['x'\] has dtype bits8"):
        packed(arena, {"x": torch.zeros(2, dtype=torch.uint8).view(torch.bits8)})


@pytest.mark.parametrize("private", [False, True])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_layout_that_was_changed_anywhere_is_one_error_or_a_batch(
    arena: Arena, private: bool, data: st.DataObject
) -> None:
    """Any part of a real one replaced by anything: numbers, texts, dtypes, other parts of it."""
    layout, values = packed(arena, GOOD)
    dtypes = st.sampled_from(
        ["qint8", "quint4x2", "bits16", "|O", "<M8[ns]", "|V0", "<U999999999", "int64", "<f8"]
    )
    classes = st.sampled_from(
        [["os", "stat_result"], ["tsnb.discovery.registry", "Entry"], ["pathlib", "Path"], ["", ""]]
    )
    parts = [json.loads(line) for line in layout.splitlines()]
    broken = changed_somewhere(parts, data, JUNK | dtypes | classes)
    lines = [json.dumps(part).encode() for part in (broken if isinstance(broken, list) else [broken])]
    told = json.loads(values)
    if data.draw(st.booleans()):
        told = changed_somewhere(
            told, data, JUNK | st.just({"complex": [10**400, 0]}) | st.just({"bytes": "?"})
        )
    try:
        unpacked(arena, b"\n".join(lines), json.dumps(told).encode()[:2048], private=private)
    except RemoteProtocolError:
        pass


@pytest.mark.parametrize(
    "changes",
    [
        {"slot": 2},
        {"slot": 2**32 - 1},
        {"values_offset": 4096},
        {"values_offset": 2**64 - 1},
        {"values_bytes": 2**32 - 1},
        {"values_offset": 0, "values_bytes": 9},
    ],
)
def test_numbers_that_point_elsewhere_are_one_error(arena: Arena, changes: dict[str, Any]) -> None:
    """Outside the arena, outside the slot, at something that is no text."""
    layout, values = packed(arena, GOOD)
    with pytest.raises(RemoteProtocolError):
        unpacked(arena, layout, values, private=False, **changes)


def test_a_class_is_found_without_asking_any_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages that import their parts lazily would import hundreds for a name that arrives."""
    asked: list[str] = []
    lazy = types.ModuleType("lazy_package")
    lazy.__getattr__ = asked.append  # type: ignore[method-assign]  # PEP 562
    monkeypatch.setitem(sys.modules, "lazy_package", lazy)

    class Meta(type):
        def __getattr__(cls, name: str) -> Any:
            asked.append(name)

    lazy.Outer = Meta("Outer", (), {})  # type: ignore[attr-defined]
    for qualname in ("Part", "Outer.Part", "Outer"):
        for word in ("named", "data"):
            made = unflatten([word, "lazy_package", qualname, ["x"], ["v"]], iter([1]))
            assert made.x == 1 and type(made).__module__ != "lazy_package"
    assert asked == []
    leaves, spec = flatten(Pair(1, Box(2, 3)), lambda node: None)
    assert type(unflatten(spec, iter(leaves)).right) is Box, "what is there is found"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_lease_ends_with_the_last_view_of_a_tensor(arena: Arena, dtype: str) -> None:
    """Of a dtype that numpy has, and of one that it has not."""
    layout = Layout.decode(ONE.format(f'"{dtype}"').encode())
    released: list[int] = []
    unpacker = Unpacker(arena, 3, ScratchPool(), released.append)
    delivered = unpacker.read(ms.Batch(0, 0, 0, 0, 2, 7, 2048, 0), layout, private=False)
    (tensor,) = delivered.leaves
    view, array = tensor[1:], tensor.view(torch.uint8).numpy()
    del tensor, delivered, view
    assert released == [] and array.flags.writeable
    del array
    assert released == [7]


def test_leases_may_end_while_they_are_counted(arena: Arena) -> None:
    """The collector may run at any allocation, so a batch in a cycle may end in the middle of the count."""
    layout, values = packed(arena, [torch.zeros(4)])
    decoded = Layout.decode(layout)
    unpacker = Unpacker(arena, 1000, ScratchPool(), lambda lease: None)
    before = gc.get_threshold()
    gc.collect()
    try:
        for first in range(1, 60):  # so many allocations until the collector runs: one of them is the worst
            gc.set_threshold(0)
            for lease in range(4):
                batch = ms.Batch(0, 0, lease, 1, 2, lease, 2048, len(values))
                cycle: list[Any] = [unpacker.read(batch, decoded, private=False).tree()]
                cycle.append(cycle)
            del cycle
            gc.set_threshold(gc.get_count()[0] + first)
            assert len(unpacker.held) <= 4
            gc.set_threshold(0)
            gc.collect()
            assert unpacker.held == ()
    finally:
        gc.set_threshold(*before)
