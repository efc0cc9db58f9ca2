"""What a user gets: the sdist's wheel, alone in an empty environment, runs trials in a notebook and shows the panel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.system, pytest.mark.timeout(1800)]

CELLS = [
    """
%load_ext tsnb
import torch, tsnb
from torch.utils.data import DataLoader, Dataset

class Squares(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        return torch.tensor([float(index) ** 2])

loader = DataLoader(Squares(), 8, num_workers=1)
""",
    "%tensorsocket start loader --name squares",
    """
%%trial roots --wait
seen = []
for batch in tsnb.attach():
    seen += batch[:, 0].sqrt().tolist()
    tsnb.log(root=seen[-1])
print("trial in", tsnb.__file__)
""",
    "print(tsnb.trials['roots']['seen'] == [float(n) for n in range(40)], tsnb.__file__)",
    "%tensorsocket dashboard",
    "%tensorsocket stop squares",
]


def run(*command: str | Path, **more: Any) -> None:
    """Run a command that must succeed."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


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
    install = (
        python,
        "-m",
        "pip",
        "install",
        "--no-compile",
        "--constraint",
        ROOT / "constraints.txt",
        wheel,
    )
    done = subprocess.run([*map(str, install)], capture_output=True, text=True, check=False)
    if done.returncode and os.environ.get("TSNB_INSTALL") != "required":
        pytest.skip(f"what tsnb depends on cannot be installed here (no network?): {done.stderr[-500:]}")
    assert done.returncode == 0, done.stderr
    return python


def test_the_wheel_alone_gives_a_working_notebook(
    clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loader of the notebook's own classes, a trial on it, the panel with its bundle: all from that environment."""
    spec = tmp_path / "kernels/clean/kernel.json"
    spec.parent.mkdir(parents=True)
    argv = [str(clean), "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=ERROR"]
    spec.write_text(json.dumps({"argv": argv, "display_name": "clean", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    notebook = new_notebook(cells=[new_code_cell(cell.strip()) for cell in CELLS])
    client = NotebookClient(
        notebook,
        kernel_name="clean",
        store_widget_state=True,
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    shown = [out for cell in notebook.cells for out in cell.get("outputs", ())]
    # what a trial prints stands in a display of its own where no front end takes it
    said = "".join(out.get("text", "") or out.get("data", {}).get("text/plain", "") for out in shown)
    installed = str(clean.parents[1] / "lib")
    assert f"True {installed}" in said and f"trial in {installed}" in said, said
    state = notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    assert any(len(model["state"].get("_esm", "")) > 10_000 for model in state.values()), "no panel was shown"
    nbformat.validate(notebook)


def test_doctor_finds_the_lone_wheel_well(clean: Path, tmp_path: Path) -> None:
    """The command is there, streams and trials work, and JupyterLab, which is elsewhere, is told of."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(clean.with_name("tsnb")), "doctor"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "JupyterLab is not in this environment" in " ".join(done.stdout.split())
