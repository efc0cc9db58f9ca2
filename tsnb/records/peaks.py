"""How much memory a trial took: of its runs before this one, in the same notebook or script, from their records."""

from __future__ import annotations

from typing import NamedTuple

from tsnb.records.database import reading
from tsnb.records.run import Run

__all__ = ["PeakRecord", "largest_before"]

LOOKED_AT = 20
"""So many of a trial's last runs are looked at for one that was done."""


class PeakRecord(NamedTuple):
    """The largest memory of a trial's process, as one of its runs has it."""

    number: int
    """Which run of that name."""
    state: str
    """How that one ended."""
    peak_bytes: int
    """Its process's own memory, at most."""


def largest_before(run: Run) -> PeakRecord | None:
    """Return the largest of the runs since the last one that was done, that one and this one included.

    A run that failed, was stopped or killed may not have reached its largest: the one that was done before it counts
    as well. So does this run itself, if its process died and is started again.

    Args:
        run: The trial's run now.

    Raises:
        TsnbError: The file cannot be read.
    """
    query = """SELECT number, state, peak_bytes FROM runs
        WHERE name = :name AND number <= :number AND peak_bytes > 0
        AND typeof(peak_bytes) = 'integer' AND typeof(number) = 'integer'
        AND origin = (SELECT origin FROM runs WHERE key = :key) ORDER BY number DESC LIMIT :most"""
    given = {"name": run.name, "number": run.number, "key": run.key, "most": LOOKED_AT}
    seen: list[PeakRecord] = []
    with reading(run.directory) as connection:
        for row in connection.execute(query, given) if connection else ():
            seen.append(PeakRecord(*row))
            if seen[-1].state == "done":
                break
    return max(seen, key=lambda each: each.peak_bytes, default=None)
