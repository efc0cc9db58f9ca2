"""The vocabulary of `planners.balancing`: parties, observations of them, and instructions. Pure.

A *party* is a trial, or the loader with its workers. Counters only grow, so a party's activity is the difference
of two observations (`measure`). From it is estimated how fast they would be on other cores.

A trial's step takes

    t(n) = blocked + work x ((1 - p) + p / n)

on n cores of its own with as many threads (Amdahl): `work` CPU seconds a batch, of which the share p runs on all
threads, and `blocked` seconds in which it computes nothing (a GPU, a disk). p is assumed until steps on different
numbers of threads have been seen. While all cores are busy, time in which a trial did not run cannot be told from
`blocked`, so it counts as waiting for a core. The loader's workers each prepare a batch: t(n) = work / n.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = [
    "LOADER",
    "PACINGS",
    "PARALLEL",
    "Allot",
    "Estimate",
    "Instruction",
    "Measured",
    "Moved",
    "Observed",
    "Party",
    "Span",
    "measure",
    "parallel_share",
]

LOADER = ""
"""The loader's name among the parties: no trial has it."""

PACINGS = ("together", "weights", "free")
"""The aims: the pace of the slowest; cores in proportion to weights; none."""
PARALLEL = 0.8
"""Share of a training step that runs on all threads, until it has been seen: small models have less."""

BATCHES = 6
"""Fewer batches than this say nothing about a pace."""

SATURATED = 0.85
"""From this share of the cores on, a thread that does not run may be waiting for a core."""


class Party(NamedTuple):
    """A trial or the loader, at one moment."""

    name: str
    """The trial's; `LOADER` for the loader."""
    batches: int
    """Loader batches taken (the loader: prepared) so far."""
    cpu_s: float
    """CPU seconds of its processes so far."""
    home: tuple[int, ...]
    """The cores it may use before anything is moved: the machine's, or those that its user pinned it to."""
    cores: tuple[int, ...]
    """The cores it may use now."""
    threads: int = 1
    """Threads that torch computes on in it; the loader: its worker processes (1 if it has none)."""
    computing_s: float = 0.0
    """Seconds inside epochs in the user's own code."""
    waiting_s: float = 0.0
    """Seconds inside epochs waiting for the loader."""
    held_s: float = 0.0
    """Seconds inside epochs held back by a slower one."""
    weight: float = 1.0
    """Its share of the cores, in pacing `weights`."""
    fixed: bool = False
    """Whether its number of threads is its user's choice, and stays."""
    movable: bool = True
    """Whether it can be given other cores."""
    own_threads: int = 1
    """Threads it had before anything was moved."""
    attachment: int = 0
    """Tells it from one that goes by its name later: that one has been given nothing, and counts from zero."""

    @property
    def inside_s(self) -> float:
        """Seconds that it has spent inside epochs."""
        return self.computing_s + self.waiting_s + self.held_s

    @property
    def most(self) -> int:
        """How many cores it could use at all."""
        loader_or_fixed = self.fixed or self.name == LOADER
        return min(len(self.home), self.threads) if loader_or_fixed else len(self.home)


class Observed(NamedTuple):
    """A stream and the machine at one moment."""

    time_s: float
    """Seconds, by a clock that only grows."""
    cores: tuple[int, ...]
    """The numbers of the cores that may be used."""
    loader: Party
    trials: tuple[Party, ...]
    pacing: str = "together"
    """One of `PACINGS`."""


class Allot(NamedTuple):
    """Let a party run on these cores from now on, and torch in it on so many threads."""

    name: str
    cores: tuple[int, ...]
    threads: int


class Moved(NamedTuple):
    """Something was moved: for logs and charts. The `Allot`s come with it."""

    number: int
    name: str
    """The party that gained; `LOADER` for the loader, or where all were given back."""
    text: str
    """What, in a few words."""
    reason: str
    """Why, with numbers."""


class Measured(NamedTuple):
    """What a move has done to the pace."""

    number: int
    """Of the move."""
    effect: str
    """In words, with numbers."""
    kept: bool
    """Whether it stays; else `Allot`s that undo it come with this."""


Instruction = Allot | Moved | Measured


