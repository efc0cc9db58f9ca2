"""The project's one SQLite file: its tables, which process may write when, and what happens when writing fails.

| table | a row is | what for |
|---|---|---|
| `runs` | one life of a trial's name | `key`: unlike any other file's; `supposed`: crashed, says a reader |
| `logged` | one `tsnb.log` | where in training it was |
| `metrics` | one name that a run logged | its last, lowest and highest value: a table of runs reads no history |
| `numbers` | one logged number | NULL is nan, which SQLite does not have; a metric's numbers lie together |

Every process opens the file for itself and writes in short transactions, a few a second. The write-ahead log lets
readers read meanwhile; it needs shared memory, which file systems of several machines do not offer, so there the
file keeps SQLite's default journal. A process closes its connection before it forks: SQLite does not allow one
connection in two processes. A writer that is killed leaves nothing to repair: the next one rolls back.

Somebody may have sent the file. So its tables have to be those made here, and nothing that SQLite would run may be
beside them (a trigger, a view in place of a table, a condition). A statement takes a bounded number of steps.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import functools
import itertools
import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

from tsnb.errors import TsnbError
from tsnb.machine.disks import file_system
from tsnb.private.directories import Unsafe
from tsnb.private.files import check_file, make_file
from tsnb.text.printable import one_line

__all__ = ["FILE", "NoLocks", "RecordsGone", "alone", "reading", "writing"]

FILE = "records.sqlite"

BUSY_S = 5.0
"""How long one waits for another's transaction. Those last milliseconds: only a stopped writer takes longer."""

STEPS = 1_000_000
"""Of SQLite's machine, between two looks at how many a transaction or a reader has taken."""
LOOKS = 5000
"""So many looks are too many: minutes of work, where records of millions of numbers take seconds."""
MOST_BYTES = 1 << 28
"""Of one value, where Python can tell SQLite so."""

REMOTE = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "smb3"}
)
"""File systems, as /proc/mounts names them, whose machines share no memory; `fuse.*` counts too."""

MIGRATIONS = (
    (
        """CREATE TABLE runs (
            id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, name TEXT NOT NULL, number INTEGER NOT NULL,
            state TEXT NOT NULL, supposed INTEGER NOT NULL DEFAULT 0, failure TEXT NOT NULL DEFAULT '',
            source TEXT NOT NULL, params TEXT NOT NULL, options TEXT NOT NULL,
            sweep TEXT NOT NULL, origin TEXT NOT NULL, seed INTEGER,
            started_s REAL NOT NULL, running_s REAL, heard_s REAL NOT NULL, duration_s REAL,
            host TEXT NOT NULL, boot TEXT NOT NULL, namespace TEXT NOT NULL, pid INTEGER NOT NULL,
            pid_started INTEGER NOT NULL,
            versions TEXT NOT NULL DEFAULT '{}', report TEXT NOT NULL DEFAULT '{}',
            UNIQUE (name, number))""",
        """CREATE TABLE logged (
            id INTEGER PRIMARY KEY, run INTEGER NOT NULL, step INTEGER NOT NULL, epoch INTEGER, batch INTEGER,
            samples INTEGER NOT NULL, time_s REAL NOT NULL)""",
        "CREATE INDEX logged_by_run ON logged (run)",
        """CREATE TABLE metrics (
            id INTEGER PRIMARY KEY, run INTEGER NOT NULL, name TEXT NOT NULL, count INTEGER NOT NULL DEFAULT 0,
            last REAL, lowest REAL, highest REAL, UNIQUE (run, name))""",
        """CREATE TABLE numbers (
            metric INTEGER NOT NULL, logged INTEGER NOT NULL, value REAL, PRIMARY KEY (metric, logged))
            WITHOUT ROWID""",
    ),
    (
        "ALTER TABLE runs ADD COLUMN tags TEXT NOT NULL DEFAULT '[]'",
        "ALTER TABLE runs ADD COLUMN git TEXT NOT NULL DEFAULT ''",
    ),
    ("ALTER TABLE runs ADD COLUMN changes TEXT NOT NULL DEFAULT '[]'",),
    ("ALTER TABLE runs ADD COLUMN parent TEXT NOT NULL DEFAULT ''",),
    ("ALTER TABLE runs ADD COLUMN peak_bytes INTEGER",),
    ("ALTER TABLE runs ADD COLUMN waits_for TEXT NOT NULL DEFAULT ''",),
    ("ALTER TABLE logged ADD COLUMN stream_epoch INTEGER",),
)
"""What makes the file of one version the next one; `PRAGMA user_version` says how many were applied."""


_TABLES = ("runs", "logged", "metrics", "numbers")
_SCHEMA = f"""SELECT type, name, tbl_name, sql FROM sqlite_master
    WHERE lower(tbl_name) IN {_TABLES} OR lower(name) IN {_TABLES}"""  # noqa: S608 (ours alone)


