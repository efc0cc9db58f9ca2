"""What a user gets: the sdist's wheel, alone in an empty environment, runs trials in a notebook and shows the panel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.elsewhere import ROOT, SERVED, has_panel, install, run, run_notebook, said_in

pytestmark = [pytest.mark.slow, pytest.mark.system, pytest.mark.timeout(1800)]

CELLS = [
    *SERVED,
    "print(tsnb.trials['roots']['seen'] == [float(n) for n in range(40)], tsnb.__file__)",
    "%tensorsocket dashboard",
    "%tensorsocket stop squares",
]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel in it, built from the sdist, and nothing else."""
    folder = tmp_path_factory.mktemp("clean")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    sdist = next(folder.glob("*.tar.gz"))
    pip = (sys.executable, "-m", "pip")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, sdist)
    run(sys.executable, "-m", "venv", folder / "env")
    python, wheel = folder / "env/bin/python", next(folder.glob("*.whl"))
    install(python, "-m", "pip", "install", "--no-compile", "--constraint", ROOT / "constraints.txt", wheel)
    return python


def test_the_wheel_alone_gives_a_working_notebook(
    clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loader of the notebook's own classes, a trial on it, the panel with its bundle: all from that environment."""
    notebook = run_notebook(clean, CELLS, tmp_path, monkeypatch)
    said = said_in(notebook)
    installed = str(clean.parents[1] / "lib")
    assert f"True {installed}" in said and f"trial in {installed}" in said, said
    assert has_panel(notebook), "no panel was shown"


def test_doctor_finds_the_lone_wheel_well(clean: Path, tmp_path: Path) -> None:
    """The command is there, streams and trials work, and JupyterLab, which is elsewhere, is told of."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(clean.with_name("tsnb")), "doctor"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "JupyterLab is not in this environment" in " ".join(done.stdout.split())
