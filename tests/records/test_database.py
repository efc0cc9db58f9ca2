"""The project's file under many writers, kills, full disks and strangers. Real processes throughout."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import tempfile
import time
from functools import partial
from pathlib import Path

import pytest

import tsnb
from tests.records.recorded import begun, forked, killed, row, succeeded
from tsnb.errors import TsnbError
from tsnb.machine.owners import Owner, has_gone, owner
from tsnb.records import database
from tsnb.records import run as run_module
from tsnb.records.database import FILE, reading
from tsnb.records.reading import history_of, read_runs, rows_since
from tsnb.records.run import Run, RunStart
from tsnb.records.writes import LoggedRow

WRITERS = 20


def check(project: Path) -> None:
    """Fail if the file is damaged, or a logged row has no run or no numbers."""
    with reading(project) as connection:
        assert connection is not None
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        widows = "SELECT count(*) FROM numbers WHERE logged NOT IN (SELECT id FROM logged)"
        assert connection.execute(widows).fetchone() == (0,)


def test_twenty_writers_at_once_lose_nothing(project: Path) -> None:
    """Each a process of its own, all starting on a new project, writing as fast as they can, while one reads."""

    def train(number: int) -> None:
        run = Run.begin(RunStart(f"trial-{number}", "", params={"n": number}))
        run.process(os.getpid(), {})
        for batch in range(25):
            run.add_rows([row(batch * 4 + place, loss=float(batch * 4 + place)) for place in range(4)])
        run.report({"samples": 800})
        run.end("done")

    pids = [forked(lambda n=n: train(n)) for n in range(WRITERS)]  # type: ignore[misc]
    seen = 0
    while len([run for run in read_runs(project) if run.state == "done"]) < WRITERS and seen < 1000:
        seen += 1
        time.sleep(0.02)
    assert succeeded(pids)
    check(project)
    runs = read_runs(project, all_runs=True)
    assert sorted(run.params["n"] for run in runs) == list(range(WRITERS))
    for run in runs:
        assert (run.state, run.report, run.metrics["loss"].count) == ("done", {"samples": 800}, 100)
        assert run.metrics["loss"].highest == 99.0


def test_a_writer_killed_at_any_moment_leaves_whole_batches(project: Path) -> None:
    """What was written is there, in order, each batch all or not at all; the others write on at once."""
    survivor = begun("survivor")
    draw = random.Random(4)
    runs = []
    for number in range(12):
        run = begun(f"victim-{number}")
        written, tell = os.pipe()

        def write(run: Run = run, tell: int = tell) -> None:
            for batch in range(100_000):
                run.add_rows([row(batch * 10 + place, loss=1.0) for place in range(10)])
                os.write(tell, b".") if batch == 0 else None

        pid = forked(write)
        os.read(written, 1)
        time.sleep(draw.uniform(0, 0.03))  # any moment will do
        killed(pid)
        os.close(written)
        os.close(tell)
        survivor.add_rows([row(number, loss=2.0)])
        runs.append(run)
    check(project)
    assert len(survivor.rows()[0]) == 12
    for run in runs:
        steps = [logged.step for logged in run.rows()[0]]
        assert len(steps) >= 10
        assert steps == list(range(len(steps) // 10 * 10))


def test_a_stopped_writer_holds_up_nobody_for_good(
    project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A locked file is one warning; the rows wait in memory and come with the next ones."""
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    monkeypatch.setattr(run_module, "RETRY_S", 0.0)
    run = begun("cnn")
    run.add_rows([row(0, loss=0.0)])
    holding, tell = os.pipe()

    def hold() -> None:
        connection = sqlite3.connect(project / FILE, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        os.write(tell, b".")
        signal.pause()

    pid = forked(hold)
    os.read(holding, 1)
    run = Run.of(run.as_settings())
    database._close_all()  # so that the shorter wait counts
    with caplog.at_level(logging.WARNING, "tsnb"):
        run.add_rows([row(1, loss=1.0)])
        run.add_rows([row(2, loss=2.0)])
    warned = [record.message for record in caplog.records if "locked" in record.message]
    assert warned != [] and "Find the program that holds" in warned[0]
    assert len(caplog.records) == 1
    assert run.rows()[0] == [row(0, loss=0.0)], "readers read meanwhile"
    killed(pid)
    run.add_rows([row(3, loss=3.0)])
    assert [logged.step for logged in run.rows()[0]] == [0, 1, 2, 3]


def test_a_full_disk_costs_a_warning_and_nothing_else(project: Path) -> None:
    """Training goes on; what did not fit is written when there is room again."""
    run = begun("cnn")

    def write() -> None:
        warnings: list[str] = []
        listener = logging.Handler()
        listener.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("tsnb").addHandler(listener)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
        for step in range(0, 20_000, 100):
            run.add_rows([row(step + place, loss=1.0) for place in range(100)])
        assert len(warnings) == 1, warnings
        assert "TSNB_PROJECT_DIR" in warnings[0] and "`ulimit -f`, 195.3 KiB per file" in warnings[0]
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        run.end("done")

    assert succeeded([forked(write)])
    check(project)
    assert [logged.step for logged in run.rows()[0]] == list(range(20_000))


def test_a_row_that_cannot_be_kept_takes_no_other_with_it(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A step beyond 64 bits is refused once, not for ever."""
    run = begun("cnn")
    run.add_rows([LoggedRow(2**70, 0, 0, 0, 1.0, {"loss": 1.0})])
    run.add_rows([row(1, loss=1.0)])
    assert [logged.step for logged in run.rows()[0]] == [1]
    assert len(caplog.records) == 1


def test_records_deleted_under_a_live_run_stay_deleted(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The next run starts a new file; what the former one still logs does not get mixed up with it."""
    run = begun("cnn")
    run.add_rows([row(0, loss=1.0)])
    shutil.rmtree(project)
    run.add_rows([row(1, loss=1.0)])
    assert not project.exists()
    other = begun("cnn")
    assert (other.id, other.number) == (run.id, 1)
    other.add_rows([row(0, loss=5.0)])
    run.add_rows([row(2, loss=1.0)])
    run.end("failed")
    assert other.rows()[0] == [row(0, loss=5.0)]
    assert [found.state for found in read_runs(project, all_runs=True)] == ["running"]
    assert len(caplog.records) == 1


def test_a_file_of_a_newer_tsnb_is_left_alone(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Readers are told what to do, trials run unrecorded, and the file stays as it was."""
    begun("cnn").end("done")
    database._close_all()
    with sqlite3.connect(project / FILE) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = (project / FILE).read_bytes()
    with pytest.raises(TsnbError, match=r"newer tsnb \(their version is 99.*Install the same version"):
        read_runs(project)
    run = begun("cnn")
    run.add_rows([row(0, loss=1.0)])
    run.end("done")
    assert (run.id, run.number) == (0, 1)
    assert "newer tsnb" in caplog.records[0].message
    assert (project / FILE).read_bytes() == before


def test_a_damaged_file_is_told_and_stops_no_trial(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is no database is left for a person to look at."""
    project.mkdir()
    (project / FILE).write_bytes(b"no database at all " * 100)
    with pytest.raises(TsnbError, match="move it away"):
        read_runs(project)
    run = begun("cnn")
    run.end("done")
    assert run.id == 0
    (warning,) = caplog.records
    assert "move it away" in warning.message
    assert "space" not in warning.message, "there is enough"


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
SENT = {
    "a view in place of a table": (
        "ALTER TABLE runs RENAME TO r",
        f"CREATE VIEW runs AS SELECT *, ({ENDLESS}) FROM r",
    ),
    "a view of metrics": ("DROP TABLE metrics", f"CREATE VIEW metrics AS {ENDLESS}"),
    "a trigger": (f"CREATE TRIGGER t BEFORE INSERT ON runs BEGIN SELECT ({ENDLESS}); END",),
    "a trigger of logged": (f"CREATE TRIGGER t AFTER INSERT ON logged BEGIN SELECT ({ENDLESS}); END",),
    "a trigger of updates": (f"CREATE TRIGGER t AFTER UPDATE ON RUNS BEGIN SELECT ({ENDLESS}); END",),
    "an index of what takes memory": ("CREATE INDEX x ON runs (length(hex(zeroblob(400000000))))",),
    "a condition": ("ALTER TABLE runs ADD COLUMN more CHECK (length(hex(zeroblob(400000000))) > 1)",),
    "a column that is computed": ("ALTER TABLE runs ADD COLUMN more AS (hex(zeroblob(400000000)))",),
    "a table too few": ("DROP TABLE numbers",),
    "a version too low": ("PRAGMA user_version = 2",),
    "a negative version": ("PRAGMA user_version = -1",),
    "an index too few": ("DROP INDEX logged_by_run",),
}


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("what", SENT)
def test_a_file_that_somebody_sent_runs_nothing_and_is_one_error(
    project: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """Views, triggers, conditions that never end or take all memory: results say so, and a trial goes on."""
    begun("cnn")
    database._close_all()
    with contextlib.closing(sqlite3.connect(project / FILE)) as connection:
        for statement in SENT[what]:
            connection.execute(statement)
        connection.commit()
    with pytest.raises(
        TsnbError, match=r"cannot read the project's records in .*(its tables are not|no version)"
    ):
        read_runs(project)
    run = Run.begin(RunStart("cnn", ""))
    run.add_rows([row(0, loss=1.0)])
    run.end("done")
    assert not run.id and f"{project}: it" in caplog.text and "move it away" in caplog.text


@pytest.mark.parametrize("what", ["a column", "its use in a key", "a comment"])
def test_a_schema_whose_text_is_no_utf_8_is_one_error(
    project: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """Python's module for SQLite raises a bare UnicodeDecodeError for it, also where it decodes an error's text."""
    begun("cnn")
    database._close_all()
    if what != "a comment":
        before, column, between, key, after = re.split(
            b"(?<=CREATE TABLE numbers)(.*?metric)(.*?)(metric)",
            (project / FILE).read_bytes(),
            flags=re.DOTALL,
        )
        if what == "a column":
            column = column.replace(b"metric", b"\xffetric")
        else:
            key = b"\xffetric"
        (project / FILE).write_bytes(before + column + between + key + after)
    else:
        with contextlib.closing(sqlite3.connect(project / FILE)) as connection:
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute(
                "UPDATE sqlite_master SET sql = replace(sql, 'name TEXT', '/*' || cast(x'ff' AS TEXT) || "
                "'*/ name TEXT') WHERE name = 'runs'"
            )
            connection.commit()
    with pytest.raises(
        TsnbError, match=f"cannot read the project's records in {project / FILE}.*move it away"
    ):
        read_runs(project)
    for read in (tsnb.results, partial(tsnb.records.history, "cnn")):
        with pytest.raises(TsnbError, match=f"{FILE}.*move it away"):
            read()
    run = Run.begin(RunStart("cnn", ""))
    run.end("done")
    assert not run.id and "move it away" in caplog.text and "space" not in caplog.text


def test_rows_that_multiply_are_given_up(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand metrics of a run with a thousand rows, and no number: a small file would take days to read."""
    run = begun("cnn")
    database._close_all()
    with contextlib.closing(sqlite3.connect(project / FILE)) as connection:
        rows = [(run.id, number) for number in range(1000)]
        connection.executemany("INSERT INTO logged (run, step, samples, time_s) VALUES (?, ?, 0, 0)", rows)
        connection.executemany("INSERT INTO metrics (run, name) VALUES (?, ?)", rows)
        connection.commit()
    monkeypatch.setattr(database, "LOOKS", 2)
    with pytest.raises(TsnbError, match=r"in .*: it takes too many steps"):
        rows_since(project, run.id, 0)


def test_tables_and_views_of_ones_own_beside_the_records_stay(project: Path) -> None:
    """A file of SQLite is for looking into: what tsnb never uses does no harm."""
    run = begun("cnn")
    database._close_all()
    with contextlib.closing(sqlite3.connect(project / FILE)) as connection:
        connection.execute("CREATE VIEW best AS SELECT name, highest FROM metrics")
        connection.execute("CREATE TABLE notes (run, text)")
        connection.commit()
    run.add_rows([row(0, loss=1.0)])
    assert read_runs(project)[0].metrics["loss"].last == 1.0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_value_of_any_type_in_any_column_is_read_or_is_one_error(project: Path) -> None:
    """SQLite keeps text in a column of integers. Whatever is read can be shown, printed and reported."""
    run = begun("cnn", params={"lr": 0.1})
    run.add_rows([row(0, loss=1.0)])
    run.end("done")
    database._close_all()
    values = (
        "'text'", "x'00ff'", "9223372036854775807", "-1", "9e999", "-9e999", "''", "'[1]'", "'null'",
        "'{\"a\": [1]}'", f"'{'[' * 100000}'", "cast(x'ff' as text)", "1.5", "'[[1, 2]]'",
        "'[[1, 2, 3, 4, 5, 6]]'",
    )  # fmt: skip
    whole = (project / FILE).read_bytes()
    told, read = [], 0
    with contextlib.closing(sqlite3.connect(":memory:")) as memory:
        for statement in (each for version in database.MIGRATIONS for each in version):
            memory.execute(statement)
        columns = [
            (table, column[1])
            for table in ("runs", "logged", "metrics", "numbers")
            for column in memory.execute(f"PRAGMA table_info({table})")
        ]
    for (table, column), value in itertools.product(columns, values):
        database._close_all()
        (project / FILE).write_bytes(whole)
        with contextlib.closing(sqlite3.connect(project / FILE)) as connection:
            try:
                connection.execute(f"UPDATE {table} SET {column} = {value}")
            except sqlite3.Error:  # it has to be an integer, or is wanted elsewhere
                continue
            connection.commit()
        try:
            table_of_runs = tsnb.results()
            str(table_of_runs), table_of_runs._repr_html_()
            for record in read_runs(project):
                rows_since(project, record.id, 0)
                history_of(project, record.id)
            read += 1
        except TsnbError as error:
            told.append(str(error))
    assert all(len(each) < 1000 and each.isprintable() for each in told)
    assert len(told) > 100 and read > 100


@pytest.mark.parametrize("remote", [False, True])
def test_readers_read_while_others_write_where_the_file_system_can(
    project: Path, monkeypatch: pytest.MonkeyPatch, remote: bool
) -> None:
    """On a file system of several machines the write-ahead log would lose numbers: SQLite's own journal there."""
    if remote:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        everything = frozenset(line.partition(" - ")[2].split()[0] for line in mounts)
        monkeypatch.setattr(database, "REMOTE", everything)
    run = begun("cnn")
    run.add_rows([row(0, loss=1.0)])
    with reading(project) as connection:
        assert connection is not None
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete" if remote else "wal",)
    assert len(run.rows()[0]) == 1


@pytest.mark.parametrize("live", [False, True])
def test_somebody_elses_records_can_be_read(monkeypatch: pytest.MonkeyPatch, live: bool) -> None:
    """In a directory where the reader may not write, while its owner's trials run and when none does."""
    with tempfile.TemporaryDirectory() as place:  # not below pytest's own, which nobody else may enter
        monkeypatch.setenv("TSNB_PROJECT_DIR", place)
        run = begun("cnn")
        run.add_rows([row(0, loss=1.0)])
        for path in (Path(place) / ".tsnb").glob(f"{FILE}*"):
            assert path.stat().st_mode & 0o777 == 0o600, "its owner has to open it first"
            path.chmod(0o644)
        for path in (Path(place), Path(place) / ".tsnb"):
            path.chmod(0o555)

        ready, tell = os.pipe()

        def read() -> None:
            os.read(ready, 1)
            if os.getuid() == 0:
                os.setuid(65534)
            (record,) = read_runs(Path(place) / ".tsnb")
            assert record.metrics["loss"].last == 1.0
            assert len(rows_since(Path(place) / ".tsnb", record.id)[0]) == 1 + live

        reader = forked(read)
        if live:
            run.add_rows([row(1, other=1.0)])
            assert (Path(place) / ".tsnb" / f"{FILE}-wal").exists()
        os.write(tell, b".")
        assert succeeded([reader])
        for path in (Path(place), Path(place) / ".tsnb"):
            path.chmod(0o755)


def test_only_a_process_of_this_place_can_be_known_as_gone() -> None:
    """Numbers are used again, and mean nothing on another machine, after a reboot or in another container."""
    own = owner(os.getpid())
    assert not has_gone(own)
    assert has_gone(own._replace(started=own.started + 1)), "a later process with the same number"
    assert has_gone(own._replace(boot="another")), "the machine was started again"
    pid = forked(lambda: None)
    os.waitpid(pid, 0)
    gone = Owner(own.host, own.boot, own.namespace, pid, 1)
    assert has_gone(gone)
    assert not has_gone(gone._replace(host="elsewhere"))
    assert not has_gone(gone._replace(namespace="pid:[1]"))


def test_a_process_that_nobody_waited_for_has_gone_all_the_same() -> None:
    """A killed child of a busy notebook stays in the process table for a while."""
    release, tell = os.pipe()
    pid = forked(lambda: os.read(release, 1))
    its = owner(pid)
    assert not has_gone(its)
    os.write(tell, b".")
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert has_gone(its)
    os.waitpid(pid, 0)
