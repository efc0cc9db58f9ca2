"""Which runs a question is about: by a trial's name or a sweep's, the last of each name or all."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tsnb.errors import TsnbError
from tsnb.records.project import project_directory
from tsnb.records.reading import RunRecord, read_runs

__all__ = ["NoSuchRecord", "check_metric", "chosen_runs", "value_of"]


class NoSuchRecord(TsnbError, LookupError):
    """The project has no trial, sweep, metric or parameter of that name; the message lists those there are."""


def chosen_runs(name: str | None, all_runs: bool) -> tuple[Path, list[RunRecord]]:
    """Return the project's directory and the runs that were asked for, in the order in which they began.

    Args:
        name: A trial's name or a sweep's; None: all.
        all_runs: Those that a later run of the same name followed as well.

    Raises:
        NoSuchRecord: Nothing is called so.
        TsnbError: The records cannot be read.
    """
    directory = project_directory(make=False)
    runs = read_runs(directory, all_runs=all_runs)
    if name is None:
        return directory, runs
    found = [run for run in runs if name in {run.name, run.sweep}]
    if not found:
        there = dict.fromkeys(name for run in runs for name in (run.name, run.sweep) if name)
        raise NoSuchRecord(_missing(f"no trial or sweep named {name!r} in {directory}", name, there, "names"))
    return directory, found


def check_metric(metric: str, runs: Sequence[RunRecord]) -> None:
    """Check that one of these runs logged a metric.

    Raises:
        NoSuchRecord: None did; says what they logged.
    """
    logged = dict.fromkeys(name for run in runs for name in run.metrics)
    if metric not in logged:
        raise NoSuchRecord(_missing(f"no trial logged {metric!r}", metric, logged, "metrics"))


def value_of(run: RunRecord, by: str) -> Any:
    """Return one of a run's parameters, or of its options; None if it has none of that name."""
    own = {"name": run.name, "sweep": run.sweep, "seed": run.seed, "state": run.state}
    for place in (run.params, run.options, own):
        if by in place:
            return place[by]
    return None


def _missing(what: str, name: str, there: Iterable[str], kind: str) -> str:
    known = list(there)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
    return f"{what}.{hint} The {kind} there are: {listed or 'none yet'}"
