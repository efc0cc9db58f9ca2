"""The benchmark of models on a GPU: it refuses without one, and its program runs, in its smallest form, on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so_and_measures_nothing() -> None:
    """In one line, with the reason; no figure comes of it."""
    done = run()
    assert done.returncode == 2
    assert "needs a GPU" in done.stderr and "Nothing was measured" in done.stderr
    assert done.stdout == ""


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.parametrize("data", [(), ("--jpegs",)])
def test_its_program_runs_on_the_cpu(tmp_path: Path, data: tuple[str, ...]) -> None:
    """Producer, trial, window and table: the row has its samples."""
    file = tmp_path / "rows.json"
    words = "--on-cpu --model tiny --n 1 --system tsnb --batch 2 --size 32 --workers 1 --seconds 0.5"
    done = run(*words.split(), *data, f"--json={file}")
    assert done.returncode == 0, done.stderr
    rows = json.loads(file.read_text())["rows"]
    assert [row["system"] for row in rows] == ["tsnb"], done.stdout
    assert all(row["slowest_per_s"] > 0 and row["cpu_s"] > 0 for row in rows)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_it_runs_on_a_gpu(tmp_path: Path) -> None:
    """Every system, with one small row each."""
    file = tmp_path / "rows.json"
    done = run("--model", "tiny", "--n", "2", "--batch", "8", "--seconds", "2", f"--json={file}")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(file.read_text())["rows"]) == 4, done.stdout
