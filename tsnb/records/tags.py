"""Words that a user puts on runs, to find them again: the baseline, those of the paper."""

from __future__ import annotations

import json
import sqlite3

from tsnb.errors import TsnbError
from tsnb.printable import one_line
from tsnb.records.choosing import OneRun, named_runs
from tsnb.records.database import writing

__all__ = ["tag"]


def tag(trial: str | OneRun, *tags: str, run: int | None = None, remove: bool = False) -> list[str]:
    """Tag a trial in the project's records: `tsnb.tag("cnn", "baseline")`, then `tsnb.results(tag="baseline")`.

    A tag belongs to one run: the next one of that name does not have it.

    Args:
        trial: A trial, or a trial's name or a sweep's: the last run of each name, as `tsnb.results` shows.
        *tags: Words of your own, without commas.
        run: Another run of that name than the last.
        remove: Take the tags off instead.

    Returns:
        The runs that were tagged: ["cnn-2"].

    Raises:
        ValueError: No tag is given, or one is empty or has a comma.
        NoSuchRecord: Nothing is called so, or there is no such run; lists what there is.
        TsnbError: The project's records cannot be changed.
    """
    for word in tags:
        if not isinstance(word, str) or not word.strip() or "," in word or one_line(word) != word:
            raise ValueError(f"{word!r} is not a tag: give words without commas, such as 'baseline'")
    if not tags:
        raise ValueError("tsnb.tag needs a tag: tsnb.tag('cnn', 'baseline')")
    directory, runs = named_runs(trial, run, all_runs=False)
    try:
        with writing(directory) as connection:
            for record in runs:
                (text,) = connection.execute("SELECT tags FROM runs WHERE key = ?", (record.key,)).fetchone()
                kept = [word for word in json.loads(text) if not remove or word not in tags]
                now = kept if remove else list(dict.fromkeys([*kept, *tags]))
                connection.execute("UPDATE runs SET tags = ? WHERE key = ?", (json.dumps(now), record.key))
    except (sqlite3.Error, OSError) as error:
        raise TsnbError(f"the records in {directory} cannot be changed: {error}") from None
    return [f"{record.name}-{record.number}" for record in runs]
