"""The benchmark of slow samples runs from end to end in its smallest form, and its table can be read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.uneven import Row, Uneven, table, verdict
from benchmarks.uneven_simulated import main as simulated

ROOT = Path(__file__).parents[2]


@pytest.mark.system
@pytest.mark.slow
def test_it_is_measured_from_end_to_end(tmp_path: Path) -> None:
    """All four ways, with the share of a plain loader's waiting."""
    command = [sys.executable, "-m", "benchmarks.uneven", "--quick", "--json", str(tmp_path / "rows.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "of 1 wait a third of a plain loader's time or less" in done.stdout
    assert (tmp_path / "rows.json").exists()


def test_the_table_says_what_was_reached() -> None:
    """A third of a plain loader's waiting, or less."""
    good = Row(4, 8, 12, 3.0, 1.0, 1.5, 0.6, 1.1, 0.4, 0.3)
    bad = Row(2, 8, 6, 2.0, 1.0, 1.0, 1.0, 1.2, 0.4, 0.3)
    assert "0.20" in table([good, bad]) and "0.50" in table([good, bad])
    assert (good.bound, bad.bound) == pytest.approx((0.1, 0.15)), (
        "to hand over what lies ready takes that long"
    )
    assert verdict([good, bad]) == "1 of 2 wait a third of a plain loader's time or less; median 0.35"
    data = Uneven(400, 0.001)
    assert 0.001 < data.mean_s < 0.004


def test_what_another_rule_could_save_is_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    """In a table; the best order that is tried is no worse than the stream's own."""
    assert (
        simulated(["--workers", "2", "--batch", "4", "--orders", "1", "--tries", "2", "--batches", "40"]) == 0
    )
    head, row = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    waits = dict(
        zip([each.strip() for each in head if each], [each.strip() for each in row if each], strict=True)
    )
    assert float(waits["best"][:-2]) <= float(waits["tsnb"][:-2]) < float(waits["plain"][:-2])
