"""The soak's short form: the same program, twenty-five seconds of it in each of its modes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", [[], ["--kept"], ["--growing"]], ids=["plain", "kept", "growing"])
def test_a_short_soak_loses_nothing(mode: list[str], tmp_path: Path) -> None:
    """Three consumers, a fault every second and a half, the producer's restarts among them."""
    command = [
        sys.executable,
        "-m",
        "tests.soak",
        "--minutes",
        "0.4",
        "--consumers",
        "3",
        "--every",
        "1.5",
        *mode,
    ]
    done = subprocess.run(
        [*command, "--report", str(tmp_path / "soak.md")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "**passed**" in (tmp_path / "soak.md").read_text()
