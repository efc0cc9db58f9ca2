"""The writes of a run, inside a transaction: its start, rows (`LoggedRow`), what was set (`LiveChange`)."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tsnb.machine.owners import owner
from tsnb.text.masks import masked_text
from tsnb.text.printable import encodable

__all__ = [
    "LiveChange",
    "LoggedRow",
    "Parent",
    "RunStart",
    "as_json",
    "cut_rows",
    "enter_start",
    "insert_rows",
    "own_number",
]

REPR_AT_MOST = 500
"""Characters kept of a parameter that is written down as its repr: a dataset's may be its data."""


class Parent(NamedTuple):
    """The trial that a clone was made of, and from where on it is another one."""

    name: str
    """Its name."""
    number: int
    """Which run of that name."""
    epoch: int | None
    """The parent's epoch by then, from 1, as it counts them; None where it had begun none."""
    batch: int | None
    """Loader batches taken of it by then: both were given the next one."""
    samples: int
    """Samples taken in all by then."""

    @property
    def label(self) -> str:
        """NAME, or NAME (run NUMBER) from the second run on."""
        return f"{self.name}{self._run}"

    @property
    def _run(self) -> str:
        return "" if self.number == 1 else f" (run {self.number})"

    @property
    def told(self) -> str:
        """Whose clone it is and where they parted, as tables have it."""
        return f"{self.label}, {self.place}"

    @property
    def place(self) -> str:
        """Where they parted, in words."""
        if self.epoch is None or self.batch is None:
            return f"after {self.samples} samples"
        return f"batch {self.batch} of epoch {self.epoch}"

    def __str__(self) -> str:
        return f"a clone of {self.name!r}{self._run} from {self.place} on"


@dataclass(frozen=True)
class RunStart:
    """All that is known of a run at its start."""

    name: str
    """The trial's name."""
    source: str
    """Its code, as text."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """The user's own parameters (lr=0.1)."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """tsnb's options: producer, batch_size, device, threads."""
    sweep: str = ""
    """The sweep that it belongs to."""
    origin: str = ""
    """The notebook's or script's name."""
    seed: int | None = None
    """The seed it was given."""
    git: str = ""
    """The commit that it started from (`commits`); nothing outside a repository."""
    parent: Parent | None = None
    """Which trial it is a clone of."""


def enter_start(connection: sqlite3.Connection, key: str, start: RunStart, params: str) -> tuple[int, int]:
    """Enter a run as queued, as the next of its name; it belongs to this process until it has its own.

    Args:
        connection: Inside a transaction, so that no other process takes the number.
        key: What tells it from every other run.
        start: All that is known of it.
        params: Its parameters, as `as_json` writes them.

    Returns:
        Its id, and its number among the runs of its name.
    """
    (last,) = connection.execute("SELECT max(number) FROM runs WHERE name = ?", (start.name,)).fetchone()
    number, now = (last or 0) + 1, time.time()
    row = {
        "key": key, "name": start.name, "number": number, "state": "queued", "source": start.source,
        "params": params, "options": as_json(start.options), "sweep": start.sweep, "origin": start.origin,
        "seed": start.seed, "git": start.git, "started_s": now, "heard_s": now,
        "parent": "" if start.parent is None else json.dumps(start.parent),
    }  # fmt: skip
    place = dict(zip(("host", "boot", "namespace", "pid", "pid_started"), owner(os.getpid()), strict=True))
    entry = encodable({**row, **place})
    named, marks = ", ".join(entry), ", ".join(f":{column}" for column in entry)
    id_ = connection.execute(f"INSERT INTO runs ({named}) VALUES ({marks})", entry).lastrowid  # noqa: S608
    return int(id_ or 0), number


def insert_rows(connection: sqlite3.Connection, run: int, rows: Sequence[LoggedRow]) -> None:
    """Add what a run logged, and bring the last, lowest and highest values up to date.

    Raises:
        OverflowError: A step or count is beyond 64 bits.
    """
    metrics = _metrics(connection, run, rows)
    for row in rows:
        place = (
            run,
            int(row.step),
            row.epoch,
            row.batch,
            int(row.samples),
            float(row.time_s),
            row.stream_epoch,
        )
        logged = connection.execute(
            """INSERT INTO logged (run, step, epoch, batch, samples, time_s, stream_epoch)
                VALUES (?, ?, ?, ?, ?, ?, ?)""",
            place,
        ).lastrowid
        numbers = [(metrics[name], logged, float(value)) for name, value in row.numbers.items()]
        connection.executemany("INSERT INTO numbers VALUES (?, ?, ?)", numbers)
    for name, id_ in metrics.items():
        _summarize(connection, id_, [float(row.numbers[name]) for row in rows if name in row.numbers])


def cut_rows(connection: sqlite3.Connection, run: int, count: int) -> None:
    """Remove all rows of a run behind the first `count`, and bring the summaries up to date."""
    found = connection.execute(
        "SELECT id FROM logged WHERE run = ? ORDER BY id LIMIT 1 OFFSET ?", (run, count)
    ).fetchone()
    if found is None:
        return
    of = "metric IN (SELECT id FROM metrics WHERE run = ?)"
    connection.execute(f"DELETE FROM numbers WHERE {of} AND logged >= ?", (run, found[0]))  # noqa: S608
    connection.execute("DELETE FROM logged WHERE run = ? AND id >= ?", (run, found[0]))
    connection.execute("DELETE FROM metrics WHERE run = ? AND id NOT IN (SELECT metric FROM numbers)", (run,))
    connection.execute(
        "UPDATE metrics SET count = (SELECT count(*) FROM numbers WHERE metric = id), "
        "lowest = (SELECT min(value) FROM numbers WHERE metric = id), "
        "highest = (SELECT max(value) FROM numbers WHERE metric = id), "
        "last = (SELECT value FROM numbers WHERE metric = id ORDER BY logged DESC LIMIT 1) WHERE run = ?",
        (run,),
    )


def _metrics(connection: sqlite3.Connection, run: int, rows: Sequence[LoggedRow]) -> dict[str, int]:
    """Return the ids of the metrics that these rows hold; new ones are entered."""
    names = list(dict.fromkeys(name for row in rows for name in row.numbers))
    connection.executemany(
        "INSERT OR IGNORE INTO metrics (run, name) VALUES (?, ?)", [(run, n) for n in names]
    )
    known = dict(connection.execute("SELECT name, id FROM metrics WHERE run = ?", (run,)))
    return {name: known[name] for name in names}


def _summarize(connection: sqlite3.Connection, metric: int, values: Sequence[float]) -> None:
    """Take new values into a metric's summary. nan is kept as nothing, and compared with nothing."""
    numbers = [value for value in values if not math.isnan(value)]
    low, high = min(numbers, default=None), max(numbers, default=None)
    connection.execute(
        "UPDATE metrics SET count = count + ?, last = ?, lowest = min(ifnull(lowest, ?), ifnull(?, lowest)), "
        "highest = max(ifnull(highest, ?), ifnull(?, highest)) WHERE id = ?",
        (len(values), values[-1], low, low, high, high, metric),
    )


