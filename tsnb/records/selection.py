"""Which runs a question is about: by a trial's name or a sweep's or a tag, the last of each name or all.

What a user does with runs selected so: put words on them (`tag`), to find them again: the baseline, those of the paper;
read what one of them printed; and delete them, with their logs, artifacts and checkpoints.
"""

from __future__ import annotations

import errno
import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from tsnb.errors import TsnbError
from tsnb.private.files import read_below
from tsnb.records.database import writing
from tsnb.records.kept import FOLDER
from tsnb.records.project import project_directory
from tsnb.records.reading import ENDED, RunRecord, read_runs
from tsnb.text.printable import coloured, one_line
from tsnb.text.words import did_you_mean

__all__ = [
    "LOG_END",
    "NoSuchRecord",
    "OneRun",
    "check_metric",
    "chosen_runs",
    "delete",
    "log_of",
    "named_runs",
    "tag",
    "value_of",
]

LOG_END = 20_000
"""Characters of a log that are shown: its end. The full log is on disk."""


class OneRun(Protocol):
    """What stands for one run: a trial, or a run's own handle."""

    @property
    def name(self) -> str:
        """The trial's name."""

    @property
    def number(self) -> int:
        """Which run of that name."""


class NoSuchRecord(TsnbError, LookupError):
    """The project has no trial, sweep, metric or parameter of that name; the message lists those it has."""


def chosen_runs(name: str | None, all_runs: bool, tag: str | None = None) -> tuple[Path, list[RunRecord]]:
    """Return the project's directory and the runs that were asked for, in the order in which they began.

    Args:
        name: A trial's name or a sweep's; None: all. Of several duels of one name, the last one.
        all_runs: Those that a later run of the same name followed as well, and former duels.
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
                _missing(f"No trial or sweep is named {name!r} in {directory}", name, there, "names")
            )
        runs = found if all_runs or tag is not None else _of_last_duel(found, name, directory)
    return directory, runs if tag is None else _tagged(runs, tag)


def _of_last_duel(runs: list[RunRecord], name: str, directory: Path) -> list[RunRecord]:
    """Return the runs of the last duel of a name, if there is one. Those of former duels have other seeds."""
    last = next((duel for run in reversed(runs) if (duel := _duel_of(run)) is not None), None)
    if last is None:
        return runs
    every = read_runs(directory, all_runs=True)  # a duel may continue after a later one
    found = {run.name: run for run in every if name in {run.name, run.sweep} and _duel_of(run) == last}
    return list(found.values())


def _duel_of(run: RunRecord) -> object:
    """Return which duel of its name a run is of; None: it is of none."""
    return run.params.get("duel") if {"arm", "block"} <= run.params.keys() else None


def named_runs(
    which: str | OneRun | None, run: int | None, all_runs: bool, tag: str | None = None
) -> tuple[Path, list[RunRecord]]:
    """Return the project's directory and the runs that a caller wants to change.

    Args:
        which: A trial's name or a sweep's, or a trial, which is one run; None: all.
        run: Only this run of the name.
        all_runs: Those that a later run of the same name followed as well.
        tag: Those with this tag only, former ones too.

    Raises:
        NoSuchRecord: No trial or sweep has that name, or it has no such run or tag.
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
        raise NoSuchRecord(f"{name!r} has no run {run} in {directory}. Its runs: {there}")
    return directory, found


def log_of(name: str, number: int | None = None) -> tuple[RunRecord, str | None]:
    """Return a run of a trial, the last one if no number is given, and the end of what it printed.

    Args:
        name: The trial's.
        number: Another run of that name.

    Returns:
        The run's record, and the text; None in its place where the log no longer exists.

    Raises:
        NoSuchRecord: No trial has that name, or it has no such run.
        TsnbError: The records cannot be read, or something else is in the log's place.
    """
    directory = project_directory(make=False)
    runs = read_runs(directory, name=name, all_runs=number is not None)
    if not runs:
        there = dict.fromkeys(run.name for run in read_runs(directory))
        raise NoSuchRecord(_missing(f"No trial is named {name!r} in {directory}", name, there, "names"))
    runs = [run for run in runs if number in {None, run.number}]
    if not runs:
        _, runs = named_runs(name, number, all_runs=True)
    file = f"{_label(runs[-1])}.log"
    try:
        # a character has four bytes at most; one that is cut in two is not shown
        text = read_below(directory, "logs", file, last=4 * LOG_END + 4).decode(errors="replace")
    except FileNotFoundError:
        return runs[-1], None
    except OSError as error:
        raise TsnbError(
            f"{directory / 'logs' / file} is not a log that tsnb can read: {_what_is_there(error)}. Remove it."
        ) from None
    return runs[-1], coloured(text[-LOG_END:], LOG_END)


