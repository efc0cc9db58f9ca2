"""A notebook that runs hundreds of trials: what each leaves in it when it has ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tsnb.kernels.cargo.unnamed_file import SMALL_BYTES

ENDED = """
import os, sys, torch, tsnb
from tsnb.experiments.board import KEPT_PROCESSES


def work(number, size):
    kept = bytes(size)
    return number, kept


def descriptors():
    return len(os.listdir("/proc/self/fd"))


if __name__ == "__main__":
    size = int(sys.argv[1])
    counts = []
    for number in range(KEPT_PROCESSES + 9):
        tsnb.run(work, name=f"a{number}", number=number, size=size).wait(200)
        counts.append(descriptors())
    print("descriptors", counts[KEPT_PROCESSES + 3], counts[-1])
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


@pytest.mark.parametrize("size", [10, 2_000_000])
def test_a_trial_with_small_variables_that_has_ended_keeps_no_descriptor_and_none_is_left_open(
    size: int, tmp_path: Path
) -> None:
    """Its variables stay, small or large, and are fetched long after its process has gone."""
    descriptors, results = run(tmp_path, str(size))
    _, before, after = descriptors.split()
    assert before == after or size > SMALL_BYTES  # a large one stays in an unnamed file, open
    assert results == f"results True {{{size}}}"
