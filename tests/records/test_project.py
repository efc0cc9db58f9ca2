"""Where records lie."""

from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path

import pytest

from tests.records.recorded import begun, row
from tsnb.config import runtime_directory
from tsnb.errors import TsnbError
from tsnb.records import project as projects
from tsnb.records.project import project_directory, project_name


@pytest.fixture(autouse=True)
def anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in an empty directory, with nothing chosen."""
    monkeypatch.delenv("TSNB_PROJECT_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_records_lie_beside_the_notebook_and_out_of_the_repository(anywhere: Path) -> None:
    """Git sees nothing of them; readers make nothing."""
    subprocess.run(["git", "init", "-q"], check=True)
    assert project_directory(make=False) == anywhere / ".tsnb"
    assert not (anywhere / ".tsnb").exists()
    begun("cnn")
    assert (anywhere / ".tsnb" / "records.sqlite").exists()
    status = subprocess.run(["git", "status", "--short", "-uall"], check=True, capture_output=True, text=True)
    assert status.stdout == ""
    assert project_name(project_directory()) == anywhere.name


def test_a_directory_below_belongs_to_the_project(anywhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest records above are found, as git finds its repository."""
    made = project_directory()
    below = anywhere / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert project_directory() == made
    (anywhere / "a" / ".tsnb").mkdir()
    assert project_directory() == anywhere / "a" / ".tsnb"


def test_a_chosen_directory_wins(anywhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made where it is not there yet."""
    project_directory()
    monkeypatch.setenv("TSNB_PROJECT_DIR", "elsewhere/deep")
    assert project_directory() == anywhere / "elsewhere" / "deep" / ".tsnb"
    assert (anywhere / "elsewhere" / "deep" / ".tsnb" / ".gitignore").read_text() == "*\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a directory somebody else's")
def test_somebody_elses_records_above_are_left_alone(anywhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a shared directory anybody could put some, and read what they get."""
    planted = anywhere / ".tsnb"
    planted.mkdir()
    os.chown(planted, 12345, 12345)
    below = anywhere / "mine"
    below.mkdir()
    monkeypatch.chdir(below)
    assert project_directory() == below / ".tsnb"


def test_where_nothing_can_be_written_the_records_go_to_the_user(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Trials are recorded all the same, in a directory for that project, and one warning says where."""
    monkeypatch.chdir("/proc/self")
    monkeypatch.setattr(projects, "_told", set())
    run = begun("cnn")
    run.add_rows([row(0, loss=1.0)])
    assert run.directory.is_relative_to(runtime_directory() / "projects")
    assert len(run.rows()[0]) == 1
    assert project_directory() == project_directory(make=False) == run.directory
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "Set TSNB_PROJECT_DIR" in caplog.records[0].message


def test_a_chosen_directory_that_cannot_be_written_is_told_and_stops_no_trial(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Elsewhere would not be what was asked for."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", "/proc/self/records")
    with pytest.raises(TsnbError, match="Set TSNB_PROJECT_DIR to a directory that you can write to"):
        project_directory()
    run = begun("cnn")
    run.add_rows([row(0, loss=1.0)])
    run.end("done")
    assert run.id == 0
    assert run.log_path.parent.is_dir(), "what it prints has a place all the same"
    assert len(caplog.records) == 1
    assert "Set TSNB_PROJECT_DIR" in caplog.records[0].message


def test_a_deleted_current_directory_stops_no_trial(
    anywhere: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The notebook's folder was moved away, say."""
    gone = anywhere / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert begun("cnn").id == 0
    assert len(caplog.records) == 1
