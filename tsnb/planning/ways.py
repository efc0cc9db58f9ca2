"""The ways in which several trials can be run, how long each takes, which one to take, and why. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tsnb.planners.scheduling import Job, Listed, LoaderCost, Schedule, annealed, apart, in_turn, listed
from tsnb.words import duration

__all__ = ["APART", "IN_TURN", "LISTED", "TOGETHER", "Foretold", "chosen", "foretold", "why"]

IN_TURN = "in turn"
APART = "a loader each"
TOGETHER = "one stream"
LISTED = "one stream, a list"
WORTH = 0.03
"""A way that promises less than this more than a simpler one is not worth it."""


@dataclass(frozen=True)
class Foretold:
    """One way, and how long all trials take in it."""

    way: str
    """`IN_TURN`, `APART`, `TOGETHER` or `LISTED`."""
    schedule: Schedule
    """When each starts and ends."""
    off: float
    """How far off the makespan may be, as a share of it, in four of five cases."""
    order: tuple[str, ...]
    """In which they are started."""
    at_once: int
    """How many run at once at most."""
    fits: bool = True
    """Whether all that runs at once fits the memory."""

    @property
    def makespan_s(self) -> float:
        """Seconds until the last one ends."""
        return self.schedule.makespan_s

    @property
    def interval_s(self) -> tuple[float, float]:
        """What it lies between in four of five cases."""
        return self.makespan_s * (1 - min(self.off, 0.9)), self.makespan_s * (1 + self.off)


def foretold(
    jobs: Sequence[Job], own: LoaderCost, one: LoaderCost, cores: float, memory_bytes: float, off: float
) -> list[Foretold]:
    """Return all ways, in the order of the table.

    Args:
        jobs: The trials.
        own: A loader of a trial's own.
        one: The shared loader.
        cores: For all of it.
        memory_bytes: For all of it.
        off: How far paces may be off, as a share.
    """
    names = tuple(job.name for job in jobs)
    needed = sum(job.memory_bytes for job in jobs)
    ways = [
        Foretold(IN_TURN, in_turn(jobs, own, cores), off, names, 1),
        Foretold(
            APART,
            apart(jobs, own, cores),
            off,
            names,
            len(jobs),
            fits=needed + len(jobs) * own.memory_bytes <= memory_bytes,
        ),
        Foretold(
            TOGETHER,
            listed(jobs, one, cores),
            off,
            names,
            len(jobs),
            fits=needed + one.memory_bytes <= memory_bytes,
        ),
    ]
    found: Listed = annealed(jobs, one, cores, memory_bytes=memory_bytes)
    return [*ways, Foretold(LISTED, found.schedule, off, found.order, found.at_once)]


def chosen(ways: Sequence[Foretold]) -> Foretold:
    """Return the way that ends first; of those about as good the simplest, sharing before a loader each."""
    fitting = [way for way in ways if way.fits]
    best_s = min(way.makespan_s for way in fitting)
    good = [way for way in fitting if way.makespan_s <= best_s * (1 + WORTH)]
    rank = [TOGETHER, LISTED, IN_TURN, APART]
    return min(good, key=lambda way: rank.index(way.way))


def why(ways: Sequence[Foretold], choice: Foretold, limit: str) -> str:
    """Say in words why a way is chosen.

    Args:
        ways: All of them.
        choice: The chosen one.
        limit: What all trials on one stream cannot go past: loader, cores, or a trial's name.
    """
    said = {
        TOGETHER: "all at once on one stream",
        LISTED: f"on one stream, {choice.at_once} at once, in the order {', '.join(choice.order)}",
        IN_TURN: "one after the other, each with all cores",
        APART: "all at once with a loader each",
    }[choice.way]
    others = sorted((way for way in ways if way is not choice and way.fits), key=lambda way: way.makespan_s)
    text = f"Run them {said}: {duration(choice.makespan_s)}"
    if others:
        text += f", where {others[0].way} takes {duration(others[0].makespan_s)}"
        if len(others) > 1:
            text += f" and {others[-1].way} {duration(others[-1].makespan_s)}"
    text += "."
    if choice.way in {TOGETHER, LISTED}:
        text += " The loader is paid for once."
        if choice.way == TOGETHER:
            text += {
                "loader": " It is the limit: a faster one would help all of them.",
                "cores": " The cores are the limit.",
            }.get(limit, f" {limit} is the slowest and sets the pace.")
    if lacking := [way.way for way in ways if not way.fits]:
        text += f" For {' and '.join(lacking)} there is not enough memory."
    return text
