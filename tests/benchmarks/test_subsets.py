"""The benchmark of subsets: its test of an order, and the whole from end to end in its smallest form."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.subsets import published_rule, uniformity

ROOT = Path(__file__).parents[2]


def test_a_uniform_order_passes_and_others_do_not() -> None:
    """A shuffle; the same, but for samples that are taken by blocks; and the rule that Joader has published."""
    draws = random.Random(0)
    fair = [draws.sample(range(80), 80) for _ in range(100)]
    assert uniformity("", fair).p > 1e-3
    assert uniformity("", [sorted(order[:40]) + order[40:] for order in fair]).p < 1e-9
    assert published_rule(512, 20).p < 1e-9


@pytest.mark.system
@pytest.mark.slow
def test_all_ways_are_measured_from_end_to_end(tmp_path: Path) -> None:
    """Private loaders prepare each trial's samples, one stream those of the union; every order of ours is uniform."""
    file = tmp_path / "runs.json"
    command = [sys.executable, "-m", "benchmarks.subsets", "--quick", "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    rows = {(row["scenario"], row["way"]): row for row in found["rows"]}
    assert rows["folds", "private"]["prepared"] == 5 * (3 * 48 + 12)
    assert rows["curve", "private"]["prepared"] == 3 * (6 + 18 + 60)
    assert all(rows[scenario, "shared"]["prepared"] >= 3 * 60 for scenario in ("folds", "curve"))
    assert found["calls"] == found["union"] == 45
    *ours, theirs = found["orders"]
    assert all(order["p"] > 1e-4 for order in ours) and theirs["p"] < 1e-9
    assert "| folds | shared |" in done.stdout
