"""How much memory a trial is going to take, where its user has not said so: as it was measured, never as estimated.

| from | words |
|---|---|
| the records: its last runs of that name in this notebook (`records.peaks`) | "as its run 3 took" |
| `tsnb.plan`, in this process | "as tsnb.plan measured" |

A trial that was never seen is not expected to take anything: it starts at once, as ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tsnb.errors import TsnbError
from tsnb.records.peaks import largest_before
from tsnb.records.run import Run

__all__ = ["ExpectedMemory", "expected_memory", "measured"]

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
