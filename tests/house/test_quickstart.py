"""The quickstart notebook, run as a person would: every cell in order, in a fresh kernel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

import tsnb
from tests.house.notebooks import assert_a_person_can_read_it

ROOT = Path(__file__).parents[2]


def test_a_person_can_read_it() -> None:
    """It asks a question, explains as it goes, has short cells, and ends with links."""
    assert_a_person_can_read_it("01_quickstart.ipynb")


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(1800)
def test_the_quickstart_runs_and_sharing_saves_cpu_time(tmp_path: Path) -> None:
    """`make demo` prints the comparison, and the executed notebook contains the state of the panel.

    It runs as on Binder: in 2 GB and next to JupyterLab. Where no control group can be made, it runs without the limit.
    """
    executed = tmp_path / "executed.ipynb"
    command = [sys.executable, str(ROOT / "binder" / "check.py"), "--save", str(executed)]
    environment = {**os.environ, "TSNB_PROJECT_DIR": str(tmp_path)}  # no trials of other tests in its results
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    said = done.stdout
    assert done.returncode == 0, said + done.stderr
    assert "All cells ran" in said
    for word in ("mlp", "small-cnn", "wide-cnn", "samples/s"):
        assert word in said
    accuracy = re.search(r"^small-cnn +([\d.]+)", said, re.MULTILINE)
    assert accuracy and float(accuracy[1]) > 0.93, said
    cpu_s = re.search(r"CPU seconds of all processes: (\d+) shared, (\d+) separate", said)
    assert cpu_s and int(cpu_s[1]) < int(cpu_s[2]), said
    assert "Peak memory: " in said or "ran without a memory limit" in said

    notebook = nbformat.read(executed, as_version=4)
    assert "application/vnd.jupyter.widget-state+json" in notebook.metadata.get("widgets", {})
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    shown = [str(output.get("data", {}).get("text/plain", "")) for output in outputs]
    assert any("189 batches prepared once, taken 567 times" in text for text in shown), "3 epochs, 3 trials"
    assert any(len(re.findall(r"^\d +12000 ", text, re.MULTILINE)) == 3 for text in shown), (
        "4,000 samples per epoch"
    )
    assert "digits" not in [entry.name for entry in tsnb.streams.list()]
