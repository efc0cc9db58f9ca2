"""The benchmark of frozen parts, from end to end in its smallest form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.above import WAYS

ROOT = Path(__file__).parents[2]


@pytest.mark.system
@pytest.mark.slow
def test_all_ways_are_measured_and_their_losses_are_the_same(tmp_path: Path) -> None:
    """A head over served features learns what it learns over its own trunk."""
    file = tmp_path / "runs.json"
    command = [sys.executable, "-m", "benchmarks.above", "--quick", "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = {row["way"]: row for row in json.loads(file.read_text())}
    assert tuple(rows) == WAYS
    assert rows["then"]["losses"] == rows["own trunk"]["losses"]
    assert rows["then, cache"]["losses"] == pytest.approx(rows["own trunk"]["losses"], abs=1e-5)
