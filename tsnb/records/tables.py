"""The project's runs as tables: a row a run, a row a logged number, a row a value of one parameter (`compare`).

`export` writes them to files: CSV, which everything reads, and Parquet, which keeps types.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import math
import os
import statistics
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from tsnb.errors import ExtraMissing
from tsnb.private.files import replace_file
from tsnb.records.reading import RunRecord, history_of
from tsnb.records.scores import best_of, direction_of, rank
from tsnb.records.selection import NoSuchRecord, check_metric, chosen_runs, value_of

__all__ = ["Table", "compared", "export", "history", "history_table", "results_table", "shown", "told_apart"]

Table = tuple[list[str], list[list[Any]]]
"""Columns, and rows with a value for each."""

OWN = (
    "name", "run", "state", "waits_for", "started", "duration_s", "stream", "epochs", "samples", "samples_per_s",
    "peak_bytes", "sweep", "seed", "notebook", "git", "tags", "parent",
)  # fmt: skip
SELDOM = ("waits_for", "parent")
"""Columns that are left out where no run has any of it."""
REPORTED = ("stream", "epochs", "samples", "samples_per_s")
HISTORY = ["name", "run", "step", "epoch", "samples", "time_s", "metric", "value"]


def history(metric: str | None = None, trial: str | None = None, *, all_runs: bool = False) -> Any:
    """Return all logged numbers, one row per number.

    Columns: name, run, step, epoch, samples (taken by then), time_s (seconds since 1970), metric, value.

    Example:
        >>> tsnb.records.history("loss")

    Args:
        metric: Logged name to show. Defaults to all.
        trial: Name of one trial or sweep. Defaults to all of the project.
        all_runs: Whether former runs of each name are shown too. Defaults to False.

    Returns:
        A pandas DataFrame where pandas is installed, else a list of dictionaries with the same keys.

    Raises:
        NoSuchRecord: If no trial, sweep or logged number has that name.
        TsnbError: If the project's records cannot be read.
    """
    return shown(*history_table(metric, trial, all_runs))


def results_table(name: str | None, all_runs: bool, sort: str | None = None, tag: str | None = None) -> Table:
    """Return the columns and rows of `tsnb.results`, which says what they are.

    Raises:
        NoSuchRecord: Nothing is called so, or has that tag; lists what there is.
        UnknownDirection: Nothing says whether a high or a low value of `sort` is good.
        TsnbError: The project's records cannot be read.
    """
    _, runs = chosen_runs(name, all_runs, tag)
    if sort is not None:
        check_metric(sort, runs)
        mode = direction_of(sort)
        runs = sorted(runs, key=lambda run: _place(run, sort, mode))
    params = dict.fromkeys(param for run in runs for param in run.params)
    metrics = dict.fromkeys(metric for run in runs for metric in run.metrics)
    own = [column for column in OWN if column not in SELDOM or any(getattr(run, column) for run in runs)]
    columns = [*own, *told_apart(params, own, "param")]
    columns += told_apart(metrics, columns, "logged")
    rows = [
        [
            *_own(run, own),
            *(run.params.get(param) for param in params),
            *(run.metrics[metric].last if metric in run.metrics else None for metric in metrics),
        ]
        for run in runs
    ]
    return columns, rows


def told_apart(names: Iterable[str], taken: Collection[str], word: str) -> list[str]:
    """Return what columns are called beside others: "epochs" is "epochs (param)" where that name is taken.

    No two have one name: a table that is read by name would lose one of them.

    Args:
        names: Of parameters, or of logged numbers.
        taken: Columns that there are.
        word: What they are: "param" or "logged".
    """
    used, found = set(taken), []
    for name in names:
        chosen, count = name, 1
        while chosen in used:
            chosen, count = f"{name} ({word})" if count == 1 else f"{name} ({word} {count})", count + 1
        used.add(chosen)
        found.append(chosen)
    return found


def _place(run: RunRecord, metric: str, mode: str) -> tuple[Any, ...]:
    """Return a key that sorts runs by their score, those without one last."""
    found = run.metrics.get(metric)
    return found is None, *rank(math.nan if found is None else found.last, mode, run.state), run.name


def history_table(metric: str | None, name: str | None, all_runs: bool) -> Table:
    """Return the columns and rows of `history`."""
    directory, runs = chosen_runs(name, all_runs)
    if metric is not None:
        check_metric(metric, runs)
    rows = [
        [run.name, run.number, *row]
        for run in runs
        if metric is None or metric in run.metrics
        for row in history_of(directory, run.id, metric)
    ]
    return list(HISTORY), rows


def shown(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Any:
    """Return a table as users get it: a DataFrame where pandas is installed, else dictionaries."""
    try:
        import pandas as pd  # noqa: F401 (hidden from us, it is not there, though the module below is loaded)

        from tsnb.records.dataframe import PrintableFrame, exact
    except ImportError:
        return [dict(zip(columns, row, strict=True)) for row in rows]
    return PrintableFrame(exact(columns, rows))


def _own(run: RunRecord, columns: Sequence[str]) -> list[Any]:
    started = dt.datetime.fromtimestamp(int(run.started_s), dt.timezone.utc)
    own = {
        **{column: run.report.get(column) for column in REPORTED},
        "name": run.name,
        "run": run.number,
        "state": run.state,
        "waits_for": run.waits_for or None,
        "started": started.astimezone().replace(tzinfo=None),
        "duration_s": round(run.duration_s, 3),
        "peak_bytes": run.peak_bytes,
        "sweep": run.sweep or None,
        "seed": run.seed,
        "notebook": run.origin.removeprefix("notebook ") or None,
        "git": run.git or None,
        "tags": ", ".join(run.tags) or None,
        "parent": None if run.parent is None else run.parent.told,
    }
    return [own[column] for column in columns]


def compared(
    metric: str, by: str, mode: str | None, trial: str | None, all_runs: bool, tag: str | None
) -> tuple[list[str], list[list[Any]]]:
    """Return the columns and rows of `results(by=)`, which says what the arguments are.

    Raises:
        ValueError: `mode` is another word.
        UnknownDirection: Nothing says whether a high or a low value is good.
        NoSuchRecord: No trial logged that, or has such a parameter; lists what there is.
        TsnbError: The project's records cannot be read.
    """
    _, runs = chosen_runs(trial, all_runs, tag)
    check_metric(metric, runs)
    mode = direction_of(metric, mode)
    groups = grouped([run for run in runs if metric in run.metrics], by)
    rows = [[value, *_summary(members, metric, mode)] for value, members in groups]
    rows.sort(key=lambda row: rank(row[2], mode, row[4]))
    return [by, "trials", "best", "best_trial", "best_state", "mean", "std", "best_ever"], rows


def grouped(runs: Sequence[RunRecord], by: str) -> list[tuple[Any, list[RunRecord]]]:
    """Return runs by the value of a parameter, in the order in which the values came up; those without one left out.

    Raises:
        NoSuchRecord: None has such a parameter.
    """
    groups: dict[str, tuple[Any, list[RunRecord]]] = {}
    for run in runs:
        known, value = value_of(run, by)
        if known:
            groups.setdefault(_key(value), (value, []))[1].append(run)
    if not groups:
        there = ", ".join(dict.fromkeys(name for run in runs for name in (*run.params, *run.options)))
        raise NoSuchRecord(f"No trial has a parameter {by!r}. Parameters here: {there or 'none'}")
    return list(groups.values())


def _key(value: Any) -> str:
    """Return text that equal values share: 1 and 1.0 are the same learning rate."""
    number = isinstance(value, float) and value.is_integer()
    return json.dumps(int(value) if number else value, sort_keys=True)


def _summary(runs: Sequence[RunRecord], metric: str, mode: str) -> list[Any]:
    """Return trials, best, best_trial, best_state, mean, std, best_ever of the runs of one value."""
    records = [run.metrics[metric] for run in runs]
    scores = [record.last for record in records]
    by_key = {f"{run.name} {k}": run for k, run in enumerate(runs)}  # of a name there may be several
    ranked = zip(by_key, (run.state for run in runs), scores, strict=True)
    key = best_of(ranked, mode)
    best = None if key is None else by_key[key]
    found = (math.nan, None, None) if best is None else (best.metrics[metric].last, best.name, best.state)
    numbers = [score for score in scores if not math.isnan(score)]
    peaks = [record.lowest if mode == "min" else record.highest for record in records]
    peak = min(peaks, key=lambda value: rank(value, mode), default=math.nan)
    return [len(runs), *found, _mean(numbers), _std(numbers), peak]


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else math.nan


def _std(numbers: Sequence[float]) -> float:
    """Return the standard deviation of a sample; nan for one number, or where one is infinite."""
    certain = len(numbers) > 1 and all(map(math.isfinite, numbers))
    return statistics.stdev(numbers) if certain else math.nan


FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""Text that begins so is run by spreadsheets: `=HYPERLINK(...)` as the name of a class in a data set, say."""


