"""Tags find runs again."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import tsnb
from tests.records.recorded import begun, trained
from tsnb.records import database
from tsnb.records.selection import NoSuchRecord


def test_a_tag_belongs_to_one_run_and_finds_it_again(project: Path) -> None:
    """The next run of the name has none; several tags are one cell of the table, and none is nothing."""
    trained("cnn", [3.0])
    assert tsnb.records.tag("cnn", "baseline", "paper") == ["cnn-1"]
    assert tsnb.records.tag("cnn", "paper") == ["cnn-1"]
    trained("cnn", [1.0])
    trained("mlp", [2.0])
    assert tsnb.results(all_runs=True)["tags"].fillna("").tolist() == ["baseline, paper", "", ""]
    assert tsnb.results(tag="baseline")[["name", "run"]].values.tolist() == [["cnn", 1]], "a former run, too"
    assert tsnb.records.tag("cnn", "baseline", run=1, remove=True) == ["cnn-1"]
    assert tsnb.results("cnn", all_runs=True)["tags"].fillna("").tolist() == ["paper", ""]
    with pytest.raises(NoSuchRecord, match=r"No trial has the tag 'papper'\. Did you mean 'paper'"):
        tsnb.results(tag="papper")
    with pytest.raises(NoSuchRecord, match="No trial has the tag 'paper'"):
        tsnb.results("mlp", tag="paper")


def test_a_sweep_and_a_running_trial_can_be_tagged(project: Path) -> None:
    """A running trial's tag stays when it ends."""
    trained("w-1", [1.0], sweep="w")
    live = begun("w-2", sweep="w")
    assert tsnb.records.tag("w", "wide") == ["w-1-1", "w-2-1"]
    live.end("done")
    assert list(tsnb.results(tag="wide")["state"]) == ["done", "done"]


@pytest.mark.parametrize("tags", [(), ("",), ("a,b",), ("a\x1b[2J",), (3,)])
def test_what_is_not_a_tag_is_refused(project: Path, tags: tuple[str, ...]) -> None:
    """None, an empty one, one with a comma, control characters, numbers."""
    trained("cnn", [3.0])
    with pytest.raises(ValueError, match=r"tag"):
        tsnb.records.tag("cnn", *tags)


def test_records_from_before_there_were_tags_are_brought_up(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their runs stay as they were."""
    with monkeypatch.context() as before:
        before.setattr(database, "MIGRATIONS", database.MIGRATIONS[:1])
        project.mkdir(mode=0o700)
        with database.writing(project, make=True) as connection:
            connection.execute(
                "INSERT INTO runs (key, name, number, state, source, params, options, sweep, origin, started_s, "
                "heard_s, host, boot, namespace, pid, pid_started) VALUES "
                "('k', 'old', 1, 'done', '', '{}', '{}', '', '', 1, 1, '', '', '', 1, 1)"
            )
        database._close_all()
        database._writers.clear()
    assert tsnb.records.tag("old", "kept") == ["old-1"]
    assert tsnb.results()[["name", "tags", "git"]].values.tolist() == [["old", "kept", None]]
    with sqlite3.connect(project / database.FILE) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == len(database.MIGRATIONS)