class RecordsGone(TsnbError):
    """The project's file, or a run in it, has been deleted."""


class NoLocks(TsnbError):
    """The project's records lie on a file system without file locks."""


class _Writer:
    """This process's connection for writing to one file. One thread at a time uses it."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE
        self.lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._inode = 0

    @contextlib.contextmanager
    def transaction(self, make: bool) -> Iterator[sqlite3.Connection]:
        with self.lock:
            connection = self._opened(make)
            try:
                _bound(connection)
                # inside: an interrupt right after it would leave the file locked, for all processes
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # a full disk has rolled back already
                    connection.execute("ROLLBACK")
                raise

    def _opened(self, make: bool) -> sqlite3.Connection:
        """Return the connection to the file that has this name now: it may have been deleted since."""
        inode = self._path.stat().st_ino if self._path.exists() else 0
        if not inode and not make:
            raise RecordsGone(f"{self._path} has been deleted")
        _require_own(self._path)
        if self._connection is None or inode != self._inode:
            self.close()
            require_locks(self._path.parent)
            self._connection = _connect(self._path)
            self._inode = self._path.stat().st_ino
        return self._connection

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


_writers: dict[Path, _Writer] = {}
_entering = threading.Lock()
_reading = threading.RLock()


def _before_fork() -> None:
    """Close everything, and keep it closed. What SQLite knows of its own locks would be copied, and wrong, there."""
    _entering.acquire()
    _reading.acquire()
    for writer in _writers.values():
        writer.lock.acquire()
        writer.close()


def _after_fork() -> None:
    for writer in _writers.values():
        writer.lock.release()
    _reading.release()
    _entering.release()


def _after_fork_in_child() -> None:
    global _writers, _entering, _reading
    _writers, _entering, _reading = {}, threading.Lock(), threading.RLock()


def _close_all() -> None:
    for writer in _writers.values():
        if writer.lock.acquire(timeout=1.0):  # a daemon thread may be in the middle of a transaction
            writer.close()
            writer.lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
atexit.register(_close_all)


@contextlib.contextmanager
def writing(directory: Path, *, make: bool = False) -> Iterator[sqlite3.Connection]:
    """Give one transaction for writing, alone among all processes; what raises inside undoes it.

    Args:
        directory: The project's directory.
        make: Make the file if it does not exist.

    Raises:
        RecordsGone: The file does not exist, and `make` was not asked for.
        TsnbError: A newer tsnb made it.
        sqlite3.Error: It cannot be written: another process holds it, the disk is full, it is not a database.
    """
    with _entering:
        writer = _writers.setdefault(directory, _Writer(directory))
    with _undecodable_is_damaged(), writer.transaction(make) as connection:
        yield connection


@contextlib.contextmanager
def reading(directory: Path) -> Iterator[sqlite3.Connection | None]:
    """Give a connection for reading that sees one moment; None where nothing has been recorded.

    Raises:
        TsnbError: The file cannot be read: a newer tsnb made it, or it is damaged.
    """
    path = directory / FILE
    if not path.exists():
        yield None
        return
    require_locks(directory)
    try:
        with (
            _undecodable_is_damaged(),
            _reading,
            contextlib.closing(_opened_to_read(path)) as connection,
        ):
            connection.execute("PRAGMA query_only = ON")
            connection.execute("BEGIN")
            yield connection
    except sqlite3.Error as error:
        why = "it takes too many steps" if str(error) == "interrupted" else one_line(error)
        raise TsnbError(f"tsnb cannot read the project's records in {path}: {why}. {mend(error)}") from None


@contextlib.contextmanager
def _undecodable_is_damaged() -> Iterator[None]:
    """Call it damage where Python's module cannot decode a text of SQLite: a value, a table's or an error's."""
    try:
        yield
    except (UnicodeDecodeError, sqlite3.OperationalError) as error:
        if isinstance(error, sqlite3.OperationalError) and "decode to UTF-8" not in str(error):
            raise
        raise sqlite3.DatabaseError("it holds text that is not UTF-8") from None


def mend(error: sqlite3.Error) -> str:
    """Return what to do about a file that SQLite does not open: it is held by another program, or damaged."""
    if "locked" in str(error):
        return f"Another program holds {FILE}: find it (`fuser {FILE}`) and end it, or try again."
    return "If it is damaged, move it away: the next trial makes a new one."


