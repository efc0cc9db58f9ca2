"""Single trials that are started one right after the other wait for each other, so that they get the same batches.

Several `%%trial` cells of "Run all" are such trials. Nobody says how many there will be, so nobody can open a gate
(`gate`) for them. Each has an empty file instead, below a directory of its stream in the hub's own one:

    made        by the process that starts the trial, as it starts the trial's process
    removed     by the trial, when it has asked for its first epoch; or by who made it, when the trial has ended
    waited for  by a trial that has asked, before its first batch, until the file is `WAITING_S` old

So a trial that is alone asks nobody, and no end of a trial or of a notebook holds up others for longer than that.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from tsnb.config import is_name

__all__ = ["WAITING_S", "begin_with_others", "starting"]

WAITING_S = 10.0
"""A trial that was started so long ago is not waited for, and nobody waits for longer: one may never read a stream."""

LOOK_S = 0.02
"""How often is looked whether all are there."""


@contextlib.contextmanager
def starting(above: Path, stream: str, name: str) -> Iterator[Path | None]:
    """Mark a trial as one that starts, until it has asked for its first epoch or this context is left.

    Args:
        above: The hub's directory.
        stream: The stream that the trial is for; empty: it is not known, so nobody waits for the trial.
        name: The trial's.

    Returns:
        What `begin_with_others` takes in the trial's process; None: it has nothing to wait for.
    """
    mark = above / "starting" / stream / name
    made = False
    if is_name(stream):
        with contextlib.suppress(OSError):  # the disk is full, say: the trial begins when it is ready
            for folder in (
                mark.parent.parent,
                mark.parent,
            ):  # parents=True would give the upper one the umask's mode
                folder.mkdir(mode=0o700, exist_ok=True)
            mark.touch(mode=0o600)
            made = True
    try:
        yield mark if made else None
    finally:
        with contextlib.suppress(OSError):
            mark.unlink()


def begin_with_others(mark: Path, stall_timeout_s: float) -> None:
    """Say that this trial has asked for its first epoch, and wait for those that have not, within bounds.

    Prints which ones are still missing at the end.

    Args:
        mark: This trial's, as `starting` has returned it.
        stall_timeout_s: For how long the stream waits for one that stands still: others may be in that epoch already,
            and would go on without this one.
    """
    within_s, waited_for = min(WAITING_S, stall_timeout_s / 2), set[str]()
    until_s = time.monotonic() + within_s
    with contextlib.suppress(OSError):
        mark.unlink()
    while True:
        ages = _ages(mark.parent)
        missing = {name for name, age_s in ages.items() if age_s < WAITING_S}
        if not missing or time.monotonic() >= until_s:
            break
        waited_for |= missing
        time.sleep(LOOK_S)
    late = " and ".join(repr(name) for name in sorted(waited_for & ages.keys()))
    if late:
        print(  # noqa: T201 (a trial's own output is where its user looks)
            f"note: {mark.name!r} starts without {late}. Trials that are started together wait at most "
            f"{within_s:g} s for each other.",
            flush=True,
        )


def _ages(folder: Path) -> dict[str, float]:
    """Return for how many seconds each trial has been starting."""
    ages: dict[str, float] = {}
    with contextlib.suppress(OSError):  # the notebook has ended, and its directory with it
        for mark in folder.iterdir():
            with contextlib.suppress(OSError):  # it has asked just now
                ages[mark.name] = time.time() - mark.stat().st_mtime
    return ages
