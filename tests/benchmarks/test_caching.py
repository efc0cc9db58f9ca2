"""The benchmark of the cache runs from end to end in its smallest form, and its table can be read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.system
@pytest.mark.slow
def test_all_rules_are_measured_from_end_to_end(tmp_path: Path) -> None:
    """At one size of memory; what is kept and what is decoded make up all photos, and ours costs least."""
    file = tmp_path / "runs.json"
    command = [sys.executable, "-m", "benchmarks.caching", "--quick", "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = {row["rule"]: row for row in json.loads(file.read_text())}
    for rule in ("MinIO", "MinIO, packed", "tsnb"):
        assert rows[rule]["kept"] + rows[rule]["misses"] == 60
        assert rows[rule]["kept"] > 15
    assert rows["none"]["cpu_s"] > rows["LRU"]["cpu_s"] > rows["tsnb"]["cpu_s"]
    assert "| 50% | MinIO |" in done.stdout


@pytest.mark.system
@pytest.mark.slow
def test_what_samples_are_when_they_are_packed_is_measured_from_end_to_end() -> None:
    """Photos as float32 take less than half; noise hardly less than it did."""
    command = [sys.executable, "-m", "benchmarks.caching", "--forms", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines()[2:]]
    shares = {cells[1]: int(cells[3].rstrip("%")) for cells in rows}
    assert shares["photo 224x224, float32"] < 50
    assert 90 < shares["noise, float32"] <= 100


@pytest.mark.system
@pytest.mark.slow
def test_what_a_sample_of_another_machine_costs_is_measured_from_end_to_end(tmp_path: Path) -> None:
    """Three ways to samples of two sizes; one that is fetched costs more than one that is kept here."""
    file = tmp_path / "runs.json"
    command = [sys.executable, "-m", "benchmarks.caching", "--cluster", "--quick", "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(file.read_text())
    assert [row["way"] for row in rows] == ["prepared", "kept here", "fetched from another machine"] * 2
    assert [row["size"] // 10_000 for row in rows] == [15] * 3 + [60] * 3
    for _, here, fetched in (rows[:3], rows[3:]):
        assert fetched["cpu_ms"] > here["cpu_ms"]