def require_locks(directory: Path) -> None:
    """Refuse a directory where files cannot be locked: SQLite waits five seconds there, and says that it is held.

    Raises:
        NoLocks: The file system has no locks.
    """
    try:
        # never a file that SQLite has open: to close it would take its locks away
        descriptor = os.open(
            directory / ".gitignore", os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
    except OSError:
        return
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}:
            raise NoLocks(
                f"The file system of {directory} has no file locks, which the project's records need. Set "
                "TSNB_PROJECT_DIR to a directory on another file system before you start trials."
            ) from None
    finally:
        os.close(descriptor)


def _require_own(path: Path) -> None:
    """Make the file if it does not exist, with mode 0600 (SQLite gives its other files the same), and check them.

    By name, for their directory is this user's alone: to open and close a file that SQLite has open would take its
    locks away.

    Raises:
        TsnbError: One of its files is a link, has another name elsewhere or belongs to another user.
    """
    make_file(path)
    for each in _files(path):
        try:
            check_file(each)
        except FileNotFoundError:
            continue
        except Unsafe as error:
            raise TsnbError(f"{error}: `{error.mend}`, and the next trial makes a new one") from None


def _files(path: Path) -> list[Path]:
    return [path, *(path.with_name(path.name + ending) for ending in ("-wal", "-shm", "-journal"))]


def _opened_to_read(path: Path) -> sqlite3.Connection:
    """Open a file for reading, also in a directory where this user may not write.

    There SQLite cannot keep an index of the write-ahead log. Without a log no process writes to the file, and it
    can be read as it is; with one, the writer's own index serves.
    """
    if os.access(path.parent, os.W_OK) and path.parent.stat().st_uid == os.geteuid():
        _require_own(path)
        return _connect(path)
    for each in _files(path):
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(each.stat().st_mode):
                raise TsnbError(f"{each} is not an ordinary file: move it away.")
    how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", BUSY_S, isolation_level=None, uri=True)
    try:
        _bound(connection)
        _checked_version(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: Path) -> sqlite3.Connection:
    """Open a file, and bring it to this version's tables.

    Not bound to a thread: the hub's, the notebook's and the reporter's write in turns.
    """
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        _bound(connection)
        if _checked_version(connection, path) < len(MIGRATIONS):
            _bring_up(connection, path)
        # with the write-ahead log only a crash of the whole machine can lose the last moment, never the file
        connection.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        connection.close()
        raise
    return connection


def _bound(connection: sqlite3.Connection) -> None:
    """Have SQLite give up, from now on, what takes more than a bounded number of steps or bytes."""
    looks = itertools.count()
    connection.set_progress_handler(lambda: next(looks) > LOOKS, STEPS)
    if hasattr(connection, "setlimit"):  # Python 3.11 and newer
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)


@functools.cache
def _schema(version: int) -> frozenset[tuple[str, ...]]:
    """Return what SQLite says of the tables of a version."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        for statement in itertools.chain.from_iterable(MIGRATIONS[:version]):
            connection.execute(statement)
        return frozenset(connection.execute(_SCHEMA))


def _checked_version(connection: sqlite3.Connection, path: Path) -> int:
    """Check that the tables are those made here, and return their version: another's own beside them do no harm.

    Raises:
        sqlite3.DatabaseError: They are not; says where they differ.
        TsnbError: A newer tsnb made them.
    """
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("BEGIN")  # both of one moment: another process may be making the tables just now
    try:
        version = _version(connection, path)
        found = frozenset(connection.execute(_SCHEMA))
    finally:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
    odd = _schema(version) ^ found
    if odd:
        named = ", ".join(sorted({f"{kind} {name}" for kind, name, *_ in odd}))
        raise sqlite3.DatabaseError(f"its tables are not tsnb's ({one_line(named)})")
    return version


def _version(connection: sqlite3.Connection, path: Path) -> int:
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if found < 0:
        raise sqlite3.DatabaseError("it has no version")
    if found > len(MIGRATIONS):
        raise TsnbError(
            f"The records in {path} come from a newer tsnb (their version is {found}, this tsnb reads up to "
            f"{len(MIGRATIONS)}). Install the same version here, or set TSNB_PROJECT_DIR."
        )
    return found


def _bring_up(connection: sqlite3.Connection, path: Path) -> None:
    """Apply missing migrations. One process at a time: SQLite does not wait to change the journal of a new file."""
    with alone(path.parent):
        if _version(connection, path) == 0 and _shares_memory(path.parent):
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statements in MIGRATIONS[_version(connection, path) :]:
                for statement in statements:
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Keep other processes that ask for the same out of the block, where the file system has locks."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # no locks on this file system: SQLite's own remain
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        with contextlib.suppress(OSError):  # closing is not enough: a child forked meanwhile has it open too
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _shares_memory(directory: Path) -> bool:
    """Tell whether all processes that can open a file there run on one machine, as far as the mount table says."""
    kind = file_system(directory)
    return bool(kind) and kind not in REMOTE and not kind.startswith("fuse.")
