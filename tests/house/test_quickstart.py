"""The quickstart notebook, as a person would run it: every cell in order, in a fresh kernel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.house.notebooks import assert_it_introduces

ROOT = Path(__file__).parents[2]


def test_it_introduces_before_it_runs() -> None:
    """It begins with words, explains as it goes, and its last cell checks the claims."""
    assert_it_introduces("01_quickstart.ipynb")


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(1800)
def test_the_quickstart_runs_and_its_claims_hold(tmp_path: Path) -> None:
    """What `make demo` runs ends well, prints the comparison, and leaves the panel's state in the executed notebook.

    As on Binder: in 2 GB with JupyterLab beside it, where a control group can be made, else without that limit.
    """
    executed = tmp_path / "executed.ipynb"
    command = [sys.executable, str(ROOT / "binder" / "check.py"), "--save", str(executed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every claim held" in done.stdout
    for word in ("mlp", "small-cnn", "wide-cnn", "samples/s", "CPU seconds of all processes"):
        assert word in done.stdout
    assert "MiB were used at a time" in done.stdout or "ran without a memory limit" in done.stdout
    notebook = nbformat.read(executed, as_version=4)
    assert "application/vnd.jupyter.widget-state+json" in notebook.metadata.get("widgets", {})
