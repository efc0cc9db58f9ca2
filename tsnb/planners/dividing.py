"""Dividing cores among parties: how many each gets, and which. Pure.

Two ways. *Split*: every party has cores of its own, as many threads as cores; one core at least for each trial. It
needs as many cores as there are parties. *Shared*: every party may run on all cores and only the numbers of threads
differ; the slowest one then gets what the others leave unused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tsnb.planners.parties import LOADER, Allot, Observed, Party, Span

__all__ = ["Division", "home", "shared", "split", "weighted"]

ALONE = 0.97
"""Of the predicted pace that is believed where each has cores of its own..."""
TOGETHER = 0.9
"""... and where they share: threads that meet at a barrier wait for the one that shares its core."""


WORTH = 0.007
"""A further core that makes a step shorter by less than this share is not worth its barriers."""


@dataclass(frozen=True)
class Division:
    """The cores and threads of each party."""

    kind: str
    """`home`, `split`, `shared` or `weighted`."""
    allotments: tuple[Allot, ...]
    pace: float
    """The pace it should give, in batches a second; 0: no estimate."""


def home(seen: Observed) -> Division:
    """Return each party's cores and threads before anything is moved."""
    parties = [*seen.trials, seen.loader]
    return Division("home", tuple(Allot(p.name, p.home, p.own_threads) for p in parties if p.movable), 0.0)


def split(seen: Observed, span: Span) -> Division | None:
    """Give each party cores of its own, so that the slowest is as fast as can be; None where there are too few."""
    estimates = span.estimates
    left = len(seen.cores) - len(estimates)
    if left < 0:
        return None
    number = dict.fromkeys(estimates, 1)
    while left:
        needy = max(estimates, key=lambda name: estimates[name].step_on(number[name]))
        slower_s, faster_s = (estimates[needy].step_on(number[needy] + more) for more in (0, 1))
        if faster_s > slower_s * (1.0 - WORTH):
            break  # more cores would not make the slowest any faster
        number[needy] += 1
        left -= 1
    number[LOADER] += left  # more than it can use at a time, but better than idle: workers come in bursts
    pace = ALONE / max(e.step_on(number[name]) for name, e in estimates.items())
    return Division("split", _choose(seen, number), pace)


def shared(seen: Observed, span: Span) -> Division:
    """Let everybody run everywhere; the slowest gets threads until the machine has no more to give."""
    estimates = span.estimates
    capacity = TOGETHER * len(seen.cores) / max(1e-9, span.work_s())
    threads = {p.name: p.threads if p.fixed else 1 for p in seen.trials}
    threads[LOADER] = max(1, seen.loader.threads)

    def step_s(name: str) -> float:
        return estimates[name].step_on(threads[name])

    while True:
        needy = max(threads, key=step_s)
        may_have = min(estimates[needy].most, len(seen.cores))
        enough = 1.0 / max(1e-9, step_s(needy)) >= capacity
        another_s = estimates[needy].step_on(threads[needy] + 1)
        no_more = needy == LOADER or threads[needy] >= may_have
        if enough or no_more or another_s > step_s(needy) * (1.0 - WORTH):
            break
        threads[needy] += 1
    pace = min(capacity, 1.0 / max(1e-9, *map(step_s, threads)))
    parties = [p for p in (*seen.trials, seen.loader) if p.movable]
    return Division("shared", tuple(Allot(p.name, p.home, threads[p.name]) for p in parties), pace)


def weighted(seen: Observed, loader_cores: float) -> Division | None:
    """Give the trials cores in proportion to their weights; None where there are fewer cores than trials.

    Args:
        seen: What was observed.
        loader_cores: Cores that the loader keeps busy: it has so many of its own, where that leaves one a trial.
    """
    trials, cores = seen.trials, len(seen.cores)
    if cores < len(trials):
        return None
    own = min(max(1, math.ceil(loader_cores - 0.1)), cores - len(trials))
    number = {p.name: 1 for p in trials}
    for _ in range(cores - own - len(trials)):
        open_ = [p for p in trials if number[p.name] < len(p.home)]
        if not open_:
            break
        poorest = max(open_, key=lambda p: p.weight / (number[p.name] + 0.5))  # Webster's method
        number[poorest.name] += 1
    number[LOADER] = own
    return Division("weighted", _choose(seen, number), 0.0)


def _choose(seen: Observed, number: dict[str, int]) -> tuple[Allot, ...]:
    """Choose which cores each gets: those that it may use and has now, where it can be."""
    free = set(seen.cores)
    found: dict[str, tuple[int, ...]] = {}
    parties = [p for p in (*seen.trials, seen.loader) if p.movable]
    for party in sorted(parties, key=lambda p: (len(p.home), -number[p.name])):
        may = sorted(free & set(party.home), key=lambda core: (core not in _tight(party), core))
        chosen = tuple(sorted(may[: number[party.name]]))
        found[party.name] = chosen or party.home  # none is left of those that it may use: it shares them
        free -= set(chosen)
    return tuple(Allot(p.name, found[p.name], _threads(p, len(found[p.name]))) for p in parties)


def _tight(party: Party) -> frozenset[int]:
    """Return the cores that were chosen for it; none where it has all that it may use."""
    return frozenset() if party.cores == party.home else frozenset(party.cores)


def _threads(party: Party, cores: int) -> int:
    return party.threads if party.fixed or party.name == LOADER else cores
