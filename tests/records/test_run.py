"""A run as its processes write it, and as others read it."""

from __future__ import annotations

import json
import math
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.records.recorded import begun, forked, killed, row, succeeded, trained
from tsnb.records import database
from tsnb.records.reading import WITHOUT_A_WORD, read_runs
from tsnb.records.run import Run, RunStart


def state_of(run: Run) -> str:
    record = run.read()
    assert record is not None
    return record.state


def test_a_run_is_written_by_two_processes_and_read_by_a_third(project: Path) -> None:
    """The launching process enters it, the trial's process lives it, any other reads all of it."""
    run = Run.begin(RunStart("cnn", "print(1)", {"lr": 0.1}, {"device": "cpu"}, "s1", "a.ipynb", 3))
    assert state_of(run) == "queued"
    run.state("starting")
    assert state_of(run) == "starting"

    def live() -> None:
        own = Run.of(json.loads(json.dumps(run.as_settings())))
        own.process(os.getpid(), {"torch": "2.13"})
        own.add_rows([row(0, loss=1.0), row(1, loss=0.5)])
        own.report({"stream": "mnist", "samples": 16})
        own.report({"epochs": 2})
        own.end("done", duration_s=3.0)

    pid = forked(live)
    assert succeeded([pid])
    found = Run.find("cnn")
    assert found is not None
    record = found.read()
    assert record is not None
    assert (record.name, record.number, record.state, record.source) == ("cnn", 1, "done", "print(1)")
    assert (record.params, record.options) == ({"lr": 0.1}, {"device": "cpu"})
    assert (record.sweep, record.origin, record.seed) == ("s1", "a.ipynb", 3)
    assert (record.duration_s, record.owner.pid, record.versions) == (3.0, pid, {"torch": "2.13"})
    assert record.report == {"stream": "mnist", "samples": 16, "epochs": 2}
    assert record.running_s is not None
    assert record.metrics["loss"].last == 0.5
    rows, position = found.rows()
    assert rows == [row(0, loss=1.0), row(1, loss=0.5)]
    assert found.rows(position) == ([], position)


def test_a_handle_travels_as_text_and_as_pickle(project: Path) -> None:
    """What travels is plain: its settings survive repr, and name the same run and files."""
    run = begun("cnn", lr=0.1, bad=math.nan)
    for copy in (pickle.loads(pickle.dumps(run)), Run.of(eval(repr(run.as_settings())))):
        assert (copy.id, copy.label, copy.log_path) == (run.id, run.label, run.log_path)
        assert copy.params["lr"] == 0.1
        copy.add_rows([row(len(run.rows()[0]), loss=1.0)])
    assert [r.step for r in run.rows()[0]] == [0, 1]
    assert run.log_path == project / "logs" / "cnn-1.log"
    assert run.log_path.parent.is_dir()


