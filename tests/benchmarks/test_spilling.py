"""The benchmark of spilling runs from end to end in its smallest form, and its table can be read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

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


def on_gpu(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.spilling", "--gpu", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so_and_measures_nothing() -> None:
    """In one line; no figure comes of it."""
    done = on_gpu()
    assert done.returncode == 2
    assert "needs a GPU" in done.stderr and "Nothing was measured" in done.stderr
    assert done.stdout == ""


@pytest.mark.system
@pytest.mark.slow
def test_two_trials_are_measured_one_after_the_other_and_at_once(tmp_path: Path) -> None:
    """On the CPU, to see that it runs: four rows, the same losses."""
    file = tmp_path / "runs.json"
    words = "--on-cpu --layers 8 --width 128 --batch 8 --steps 2"
    done = on_gpu(*words.split(), f"--json={file}")
    assert done.returncode == 0, done.stderr
    rows = json.loads(file.read_text())
    assert [row["way"] for row in rows] == ["plain", "spilled", "one after the other", "at once"]
    assert [len(row["losses"]) for row in rows] == [2, 2, 4, 4]
    assert "x of one after the other |" in done.stdout


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_two_spilled_trials_at_once_do_half_as_much_again_on_a_gpu(tmp_path: Path) -> None:
    """At least 1.5 times the steps a second of one after the other."""
    file = tmp_path / "runs.json"
    done = on_gpu(f"--json={file}")
    assert done.returncode == 0, done.stderr
    seconds = {row["way"]: row["seconds"] for row in json.loads(file.read_text())}
    assert seconds["one after the other"] >= 1.5 * seconds["at once"], done.stdout
