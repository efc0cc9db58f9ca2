"""How much memory a trial is going to take, where its user has not said so: as it was measured, never as estimated.

| from | words |
|---|---|
| the records: its last runs of that name in this notebook (`largest_before`) | "as its run 3 took" |
| `tsnb.plan`, in this process | "as tsnb.plan measured" |

A trial that was never seen is not expected to take anything: it starts at once, as ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tsnb.errors import TsnbError
from tsnb.records.database import reading
from tsnb.records.run import Run

__all__ = ["ExpectedMemory", "PeakRecord", "expected_memory", "largest_before", "measured"]

_planned: dict[str, int] = {}
"""Bytes that `tsnb.plan` found, by the trial's name."""


class ExpectedMemory(NamedTuple):
    """What a trial is going to take."""

    needs_bytes: int
    """Its process's own memory, at most."""
    because: str
    """From what that is known."""


def measured(names: Iterable[str], peak_bytes: float) -> None:
    """Note what `tsnb.plan` found.

    Args:
        names: Those under which the trial may be started.
        peak_bytes: Its memory.
    """
    _planned.update(dict.fromkeys(names, int(peak_bytes)))


def expected_memory(run: Run) -> ExpectedMemory | None:
    """Return what a trial is going to take; None where it was never seen. May wait for a disk."""
    try:
        found = largest_before(run) if run.id else None
    except TsnbError:  # without records it is as if it had never run
        found = None
    if found is not None and found.number == run.number:
        return ExpectedMemory(found.peak_bytes, "as it took before")
    if found is not None:
        died = " before it crashed" if found.state == "crashed" else ""
        return ExpectedMemory(found.peak_bytes, f"as its run {found.number} took{died}")
    if run.name in _planned:
        return ExpectedMemory(_planned[run.name], "as tsnb.plan measured")
    return None


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
