"""The benchmark of starting trials runs from end to end in its smallest form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.system
@pytest.mark.slow
def test_both_ways_to_start_are_measured(tmp_path: Path) -> None:
    """Forked and spawned, with times and memory; forking takes less of both."""
    file = tmp_path / "rows.json"
    words = ["--at-once", "1", "--rounds", "1", f"--json={file}"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.trials", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    forked, spawned = json.loads(file.read_text())["rows"]
    assert (forked["way"], spawned["way"]) == ("forked", "spawned")
    assert 0 < forked["ready_s"] < spawned["ready_s"]
    assert 0 < forked["own_mib"] < spawned["own_mib"] / 2
    assert "of it" in done.stdout