def _what_is_there(error: OSError) -> str:
    """Return in words what is in a log's place, as `read_below` has found it."""
    words = {
        errno.ELOOP: "it is a link",
        errno.ENOTDIR: "'logs' is a link, or not a folder",
        errno.EINVAL: "it is not an ordinary file",
        errno.ENXIO: "it is not an ordinary file",
    }
    return words.get(error.errno or 0, error.strerror or str(error))


def _tagged(runs: Sequence[RunRecord], tag: str) -> list[RunRecord]:
    """Return those with a tag.

    Raises:
        NoSuchRecord: No run has it; lists the tags there are.
    """
    found = [run for run in runs if tag in run.tags]
    if not found:
        there = dict.fromkeys(known for run in runs for known in run.tags)
        raise NoSuchRecord(_missing(f"No trial has the tag {tag!r}", tag, there, "tags"))
    return found


def check_metric(metric: str, runs: Sequence[RunRecord]) -> None:
    """Check that one of these runs logged a metric.

    Raises:
        NoSuchRecord: None did; says what they logged.
    """
    logged = dict.fromkeys(name for run in runs for name in run.metrics)
    if metric not in logged:
        raise NoSuchRecord(_missing(f"No trial logged {metric!r}", metric, logged, "metrics"))


def value_of(run: RunRecord, by: str) -> tuple[bool, Any]:
    """Return whether a run has a parameter, or an option that was given, of that name, and its value.

    None is a value of a parameter (`scheduler=None`); an option that is None was not given.
    """
    if by in run.params:
        return True, run.params[by]
    own = {"name": run.name, "sweep": run.sweep, "seed": run.seed, "state": run.state}
    found = {**own, **run.options}.get(by)
    return found is not None, found


def _missing(what: str, name: str, there: Iterable[str], kind: str) -> str:
    known = list(there)
    hint = did_you_mean(name, known)
    listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
    return f"{what}.{hint} Known {kind}: {listed or 'none yet'}"


def tag(trial: str | OneRun, *tags: str, run: int | None = None, remove: bool = False) -> list[str]:
    """Tag runs of a trial in the project's records.

    A tag belongs to one run. The next run of that name does not have it.

    Example:
        >>> tsnb.records.tag("train-lr0.1", "baseline")
        >>> tsnb.results(tag="baseline")

    Args:
        trial: A trial, or the name of a trial or sweep. Stands for the last run of each name.
        *tags: Any words without commas.
        run: Number of another run of that name. Defaults to the last.
        remove: Whether to remove the tags instead. Defaults to False.

    Returns:
        The runs that were tagged, for example ["cnn-2"].

    Raises:
        ValueError: If no tag is given, or one is empty or has a comma.
        NoSuchRecord: If no trial or sweep has that name, or the run does not exist.
        TsnbError: If the project's records cannot be changed.
    """
    for word in tags:
        if not isinstance(word, str) or not word.strip() or "," in word or one_line(word) != word:
            raise ValueError(f"{word!r} is not a tag. Pass words without commas, for example 'baseline'")
    if not tags:
        raise ValueError("tsnb.records.tag needs a tag: tsnb.records.tag('cnn', 'baseline')")
    directory, runs = named_runs(trial, run, all_runs=False)
    try:
        with writing(directory) as connection:
            for record in runs:
                (text,) = connection.execute("SELECT tags FROM runs WHERE key = ?", (record.key,)).fetchone()
                kept = [word for word in json.loads(text) if not remove or word not in tags]
                now = kept if remove else list(dict.fromkeys([*kept, *tags]))
                connection.execute("UPDATE runs SET tags = ? WHERE key = ?", (json.dumps(now), record.key))
    except (sqlite3.Error, OSError) as error:
        raise TsnbError(f"The records in {directory} cannot be changed: {error}") from None
    return [f"{record.name}-{record.number}" for record in runs]


