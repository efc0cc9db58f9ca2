"""A folder of its own for each trial, and a word where two that run side by side write to one file."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

import tsnb
from tsnb.experiments import Trial, run_cell
from tsnb.records.run import Run

pytestmark = pytest.mark.system

BESIDE = """
import pathlib, time, torch, tsnb
here = tsnb.folder() if own else pathlib.Path()
text = pathlib.Path("data.txt").read_text()
torch.save({"who": who}, here / "best.pt")
(here / "log.json").write_text(who)
with open("shared.log", "a") as log: log.write(who)
pathlib.Path(f"done-{who}").touch()
deadline = time.monotonic() + 60
while not (pathlib.Path("done-a").exists() and pathlib.Path("done-b").exists()): time.sleep(0.01)
while not own and not pathlib.Path("go").exists() and time.monotonic() < deadline: time.sleep(0.01)
best = torch.load(here / "best.pt")["who"]
folder = str(tsnb.folder())
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.txt").write_text("data")


def two(page: Any, *, own: bool, cell: str = BESIDE) -> list[Trial]:
    return [run_cell(who, cell, {"who": who, "own": own}, outlet=page) for who in ("a", "b")]


def test_each_trial_has_a_folder_of_its_own(page: Any, tmp_path: Path) -> None:
    """What it saves as the best is its own; data are read by relative paths; the files are the run's artifacts."""
    a, b = (trial.wait(120) for trial in two(page, own=True))
    assert (a["best"], b["best"]) == ("a", "b")
    assert a["text"] == b["text"] == "data"
    assert "note: trials" not in page.text
    run = Run.find("a")
    assert run is not None
    assert Path(a["folder"]) == run.artifacts_path
    assert {file.name for file in run.artifacts_path.iterdir()} == {"best.pt", "log.json"}
    for folder in (run.artifacts_path, run.artifacts_path.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert tsnb.folder() == Path.cwd() == tmp_path


def test_two_that_write_one_file_are_told(page: Any, until: Any, tmp_path: Path) -> None:
    """By torch's own writer and by Python's; each file once; not of a file that both append to."""
    trials = two(page, own=False)
    until(lambda: page.text.count("run at the same time and both write best.pt") >= 2, 60)
    (tmp_path / "go").touch()
    for trial in trials:
        trial.wait(120)
    assert "tsnb.folder() / 'best.pt'" in page.text
    assert page.text.count("note: trials") <= 4
    assert "shared.log" not in page.text
    page.shown.clear()
    run_cell("c", BESIDE, {"who": "a", "own": False}, outlet=page).wait(120)
    assert "note: trials" not in page.text, "the others have ended"
