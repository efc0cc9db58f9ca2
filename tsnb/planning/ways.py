"""The ways in which several trials can be run, how long each takes, which one to take, and why. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tsnb.planners.fluid import Job, LoaderCost, Resources
from tsnb.planners.scheduling import Schedule, apart, fit_devices, in_turn, listed, staggered
from tsnb.planners.strategies import (
    WORTH,
    Jobs,
    Strategy,
    best_strategies,
    in_each,
    in_threads,
    soonest,
    with_strategies,
)
from tsnb.text.words import duration, interval

__all__ = [
    "APART",
    "IN_TURN",
    "LEAST_OFF",
    "LISTED",
    "PRIVATE",
    "STAGGERED",
    "TOGETHER",
    "Foretold",
    "chosen",
    "foretold",
    "makespan_off",
    "same_as",
    "why",
]

IN_TURN = "in turn"
APART = "separate loaders"
STAGGERED = "separate loaders, staggered"
TOGETHER = "one stream"
LISTED = "one stream, a list"
PRIVATE = frozenset({IN_TURN, APART, STAGGERED})
"""Ways in which each trial has a loader of its own."""
LEAST_OFF = 0.08
"""No forecast is closer than this: with it the intervals of forty runs held (benchmarks/RESULTS.md)."""


@dataclass(frozen=True)
class Foretold:
    """One way, and how long all trials take in it."""

    way: str
    """`IN_TURN`, `APART`, `STAGGERED`, `TOGETHER` or `LISTED`."""
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
    strategies: Mapping[str, Strategy] = field(default_factory=dict)
    """With how many torch threads each trial runs, and with which of the values that are left to the plan, by name."""
    apart_s: float = 0.0
    """Seconds that each starts after the one before it; 0 but for `STAGGERED`."""

    @property
    def threads(self) -> dict[str, int]:
        """Torch threads of each trial, by name."""
        return {name: strategy.threads for name, strategy in self.strategies.items()}

    @property
    def gives(self) -> list[str]:
        """What each trial is given, in words, of what is left to the plan: ["1 thread, wide 2", "limit=None each"].

        Nothing of threads where all have one.
        """
        given = {name: strategy.values for name, strategy in self.strategies.items()}
        some = set(self.threads.values()) - {1}
        return [*([in_threads(self.threads)] if some else []), *in_each(given)]

    @property
    def makespan_s(self) -> float:
        """Seconds until the last one ends."""
        return self.schedule.makespan_s

    @property
    def interval_s(self) -> tuple[float, float]:
        """What it lies between in four of five cases."""
        return interval(self.makespan_s, self.off)


def foretold(jobs: Jobs, own: LoaderCost, resources: Resources, off: float) -> list[Foretold]:
    """Return all ways, in the order of the table, each with the strategies that suit it.

    Args:
        jobs: The trials, each as it is with each strategy, the preferred one first.
        own: A loader of a trial's own.
        resources: What they have, with the shared loader.
        off: How far paces may be off, as a share.
    """
    # these ways are played as if all fitted the memory: of each is said whether it does
    private = Resources(own, resources.cores)
    stream = replace(private, loader=resources.loader)

    def way(
        what: str, has: Resources, at_once: int, play: Callable[[Sequence[Job], Resources], Schedule]
    ) -> Foretold:
        suited = best_strategies(jobs, lambda mine: play(mine, has))
        mine = with_strategies(jobs, suited)
        sizes = [job.memory_bytes for job in mine]
        loaders = at_once if what in PRIVATE else 1
        used = (max(sizes) if at_once == 1 else sum(sizes)) + loaders * has.loader.memory_bytes
        fits = used <= resources.memory_bytes and (at_once == 1 or fit_devices(mine))
        return Foretold(what, play(mine, has), off, tuple(suited), at_once, fits, suited)

    turns, each = way(IN_TURN, private, 1, in_turn), way(APART, private, len(jobs), apart)
    offsets, apart_s = staggered(with_strategies(jobs, each.strategies), private)
    later = replace(each, way=STAGGERED, schedule=offsets, order=tuple(offsets.starts_s), apart_s=apart_s)
    together = way(TOGETHER, stream, len(jobs), listed)
    best = soonest(jobs, resources)
    largest = max(job.memory_bytes for job in with_strategies(jobs, best.strategies))
    fits = largest + resources.loader.memory_bytes <= resources.memory_bytes
    lists = Foretold(LISTED, best.schedule, off, best.order, best.at_once, fits, best.strategies)
    return [turns, each, *([later] if len(jobs) > 1 else []), together, lists]


def makespan_off(
    jobs: Sequence[Job], offs: Mapping[str, float], loader_off: float, least: float = 0.0
) -> float:
    """Return how far off the time of several trials may be, as a share of it, in four of five cases.

    Each trial errs by itself, and counts by its part of the time: the more there are, the more their errors cancel.

    Args:
        jobs: The trials.
        offs: How far off what a sample costs each may be, by name, as a share.
        loader_off: How far off what a sample costs the loader may be, as a share.
        least: The trials together are off by so much at least, as was seen while they ran together.
    """
    took_s = {job.name: job.samples * max(job.step_s, job.cpu_s) for job in jobs}
    whole_s = max(math.fsum(took_s.values()), 1e-12)
    theirs = math.hypot(*(each_s / whole_s * offs.get(name, 0.0) for name, each_s in took_s.items()))
    return math.hypot(LEAST_OFF, loader_off, max(theirs, least))


def same_as(way: Foretold, ways: Sequence[Foretold]) -> str:
    """Return the first of the ways before one that is the same schedule, so that they are no choice; empty: none is.

    Args:
        way: The one.
        ways: All of them, in the order of the table.
    """
    before = ways[: ways.index(way)]
    return next((other.way for other in before if _same(way, other)), "")


def _same(one: Foretold, other: Foretold) -> bool:
    """Whether two ways start and end each trial at the same time, with as many loaders and the same strategies."""
    if (one.way in PRIVATE) != (other.way in PRIVATE) or dict(one.strategies) != dict(other.strategies):
        return False
    mine, its = one.schedule, other.schedule
    pairs = [(mine.starts_s, its.starts_s), (mine.ends_s, its.ends_s)]
    return all(
        a.keys() == b.keys() and all(math.isclose(a[name], b[name], rel_tol=1e-6, abs_tol=1e-6) for name in a)
        for a, b in pairs
    )


def chosen(ways: Sequence[Foretold]) -> Foretold:
    """Return the way that ends first; of those about as good the simplest, sharing before a loader each.

    Where one trial is larger than all of the memory no way fits; then it is one in which that trial runs alone.
    """
    fitting = [way for way in ways if way.fits] or [way for way in ways if way.way in {IN_TURN, LISTED}]
    best_s = min(way.makespan_s for way in fitting)
    good = [way for way in fitting if way.makespan_s <= best_s * (1 + WORTH)]
    rank = [TOGETHER, LISTED, IN_TURN, APART, STAGGERED]
    return min(good, key=lambda way: rank.index(way.way))


def why(ways: Sequence[Foretold], choice: Foretold, limit: str, *, frozen: str = "") -> str:
    """Say in words why a way is chosen.

    Args:
        ways: All of them.
        choice: The chosen one.
        limit: What all trials on one stream cannot go past: loader, cores, or a trial's name.
        frozen: What the loader's frozen part takes, in words, where that is most of the loader's time.
    """
    said = {
        TOGETHER: "all at once on one stream",
        LISTED: f"on one stream, {choice.at_once} at once, in the order {', '.join(choice.order)}",
        IN_TURN: "one after the other, each with all cores",
        APART: "all at once with separate loaders",
        STAGGERED: f"with separate loaders, {duration(choice.apart_s)} apart, in the order {', '.join(choice.order)}",
    }[choice.way]
    if choice.gives:
        said += f" ({'; '.join(choice.gives)})"
    as_long = duration(choice.makespan_s)
    others = sorted(
        (way for way in ways if way.fits and duration(way.makespan_s) != as_long),
        key=lambda way: way.makespan_s,
    )
    text = f"Run them {said}: {as_long}"
    if others:
        text += f", where {others[0].way} takes {duration(others[0].makespan_s)}"
        if len(others) > 1:
            text += f" and {others[-1].way} {duration(others[-1].makespan_s)}"
    text += "."
    if choice.way in {TOGETHER, LISTED}:
        text += " The loader runs only once."
        if choice.way == TOGETHER:
            text += {
                "loader": (
                    f" The frozen part is the limit: {frozen}."
                    if frozen
                    else " The loader is the limit: a faster loader would help all trials."
                ),
                "cores": " The cores are the limit.",
            }.get(limit, f" {limit} is the slowest and sets the pace.")
    if choice.fits and (lacking := [way.way for way in ways if not way.fits]):
        text += f" There is not enough memory for {' and '.join(lacking)}."
    return text
