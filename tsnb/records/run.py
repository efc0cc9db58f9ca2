"""One run, as two processes write it down: the one that starts it, and the trial's own.

| process | writes |
|---|---|
| the launching process | `begin` (queued), "starting", an end before the trial's process could speak, "crashed" |
| the trial's process | `process` ("running"), rows, reports, its end |

So a detached trial needs no other process. A handle is plain text inside (`as_settings`, pickle): each process with one
opens the file for itself. **No method raises because of the file**: where it cannot be written (a full disk, a
locked or deleted file) there is one warning in the log "tsnb", and training goes on; rows are kept in memory for
the next time.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import shutil
import sqlite3
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from tsnb.config import runtime_directory, way_out
from tsnb.errors import TsnbError
from tsnb.machine.owners import owner
from tsnb.private.files import copy_whole, place_in
from tsnb.records.database import FILE, NoLocks, RecordsGone, writing
from tsnb.records.kept import KeptFiles
from tsnb.records.project import own_place, project_directory
from tsnb.records.reading import ENDED, RunRecord, read_runs, rows_since
from tsnb.records.writes import (
    LiveChange,
    LoggedRow,
    RunStart,
    as_json,
    cut_rows,
    enter_start,
    insert_rows,
)
from tsnb.text.masks import masked, masked_text
from tsnb.text.printable import encodable

__all__ = ["Run", "RunStart"]

KEPT_ROWS = 100_000
"""Rows kept in memory while the file cannot be written; the oldest go first. About 50 MB."""

RETRY_S = 2.0
"""How long a file that could not be written is left alone: writing what waits costs more the more it is."""

_log = logging.getLogger("tsnb")
_P = ParamSpec("_P")


def _never_raises(
    method: Callable[Concatenate[Run, _P], None],
) -> Callable[Concatenate[Run, _P], None]:
    """Turn whatever the file refuses into one warning a run: no record is worth a training."""

    @functools.wraps(method)
    def quiet(self: Run, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        if not self.id:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 (see above)
            self._warn(error)

    return quiet


class Run:
    """A handle on one run. Any process and thread may hold and use one.

    Attributes:
        directory: The project's directory.
        key: What tells it from every other run, of other projects too.
        id: Its number in the project's file; 0 where it was not, or could not be, entered: nothing of it is kept then.
        name: The trial's name.
        number: 1 for the first run of that name in this project.
    """

    def __init__(self, directory: Path, key: str, id: int, name: str, number: int, params: str) -> None:  # noqa: A002
        self.directory = directory
        self.key = key
        self.id = id
        self.name = name
        self.number = number
        self._params = params
        self._waiting: list[LoggedRow] = []
        self._adding = threading.Lock()
        self._not_before_s = 0.0
        self._warned = False

    @classmethod
    def begin(cls, start: RunStart) -> Run:
        """Enter a new run as queued, with the next number of its name. Called by the launching process."""
        start = replace(
            start,
            source=masked_text(start.source),
            params=masked(start.params),
            options=masked(start.options),
        )
        key, params = uuid.uuid4().hex, as_json(start.params)
        directory = None
        try:
            directory = project_directory()
            with writing(directory, make=True) as connection:
                id_, number = enter_start(connection, key, start, params)
            run = cls(directory, key, id_, start.name, number, params)
        except Exception as error:  # noqa: BLE001 (a trial is started whether or not it can be recorded)
            _unrecorded[start.name] += 1
            run = cls(directory or _elsewhere(), key, 0, start.name, _unrecorded[start.name], params)
            run._warn(error)
        return run

    @classmethod
    def unrecorded(cls, name: str, directory: Path) -> Run:
        """Return a run of which no record is ever kept, whatever ends it: of a trial that is only profiled, say.

        Args:
            name: The trial's name.
            directory: Of this run alone: its log and artifacts lie there, for whoever made it to remove.
        """
        return cls(directory, uuid.uuid4().hex, 0, name, 1, as_json({}))

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Run:
        """Return the handle that `as_settings` described, in another process say."""
        return cls(**{**settings, "directory": Path(settings["directory"])})

    @classmethod
    def find(cls, name: str, number: int | None = None) -> Run | None:
        """Return a run of this project, the last of that name if no number is given; None if it does not exist.

        Raises:
            TsnbError: The file cannot be read.
        """
        directory = project_directory(make=False)
        found = read_runs(directory, name=name, all_runs=number is not None)
        for record in reversed(found):  # of two notebooks' trials of that name, the later
            if number in {None, record.number}:
                return cls(directory, record.key, record.id, name, record.number, json.dumps(record.params))
        return None

    def as_settings(self) -> dict[str, Any]:
        """Return plain text and numbers that `Run.of` makes this handle of."""
        return {
            "directory": str(self.directory),
            "key": self.key,
            "id": self.id,
            "name": self.name,
            "number": self.number,
            "params": self._params,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return Run.of, (self.as_settings(),)

    def __repr__(self) -> str:
        return f"<Run {self.label!r} in {self.directory}>"

    @property
    def label(self) -> str:
        """NAME-NUMBER: what its files are called."""
        return f"{self.name}-{self.number}"

    @property
    def params(self) -> dict[str, Any]:
        """The user's parameters, as they are kept: what JSON has no word for is its repr."""
        return dict(json.loads(self._params))

    @property
    def log_path(self) -> Path:
        """The file with its output. Its directory exists if it could be made."""
        return self._directory_of("logs") / f"{self.label}.log"

    @property
    def kept(self) -> KeptFiles:
        """The states of its training that it has kept."""
        return KeptFiles(self.directory, self.label, self.key)

    @property
    def artifacts_path(self) -> Path:
        """Where its artifacts lie; made with the first."""
        return self.directory / "artifacts" / self.label

    @_never_raises
    def state(self, state: str, waits_for: str = "") -> None:
        """Note that it is "queued", "starting", "running" or "paused". One that has ended stays ended.

        Args:
            state: The new state.
            waits_for: Why it is queued, in words.
        """
        with writing(self.directory) as connection:
            self._update(connection, {"state": state, "waits_for": waits_for})

    @_never_raises
    def reopen(self) -> None:
        """Have a run that has ended go on: it waits for a process again. Called by the launching process."""
        host, boot, namespace, pid, started = owner(os.getpid())
        place = {"host": host, "boot": boot, "namespace": namespace, "pid": pid, "pid_started": started}
        with writing(self.directory) as connection:
            self._touch(connection)
            named = ", ".join(f"{column} = :{column}" for column in place)
            connection.execute(
                f"UPDATE runs SET state = 'queued', failure = '', duration_s = NULL, {named} WHERE key = :key",  # noqa: S608
                {**place, "key": self.key},
            )

    @_never_raises
    def go_back(self, rows: int, samples: int) -> None:
        """Forget what came after a state that the trial goes on from: it comes again. Called in its process.

        Args:
            rows: Rows that it had logged then.
            samples: Samples that it had taken then: later changes of live values are forgotten, too.
        """
        with writing(self.directory) as connection:
            id_ = self._touch(connection)
            (former,) = connection.execute("SELECT changes FROM runs WHERE id = ?", (id_,)).fetchone()
            kept = [change for change in json.loads(former) if LiveChange(*change).samples <= samples]
            connection.execute("UPDATE runs SET changes = ? WHERE id = ?", (json.dumps(kept), id_))
            cut_rows(connection, id_, rows)

    @_never_raises
    def forget_changes(self) -> None:
        """Forget the changes of live values: the trial begins at its top again, and makes them again."""
        with writing(self.directory) as connection:
            self._update(connection, {"changes": "[]"})

    @_never_raises
    def process(self, pid: int, versions: Mapping[str, str]) -> None:
        """Note the process that it runs in, and that it runs. Called there.

        Args:
            pid: The process, on this machine.
            versions: Of Python and packages, by name.
        """
        host, boot, namespace, pid, started = owner(pid)
        place = {"host": host, "boot": boot, "namespace": namespace, "pid": pid, "pid_started": started}
        with writing(self.directory) as connection:
            self._update(connection, {"state": "running", "versions": json.dumps(dict(versions)), **place})
            connection.execute(
                "UPDATE runs SET running_s = ifnull(running_s, ?) WHERE key = ?", (time.time(), self.key)
            )

    @_never_raises
    def add_rows(self, rows: Sequence[LoggedRow]) -> None:
        """Keep what was logged, together with what could not be kept before. From any thread."""
        with self._adding:
            self._waiting.extend(rows)
            if rows and time.monotonic() < self._not_before_s:
                del self._waiting[:-KEPT_ROWS]
                return
            try:
                with writing(self.directory) as connection:
                    insert_rows(connection, self._touch(connection), self._waiting)
            except (sqlite3.OperationalError, OSError):  # locked, full: later, perhaps
                self._not_before_s = time.monotonic() + RETRY_S
                raise
            except Exception:  # they will never be taken: the next ones may be
                self._waiting.clear()
                raise
            self._waiting.clear()

    @_never_raises
    def changed(self, changes: Sequence[LiveChange]) -> None:
        """Keep changes of live values, behind those before. From any thread."""
        with writing(self.directory) as connection:
            id_ = self._touch(connection)
            (former,) = connection.execute("SELECT changes FROM runs WHERE id = ?", (id_,)).fetchone()
            kept = [*json.loads(former), *changes]
            connection.execute("UPDATE runs SET changes = ? WHERE id = ?", (json.dumps(kept), id_))

    @_never_raises
    def report(self, report: Mapping[str, Any]) -> None:
        """Keep what its consumers did; what an earlier report said and this one does not stays.

        Args:
            report: stream, epochs, batches (its position), samples, samples_per_s, computing_s, waiting_s, held_s.
        """
        with writing(self.directory) as connection:
            id_ = self._touch(connection)
            (former,) = connection.execute("SELECT report FROM runs WHERE id = ?", (id_,)).fetchone()
            merged = as_json({**json.loads(former), **report})
            connection.execute("UPDATE runs SET report = ? WHERE id = ?", (merged, id_))

    @_never_raises
    def peak(self, peak_bytes: int) -> None:
        """Keep the largest memory of its process so far; that of a process before it counts if it was larger."""
        with writing(self.directory) as connection:
            id_ = self._touch(connection)
            connection.execute(
                "UPDATE runs SET peak_bytes = max(ifnull(peak_bytes, 0), ?) WHERE id = ?", (peak_bytes, id_)
            )

    def end(self, state: str, failure: str = "", duration_s: float | None = None) -> None:
        """Note how it ended. The first end counts; one that a reader only supposed does not.

        Args:
            state: done, failed, stopped or crashed.
            failure: Why, with the traceback; secrets in it are masked.
            duration_s: Seconds from when it was asked for; None: until now.
        """
        if self._waiting:
            self.add_rows(())
        self._end(state, encodable(masked_text(failure)), duration_s)

    @_never_raises
    def stopped_by(self, state: str, by: str = "") -> None:
        """Note what kind of stop it was that ended it, and who stopped it, in words. Its own process cannot know.

        Args:
            state: "stopped", "interrupted" or "pruned".
            by: As "in the panel"; empty: not known.
        """
        with writing(self.directory) as connection:
            connection.execute(
                "UPDATE runs SET state = ?, failure = ? WHERE key = ? AND state = 'stopped'",
                (state, by, self.key),
            )

    @_never_raises
    def _end(self, state: str, failure: str, duration_s: float | None) -> None:
        with writing(self.directory) as connection:
            took_s = {} if duration_s is None else {"duration_s": duration_s}
            changed = self._update(connection, {"state": state, "failure": failure, **took_s})
            if changed and duration_s is None:
                connection.execute(
                    "UPDATE runs SET duration_s = heard_s - started_s WHERE key = ?", (self.key,)
                )

    @_never_raises
    def committed(self, git: str) -> None:
        """Note the commit that it started from, once it is known whether files differ from it. From any thread."""
        with writing(self.directory) as connection:
            connection.execute("UPDATE runs SET git = ? WHERE key = ?", (git, self.key))

    def add_artifact(self, path: str | os.PathLike[str], name: str | None = None) -> Path:
        """Copy a file or folder to the run's artifacts; one of that name there is replaced.

        Args:
            path: The file or folder.
            name: Its name there, with slashes for folders; None: its own.

        Returns:
            The path of the copy.

        Raises:
            FileNotFoundError: There is no such file or folder.
            ValueError: The name leads out of the run's folder.
        """
        source = Path(path)
        if not source.exists():
            raise FileNotFoundError(f"{str(source)!r} does not exist. Write the file before log_artifact")
        target = place_in(self.artifacts_path, source.absolute().name if name is None else name)
        try:
            copy_whole(source, target, self.directory.parent)
        except (OSError, shutil.Error) as error:
            self._warn(error)
        return target

    def read(self) -> RunRecord | None:
        """Return how it stands now; None if it is not recorded (any more).

        Raises:
            TsnbError: The file cannot be read.
        """
        return next(iter(read_runs(self.directory, key=self.key)), None)

    def rows(self, position: int = 0) -> tuple[list[LoggedRow], int]:
        """Return what it logged since a position (0: all), and the position to ask from next time.

        Raises:
            TsnbError: The file cannot be read.
        """
        return rows_since(self.directory, self.id, position)

    def _directory_of(self, kind: str) -> Path:
        place = self.directory / kind
        try:
            own_place(self.directory, kind)
        except OSError as error:
            self._warn(error)
        return place

    def _touch(self, connection: sqlite3.Connection) -> int:
        """Note that it was heard of, which proves a supposed loss wrong; return its id."""
        found = connection.execute("SELECT id, supposed FROM runs WHERE key = ?", (self.key,)).fetchone()
        if found is None:
            raise RecordsGone(f"{self.label} no longer exists in {self.directory}")
        id_, supposed = found
        lives = ", supposed = 0, failure = '', state = 'running'" if supposed else ""
        connection.execute(f"UPDATE runs SET heard_s = ?{lives} WHERE id = ?", (time.time(), id_))  # noqa: S608
        return int(id_)

    def _update(self, connection: sqlite3.Connection, changes: Mapping[str, Any]) -> bool:
        """Change columns of a run that has not ended; tell whether it had not."""
        self._touch(connection)
        named = ", ".join(f"{column} = :{column}" for column in changes)
        query = f"UPDATE runs SET {named} WHERE key = :key AND state NOT IN {ENDED}"  # noqa: S608 (ours alone)
        return connection.execute(query, {**changes, "key": self.key}).rowcount > 0

    def _warn(self, error: Exception) -> None:
        """Say once a run and process that something of it is not kept."""
        if self._warned:
            return
        self._warned = True
        why = str(error) if isinstance(error, NoLocks) else f"{error}. {_way_out(error)}"
        _log.warning(
            "trial %r continues, but not all of its records can be stored in %s: %s",
            self.name,
            self.directory,
            why,
        )


def _way_out(error: Exception) -> str:
    """Return what to do next."""
    elsewhere = "set TSNB_PROJECT_DIR to another directory before you start trials"
    if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
        return f"If {FILE} is damaged, move it away: the next trial makes a new one."
    if "locked" in str(error):
        return f"Find the program that holds {FILE} (fuser says which), or {elsewhere}."
    return way_out(error, elsewhere)


_unrecorded: Counter[str] = Counter()
"""How many runs of each name could not be entered: they are numbered all the same."""


def _elsewhere() -> Path:
    """Return where the log of a run lies that has no project: beside what this user's processes share."""
    try:
        return runtime_directory() / "unrecorded"
    except TsnbError:
        return Path(os.devnull)
