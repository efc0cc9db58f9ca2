"""The project's tables as files: CSV, which everything reads, and Parquet, which keeps types."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tsnb.errors import ExtraMissing
from tsnb.files import replace_file
from tsnb.records.tables import Table, history_table, results_table

__all__ = ["export"]

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
