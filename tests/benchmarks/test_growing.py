"""The benchmark of data that grows takes every way once, and begins the rounds that it times."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("PIL")

from benchmarks.growing import WAYS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(300)
def test_each_way_has_a_rate_beside_that_of_the_sequence_and_each_round_a_delay(tmp_path: Path) -> None:
    """Of photos and of tiny rows, in one run."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.growing", "--quick", "--rate", "--trigger"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for kind in ("JPEG of 500 x 375", "rows of four numbers"):
        for way in WAYS:
            assert re.search(rf"{kind} +{way} +[\d,]+ samples/s +[\d.]+%", done.stdout), done.stdout
    assert re.search(r"20 files: .* 2 rounds", done.stdout), done.stdout
