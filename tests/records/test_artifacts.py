"""Files that a trial keeps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import tsnb
from tests.records.recorded import begun
from tsnb.errors import TsnbError
from tsnb.experiments.in_kernel.artifacts import enter_run
from tsnb.records.run import Run


@pytest.fixture
def run(project: Path) -> Iterator[Run]:
    """Make this process a trial."""
    run = begun("cnn")
    enter_run(run)
    yield run
    enter_run(None)


def test_a_file_is_kept_as_it_was(run: Run, tmp_path: Path) -> None:
    """What the loop writes later does not change it, until it is logged again."""
    net = tmp_path / "net.pt"
    net.write_text("one")
    kept = tsnb.log_artifact(net)
    net.write_text("two")
    assert kept == run.artifacts_path / "net.pt"
    assert kept.read_text() == "one"
    assert tsnb.log_artifact(str(net)).read_text() == "two"
    assert tsnb.log_artifact(net, "epochs/1/net.pt") == run.artifacts_path / "epochs" / "1" / "net.pt"


def test_a_folder_is_kept_whole(run: Run, tmp_path: Path) -> None:
    """Also the folder that the records lie in; a second one takes its place."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("a")
    kept = tsnb.log_artifact(tmp_path, "all")
    assert (kept / "sub" / "a.txt").read_text() == "a"
    assert not (kept / ".tsnb").exists()
    (tmp_path / "sub" / "a.txt").unlink()
    (tmp_path / "b.txt").write_text("b")
    kept = tsnb.log_artifact(tmp_path, "all")
    assert sorted(os.listdir(kept)) == ["b.txt", "sub"]
    assert os.listdir(kept / "sub") == []
    assert os.listdir(run.artifacts_path) == ["all"], "nothing half copied stays"


@pytest.mark.parametrize("name", ["../net.pt", "/tmp/net.pt", "", "a/../../net.pt"])
def test_no_name_leads_out_of_the_trials_folder(run: Run, tmp_path: Path, name: str) -> None:
    """A name from anywhere cannot overwrite a file elsewhere."""
    (tmp_path / "net.pt").write_text("one")
    with pytest.raises(ValueError, match="Pass a relative name"):
        tsnb.log_artifact(tmp_path / "net.pt", name)


def test_a_file_that_is_not_there_is_an_error(run: Run, tmp_path: Path) -> None:
    """It is a mistake in the loop, not a matter of the disk."""
    with pytest.raises(FileNotFoundError, match="rite the file before"):
        tsnb.log_artifact(tmp_path / "net.pt")


def test_a_disk_that_takes_no_artifact_costs_a_warning(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Training goes on."""
    (tmp_path / "net.pt").write_text("one")
    run.artifacts_path.parent.write_text("a file where the folder would be")
    tsnb.log_artifact(tmp_path / "net.pt")
    assert len(caplog.records) == 1


def test_outside_a_trial_it_says_so() -> None:
    """The error says where it belongs."""
    with pytest.raises(TsnbError, match="in a %%trial cell or in a function"):
        tsnb.log_artifact(__file__)
