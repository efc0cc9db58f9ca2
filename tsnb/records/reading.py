"""Runs as they stand in the project's file: one record a run, with its last numbers, and what it logged.

A reader that finds a run's process gone calls the run crashed, in the file too, for readers on other machines. That is
only supposed: what the run itself still writes counts for more.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tsnb.config import is_name
from tsnb.errors import TsnbError
from tsnb.machine.owners import Owner, has_gone
from tsnb.records.database import reading, writing
from tsnb.records.writes import LiveChange, LoggedRow, Parent
from tsnb.text.printable import block, encodable, one_line

__all__ = [
    "ENDED",
    "WITHOUT_A_WORD",
    "MetricRecord",
    "PeakRecord",
    "RunRecord",
    "history_of",
    "largest_before",
    "read_runs",
    "rows_since",
]

ENDED = ("done", "failed", "stopped", "interrupted", "pruned", "crashed")
"""States that a run does not leave."""

WITHOUT_A_WORD = "its process ended without a message"

LOOKED_AT = 20
"""So many of a trial's last runs are looked at for one that was done."""

LAST_S = 1e11
"""Seconds since 1970 that no clock tells, by far."""

_Row = TypeVar("_Row")

_NOT_ENDED = f"(state NOT IN {ENDED})"
_LATEST = "number = (SELECT max(number) FROM runs AS later WHERE later.name = runs.name AND later.origin = runs.origin)"


@dataclass(frozen=True)
class MetricRecord:
    """A summary of one number that a run logged, without its history."""

    last: float
    """Its last value; nan where that was nan."""
    lowest: float
    """Its lowest value; nan if it never was a number."""
    highest: float
    """Its highest value; nan if it never was a number."""
    count: int
    """How often it was logged."""


@dataclass(frozen=True)
class RunRecord:
    """One run as it stands in the project's file."""

    id: int
    """Its number in the file."""
    key: str
    """What tells it from any run of any other file."""
    name: str
    """The trial's name."""
    number: int
    """1 for the first run of that name in this project."""
    state: str
    """queued, starting, running, done, failed, stopped or crashed."""
    failure: str
    """Why it failed or crashed, with the traceback; empty if it did not."""
    source: str
    """Its code."""
    params: dict[str, Any]
    """The user's parameters; what JSON has no word for is its repr."""
    options: dict[str, Any]
    """tsnb's options: producer, batch_size, device, ..."""
    sweep: str
    """The sweep that it belongs to, or nothing."""
    origin: str
    """The notebook or script that started it, if known."""
    seed: int | None
    """The seed it was given."""
    started_s: float
    """Seconds since 1970 when it was asked for."""
    running_s: float | None
    """Seconds since 1970 when its own process had it; None before."""
    duration_s: float
    """Seconds from `started_s` to its end, or until now; of one that crashed, until it was last heard of."""
    owner: Owner
    """Its process; before it has one, that which started it."""
    versions: dict[str, str]
    """Versions of Python and packages it ran with."""
    report: dict[str, Any]
    """What its consumers did: stream, epochs, batches, samples, samples_per_s, ..."""
    tags: tuple[str, ...]
    """What its user has tagged it with."""
    git: str
    """The commit that it started from, with "-dirty" or "?" behind it (`commits`); nothing outside a repository."""
    changes: list[LiveChange]
    """Changes of its live values, in their order."""
    parent: Parent | None
    """Which trial it is a clone of, and from where on."""
    waits_for: str
    """Why it is queued, in words; empty: it is not, or that is not known."""
    peak_bytes: int | None
    """The largest memory that was its process's own; None: not known, as on a cluster."""
    metrics: dict[str, MetricRecord]
    """By name, in the order in which they were first logged."""


def read_runs(
    directory: Path,
    *,
    name: str | None = None,
    key: str | None = None,
    all_runs: bool = False,
) -> list[RunRecord]:
    """Return the runs of a project, in the order in which they were begun.

    Args:
        directory: The project's directory.
        name: Of this trial only.
        key: This run only.
        all_runs: Those that a later run of the same name, of the same notebook, followed as well.

    Raises:
        TsnbError: The file cannot be read.
    """
    where = ["1"] if all_runs or key is not None else [_LATEST]
    given = {"name": name, "key": key}
    where += [f"{column} = :{column}" for column, value in given.items() if value is not None]
    query = f"SELECT * FROM runs WHERE {' AND '.join(where)} ORDER BY started_s, id"  # noqa: S608 (ours alone)
    found = _query(directory, query, given, _run_row)
    gone = [row for row in found if row["state"] not in ENDED and has_gone(_owner(row))]
    if not gone:
        return _records(directory, found)
    _suppose_lost(directory, gone)
    # again: one that ended between the look at the file and that at its process has said how
    lost = {row["key"]: row["pid"] for row in gone}
    return [_lost(record, lost) for record in _records(directory, _query(directory, query, given, _run_row))]


class PeakRecord(NamedTuple):
    """The largest memory of a trial's process, as one of its runs has it."""

    number: int
    """Which run of that name."""
    state: str
    """How that one ended."""
    peak_bytes: int
    """Its process's own memory, at most."""


