"""Which samples are kept, and when memory is given back: arithmetic."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tsnb.samples.choice import ALIGN_BYTES, HitCost, choose, floor_of, to_give_back

FREE = HitCost(0.0, 0.0)
MIB = 1 << 20


def test_what_saves_most_per_byte_is_kept_and_laid_out_first() -> None:
    """Sample 2 costs less than 0, and is a tenth of its size."""
    chosen = choose(np.array([1.0, 0.2, 0.5, 0.1]), np.array([6400, 6400, 640, 64]), 7104, FREE)
    assert chosen.indices.tolist() == [3, 2, 0]
    assert chosen.offsets.tolist() == [0, 64, 704]
    assert chosen.used_bytes == 7104


def test_what_costs_less_to_prepare_than_to_take_is_not_kept() -> None:
    """A hit costs something, too: for a data set in memory more than a sample."""
    sizes = np.full(3, 1000)
    chosen = choose(np.array([1e-3, 1e-5, np.nan]), sizes, 10_000, HitCost(1e-5, 1e-9))
    assert chosen.indices.tolist() == [0]
    assert not len(choose(np.full(3, 1e-6), sizes, 10_000, HitCost(1e-5, 0.0)).indices)


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 40)), min_size=1, max_size=9), st.integers(0, 120)
)
def test_no_set_that_fits_saves_more_than_one_sample_more(samples: list[tuple[int, int]], units: int) -> None:
    """Against every set there is: places do not overlap, all lie in the room, and the gain is the best but for one."""
    cost, sizes = (np.array(column, float) for column in zip(*samples, strict=True))
    sizes = sizes.astype(np.int64) * ALIGN_BYTES
    room = units * ALIGN_BYTES
    chosen = choose(cost, sizes, room, FREE)
    ends = chosen.offsets + sizes[chosen.indices]
    assert all(ends[:-1] == chosen.offsets[1:])
    assert chosen.used_bytes == (ends[-1] if len(ends) else 0) <= room
    assert len(set(chosen.indices.tolist())) == len(chosen.indices)
    best = max(
        sum(cost[i] for i in some)
        for count in range(len(samples) + 1)
        for some in combinations(range(len(samples)), count)
        if sum(sizes[i] for i in some) <= room
    )
    assert cost[chosen.indices].sum() >= best - cost.max()


def test_memory_is_given_back_where_it_is_short_and_enough_at_once() -> None:
    """Below the floor as much as is missing to twice of it; while processes stand still an eighth at a time."""
    floor = floor_of(8 << 30)
    assert floor == int(0.1 * (8 << 30))
    assert (floor_of(1 << 28), floor_of(1 << 40)) == (64 * MIB, 1 << 30)
    assert to_give_back(1 << 30, floor, floor, 0.0) == 0
    assert to_give_back(1 << 30, floor - 1, floor, 0.0) == floor + 1
    assert to_give_back(100, floor - 1, floor, 0.0) == 100, "no more than there is"
    assert to_give_back(1 << 30, 2 * floor, floor, 0.5) == 1 << 27
    assert to_give_back(1 << 30, 5 * floor, floor, 0.9) == 0, "another container stands still, not this one"
