"""The project's runs as tables: a row a run, and a row a logged number."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from typing import Any

from tsnb.records.choosing import check_metric, chosen_runs
from tsnb.records.reading import RunRecord, history_of
from tsnb.records.scores import direction_of, rank

__all__ = ["Table", "history", "history_table", "results", "results_table", "shown"]

Table = tuple[list[str], list[list[Any]]]
"""Columns, and rows with a value for each."""

OWN = (
    "name", "run", "state", "started", "duration_s", "stream", "epochs", "samples", "samples_per_s", "sweep", "seed",
    "notebook", "git", "tags",
)  # fmt: skip
REPORTED = ("stream", "epochs", "samples", "samples_per_s")
HISTORY = ["name", "run", "step", "epoch", "samples", "time_s", "metric", "value"]


def results(
    name: str | None = None, *, all_runs: bool = False, sort: str | None = None, tag: str | None = None
) -> Any:
    """Return a table of this project's trials: one row a run, as it stands now.

    Columns: name, run (1 for the first of that name), state, started (local time), duration_s, stream, epochs,
    samples, samples_per_s (nothing where it attached to no stream), sweep, seed, notebook (or script), git (the commit
    that it started from, with "-dirty" where files differed from it, "?" where nobody could look), tags, then one a
    parameter and one a logged name (its last value, which is the trial's score). Where a name is taken: "NAME (param)",
    "NAME (logged)".

    Args:
        name: Only the trial of this name, or the sweep; left out: all of the project.
        all_runs: Former runs of each name too, not only the last of each notebook.
        sort: A logged name: the best trial first, those that are done before the others. Left out: as they began.
        tag: Only the runs with this tag (`tsnb.tag`), former ones too.

    Returns:
        A pandas DataFrame where pandas is installed, else a list of dictionaries with the same keys.

    Raises:
        NoSuchRecord: Nothing is called so, or has that tag; lists what there is.
        UnknownDirection: Nothing says whether a high or a low value of `sort` is good.
        TsnbError: The project's records cannot be read.
    """
    return shown(*results_table(name, all_runs, sort, tag))


def history(metric: str | None = None, name: str | None = None, *, all_runs: bool = False) -> Any:
    """Return everything that was logged, in long form: one row a number.

    Columns: name, run, step, epoch, samples (taken by then), time_s (seconds since 1970), metric, value.

    Args:
        metric: Only what was logged under this name; left out: all.
        name: Only the trial of this name, or the sweep; left out: all of the project.
        all_runs: Former runs of each name too, not only the last.

    Returns:
        A pandas DataFrame where pandas is installed, else a list of dictionaries with the same keys.

    Raises:
        NoSuchRecord: Nothing is called so; lists what there is.
        TsnbError: The project's records cannot be read.
    """
    return shown(*history_table(metric, name, all_runs))


def results_table(name: str | None, all_runs: bool, sort: str | None = None, tag: str | None = None) -> Table:
    """Return the columns and rows of `results`."""
    _, runs = chosen_runs(name, all_runs, tag)
    if sort is not None:
        check_metric(sort, runs)
        mode = direction_of(sort)
        runs = sorted(runs, key=lambda run: _place(run, sort, mode))
    params = dict.fromkeys(param for run in runs for param in run.params)
    metrics = dict.fromkeys(metric for run in runs for metric in run.metrics)
    columns = list(OWN)
    columns += [f"{param} (param)" if param in OWN else param for param in params]
    columns += [f"{metric} (logged)" if metric in columns else metric for metric in metrics]
    rows = [
        [
            *_own(run),
            *(run.params.get(param) for param in params),
            *(run.metrics[metric].last if metric in run.metrics else None for metric in metrics),
        ]
        for run in runs
    ]
    return columns, rows


def _place(run: RunRecord, metric: str, mode: str) -> tuple[bool, bool, bool, float]:
    """Return a key that sorts runs by their score, those without one last."""
    found = run.metrics.get(metric)
    return found is None, *rank(math.nan if found is None else found.last, mode, done=run.state == "done")


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

        from tsnb.records.frames import PrintableFrame
    except ImportError:
        return [dict(zip(columns, row, strict=True)) for row in rows]
    return PrintableFrame(rows, columns=list(columns))


def _own(run: RunRecord) -> list[Any]:
    started = dt.datetime.fromtimestamp(int(run.started_s), dt.timezone.utc)
    own = {
        **{column: run.report.get(column) for column in REPORTED},
        "name": run.name,
        "run": run.number,
        "state": run.state,
        "started": started.astimezone().replace(tzinfo=None),
        "duration_s": round(run.duration_s, 3),
        "sweep": run.sweep or None,
        "seed": run.seed,
        "notebook": run.origin.removeprefix("notebook ") or None,
        "git": run.git or None,
        "tags": ", ".join(run.tags) or None,
    }
    return [own[column] for column in OWN]
