"""The benchmark of three sizes runs from end to end in its smallest form, and its figures can be kept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.balance import SYSTEMS, can_rebalance, render
from benchmarks.balance_simulated import CORES, simulate, table

ROOT = Path(__file__).parents[2]


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_way_is_measured_from_end_to_end(tmp_path: Path) -> None:
    """A few batches each; shares add up, and the page's table can be made of what is kept."""
    file = tmp_path / "runs.json"
    command = [sys.executable, "-m", "benchmarks.balance", "--quick", "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kept = json.loads(file.read_text())
    expected = [name for name in SYSTEMS if name != "rebalanced" or can_rebalance()]
    assert [run["system"] for run in kept["runs"]] == expected
    for run in kept["runs"]:
        assert run["makespan_s"] > 0
        assert sum(run["share"].values()) == pytest.approx(1.0)
        assert run["pace"]["resnet10-w16"] > 0
    assert "| one loader |" in render(kept)
    assert "one loader / a loader each:" in done.stdout


def test_the_page_says_what_the_planner_does_on_simulated_machines() -> None:
    """The table in benchmarks/RESULTS.md is the one that the planner of today makes; nowhere does it lose."""
    found = [simulate(cores) for cores in CORES]
    assert table(found) in (ROOT / "benchmarks/RESULTS.md").read_text(encoding="utf-8")
    assert all(one.after >= one.before for one in found)