def export(
    path: str | os.PathLike[str], what: str = "trials", *, trial: str | None = None, all_runs: bool = False
) -> Path:
    """Write the project's records to a file for other programs.

    An existing file is replaced once all is written, and keeps its mode. Only you can read a new one. In CSV, a
    string that a spreadsheet would take for a formula gets a leading apostrophe.

    Example:
        >>> tsnb.records.export("runs.csv")

    Args:
        path: Path that ends in ".csv" or ".parquet", which decides the format.
        what: "trials" for the table of `tsnb.results()`, "metrics" for `tsnb.records.history()`. Defaults to
            "trials".
        trial: Name of one trial or sweep. Defaults to all of the project.
        all_runs: Whether former runs of each name are written too. Defaults to False.

    Returns:
        The path of the file.

    Raises:
        ValueError: If the path has another ending, or `what` is another word.
        ExtraMissing: If a Parquet file is wanted and pyarrow is not installed.
        NoSuchRecord: If no trial or sweep has that name.
        TsnbError: If the project's records cannot be read.
        OSError: If the file cannot be written.
    """
    target = Path(path)
    write = _WRITERS.get(target.suffix.lower())
    if write is None:
        raise ValueError(f"Cannot export to {target.name!r}. Use a name that ends in {' or '.join(_WRITERS)}")
    if what not in {"trials", "metrics"}:
        raise ValueError(
            f"what={what!r} is invalid. Pass 'trials' (one row per run) or 'metrics' (one row per logged "
            "number)"
        )
    table = results_table(trial, all_runs) if what == "trials" else history_table(None, trial, all_runs)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"The folder {str(target.parent)!r} does not exist. Create it first")
    replace_file(target, write(table))
    return target


