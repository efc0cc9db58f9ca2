"""Which runs a question is about: by a trial's name or a sweep's or a tag, the last of each name or all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from tsnb.errors import TsnbError
from tsnb.records.project import project_directory
from tsnb.records.reading import RunRecord, read_runs
from tsnb.words import did_you_mean

__all__ = ["NoSuchRecord", "OneRun", "check_metric", "chosen_runs", "named_runs", "value_of"]


class OneRun(Protocol):
    """What stands for one run: a trial, or a run's own handle."""

    @property
    def name(self) -> str:
        """The trial's name."""

    @property
    def number(self) -> int:
        """Which run of that name."""


class NoSuchRecord(TsnbError, LookupError):
    """The project has no trial, sweep, metric or parameter of that name; the message lists those there are."""


def chosen_runs(name: str | None, all_runs: bool, tag: str | None = None) -> tuple[Path, list[RunRecord]]:
    """Return the project's directory and the runs that were asked for, in the order in which they began.

    Args:
        name: A trial's name or a sweep's; None: all.
        all_runs: Those that a later run of the same name followed as well.
        tag: Those with this tag only, former ones too.

    Raises:
        NoSuchRecord: Nothing is called so, or has that tag.
        TsnbError: The records cannot be read.
    """
    directory = project_directory(make=False)
    runs = read_runs(directory, all_runs=all_runs or tag is not None)
    if name is not None:
        found = [run for run in runs if name in {run.name, run.sweep}]
        if not found:
            there = dict.fromkeys(name for run in runs for name in (run.name, run.sweep) if name)
            raise NoSuchRecord(
                _missing(f"no trial or sweep named {name!r} in {directory}", name, there, "names")
            )
        runs = found
    return directory, runs if tag is None else _tagged(runs, tag)


def named_runs(
    which: str | OneRun | None, run: int | None, all_runs: bool, tag: str | None = None
) -> tuple[Path, list[RunRecord]]:
    """Return the project's directory and the runs that somebody names who wants to change them.

    Args:
        which: A trial's name or a sweep's, or a trial, which is one run; None: all.
        run: Only this run of the name.
        all_runs: Those that a later run of the same name followed as well.
        tag: Those with this tag only, former ones too.

    Raises:
        NoSuchRecord: Nothing is called so, or there is no such run of it, or it has no such tag.
        TsnbError: The records cannot be read.
    """
    if which is None or isinstance(which, str):
        name = which
    else:
        name, run = which.name, which.number
    directory, runs = chosen_runs(name, all_runs or run is not None, tag)
    found = [record for record in runs if run in {None, record.number}]
    if not found:
        there = ", ".join(str(record.number) for record in runs)
        raise NoSuchRecord(f"no run {run} of {name!r} in {directory}. The runs there are: {there}")
    return directory, found


def _tagged(runs: Sequence[RunRecord], tag: str) -> list[RunRecord]:
    """Return those with a tag.

    Raises:
        NoSuchRecord: There is none; says which tags there are.
    """
    found = [run for run in runs if tag in run.tags]
    if not found:
        there = dict.fromkeys(known for run in runs for known in run.tags)
        raise NoSuchRecord(_missing(f"no trial has the tag {tag!r}", tag, there, "tags"))
    return found


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
    hint = did_you_mean(name, known)
    listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
    return f"{what}.{hint} The {kind} there are: {listed or 'none yet'}"
