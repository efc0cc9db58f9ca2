"""The benchmark of halving runs from end to end in its smallest form, and its table can be read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.system
@pytest.mark.slow
def test_both_sweeps_are_measured_from_end_to_end(tmp_path: Path) -> None:
    """Two trials each; what they trained on is counted, and both find the same best one."""
    file = tmp_path / "runs.json"
    command = [sys.executable, "-m", "benchmarks.halving", "--quick", "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    everything, halved = json.loads(file.read_text())["runs"]
    assert everything["sweep"] == "all" and everything["samples"] == 2 * 2 * 640 and everything["done"] == 2
    assert halved["sweep"] == "halving" and 0 < halved["samples"] <= everything["samples"]
    assert everything["best"].removeprefix("all") == halved["best"].removeprefix("halving")
    assert everything["accuracy"] == halved["accuracy"] > 0.3
    assert "| all | 2 of 2 |" in done.stdout
