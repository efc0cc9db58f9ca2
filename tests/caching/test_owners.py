"""Which machine keeps which sample: arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tsnb.caching.choice import ALIGN_BYTES, HitCost
from tsnb.caching.owners import FETCH_TIMES, Lender, owners_of, worth_fetching

LARGE = 1 << 40


def machines(rooms: list[int]) -> list[Lender]:
    return [Lender(f"machine {number}", "h", 1, room) for number, room in enumerate(rooms)]


def by_name(lenders: list[Lender], samples: int = 3000) -> dict[int, str]:
    """Return the machine of each sample, where all have room."""
    owned = owners_of(np.arange(samples), np.full(samples, 100), lenders)
    assert owned.indices.tolist() == list(range(samples))
    return {int(i): lenders[owner].machine for i, owner in zip(owned.indices, owned.owners, strict=True)}


def test_machines_get_equal_shares_and_one_that_leaves_moves_its_own_alone() -> None:
    """In whatever order they are named; one that comes takes from all, and moves nothing else."""
    four = machines([LARGE] * 4)
    whole = by_name(four)
    shares = [list(whole.values()).count(lender.machine) for lender in four]
    assert all(650 < share < 850 for share in shares), shares
    assert by_name(four[::-1]) == whole
    three = by_name(four[:1] + four[2:])
    moved = {i for i in whole if whole[i] != three[i]}
    assert moved == {i for i, name in whole.items() if name == "machine 1"}
    assert {three[i] for i in moved} == {"machine 0", "machine 2", "machine 3"}


@given(
    st.lists(st.integers(1, 2000), max_size=60),
    st.lists(st.integers(0, 20_000), min_size=1, max_size=5),
)
def test_places_lie_in_the_room_of_their_machine_and_never_over_each_other(
    sizes: list[int], rooms: list[int]
) -> None:
    """And what has no place would have fitted nowhere, behind what was placed."""
    lenders, found = machines(rooms), np.array(sizes, np.int64)
    indices = np.arange(len(sizes)) * 7
    owned = owners_of(indices, found, lenders)
    assert len(set(owned.indices.tolist())) == len(owned.indices)
    taken = -(-found // ALIGN_BYTES) * ALIGN_BYTES
    left = list(rooms)
    for number, room in enumerate(rooms):
        mine = owned.owners == number
        places = sorted(
            zip(owned.offsets[mine].tolist(), taken[owned.indices[mine] // 7].tolist(), strict=True)
        )
        end = 0
        for place, size in places:
            assert place >= end
            assert place % ALIGN_BYTES == 0
            end = place + size
        assert end <= room
        left[number] -= end
    without = set(indices.tolist()) - set(owned.indices.tolist())
    if len(set(sizes)) <= 1:
        assert not [i for i in without if taken[i // 7] <= max(left)]


def test_only_what_is_clearly_cheaper_to_fetch_than_to_prepare_is_placed() -> None:
    """By its own size: a large one has to cost more."""
    fetch = HitCost(1e-3, 1e-9)
    sizes = np.array([1_000_000] * 3 + [0])
    cost: Any = np.array([1.0, FETCH_TIMES * 2.01e-3, FETCH_TIMES * 1.99e-3, FETCH_TIMES * 1.01e-3])
    assert (worth_fetching(cost, sizes, fetch) > 0).tolist() == [True, True, False, True]


def test_without_machines_or_samples_nothing_is_placed() -> None:
    """Two ends."""
    assert not len(owners_of(np.arange(5), np.full(5, 10), []).indices)
    assert not len(owners_of(np.arange(0), np.arange(0), machines([100])).indices)
