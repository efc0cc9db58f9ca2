"""Trials of which it is known how much memory they need wait here until so much is free: first come, first served.

    free for the next one = what the machine, or a control group's limit, has left
                            - what those that run said they need and do not hold yet

So two trials that are started in one breath are not both given the same free gigabytes. Those behind one that is just
being looked at are told nothing until it is known whether that one fits: mostly it does, and so do they.

Where the user has not said how much memory a trial takes, it is as measured, never as estimated:

| from | words |
|---|---|
| the records: its last runs of that name in this notebook (`records.reading`) | "as its run 3 took" |
| `tsnb.plan`, in this process | "as tsnb.plan measured" |

A trial that was never seen is not expected to take anything: it starts at once, as ever.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from tsnb.errors import TsnbError
from tsnb.machine.memory import Free, free_memory, memory_bounds
from tsnb.machine.processes import held
from tsnb.records.reading import largest_before
from tsnb.records.run import Run
from tsnb.text.words import size_text

__all__ = [
    "ExpectedMemory",
    "MemoryClaim",
    "MemoryQueue",
    "expected_memory",
    "measured",
    "too_large",
]

LOOK_S = 0.5
"""How often it is looked whether there is enough."""


@dataclass(eq=False)
class MemoryClaim:
    """What a trial needs, while it waits and while it runs. Given back by `MemoryQueue.leave`."""

    needs_bytes: int
    """As its trial said, or is known to take."""
    pid: Callable[[], int | None]
    """Returns its process, while there is one."""
    because: str = ""
    """From what that is known, where nobody said it: "as its run 3 took"."""
    refused: bool = False
    """Whether it was its turn, and there was not enough."""

    @property
    def missing_bytes(self) -> int:
        """What it does not hold yet of that."""
        pid = self.pid()
        own = None if pid is None else held(pid)
        return max(0, self.needs_bytes - (0 if own is None else round(own.own_bytes)))


class MemoryQueue:
    """Those that wait for memory, and those that have been let in. Used on the hub's thread.

    Args:
        free: Returns what is free; None where the system does not tell: nobody waits there.
    """

    def __init__(self, free: Callable[[], Free | None] = free_memory) -> None:
        self._free = free
        self._waiting: deque[MemoryClaim] = deque()
        self._running: list[MemoryClaim] = []
        self._moved = asyncio.Event()
        """Set, and exchanged for a new one, when one is let in, does not fit or leaves."""

    def join(self, needs_bytes: int, pid: Callable[[], int | None], because: str = "") -> MemoryClaim:
        """Stand at the end of the line.

        Args:
            needs_bytes: What the trial needs.
            pid: Returns its process, once it has one.
            because: From what that is known, where its user has not said it.
        """
        claim = MemoryClaim(needs_bytes, pid, because)
        self._waiting.append(claim)
        return claim

    async def why_not(self, claim: MemoryClaim) -> str:
        """Let a trial in if it is its turn; return what it waits for, or "" if it is in."""
        if self._waiting[0] is not claim:
            before = len(self._waiting) - 1 if self._waiting[-1] is claim else self._waiting.index(claim)
            others = (
                f"{before} {'trials' if before > 1 else 'trial'} before it "
                f"{'wait' if before > 1 else 'waits'} for memory"
            )
            return f"{self._needs(claim)}, and {others}" if claim.because else others
        free, taken = await asyncio.to_thread(self._look, claim.needs_bytes)
        if free is not None and claim.needs_bytes > free.size - taken:
            promised = (
                f", {size_text(taken)} of that reserved for trials that have just started" if taken else ""
            )
            claim.refused = True
            self._tell()
            return f"{self._needs(claim)}, and {size_text(free.size)} are free ({free.where}){promised}"
        if claim in self._waiting:  # it may have left meanwhile
            self._waiting.remove(claim)
            self._running.append(claim)
            self._tell()
        return ""

    async def ask(self, claim: MemoryClaim) -> str:
        """Return the same as `why_not`, once it is known whether the first one in the line fits."""
        while self._waiting[0] is not claim and not self._waiting[0].refused:
            await self._moved.wait()
        return await self.why_not(claim)

    async def wait(self, claim: MemoryClaim, why: Callable[[str], None] = lambda _: None) -> None:
        """Return when a trial has been let in.

        Args:
            claim: Its claim.
            why: Takes what it waits for, whenever it was looked.
        """
        while said := await self.why_not(claim):
            why(said)
            with contextlib.suppress(asyncio.TimeoutError):  # the system tells nobody when memory comes free
                await asyncio.wait_for(self._moved.wait(), LOOK_S)

    def leave(self, claim: MemoryClaim) -> None:
        """Give a claim back, let in or not."""
        for claims in (self._waiting, self._running):
            if claim in claims:
                claims.remove(claim)
        self._tell()

    def _tell(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    @staticmethod
    def _needs(claim: MemoryClaim) -> str:
        because = f", {claim.because}" if claim.because else ""
        return f"it needs {size_text(claim.needs_bytes)}{because}"

    def _look(self, needs_bytes: int) -> tuple[Free | None, int]:
        """Return what is free, and what of that is promised: those that run are asked only where that may matter."""
        free, running = self._free(), list(self._running)
        if free is None or needs_bytes + sum(claim.needs_bytes for claim in running) <= free.size:
            return free, 0
        return free, sum(claim.missing_bytes for claim in running)


def too_large(needs_bytes: int) -> str:
    """Return why a trial could never start; "" if it could, or that is not known."""
    bounds = memory_bounds()
    if bounds is None or needs_bytes <= bounds.total_bytes:
        return ""
    there = size_text(bounds.total_bytes)
    return f"needs {size_text(needs_bytes)} of memory and could never start, because this machine has {there}"


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
        found = largest_before(run.directory, run.key, run.name, run.number) if run.id else None
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