def test_a_handle_crosses_to_a_fresh_interpreter(project: Path) -> None:
    """A spawned kernel gets the settings in the text of an order."""
    run = begun("cnn")
    program = (
        "from tsnb.records.run import Run\nfrom tsnb.records.writes import LoggedRow\n"
        f"run = Run.of({run.as_settings()!r})\n"
        "run.add_rows([LoggedRow(7, None, None, 0, 1.0, {'loss': 0.5})])\nrun.end('done')"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert run.rows()[0][0].step == 7
    assert state_of(run) == "done"


def test_runs_of_a_name_are_numbered_without_gap_or_double(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many processes begin one at once, and make the file's tables while others look at them."""
    version_of = database._version

    def slowly(connection: sqlite3.Connection, path: Path) -> int:
        version = version_of(connection, path)
        time.sleep(os.getpid() % 6 * 0.02 if version == 0 else 0.0)
        return version

    monkeypatch.setattr(database, "_version", slowly)

    def begin() -> None:
        for _ in range(5):
            Run.begin(RunStart("cnn", "")).end("done")

    assert succeeded([forked(begin) for _ in range(6)])
    runs = read_runs(project, all_runs=True)
    assert sorted(run.number for run in runs) == list(range(1, 31))
    assert [run.number for run in read_runs(project)] == [30], (
        "the last of each name, unless all are asked for"
    )
    first = Run.find("cnn", 1)
    assert first is not None
    assert first.number == 1
    assert Run.find("cnn", 31) is None


def test_the_first_end_counts(project: Path) -> None:
    """A process that has said how it ended is not lost when it exits, whoever says so later."""
    run = begun("cnn")
    run.end("failed", "ValueError: no\n\ntraceback")
    run.end("crashed", "killed")
    run.state("running")
    record = run.read()
    assert record is not None
    assert (record.state, record.failure) == ("failed", "ValueError: no\n\ntraceback")
    assert 0 <= record.duration_s < 60


def test_a_run_whose_process_was_killed_is_lost(project: Path) -> None:
    """Without anybody who noticed: the reader looks. What it had logged is there."""
    run = Run.begin(RunStart("cnn", ""))
    logged, tell = os.pipe()

    def live() -> None:
        run.process(os.getpid(), {})
        run.add_rows([row(0, loss=1.0)])
        os.write(tell, b".")
        signal.pause()

    pid = forked(live)
    os.read(logged, 1)
    assert state_of(run) == "running"
    killed(pid)
    record = run.read()
    assert record is not None
    assert (record.state, record.failure) == ("crashed", WITHOUT_A_WORD)
    assert record.metrics["loss"].last == 1.0
    run.end("crashed", "killed by signal 9")
    record = run.read()
    assert record is not None
    assert record.failure == "killed by signal 9", "who knows counts for more than who supposes"


def test_a_run_supposed_lost_that_goes_on_is_running_again(project: Path) -> None:
    """A reader in the wrong place (its clock, its namespace) does not end a run."""
    run = Run.begin(RunStart("cnn", ""))
    pid = forked(lambda: run.process(os.getpid(), {}))
    os.waitpid(pid, 0)
    assert state_of(run) == "crashed"
    run.process(os.getpid(), {})
    run.add_rows([row(0, loss=1.0)])
    assert state_of(run) == "running"
    run.end("done")
    assert state_of(run) == "done"


def test_a_run_that_was_queued_by_a_dead_process_is_lost(project: Path) -> None:
    """Nobody will start it."""
    pid = forked(lambda: Run.begin(RunStart("cnn", "")))
    os.waitpid(pid, 0)
    assert [run.state for run in read_runs(project)] == ["crashed"]


def test_numbers_come_back_as_they_were_logged(project: Path) -> None:
    """So do nan and inf; the summary skips what cannot be compared."""
    run = begun("cnn")
    run.add_rows([row(0, loss=math.nan), row(1, loss=math.inf), row(2, loss=0.1 + 0.2, top=1.0)])
    run.add_rows([row(3, None, loss=math.nan)])
    rows, _ = run.rows()
    assert [r.numbers.get("loss") for r in rows][1:3] == [math.inf, 0.1 + 0.2]
    assert math.isnan(rows[0].numbers["loss"])
    assert rows[2].numbers["top"] == 1.0
    assert rows[3].epoch is None
    record = run.read()
    assert record is not None
    loss = record.metrics["loss"]
    assert math.isnan(loss.last)
    assert (loss.lowest, loss.highest, loss.count) == (0.1 + 0.2, math.inf, 4)


class Sulky:
    """A parameter that does not even have a repr."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_any_parameter_can_be_written_down(project: Path) -> None:
    """What JSON has no word for is its repr; numpy's and torch's numbers are numbers."""
    import numpy as np
    import torch

    circular: list[object] = []
    circular.append(circular)
    run = begun(
        "cnn", lr=np.float32(0.5), n=torch.tensor(3), where=Path("a/b"), kind=int, layers=(1, 2), sulky=Sulky(),
        circular=circular, big="x" * 2000, large=np.zeros(100_000), wild={(1, 2): 3},
    )  # fmt: skip
    params = run.params
    assert (params["lr"], params["n"], params["where"], params["layers"]) == (0.5, 3, "a/b", [1, 2])
    assert params["kind"] == "<class 'int'>"
    assert params["sulky"] == "<Sulky>"
    assert params["wild"] == "{(1, 2): 3}"
    assert len(params["large"]) < 1000
    record = run.read()
    assert record is not None
    assert record.params == params


def test_a_process_forked_while_records_are_open_writes_for_itself(project: Path) -> None:
    """Neither the child nor its parent loses or spoils anything: SQLite forbids a connection in both."""
    mine, its = begun("mine"), begun("its")
    mine.add_rows([row(0, loss=0.0)])

    def write() -> None:
        for step in range(1, 50):
            its.add_rows([row(step, loss=1.0)])
        its.end("done")

    pid = forked(write)
    for step in range(1, 50):
        mine.add_rows([row(step, loss=2.0)])
    assert succeeded([pid])
    assert len(its.rows()[0]) == 49
    assert len(mine.rows()[0]) == 50


def test_a_run_of_nowhere_is_none(project: Path) -> None:
    """Looking makes nothing: neither a file nor a directory."""
    assert Run.find("cnn") is None
    assert read_runs(project) == []
    assert not project.exists()


def test_a_handle_says_what_it_is_of(project: Path) -> None:
    """A handle shows its name, its number and its project."""
    run = trained("cnn", [1.0])
    assert repr(run) == f"<Run 'cnn-1' in {project}>"


@pytest.mark.parametrize("state", ["done", "failed", "stopped", "crashed"])
def test_every_end_stays(project: Path, state: str) -> None:
    """An ended run's process has usually gone: that changes nothing."""
    run = Run.begin(RunStart("cnn", ""))

    def live() -> None:
        run.process(os.getpid(), {})
        run.end(state)

    assert succeeded([forked(live)])
    record = run.read()
    assert record is not None
    assert (record.state, record.failure) == (state, "")
