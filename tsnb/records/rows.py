"""One `tsnb.log` as it is kept, sent and shown: the numbers, and where in training they were logged."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["LoggedRow"]


class LoggedRow(NamedTuple):
    """One call of `tsnb.log` in a trial."""

    step: int
    """As it was given to `tsnb.log`; else how many rows the trial had logged before this one."""
    epoch: int | None
    """The epoch of the stream that the trial was in, from 0; None where it was attached to none."""
    batch: int | None
    """Loader batches that it had taken of that epoch."""
    samples: int
    """Samples that it had taken in all."""
    time_s: float
    """Seconds since 1970."""
    numbers: dict[str, float]
    """What was logged; nan and inf are possible."""
