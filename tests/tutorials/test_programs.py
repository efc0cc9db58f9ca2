"""Twelve programs in the shape of well-known tutorials, as they stand and on a served loader: the same numbers.

Each `programs/NAME.py` runs as it is; `programs/NAME_served.py` differs in three lines at most. Of that one two trials
with different learning rates run side by side on one stream, started by `programs/start.py` or by a notebook.
docs/migration-examples.md shows the lines.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.house.notebooks import command_of

PROGRAMS = Path(__file__).parent / "programs"
MOST_LINES = 3
TIMEOUT_S = 540
"""Less than the stall timeout of a stream: whoever waits for that long is killed, and fails its test."""

LAST_BITS = 1e-5
"""Of numbers: a sum's last bits depend on where in memory a batch begins. Batches are compared by their hash."""


@dataclass(frozen=True)
class Program:
    """What a program must come to."""

    title: str
    """As the page's table has it."""
    rates: tuple[float, float]
    samples: int
    """That a trial gets, all of its epochs and consumers together."""
    metrics: frozenset[str]
    epochs: int = 3
    streams: dict[str, str] = field(default_factory=lambda: {"batches": "make_loader"})
    """Names of the streams, and the functions that make their loaders."""
    notebook: bool = False
    """Whether a notebook starts it, in which its functions and classes are defined."""


LOSS = frozenset({"loss"})
BOTH = frozenset({"loss", "accuracy"})
TABLE = {
    "image_classifier": Program("Image classifier", (0.1, 0.025), 4500, BOTH, notebook=True),
    "detector": Program("Detector", (0.01, 0.0025), 270, LOSS),
    "char_lm": Program("Character language model", (0.01, 0.0025), 1920, LOSS, epochs=0, notebook=True),
    "gan": Program(
        "GAN",
        (0.002, 0.0005),
        4 * 2 * 160,  # zip leaves the longer loader before its end
        frozenset({"discriminator", "generator"}),
        epochs=4,
        streams={"photos": "make_photos", "paintings": "make_paintings"},
    ),
    "lightning_module": Program(
        "Lightning",
        (0.1, 0.025),
        3 * 600 + 2 * 16,  # and two batches of the sanity check
        frozenset({"train_loss", "val_loss", "val_accuracy"}),
    ),
    "text_classifier": Program(
        "Hugging Face Trainer", (0.003, 0.00075), 720, frozenset({"loss", "eval_accuracy"})
    ),
    "learner": Program("fastai-like learner", (0.5, 0.125), 1920, LOSS, notebook=True),
    "accelerated": Program("accelerate", (0.01, 0.0025), 1890, LOSS),
    "skorch_net": Program("skorch", (0.1, 0.025), 1920, frozenset({"train_loss"})),
    "ignite_engine": Program("ignite", (0.05, 0.0125), 1920, BOTH),
    "graphs": Program("PyTorch Geometric", (0.01, 0.0025), 360, BOTH),
    "regression": Program("Script without a main guard", (0.05, 0.0125), 600, LOSS, notebook=True),
}


def source(name: str) -> list[str]:
    """Return a program's lines."""
    return (PROGRAMS / f"{name}.py").read_text(encoding="utf-8").splitlines()


def changed(name: str, served: str = "") -> int:
    """Return how many lines of a program are replaced, added or removed where it reads from a stream."""
    there = source(served or f"{name}_served")
    steps = difflib.SequenceMatcher(None, source(name), there, autojunk=False).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for step, i1, i2, j1, j2 in steps if step != "equal")


