"""Deleting runs from a project's records, with their logs and artifacts."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tsnb.errors import TsnbError
from tsnb.records.choosing import OneRun, named_runs
from tsnb.records.database import writing
from tsnb.records.reading import ENDED, RunRecord

__all__ = ["delete"]

_PLACES = (("logs", "{}.log"), ("artifacts", "{}"), ("tensorboard", "{}"))
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
    """Delete runs of the project's records for good: their numbers, logs, artifacts and TensorBoard files.

    What is deleted has to be said in full: of a name with several runs, which (`run=2`), or that it is all of them
    (`all_runs=True`). One that has not ended is refused, and then nothing is deleted. What was sent to MLflow or
    W&B stays there.

    Args:
        trial: A trial, or a trial's name or a sweep's; left out: all that have the tag.
        run: Only this run of the name.
        tag: Only runs with this tag, former ones too.
        all_runs: All runs of each name.

    Returns:
        The runs that were deleted: ["cnn-1", "cnn-2"].

    Raises:
        ValueError: Neither a trial nor a tag is named.
        NoSuchRecord: Nothing is called so, or has that tag, or there is no such run; lists what there is.
        TsnbError: A name has several runs and it is not said which; one has not ended; files or records cannot be
            changed.
    """
    if trial is None and tag is None:
        raise ValueError(
            "tsnb.delete needs to know what: tsnb.delete('cnn', run=2), tsnb.delete('cnn', all_runs=True) or "
            "tsnb.delete(tag='junk'). To forget everything, delete the folder .tsnb"
        )
    directory, runs = named_runs(trial, run, all_runs=True, tag=tag)
    _require_said(runs, said=all_runs or tag is not None)
    live = [_label(record) for record in runs if record.state not in ENDED]
    if live:
        raise TsnbError(
            f"{', '.join(live)} has not ended, so nothing was deleted: stop it first, by "
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
            f"not all of {', '.join(map(_label, runs))} could be deleted from {directory}: {error}. Once that is "
            "mended, delete again"
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
            f"{several[0]!r} has several runs. Say which ({numbers}), or all_runs=True for all of them; nothing was "
            "deleted"
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