def largest_before(directory: Path, key: str, name: str, number: int) -> PeakRecord | None:
    """Return the largest of the runs since the last one that was done, that one and this one included.

    A run that failed, was stopped or killed may not have reached its largest: the one that was done before it counts
    as well. So does this run itself, if its process died and is started again.

    Args:
        directory: The project's.
        key: Of the trial's run now.
        name: The trial's.
        number: The run's.

    Raises:
        TsnbError: The file cannot be read.
    """
    query = """SELECT number, state, peak_bytes FROM runs
        WHERE name = :name AND number <= :number AND peak_bytes > 0
        AND typeof(peak_bytes) = 'integer' AND typeof(number) = 'integer'
        AND origin = (SELECT origin FROM runs WHERE key = :key) ORDER BY number DESC LIMIT :most"""
    given = {"name": name, "number": number, "key": key, "most": LOOKED_AT}
    seen: list[PeakRecord] = []
    with reading(directory) as connection:
        for row in connection.execute(query, given) if connection else ():
            seen.append(PeakRecord(*row))
            if seen[-1].state == "done":
                break
    return max(seen, key=lambda each: each.peak_bytes, default=None)


def rows_since(directory: Path, run: int, position: int = 0) -> tuple[list[LoggedRow], int]:
    """Return what a run logged after a position, and the position to ask from next time.

    Args:
        directory: The project's directory.
        run: The run's `id`.
        position: 0, or what the last call returned.

    Raises:
        TsnbError: The file cannot be read.
    """
    query = """SELECT l.id, l.stream_epoch, l.step, l.epoch, l.batch, l.samples, l.time_s, m.name, n.value
        FROM logged l LEFT JOIN metrics m ON m.run = l.run
        LEFT JOIN numbers n ON n.metric = m.id AND n.logged = l.id
        WHERE l.run = ? AND l.id > ? AND (n.metric IS NOT NULL OR m.id IS NULL) ORDER BY l.id, m.id"""
    rows: dict[int, LoggedRow] = {}
    with reading(directory) as connection:
        found = connection.execute(query, (run, position)) if connection else ()
        for id_, *place, logged, value in found:
            stream_epoch, step, epoch, batch, samples, time_s = _place(place)
            metric = None if logged is None else one_line(logged)
            row = rows.setdefault(id_, LoggedRow(step, epoch, batch, samples, time_s, {}, stream_epoch))
            if metric is not None:
                row.numbers[metric] = _number(value)
    return list(rows.values()), max(rows, default=position)


def history_of(directory: Path, run: int, metric: str | None = None) -> list[tuple[Any, ...]]:
    """Return what a run logged: (step, epoch, samples, seconds since 1970, metric, value), as it was logged.

    Args:
        directory: The project's directory.
        run: The run's `id`.
        metric: This one only.

    Raises:
        TsnbError: The file cannot be read.
    """
    only = "" if metric is None else "AND m.name = :metric"
    query = f"""SELECT l.step, l.epoch, l.samples, l.time_s, m.name, n.value
        FROM metrics m JOIN numbers n ON n.metric = m.id JOIN logged l ON l.id = n.logged
        WHERE m.run = :run {only} ORDER BY l.id, m.id"""  # noqa: S608 (ours alone)
    with reading(directory) as connection:
        found = connection.execute(query, {"run": run, "metric": metric}) if connection else ()
        return [(*_place(place), one_line(name), _number(value)) for *place, name, value in found]


def _number(value: Any) -> float:
    """Return a number as it was logged: the file has no nan, and keeps nothing in its place."""
    _require(value is None or isinstance(value, (int, float)), value)
    return math.nan if value is None else value


def _place(place: Sequence[Any]) -> Sequence[Any]:
    """Return where in training something was logged: whole numbers, and the time."""
    *counts, time_s = place
    _require(all(count is None or isinstance(count, int) for count in counts) and _is_time(time_s), place)
    return place


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and 0 <= value < LAST_S


def _require(fits: bool, value: Any) -> None:
    """Refuse what tsnb does not write: SQLite keeps a value of any type in any column, and somebody may send a file.

    Raises:
        sqlite3.DataError: It does not fit. `reading` makes one sentence of that.
    """
    if not fits:
        raise sqlite3.DataError(f"it has a value that tsnb never writes: {value!r:.80}")


_WHOLE = ("id", "number", "pid", "pid_started")
_TEXT = ("key", "name", "state", "failure", "source", "sweep", "origin", "host", "boot", "namespace")
_LATER = {"tags": "[]", "git": "", "changes": "[]", "parent": "", "peak_bytes": None, "waits_for": ""}
"""Columns that a file which can only be read may not have yet."""


