"""What is said before anything is measured: about how long it takes, by what was really asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tsnb.planners.strategies import Strategy
from tsnb.planning.waves import about, loader_s, profiled_s, settings_text, waves_s


def test_more_to_measure_is_said_to_take_longer() -> None:
    """Trials, strategies, seconds, workers and the disk: each adds its part."""
    assert loader_s(1.0, 0, cold=False) < loader_s(1.0, 2, cold=False) < loader_s(1.0, 2, cold=True)
    assert loader_s(10.0, 2, cold=True) > 60
    assert profiled_s(1, 1, 1.0) < profiled_s(3, 1, 1.0) < profiled_s(8, 1, 1.0), "each alone for a moment"
    assert profiled_s(3, 4, 1.0) == 4 * profiled_s(3, 1, 1.0)
    assert waves_s(1, 1, 4) < waves_s(4, 1, 4) < waves_s(5, 1, 4) and waves_s(5, 2, 4) == 2 * waves_s(5, 1, 4)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "about 5 s"), (13.1, "about 15 s"), (89.0, "about 90 s"), (170.0, "about 3 min")],
)
def test_a_time_is_no_closer_than_it_is_known(seconds: float, text: str) -> None:
    """To five seconds, then to a minute."""
    assert about(seconds) == text


def test_with_what_trials_are_profiled_is_said_where_there_is_a_choice() -> None:
    """One strategy is none."""
    one, two = Strategy(1, (("threads", 1),)), Strategy(2, (("threads", 2),))
    assert settings_text([one]) == ""
    assert settings_text([one, two]) == ", each with 1 torch thread and with 2 torch threads"


@pytest.mark.slow
@pytest.mark.system
def test_a_command_says_it_beside_its_json(tmp_path: Path) -> None:
    """A program reads the figures alone from stdout."""
    (tmp_path / "mine.py").write_text(
        "import torch, tsnb\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "loader = DataLoader(TensorDataset(torch.arange(400)), 4)\n"
        "def train(epochs=2):\n    for _ in range(epochs):\n        for _ in tsnb.attach():\n            pass\n",
        encoding="utf-8",
    )
    line = ["plan", "mine:loader", "--trial", "mine:train", "--json", "--seconds", "0.2"]
    done = subprocess.run(
        [sys.executable, "-m", "tsnb", *line],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert json.loads(done.stdout)["trials"]
    said = "planning 1 trial: about 5 s for the loader, then about 5 s"
    assert said in done.stderr and "longer if a trial starts" in done.stderr
