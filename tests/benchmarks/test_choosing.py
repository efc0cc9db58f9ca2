"""The benchmark of rounds that choose by losses trains on what it says."""

from __future__ import annotations

import itertools

import pytest

pytest.importorskip("sklearn")

from benchmarks.choosing import SHARE, TRAINING, WAYS, at, training


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_each_way_trains_on_as_many_samples_as_it_counts(way: str) -> None:
    """One epoch of all, then rounds of a share; and it learns."""
    stood = training(way, 0.0, 1, 2.0)
    wanted = TRAINING if way == "all" else round(SHARE * TRAINING)
    steps = [b.samples - a.samples for a, b in itertools.pairwise(stood)]
    assert stood[0].samples == TRAINING and set(steps) == {wanted}
    assert at(stood, 2.0) > 0.5 and at(stood, 1.0) == stood[0].accuracy
