"""The simulation of a stream's fan-out runs, and its bounds behave as what they stand for."""

from __future__ import annotations

import pytest

from benchmarks.cluster_simulation import row, star_per_s, table, tree_per_s


def test_the_bounds_fall_as_the_cluster_grows() -> None:
    """One link feeds all in a star; in a tree twice the nodes cost one round; the hub decides for each."""
    assert star_per_s(8, 1e6) == pytest.approx(star_per_s(16, 1e6) * 2)
    assert tree_per_s(7, 1e9) / tree_per_s(15, 1e9) == pytest.approx(4 / 3, rel=0.01)
    few, many = row(2, 1e6), row(32, 1e6)
    assert few.hub_per_s > many.hub_per_s
    assert table([few, many]).count("\n") == 3