def _as_csv(table: Table) -> bytes:
    columns, rows = table
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([_harmless(name) for name in columns])
    writer.writerows([_harmless(_simple(value)) for value in row] for row in rows)
    return text.getvalue().encode()


def _harmless(value: Any) -> Any:
    """Return text that a spreadsheet would take for a formula with an apostrophe before it; numbers stay numbers."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_STARTS) else value


def _as_parquet(table: Table) -> bytes:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ExtraMissing(
            "Writing Parquet needs pyarrow, which is not installed. Install it (pip install "
            "'tsnb[results]'), or export to a name that ends in .csv."
        ) from None
    columns, rows = table
    values = {name: [row[place] for row in rows] for place, name in enumerate(columns)}
    written = io.BytesIO()
    pq.write_table(pa.table({name: _array(pa, column) for name, column in values.items()}), written)
    return written.getvalue()


def _array(pa: Any, values: Iterable[Any]) -> Any:
    """Return a column of one type. A parameter that was a number here and a text there becomes text."""
    simple = [value if isinstance(value, dt.datetime) else _simple(value) for value in values]
    try:
        return pa.array(simple)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if value is None else str(value) for value in simple])


def _simple(value: Any) -> Any:
    """Return lists and mappings as JSON: a cell holds one value."""
    return json.dumps(value) if isinstance(value, list | dict) else value


_WRITERS: dict[str, Callable[[Table], bytes]] = {".csv": _as_csv, ".parquet": _as_parquet}
