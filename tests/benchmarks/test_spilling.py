"""The benchmark of spilling runs from end to end in its smallest form, and its table can be read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.system
@pytest.mark.slow
def test_both_ways_are_measured_from_end_to_end(tmp_path: Path) -> None:
    """In memory and spilled, with the same losses, which the program itself insists on."""
    file = tmp_path / "runs.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.spilling",
        "--quick",
        "--directory",
        str(ROOT),
        "--json",
        str(file),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    plain, cached = json.loads(file.read_text())
    assert (plain["way"], cached["way"]) == ("plain", "cached")
    assert plain["losses"] == cached["losses"]
    assert len(plain["losses"]) == 4
    assert "| cached | as it likes |" in done.stdout
