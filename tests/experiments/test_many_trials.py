"""A notebook that runs hundreds of trials: what each leaves in it when it has ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENDED = """
import os, sys, time, torch, tsnb
from tsnb.experiments.overview.board import KEPT_PROCESSES
from tsnb.kernels.cargo import unnamed_file

unnamed_file.MOST_OPEN = 4


def work(number, given):
    return number, given


def descriptors():
    return len(os.listdir("/proc/self/fd"))


if __name__ == "__main__":
    size = int(sys.argv[1])
    counts = []
    for number in range(KEPT_PROCESSES + 9):
        tsnb.run(work, name=f"a{number}", number=number, given=bytes(size)).wait(200)
        counts.append(descriptors())
    deadline = time.monotonic() + 30  # former processes are let go of in the background
    while descriptors() > counts[KEPT_PROCESSES + 3] and time.monotonic() < deadline:
        time.sleep(0.05)
    print("descriptors", counts[KEPT_PROCESSES + 3], descriptors())
    results = [trial.result() for trial in tsnb.trials.own]
    print("results", [number for number, _ in results] == list(range(len(results))), {len(kept) for _, kept in results})
"""


def run(folder: Path, *arguments: str) -> list[str]:
    script = folder / "script.py"
    script.write_text(ENDED)
    ran = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", str(script), *arguments],
        cwd=folder,
        env={**os.environ, "TSNB_PROJECT_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "ResourceWarning" not in ran.stderr, ran.stderr
    return [line for line in ran.stdout.splitlines() if not line.startswith("[")]


@pytest.mark.slow
@pytest.mark.parametrize("size", [10, 2_000_000])
def test_a_trial_that_has_ended_keeps_no_descriptor_and_none_is_left_open(size: int, tmp_path: Path) -> None:
    """What it was given and what it has made stay, small or large, and are fetched long after its process has gone."""
    descriptors, results = run(tmp_path, str(size))
    _, before, after = descriptors.split()
    assert int(after) <= int(before)
    assert results == f"results True {{{size}}}"
