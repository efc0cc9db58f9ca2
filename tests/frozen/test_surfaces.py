"""`--then` where a stream is started without Python: in a notebook's magic, and in a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from IPython.core.error import UsageError

import tsnb

pytestmark = pytest.mark.system

MADE = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
points = torch.arange(24.0).reshape(12, 2)
loader = DataLoader(TensorDataset(points, torch.arange(12)), batch_size=4)
trunk = nn.Linear(2, 3).eval().requires_grad_(False)
nn.init.ones_(trunk.weight), nn.init.zeros_(trunk.bias)
"""


@pytest.fixture
def made(shell: Any) -> Any:
    """Return a shell that has a loader and a network."""
    run(shell, MADE)
    return shell


def run(shell: Any, cell: str) -> Any:
    done = shell.run_cell(cell)
    done.raise_error()
    return done.result


def batches(stream: str, **options: Any) -> list[list[torch.Tensor]]:
    return [[part.clone() for part in batch] for batch in tsnb.attach("a", stream, **options)]


def features(weight: float = 1.0) -> torch.Tensor:
    """Return what a network of equal weights makes of the points."""
    return weight * torch.arange(24.0).reshape(12, 2).sum(1, keepdim=True).expand(-1, 3)


@pytest.mark.slow
def test_a_notebook_serves_its_variable_and_a_reload_takes_its_new_weights(made: Any) -> None:
    run(made, "%tensorsocket start loader --name frozen --then trunk --inputs --seed 0")
    served = batches("frozen")
    assert torch.equal(torch.cat([found for found, _ in served]), features())
    points, found, _ = batches("frozen", inputs=True)[0]
    assert torch.equal(found, points.sum(1, keepdim=True).expand(-1, 3))
    run(made, "_ = nn.init.constant_(trunk.weight, 2.0)")
    run(made, "%tensorsocket reload frozen")
    assert torch.equal(torch.cat([found for found, _ in batches("frozen")]), features(2.0))


@pytest.mark.slow
def test_a_cell_that_builds_the_loader_builds_the_network_too(made: Any) -> None:
    run(made, f"%%tensorsocket start --name built --then trunk --seed 0\n{MADE}")
    assert torch.equal(torch.cat([found for found, _ in batches("built")]), features())


def test_a_variable_that_is_not_there_is_named(made: Any) -> None:
    with pytest.raises(UsageError, match="--then names the variable 'trunc', which does not exist"):
        run(made, "%tensorsocket start loader --name frozen --then trunc")
    assert not [stream for stream in tsnb.streams.list() if stream.name == "frozen"]


@pytest.mark.slow
def test_a_terminal_serves_what_a_module_names(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(MADE)
    command = [
        sys.executable,
        "-m",
        "tsnb",
        "serve",
        "made:loader",
        "--name",
        "typed",
        "--then",
        "made:trunk",
    ]
    serving = subprocess.Popen(
        [*command, "--seed", "0"], cwd=tmp_path, env={**os.environ}, stdout=subprocess.PIPE, text=True
    )
    with serving:
        try:
            assert serving.stdout is not None
            assert "serving 'typed'" in serving.stdout.readline()
            assert torch.equal(torch.cat([found for found, _ in batches("typed")]), features())
        finally:
            serving.terminate()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("named", "said"),
    [("made:points", "then= must be a function or a torch.nn.Module"), ("made:trunc", "trunc")],
)
def test_a_terminal_refuses_what_cannot_be_computed(tmp_path: Path, named: str, said: str) -> None:
    (tmp_path / "made.py").write_text(MADE)
    refused = subprocess.run(
        [sys.executable, "-m", "tsnb", "serve", "made:loader", "--name", "typed", "--then", named],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.slow
def test_a_terminal_warns_without_a_line_of_its_own_code_and_names_what_a_function_raises(
    tmp_path: Path,
) -> None:
    broken = "trunk.requires_grad_()\ndef bad(batch):\n    raise ValueError('boom')\n"
    broken += "def wants(batch):\n    trunk(batch[0])\n    return bad(batch)\n"
    (tmp_path / "made.py").write_text(MADE + broken)
    failed = subprocess.run(
        [sys.executable, "-m", "tsnb", "serve", "made:loader", "--name", "typed", "--then", "made:wants"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert failed.returncode == 1
    lines = failed.stderr.splitlines()
    assert lines[0].startswith("warning: The parameters of then= have requires_grad=True")
    assert lines[1].startswith(
        "tsnb serve: Your then= function raised ValueError at batch 0 of pass 1: boom."
    )
    assert "streams.py" not in failed.stderr
    assert [line.split('"')[1] for line in lines if line.startswith("  File")] == [
        str(tmp_path / "made.py")
    ] * 2