@pytest.mark.parametrize("name", TABLE)
def test_at_most_three_lines_of_it_change(name: str) -> None:
    """Counted; and one of them attaches."""
    assert 2 <= changed(name) <= MOST_LINES
    assert any("tsnb.attach(" in line for line in source(f"{name}_served"))


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(3 * TIMEOUT_S)
@pytest.mark.parametrize("name", TABLE)
def test_it_computes_the_same_on_a_served_loader(name: str, tmp_path: Path) -> None:
    """The same batches bit for bit, the same numbers, epochs and metrics in the results, and no idle wait."""
    program = TABLE[name]
    shutil.copytree(PROGRAMS, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    plain = run_plain(name, program, tmp_path)
    served = (
        run_notebook(name, program, tmp_path) if program.notebook else run_script(name, program, tmp_path)
    )
    assert served == up_to_last_bits(plain)
    rows = json.loads(run(tmp_path, "-m", "tsnb", "results", "--json"))
    assert {row["lr"] for row in rows} == set(program.rates)
    for row in rows:
        assert row["state"] == "done"
        assert {metric: row.get(metric) for metric in program.metrics if row.get(metric) is None} == {}
        assert (row["epochs"], row["samples"]) == (program.epochs, program.samples)


@pytest.mark.slow
@pytest.mark.system
def test_a_script_without_a_main_guard_serves_its_own_loader(tmp_path: Path) -> None:
    """Its workers and its loop are in one process, and it ends by itself."""
    shutil.copytree(PROGRAMS, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    plain, alone = (numbers(run(tmp_path, f"{name}.py")) for name in ("regression", "regression_alone"))
    assert alone == up_to_last_bits(plain)
    assert changed("regression", "regression_alone") <= MOST_LINES


def run(folder: Path, *words: str) -> str:
    """Run Python as a user would in that folder, and return what it printed."""
    environment = {
        **os.environ,
        "TSNB_PROJECT_DIR": str(folder),
        "TSNB_RUNTIME_DIR": str(folder / "run"),
        "OMP_NUM_THREADS": "1",  # as a trial has it: sums of several threads have other last bits
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    print(done.stdout, done.stderr, sep="\n")
    assert done.returncode == 0, done.stderr
    return done.stdout


def numbers(said: str) -> dict[float, Any]:
    """Return what a program printed at its end, by learning rate."""
    found = [json.loads(line) for line in re.findall(r'\{"lr": .*\}', said)]
    return {line["lr"]: line for line in found}


def up_to_last_bits(found: dict[float, Any]) -> dict[float, Any]:
    """Return what equals these numbers: hashes and counts exactly."""
    return {
        rate: {
            name: pytest.approx(value, rel=LAST_BITS) if isinstance(value, float) else value
            for name, value in line.items()
        }
        for rate, line in found.items()
    }


def run_plain(name: str, program: Program, folder: Path) -> dict[float, Any]:
    """Run the program as it stands."""
    if "--lr" in (PROGRAMS / f"{name}.py").read_text(encoding="utf-8"):
        return numbers("".join(run(folder, f"{name}.py", "--lr", str(rate)) for rate in program.rates))
    return numbers(run(folder, f"{name}.py"))


def run_script(name: str, program: Program, folder: Path) -> dict[float, Any]:
    """Serve its loader from a script, which runs its function as two trials."""
    streams = [f"{stream}={maker}" for stream, maker in program.streams.items()]
    return numbers(run(folder, "start.py", f"{name}_served", json.dumps(program.rates), *streams))


def run_notebook(name: str, program: Program, folder: Path) -> dict[float, Any]:
    """Define it in a notebook, serve its loader there, and train it in two trials of a cell."""
    text = "\n".join(source(f"{name}_served"))
    defined, _, main = text.partition('if __name__ == "__main__":')
    cell, said = "numbers = train(lr)", 'json.dumps({"lr": trial.params["lr"], **trial["numbers"]})'
    make = "loader = make_loader()"
    if not main:  # it runs as it is imported, so a trial runs it
        defined, cell, said = (
            "from curves import Curves",
            f"%run {name}_served.py --lr {{lr}}",
            "trial.logs()",
        )
        make = "from torch.utils.data import DataLoader\nloader = DataLoader(Curves(), 16, num_workers=2)"
    cells = [
        defined,
        f"import json\nimport tsnb\n%load_ext tsnb\n{make}",
        "%tensorsocket start loader --name batches --stall-timeout 900",
        f'%%sweep "{name}-lr{{lr}}" --grid lr={",".join(map(str, program.rates))}\n{cell}',
        f"for trial in tsnb.trials.values():\n    trial.wait()\n    print({said})",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbformat.write(notebook, folder / "in.ipynb")
    run(folder, *command_of("nbclient")[1:])
    last = nbformat.read(folder / "out.ipynb", as_version=4).cells[-1]
    return numbers("".join(output.get("text", "") for output in last.outputs))