def as_json(values: Mapping[str, Any]) -> str:
    """Write parameters down. What JSON has no word for (a class, a dataset) becomes its repr; never raises."""
    return json.dumps(encodable({str(name): _plain(value) for name, value in values.items()}))


def own_number(value: Any) -> Any:
    """Return a number of numpy or torch as Python's own; anything else as it is.

    A time of numpy's stays one: in nanoseconds, its item() is an integer.
    """
    time = getattr(getattr(value, "dtype", None), "kind", "") in ("m", "M")
    return (
        value.item() if not time and getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value
    )


def _plain(value: Any) -> Any:
    """Return what JSON can hold of one parameter."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    try:
        return json.loads(json.dumps(own_number(value)))
    except Exception:  # noqa: BLE001 (a user's own class may raise anything)
        return _short(value)


def _short(value: Any) -> str:
    try:
        text = masked_text(repr(value)[: 4 * REPR_AT_MOST])
    except Exception:  # noqa: BLE001 (see above)
        text = f"<{type(value).__name__}>"
    return text if len(text) <= REPR_AT_MOST else f"{text[:REPR_AT_MOST]}..."


class LoggedRow(NamedTuple):
    """One call of `tsnb.log` in a trial."""

    step: int
    """As it was given to `tsnb.log`; else how many rows the trial had logged before this one."""
    epoch: int | None
    """The trial's epoch, from 1: the one under way, or the last one; None before its first."""
    batch: int | None
    """Loader batches that it had taken of that epoch."""
    samples: int
    """Samples that it had taken in all."""
    time_s: float
    """Seconds since 1970."""
    numbers: dict[str, float]
    """What was logged; nan and inf are possible."""
    stream_epoch: int | None = None
    """The stream's number of that epoch, from 0. Trials with equal numbers had the same batches in it."""


class LiveChange(NamedTuple):
    """One change of a live value, and from where on it held."""

    name: str
    """The value's name."""
    value: Any
    """Its value since then."""
    epoch: int | None
    """The trial's epoch, from 1; None before its first."""
    batch: int | None
    """Loader batches that had been taken of that epoch, the first with the new value among them."""
    samples: int
    """Samples that had been taken in all."""
    time_s: float
    """Seconds since 1970."""
