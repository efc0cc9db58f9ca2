"""The guides on trials: the script of run-a-function.md runs, and what run-a-cell.md names is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tsnb.experiments import Trial
from tsnb.experiments.trial import TRIAL_STATES
from tsnb.notebook.grammar import TRIAL, TRIALS, options_of

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "run-a-cell.md").read_text(encoding="utf-8")
FUNCTION = (DOCS / "run-a-function.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.system
def test_its_script_runs(tmp_path: Path) -> None:
    """The Python block that is marked so, as a plain script."""
    (block,) = re.findall(r"test_trials_page.py -->\n```python\n(.*?)```", FUNCTION, flags=re.DOTALL)
    (tmp_path / "train.py").write_text(block)
    env = {**os.environ, "PYTHONPATH": os.getcwd(), "TSNB_PROJECT_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "[{'lr': 0.1, 'seed': 1}, {'lr': 0.01, 'seed': 1}]" in done.stdout
    assert "train-lr0.05 {'lr': 0.05, 'seed': 1}" in done.stdout


def test_what_it_names_is_there() -> None:
    """Every option of the magic, state and attribute on the page exists, and every option stands on it."""
    named = set(re.findall(r"`(--[a-z-]+)", PAGE))
    known = set(options_of(TRIAL))
    assert named - {"--json"} <= known  # that is the commands'
    sweeping = {
        "--grid",
        "--space",
        "--n",
        "--at-once",
        "--halving",
        "--every",
        "--keep",
        "--race",
        "--error",
        "--population",
        "--share",
        "--mode",
        "--plan",
        "--choose",
        "--rotate",
        "--deadline",
    }
    dueling = {"--against", "--metric", "--min-delta", "--equal", "--series", "--seeds", "--budget"}
    assert known - sweeping - dueling <= set(re.findall(r"--[a-z-]+", PAGE))
    said = re.search(r"A trial is ([\w ,]+)\. After its end it is ([\w ,]+)\.", " ".join(PAGE.split()))
    assert said and tuple(re.split(r", | or ", f"{said[1]}, {said[2]}")) == TRIAL_STATES
    of_a_row = re.findall(r"^\| (`\..*?) \|", PAGE, flags=re.MULTILINE)
    attributes = {name for row in of_a_row for name in re.findall(r"`\.(\w+)", row)}
    made_at_start = {"metrics", "log_path", "params", "options", "number", "report"}
    assert {name for name in attributes if not hasattr(Trial, name)} <= made_at_start
    commands = PAGE.partition("The commands are ")[2].partition(".")[0]
    assert set(re.findall(r"`(\w+)`", commands)) == set(TRIALS) - {"list", "clear"}