@dataclass(frozen=True)
class Estimate:
    """One party as it will be expected to go on."""

    name: str
    work_s: float
    """CPU seconds a batch."""
    blocked_s: float
    """Seconds a batch that no core can shorten."""
    step_s: float
    """Seconds in the user's own code a batch, as measured."""
    parallel: float
    most: int
    """How many cores it can use."""

    def step_on(self, cores: int) -> float:
        """Return the seconds that a batch takes on so many cores of its own."""
        used = max(1, min(cores, self.most))
        return self.blocked_s + self.work_s * ((1.0 - self.parallel) + self.parallel / used)


@dataclass(frozen=True)
class Span:
    """What happened between two observations."""

    pace: float
    """Batches a second of the slowest trial, over the time that it spent inside epochs."""
    slowest: str
    """The trial that set it: the one that computed for the largest share of its time."""
    computing: float
    """That trial's share of time in its own code."""
    waiting: float
    """The share of time that it waited for the loader."""
    busy: float
    """Cores busy with all parties."""
    estimates: dict[str, Estimate]

    loader_busy: float
    """Of them, by the loader."""

    def work_s(self) -> float:
        """Return the CPU seconds that all parties together need for a batch."""
        return sum(estimate.work_s for estimate in self.estimates.values())


def measure(earlier: Observed, later: Observed, parallel: dict[str, float], least_s: float) -> Span | None:
    """Return what happened between two observations of the same parties.

    Args:
        earlier: An observation.
        later: A later one.
        parallel: The parallel share of the parties for which it is known.
        least_s: Seconds that every trial must have spent inside epochs.

    Returns:
        None where too little happened to tell.
    """
    seconds = later.time_s - earlier.time_s
    pairs = list(zip(earlier.trials, later.trials, strict=True))
    if seconds <= 0 or not pairs or any(b.batches - a.batches < BATCHES for a, b in pairs):
        return None
    if any(b.inside_s - a.inside_s < least_s for a, b in pairs):
        return None
    everybody = [*pairs, (earlier.loader, later.loader)]
    busy = sum(max(0.0, b.cpu_s - a.cpu_s) for a, b in everybody) / seconds
    full = busy >= SATURATED * len(later.cores)
    estimates = {b.name: _estimate(a, b, parallel.get(b.name, PARALLEL), full) for a, b in everybody}
    pace = min((b.batches - a.batches) / (b.inside_s - a.inside_s) for a, b in pairs)
    before, slowest = max(pairs, key=lambda pair: _share(pair[0], pair[1], "computing_s"))
    return Span(
        pace=pace,
        slowest=slowest.name,
        computing=_share(before, slowest, "computing_s"),
        waiting=_share(before, slowest, "waiting_s"),
        busy=busy,
        estimates=estimates,
        loader_busy=max(0.0, later.loader.cpu_s - earlier.loader.cpu_s) / seconds,
    )


def _share(before: Party, after: Party, field: str) -> float:
    grown: float = getattr(after, field) - getattr(before, field)
    return grown / max(1e-9, after.inside_s - before.inside_s)


def _estimate(before: Party, after: Party, parallel: float, full: bool) -> Estimate:
    batches = max(1, after.batches - before.batches)
    cpu_s = max(0.0, after.cpu_s - before.cpu_s) / batches
    if after.name == LOADER:
        return Estimate(after.name, cpu_s, 0.0, cpu_s, 1.0, max(1, after.most))
    step_s = (after.computing_s - before.computing_s) / batches
    shrunk = (1.0 - parallel) + parallel / max(1, min(after.threads, len(after.cores)))
    # threads that wait for each other spin: their CPU seconds are not work. A step shows how much there can be
    work_s = min(cpu_s, step_s / shrunk)
    blocked_s = 0.0 if full else max(0.0, step_s - work_s * shrunk)
    return Estimate(after.name, work_s, blocked_s, step_s, parallel, max(1, after.most))


def parallel_share(work_s: float, blocked_s: float, step_s: float, cores: int) -> float:
    """Return which share of a step runs on all threads, from how long it takes on several cores of its own.

    Args:
        work_s: CPU seconds of it on one core.
        blocked_s: Seconds of it that are not work.
        step_s: Seconds that it takes on `cores` cores, 2 or more.
        cores: So many.
    """
    if work_s <= 0 or cores < 2:
        return PARALLEL
    left = (step_s - blocked_s) / work_s  # (1 - p) + p / n
    return min(0.99, max(0.0, (1.0 - left) / (1.0 - 1.0 / cores)))
