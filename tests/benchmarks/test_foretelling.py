"""The benchmark of foretold paces runs from end to end in its smallest form, and its table can be read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.foretelling import SHARES, Row, table, verdict

ROOT = Path(__file__).parents[2]


@pytest.mark.system
@pytest.mark.slow
def test_one_disk_is_foretold_and_measured_from_end_to_end() -> None:
    """Every share of the page cache has its row."""
    command = [sys.executable, "-m", "benchmarks.foretelling", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| many | 1 |")]
    assert [row.split(" | ")[2] for row in rows] == [f"{share:.0%}" for share in SHARES]


def test_off_is_foretold_over_measured_for_both_formulas() -> None:
    """And a figure inside its interval is counted."""
    rows = [
        Row("one", 1, 0.5, 110.0, 95.0, 125.0, 150.0, 100.0),
        Row("one", 1, 1.0, 99.0, 98.5, 99.5, 99.0, 100.0),
    ]
    assert rows[0].off == pytest.approx((0.1, 0.5))
    assert "| one | 1 | 50% | 110 | 95-125 | 100 | +10% | 150 | +50% |" in table(rows)
    assert "most 10%" in verdict(rows) and "1 of 2 within their interval" in verdict(rows)
