"""Which samples are kept, and when memory is given back: arithmetic."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tsnb.caching.choice import ALIGN_BYTES, HitCost, PackedForms, choose, floor_of, to_give_back

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


def forms(*each: tuple[int, float]) -> PackedForms:
    sizes, take_s = zip(*each, strict=True)
    return PackedForms(np.array(sizes), np.array(take_s))


def test_a_sample_is_packed_where_that_saves_more_for_its_bytes_and_unpacked_where_there_is_room() -> None:
    """Half the bytes for a tenth of the cost, half for two thirds of it, and one that is not to be packed."""
    cost, sizes = np.array([1.0, 1.0, 0.9]), np.full(3, 640)
    packed = forms((320, 0.1), (320, 2 / 3), (0, 0.0))
    for room, kept in (
        (320, [(0, True)]),
        (960, [(0, True), (1, False)]),
        (1600, [(0, True), (1, False), (2, False)]),
        (1920, [(1, False), (0, False), (2, False)]),
    ):
        chosen = choose(cost, sizes, room, FREE, packed)
        found = list(zip(chosen.indices.tolist(), chosen.packed.tolist(), strict=True))
        assert sorted(found) == sorted(kept)
        assert chosen.used_bytes == room
    assert not choose(cost, sizes, 1920, FREE, forms(*[(704, 0.0)] * 3)).packed.any(), (
        "larger when it is packed"
    )


@given(
    st.lists(
        st.tuples(st.integers(1, 50), st.integers(1, 20), st.integers(0, 20), st.integers(0, 50)),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 80),
)
def test_no_forms_that_fit_save_more_than_one_sample_more(
    samples: list[tuple[int, int, int, int]], units: int
) -> None:
    """Against every choice of forms there is: left out, whole, or packed."""
    cost, sizes, small, take = (np.array(column) for column in zip(*samples, strict=True))
    room = units * ALIGN_BYTES
    packed = PackedForms(small * ALIGN_BYTES, take.astype(float))
    chosen = choose(cost.astype(float), sizes * ALIGN_BYTES, room, FREE, packed)
    taken = np.where(chosen.packed, small[chosen.indices], sizes[chosen.indices]) * ALIGN_BYTES
    assert chosen.offsets.tolist() == [0, *np.cumsum(taken)[:-1]][: len(taken)]
    assert chosen.used_bytes == taken.sum() <= room
    saved = (cost[chosen.indices] - np.where(chosen.packed, take[chosen.indices], 0)).sum()
    ways = [
        [(0, 0), (size, gain), *([(fewer, gain - slower)] if fewer else [])]
        for gain, size, fewer, slower in samples
    ]
    best = max(
        sum(gain for _, gain in way) for way in product(*ways) if sum(size for size, _ in way) <= units
    )
    assert saved >= best - cost.max()


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
