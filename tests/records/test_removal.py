"""Runs can be deleted, with all that lies on the disk of them, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

import tsnb
from tests.records.recorded import begun, trained
from tsnb.errors import TsnbError
from tsnb.records.database import reading
from tsnb.records.run import Run
from tsnb.records.selection import NoSuchRecord, _remove_files


def with_files(name: str, **how: str) -> Run:
    """Record a run with a log, an artifact and TensorBoard files."""
    run = trained(name, [1.0, 2.0], **how)  # type: ignore[arg-type]
    run.log_path.write_text(f"printed by {run.label}")
    for folder in ("artifacts", "tensorboard"):
        place = run.directory / folder / run.label
        place.mkdir(parents=True)
        (place / "file").write_text("x")
    return run


def files_of(directory: Path) -> set[str]:
    """Return the runs that anything lies on the disk of."""
    return {
        path.stem
        for folder in ("logs", "artifacts", "tensorboard")
        for path in (directory / folder).iterdir()
    }


def rows_in(directory: Path) -> dict[str, int]:
    """Return how many rows each table has."""
    with reading(directory) as connection:
        assert connection is not None
        tables = ("runs", "logged", "metrics", "numbers")
        return {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}


def test_a_deleted_run_leaves_nothing_and_takes_nothing_with_it(project: Path) -> None:
    """Numbers, log, artifacts, TensorBoard files; other runs of the name and other trials stay whole."""
    first, second, other = with_files("cnn"), with_files("cnn"), with_files("cnn-1")
    assert tsnb.records.delete("cnn", run=1) == ["cnn-1"]
    assert first.read() is None
    assert files_of(project) == {second.label, other.label}
    assert rows_in(project) == {"runs": 2, "logged": 4, "metrics": 2, "numbers": 4}
    assert list(tsnb.records.history("loss")["value"]) == [1.0, 2.0, 1.0, 2.0]
    assert tsnb.records.delete(other) == ["cnn-1-1"], "a handle or a trial stands for its own run"
    assert tsnb.records.delete("cnn") == ["cnn-2"], "a name with one run needs no more words"
    assert files_of(project) == set()
    assert rows_in(project) == {"runs": 0, "logged": 0, "metrics": 0, "numbers": 0}


def test_what_is_deleted_has_to_be_said_in_full(project: Path) -> None:
    """Nothing is guessed: of several runs, which; of nothing, what. A typo deletes nothing."""
    for _ in range(2):
        trained("cnn", [1.0], sweep="widths")
    trained("mlp", [1.0], sweep="widths")
    with pytest.raises(
        TsnbError, match=r"'cnn' has several runs.*Pass one \(run=1, run=2\), or all_runs=True"
    ):
        tsnb.records.delete("cnn")
    with pytest.raises(TsnbError, match="'cnn' has several runs"):
        tsnb.records.delete("widths")
    with pytest.raises(ValueError, match=r"tsnb.records.delete\('cnn', run=2\)"):
        tsnb.records.delete()
    with pytest.raises(ValueError, match="needs a trial or a tag"):
        tsnb.records.delete(all_runs=True)
    with pytest.raises(NoSuchRecord, match=r"'cnn' has no run 3.*Its runs: 1, 2"):
        tsnb.records.delete("cnn", run=3)
    with pytest.raises(NoSuchRecord, match="Did you mean 'cnn'"):
        tsnb.records.delete("cmn")
    assert len(tsnb.results(all_runs=True)) == 3
    assert tsnb.records.delete("widths", all_runs=True) == ["cnn-1", "cnn-2", "mlp-1"]


def test_all_with_a_tag_are_deleted_former_runs_too(project: Path) -> None:
    """And no run without it."""
    junk, _ = trained("cnn", [1.0]), trained("cnn", [2.0])
    trained("mlp", [1.0])
    assert tsnb.records.tag(junk, "junk") == ["cnn-1"]
    assert tsnb.records.tag("mlp", "junk") == ["mlp-1"]
    assert tsnb.records.delete(tag="junk") == ["cnn-1", "mlp-1"]
    assert list(tsnb.results(all_runs=True)["run"]) == [2]


def test_a_run_that_has_not_ended_is_never_deleted(project: Path) -> None:
    """Nor are those that were to go with it."""
    with_files("done", sweep="s")
    live = begun("live", sweep="s")
    with pytest.raises(
        TsnbError, match=r"live-1 has not ended\. Nothing was deleted.*trials\['live'\].stop\(\)"
    ):
        tsnb.records.delete("s")
    assert files_of(project) == {"done-1"}
    live.end("stopped")
    assert tsnb.records.delete("s") == ["done-1", "live-1"]


def test_nothing_outside_the_records_is_deleted(project: Path, tmp_path: Path) -> None:
    """A link where files of the run would lie, and a name that leads elsewhere (a file that somebody sent)."""
    run = with_files("cnn")
    mine = tmp_path / "mine"
    (mine / "cnn-1").mkdir(parents=True)
    artifacts = project / "artifacts"
    artifacts.rename(tmp_path / "away")
    artifacts.symlink_to(mine)
    assert tsnb.records.delete(run) == ["cnn-1"]
    assert (mine / "cnn-1").is_dir()
    _remove_files(project, "../../mine/cnn-1")
    trained("../../mine/cnn", [1.0])
    with pytest.raises(TsnbError, match=r"a value that tsnb never writes: '\.\./\.\./mine/cnn'"):
        tsnb.records.delete("../../mine/cnn")
    assert (mine / "cnn-1").is_dir()
