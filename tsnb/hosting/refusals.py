"""Changes of a stream that are refused, and why: it has ended, a trial would end, or an option needs a new start."""

from __future__ import annotations

from tsnb.errors import ProducerGone, TsnbError
from tsnb.options import StreamOptions
from tsnb.telemetry.readings import StreamReading

__all__ = ["check_changes", "gone", "spare_those_inside"]

INSIDE = frozenset({"streaming", "waiting", "held back", "sets the pace", "skipping"})
"""States of a consumer that is in the middle of an epoch."""


def check_changes(name: str, now: StreamOptions, wanted: StreamOptions) -> None:
    """Refuse to change options that need a new start.

    Raises:
        ValueError: Such an option differs from the current one.
    """
    for option in ("engine", "detach", "restart"):
        if getattr(now, option) != getattr(wanted, option):
            raise ValueError(
                f"{name!r} was started with {option}={getattr(now, option)!r}, which cannot change "
                f"while it is served. Stop it with %tensorsocket stop {name}, and start it again."
            )


def gone(name: str) -> ProducerGone:
    """Return the error of a command about a stream that has ended."""
    return ProducerGone(
        f"{name!r} has ended. Serve its loader again: %tensorsocket start LOADER --name {name}"
    )


def spare_those_inside(reading: StreamReading) -> None:
    """Refuse a restart that would end trials which may have run all day.

    Raises:
        TsnbError: Consumers are in the middle of an epoch; says which.
    """
    inside = [c.name for c in reading.consumers if c.state in INSIDE]
    if inside:
        raise TsnbError(
            f"A restart would end {', '.join(inside)}. The order of {reading.name!r} is not "
            "reproducible, so trials could not continue in the middle of an epoch (to avoid this, "
            "start the stream with --seed). Stop these trials, or wait for the end of their epoch, or "
            f"end the stream with %tensorsocket stop {reading.name}."
        )
