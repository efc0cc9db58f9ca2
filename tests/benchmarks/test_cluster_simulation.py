"""The simulation of a stream's fan-out runs, and its bounds behave as what they stand for; the benchmark's table."""

from __future__ import annotations

import pytest

from benchmarks import cluster
from benchmarks.cluster_simulation import row, star_per_s, table, tree_per_s


def test_the_bounds_fall_as_the_cluster_grows() -> None:
    """One link feeds all in a star; in a tree twice the nodes cost one round; the hub decides for each."""
    assert star_per_s(8, 1e6) == pytest.approx(star_per_s(16, 1e6) * 2)
    assert tree_per_s(7, 1e9) / tree_per_s(15, 1e9) == pytest.approx(4 / 3, rel=0.01)
    few, many = row(2, 1e6), row(32, 1e6)
    assert few.hub_per_s > many.hub_per_s
    assert table([few, many]).count("\n") == 3


def test_the_benchmark_measures_the_local_stream_beside_those_of_the_cluster() -> None:
    """Its rows can be read; over the cluster's nodes it is run by hand."""
    alone = cluster.alone(1 << 20, 0.1)
    assert alone.batches > 0
    far = cluster.Row(2, 1 << 20, 9, 3.0, [1.0, 1.0, 0.98], 0.5)
    local, over = cluster.table([alone, far]).splitlines()[2:]
    assert "none: the local stream" in local
    assert over == "| 2 beside the producer's | 1.0 MB | 3 | 3 | 1.00, 1.00, 0.98 | 0.5 |"
