"""The ways in which several trials can be run, how long each takes, which one to take, and why. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tsnb.planners.fluid import Job, LoaderCost
from tsnb.planners.scheduling import Schedule, annealed, apart, fit_devices, in_turn, listed, staggered
from tsnb.words import duration

__all__ = [
    "APART",
    "IN_TURN",
    "LISTED",
    "PRIVATE",
    "STAGGERED",
    "TOGETHER",
    "Foretold",
    "chosen",
    "foretold",
    "in_threads",
    "jobs_with",
    "why",
]

IN_TURN = "in turn"
APART = "a loader each"
STAGGERED = "a loader each, staggered"
TOGETHER = "one stream"
LISTED = "one stream, a list"
PRIVATE = frozenset({IN_TURN, APART, STAGGERED})
"""Ways in which each trial has a loader of its own."""
WORTH = 0.03
"""A way that promises less than this more than a simpler one is not worth it."""


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
    threads: Mapping[str, int] = field(default_factory=dict)
    """Torch threads of each trial, by name."""
    apart_s: float = 0.0
    """Seconds that each starts after the one before it; 0 but for `STAGGERED`."""

    @property
    def makespan_s(self) -> float:
        """Seconds until the last one ends."""
        return self.schedule.makespan_s

    @property
    def interval_s(self) -> tuple[float, float]:
        """What it lies between in four of five cases."""
        return self.makespan_s * (1 - min(self.off, 0.9)), self.makespan_s * (1 + self.off)


def foretold(
    jobs: Mapping[int, Sequence[Job]],
    own: LoaderCost,
    one: LoaderCost,
    cores: float,
    memory_bytes: float,
    off: float,
) -> list[Foretold]:
    """Return all ways, in the order of the table, each with the numbers of threads that suit it.

    Args:
        jobs: The trials, as they are with so many torch threads each; in the same order for every number.
        own: A loader of a trial's own.
        one: The shared loader.
        cores: For all of it.
        memory_bytes: For all of it.
        off: How far paces may be off, as a share.
    """

    def way(
        what: str, loader: LoaderCost, loaders: int, at_once: int, play: Callable[[Sequence[Job]], Schedule]
    ) -> Foretold:
        threads = _threads(jobs, play)
        mine = jobs_with(jobs, threads)
        used = sum(job.memory_bytes for job in mine) + loaders * loader.memory_bytes
        fits = at_once == 1 or (used <= memory_bytes and fit_devices(mine))
        return Foretold(what, play(mine), off, tuple(threads), at_once, fits, threads)

    names = [job.name for job in next(iter(jobs.values()))]
    several = len(names)
    turns = way(IN_TURN, own, 1, 1, lambda mine: in_turn(mine, own, cores))
    each = way(APART, own, several, several, lambda mine: apart(mine, own, cores))
    offsets, apart_s = staggered(jobs_with(jobs, each.threads), own, cores)
    later = replace(each, way=STAGGERED, schedule=offsets, order=tuple(offsets.starts_s), apart_s=apart_s)
    all_at_once = way(TOGETHER, one, 1, several, lambda mine: listed(mine, one, cores))
    lists = []
    few = dict.fromkeys(names, min(jobs))
    for threads in (few,) if all_at_once.threads == few else (few, all_at_once.threads):
        best = annealed(jobs_with(jobs, threads), one, cores, memory_bytes=memory_bytes)
        lists.append(Foretold(LISTED, best.schedule, off, best.order, best.at_once, threads=threads))
    found = [turns, each, later] if several > 1 else [turns, each]
    return [*found, all_at_once, min(lists, key=lambda way: way.makespan_s)]


def in_threads(threads: Mapping[str, int]) -> str:
    """Return how many torch threads trials have, in words: "1 thread each", "1 thread, wide-cnn 2".

    Args:
        threads: By the trial's name.
    """
    usual = min(threads.values(), key=lambda number: (-list(threads.values()).count(number), number))
    others = [f"{name} {number}" for name, number in threads.items() if number != usual]
    return ", ".join([f"{usual} thread{'s' if usual > 1 else ''}{'' if others else ' each'}", *others])


def jobs_with(jobs: Mapping[int, Sequence[Job]], threads: Mapping[str, int]) -> list[Job]:
    """Return the trials as they are with their numbers of threads."""
    several = next(iter(jobs.values()))
    return [jobs[threads[job.name]][at] for at, job in enumerate(several)]


def _threads(jobs: Mapping[int, Sequence[Job]], play: Callable[[Sequence[Job]], Schedule]) -> dict[str, int]:
    """Return how many threads each trial has, by name: more than the fewest only where that is worth it.

    From each number for all of them one trial's is changed at a time, for as long as that ends the last one sooner.
    """
    names = [job.name for job in next(iter(jobs.values()))]

    def ends_s(threads: Mapping[str, int]) -> float:
        return play(jobs_with(jobs, threads)).makespan_s

    fewest = dict.fromkeys(names, min(jobs))
    best, best_s = fewest, ends_s(fewest) * (1 - WORTH)
    for number in sorted(jobs) if len(jobs) > 1 else ():
        mine = dict.fromkeys(names, number)
        mine_s, changed = ends_s(mine), True
        while changed:
            changed = False
            for name in names:
                for other in jobs.keys() - {mine[name]}:
                    tried = {**mine, name: other}
                    if (tried_s := ends_s(tried)) < mine_s * (1 - 1e-9):
                        mine, mine_s, changed = tried, tried_s, True
        for name in names:  # those that all of it hardly gains by go back to the fewest
            if ends_s(tried := {**mine, name: min(jobs)}) <= mine_s * (1 + WORTH):
                mine = tried
        if (mine_s := ends_s(mine)) < best_s:
            best, best_s = mine, mine_s
    return best


def chosen(ways: Sequence[Foretold]) -> Foretold:
    """Return the way that ends first; of those about as good the simplest, sharing before a loader each."""
    fitting = [way for way in ways if way.fits]
    best_s = min(way.makespan_s for way in fitting)
    good = [way for way in fitting if way.makespan_s <= best_s * (1 + WORTH)]
    rank = [TOGETHER, LISTED, IN_TURN, APART, STAGGERED]
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
        STAGGERED: f"with a loader each, {duration(choice.apart_s)} apart, in the order {', '.join(choice.order)}",
    }[choice.way]
    if set(choice.threads.values()) - {1}:
        said += f" ({in_threads(choice.threads)})"
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
