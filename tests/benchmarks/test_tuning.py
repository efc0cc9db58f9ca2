"""The benchmark of `workers="auto"` runs from end to end in its smallest form, and its table can be read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.tuning import Row, table, verdict

ROOT = Path(__file__).parents[2]


@pytest.mark.system
@pytest.mark.slow
def test_a_pipeline_is_measured_from_end_to_end() -> None:
    """Fixed numbers, without workers, auto: with the digest of one worker's stream, within the budget."""
    words = ["--pipelines", "tiny", "--seconds", "0.3", "--most", "2"]
    command = [sys.executable, "-m", "benchmarks.tuning", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "1 within the budget, 1 with the same digest" in done.stdout
    assert "PyTorch's default" in done.stdout and ", 2 run)" in done.stdout


def test_the_table_says_what_was_reached() -> None:
    """Of the best of the grid, of the budget, and against PyTorch's default."""
    good = Row(
        "leaking",
        {1: 50.0, 2: 100.0},
        40.0,
        2,
        2,
        2,
        2,
        98.0,
        5,
        21.0,
        2.0**20,
        2.0**21,
        400,
        True,
        0.97,
        20.0,
        15_320,
    )
    bad = Row(
        "read", {1: 50.0, 2: 100.0}, 40.0, 2, 1, 1, 2, 50.0, 12, None, 2.0**22, 2.0**21, 400, grain_rule=1
    )
    text = table([good, bad])
    assert "100.0 (2)" in text and "98%" in text and "1 of 2 MiB" in text and "OTHER" in text
    said = verdict([good, bad])
    assert said.startswith(
        "of 2: 1 at 95 % of the best, 1 in 8 probes or 30 s, 1 within the budget, 1 with the same"
    )
    # against the plain DataLoader, and not the stream without workers
    assert "leaking: 4.90 times a plain DataLoader without workers, PyTorch's default" in said
    assert "1 of 1 at 95 %" in said
    # what grain's rule gives, and what of it was run
    assert "100.0 (15,320, 2 run)" in text and "50.0 (1)" in text and "PyTorch's default" in text
