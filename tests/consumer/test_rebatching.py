"""Any pair of batch sizes: each sample once, in order, in batches of the size asked for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tsnb.arena.scratch import ScratchPool
from tsnb.consumer.rebatching import Rebatcher
from tsnb.consumer.unpacking import Delivered
from tsnb.errors import BatchNotShareable
from tsnb.wire.layout import Layout

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
    with pytest.raises(BatchNotShareable, match=r"batch\[1\] does not have it. Leave batch_size out"):
        list(rebatcher.feed(scalar))


def test_parts_that_do_not_fit_together_are_refused() -> None:
    """Padded text of two lengths cannot be one batch."""
    rebatcher = Rebatcher(3, ScratchPool())
    layout = Layout(["a", "tensor"], (), False)
    assert list(rebatcher.feed(Delivered(layout, [torch.zeros(2, 5)], 2, shared=True))) == []
    with pytest.raises(BatchNotShareable, match=r"from \(5,\) to \(7,\)"):
        list(rebatcher.feed(Delivered(layout, [torch.zeros(2, 7)], 2, shared=True)))
