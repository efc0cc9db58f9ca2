"""The vocabulary of `planners.balancing`: parties, observations of them, and instructions. Pure values.

A *party* is a trial, or the loader with its workers. Counters only grow, so a party's activity is the difference
of two observations.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["LOADER", "PACINGS", "Allot", "Instruction", "Measured", "Moved", "Observed", "Party"]

LOADER = ""
"""The loader's name among the parties: no trial has it."""

PACINGS = ("together", "weights", "free")
"""The aims: the pace of the slowest; cores in proportion to weights; none."""


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