def _run_row(row: sqlite3.Row) -> dict[str, Any]:
    """Return a row of the runs, every value of the type that tsnb writes; what is JSON is read.

    Raises:
        sqlite3.DataError: One is not.
    """
    found: dict[str, Any] = {**_LATER, **dict(zip(row.keys(), row, strict=True))}
    for column in (*_WHOLE, *(each for each in ("seed", "peak_bytes") if found[each] is not None)):
        _require(isinstance(found[column], int), found[column])
    for column in (*_TEXT, "git", "waits_for"):
        _require(isinstance(found[column], str), found[column])
    _require(is_name(found["name"]), found["name"])  # files are called so
    for column in ("started_s", "heard_s", *(("running_s",) if found["running_s"] is not None else ())):
        _require(_is_time(found[column]), found[column])
    took = found["duration_s"]
    _require(took is None or (isinstance(took, (int, float)) and abs(took) < LAST_S), took)
    for column in ("params", "options", "versions", "report"):
        found[column] = _json(found[column], dict)
    found["tags"] = _json(found["tags"], list)
    found["changes"] = _json(found["changes"], list)
    for change in found["changes"]:
        _require(isinstance(change, list) and len(change) == len(LiveChange._fields), change)
        _place(change[2:])
    found["parent"] = _json(found["parent"], list) if found["parent"] else None
    _require(found["parent"] is None or len(found["parent"]) == len(Parent._fields), found["parent"])
    return found


def _json(text: Any, kind: type) -> Any:
    value = None
    with contextlib.suppress(ValueError, RecursionError):
        value = encodable(json.loads(text)) if isinstance(text, str) else None
    _require(isinstance(value, kind), text)
    return value


def _query(
    directory: Path, query: str, given: Mapping[str, Any], checked: Callable[[sqlite3.Row], _Row]
) -> list[_Row]:
    with reading(directory) as connection:
        if connection is None:
            return []
        connection.row_factory = sqlite3.Row
        return [checked(row) for row in connection.execute(query, given)]


def _records(directory: Path, rows: list[dict[str, Any]]) -> list[RunRecord]:
    metrics = _metrics(directory, [row["id"] for row in rows])
    return [_record(row, metrics.get(row["id"], {})) for row in rows]


def _metrics(directory: Path, runs: list[int]) -> dict[int, dict[str, MetricRecord]]:
    found: dict[int, dict[str, MetricRecord]] = {}
    wanted = set(runs)
    only = f"WHERE run = {runs[0]:d}" if len(runs) == 1 else ""
    query = f"SELECT run, name, last, lowest, highest, count FROM metrics {only} ORDER BY id"  # noqa: S608
    for run, name, number in _query(directory, query, {}, _metric_row):
        if run in wanted:
            found.setdefault(run, {})[name] = number
    return found


def _metric_row(row: sqlite3.Row) -> tuple[int, str, MetricRecord]:
    run, name, last, lowest, highest, count = row
    _require(isinstance(run, int) and isinstance(name, str) and isinstance(count, int), name)
    return run, one_line(name), MetricRecord(_number(last), _number(lowest), _number(highest), count)


def _record(row: dict[str, Any], metrics: dict[str, MetricRecord]) -> RunRecord:
    own: dict[str, Any] = {
        column: row[column]
        for column in (
            "id", "number", "source", "seed", "started_s", "running_s", "params", "options", "versions", "report",
            "peak_bytes",
        )
    }  # fmt: skip
    own |= {column: one_line(row[column]) for column in ("key", "name", "state", "sweep", "origin", "git")}
    own["failure"] = block(row["failure"])
    own["tags"] = tuple(map(one_line, row["tags"]))
    own["waits_for"] = one_line(row["waits_for"]) if own["state"] == "queued" else ""
    parent = row["parent"]
    own["parent"] = parent and Parent(one_line(parent[0]), *parent[1:])
    own["changes"] = [LiveChange(one_line(name), *rest) for name, *rest in row["changes"]]
    return RunRecord(**own, duration_s=_duration_s(row), owner=_owner(row), metrics=metrics)


def _duration_s(row: dict[str, Any]) -> float:
    if row["duration_s"] is not None:
        return float(row["duration_s"])
    return float(max(0.0, (row["heard_s"] if row["state"] in ENDED else time.time()) - row["started_s"]))


def _owner(row: dict[str, Any]) -> Owner:
    return Owner(row["host"], row["boot"], row["namespace"], row["pid"], row["pid_started"])


def _suppose_lost(directory: Path, gone: list[dict[str, Any]]) -> None:
    """Note that these runs' processes have gone, unless they have said something since."""
    with contextlib.suppress(sqlite3.Error, OSError, TsnbError), writing(directory) as connection:
        connection.executemany(
            "UPDATE runs SET state = 'crashed', supposed = 1, failure = ? "  # noqa: S608 (ours alone)
            f"WHERE key = ? AND pid = ? AND {_NOT_ENDED}",
            [(WITHOUT_A_WORD, row["key"], row["pid"]) for row in gone],
        )


def _lost(record: RunRecord, lost: dict[str, int]) -> RunRecord:
    """Return a record whose process has gone as crashed, where the file could not be changed."""
    if record.state in ENDED or lost.get(record.key) != record.owner.pid:
        return record
    return RunRecord(**{**vars(record), "state": "crashed", "failure": WITHOUT_A_WORD})
