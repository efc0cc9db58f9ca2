"""The benchmark of stalls runs from end to end in its smallest form, and its table can be read."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.stalls import Row, main, table, verdict

ROOT = Path(__file__).parents[2]


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_one_case_is_foretold_and_measured_from_end_to_end(tmp_path: Path) -> None:
    """Two trials, with a loader each and on one; all figures are there."""
    file = tmp_path / "rows.json"
    command = [sys.executable, "-m", "benchmarks.stalls", "--quick", "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [Row(**{**row, "spread": tuple(row["spread"])}) for row in json.loads(file.read_text())["rows"]]
    assert [(row.case, row.trials) for row in rows] == [("digits", 2)]
    row = rows[0]
    assert min(row.separate_foretold, row.separate_measured, row.shared_foretold, row.shared_measured) > 0
    assert row.limit in {"model", "loader", "cores"}
    assert "One trial waits" in done.stderr or "The model is the limit" in done.stderr
    assert table(rows) in done.stdout and verdict(rows) in done.stdout


def test_off_is_measured_over_foretold_and_each_figure_counts() -> None:
    """Three figures a row; those beyond the aim are counted, in either direction."""
    paces = (100.0, 110.0, 200.0, 150.0, 2.0, 1.5)
    row = Row("digits", 2, *paces, "cores", 0.0, (0.05, 0.3, 0.1))
    assert row.off == pytest.approx((0.1, -0.25, -0.25))
    assert verdict([row]) == (
        "1 of 3 figures within 15%, 1 of the other 2 within their own spread; median 25% off, most 25%. "
        "The measured figures' own spread: median 10%, most 30%"
    )
    line = "| digits | 2 | 100 | 110 ±5% | +10% | 200 | 150 ±30% | -25% | cores | 2.00 | 1.50 ±10% | -25% | 0.0 |"
    assert line in table([row])


def test_what_was_kept_is_shown_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cases that were measured one by one make one table."""
    rows = [Row(name, 1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, "model", 0.0) for name in ("digits", "pixels")]
    files = [tmp_path / f"{row.case}.json" for row in rows]
    for row, file in zip(rows, files, strict=True):
        file.write_text(json.dumps({"rows": [asdict(row)]}))
    assert main(["--read", *map(str, files)]) == 0
    assert table(rows) in capsys.readouterr().out