_PLACES = (("logs", "{}.log"), ("artifacts", "{}"), ("tensorboard", "{}"), (FOLDER, "{}"))
"""Where files of a run lie in the records directory, and what they are called there."""

_ROWS = (
    "DELETE FROM numbers WHERE metric IN (SELECT m.id FROM metrics m JOIN runs r ON r.id = m.run WHERE r.key = :key)",
    "DELETE FROM metrics WHERE run = (SELECT id FROM runs WHERE key = :key)",
    "DELETE FROM logged WHERE run = (SELECT id FROM runs WHERE key = :key)",
    "DELETE FROM runs WHERE key = :key",
)


def delete(
    trial: str | OneRun | None = None,
    *,
    run: int | None = None,
    tag: str | None = None,
    all_runs: bool = False,
) -> list[str]:
    """Delete runs from the project's records for good.

    Deletes numbers, logs, artifacts, checkpoints and TensorBoard files. A name with several runs needs `run=` or
    `all_runs=True`. If one of them has not ended, nothing is deleted. Data sent to MLflow or W&B stays there.

    Example:
        >>> tsnb.records.tag("train-lr0.01", "draft")
        >>> tsnb.records.delete(tag="draft")

    Args:
        trial: A trial, or the name of a trial or sweep. Defaults to all runs with the tag.
        run: Number of the run to delete. Defaults to the only one.
        tag: Tag of the runs to delete, former ones too. Defaults to None.
        all_runs: Whether to delete all runs of each name. Defaults to False.

    Returns:
        The runs that were deleted, for example ["cnn-1", "cnn-2"].

    Raises:
        ValueError: If neither a trial nor a tag is named.
        NoSuchRecord: If no trial or sweep has that name or tag, or the run does not exist.
        TsnbError: If a name has several runs and you do not say which, a run has not ended, or files or records
            cannot be changed.
    """
    if trial is None and tag is None:
        raise ValueError(
            "tsnb.records.delete needs a trial or a tag: tsnb.records.delete('cnn', run=2), "
            "tsnb.records.delete('cnn', all_runs=True) or tsnb.records.delete(tag='junk'). To forget "
            "everything, delete the folder .tsnb"
        )
    directory, runs = named_runs(trial, run, all_runs=True, tag=tag)
    _require_said(runs, said=all_runs or tag is not None)
    live = [_label(record) for record in runs if record.state not in ENDED]
    if live:
        raise TsnbError(
            f"{', '.join(live)} has not ended. Nothing was deleted. Stop it first: "
            f"tsnb.trials[{next(r.name for r in runs if r.state not in ENDED)!r}].stop()"
        )
    try:
        for record in runs:
            _remove_files(directory, _label(record))
        with writing(directory) as connection:
            for record in runs:
                for statement in _ROWS:
                    connection.execute(statement, {"key": record.key})
    except (sqlite3.Error, OSError) as error:
        raise TsnbError(
            f"Some of {', '.join(map(_label, runs))} could not be deleted from {directory}: {error}. Fix "
            "that, then delete again"
        ) from None
    return [_label(record) for record in runs]


def _require_said(runs: Sequence[RunRecord], said: bool) -> None:
    """Refuse to choose between several runs of one name.

    Raises:
        TsnbError: It was not said which, or that it is all.
    """
    several = [name for name, count in Counter(record.name for record in runs).items() if count > 1]
    if not said and several:
        numbers = ", ".join(f"run={record.number}" for record in runs if record.name == several[0])
        raise TsnbError(
            f"{several[0]!r} has several runs. Nothing was deleted. Pass one ({numbers}), or all_runs=True "
            "for all of them"
        )


def _label(record: RunRecord) -> str:
    return f"{record.name}-{record.number}"


def _remove_files(directory: Path, label: str) -> None:
    """Remove a run's files. No link is followed, and nothing is removed beside the run's own places."""
    for folder, called in _PLACES:
        name = called.format(label)
        place = directory / folder
        path = place / name
        if Path(name).name != name or place.is_symlink() or directory.is_symlink():
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
