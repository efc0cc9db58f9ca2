"""Which of several trials start now: as many as there are places, together where possible.

Trials that start together share the first batch of an epoch and are compared with each other. So while trials are
being stopped no other starts: their places are filled together, once all of them are free.

A trial that comes in the middle of an epoch waits for the next one: a process that is started when a place comes free,
as a trial ends with its last epoch, has lost nearly one by the time it could take a batch. So the next trial may be
started *early*: so that it is ready within the last epoch of the one whose place it takes, as late as its start allows,
and where the memory holds both. It waits for an epoch, and the next one is its first. What is known of trials for that,
subclasses say.

Pure: events in, names to start out.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Leaver", "Places"]

LEAD = 2.0
"""A trial is started early by so many times the seconds that a start takes."""
SHORTEST = 0.7
"""A start may take so many times as long as others took..."""
LATE = 0.1
"""... and is over, even so, when this share of the last epoch of the one before it has gone: it is not let into it."""
AGAIN_S, SELDOM_S = 0.5, 2.0
"""How often it is looked whether it is time, at most and at least."""


@dataclass(frozen=True)
class Leaver:
    """What is still to come of a trial that runs."""

    name: str
    """The trial's."""
    left_s: float
    """In so many seconds it ends."""
    epochs: float
    """Epochs of its stream that it still takes: below 1 in its last one."""

    @property
    def epoch_s(self) -> float:
        """Seconds of an epoch."""
        return self.left_s / self.epochs if 0 < self.epochs < math.inf else 0.0


class Places:
    """The places of a sweep, and the trials that wait for one.

    Attributes:
        refused: Trials that were not started, and why, by name.

    Args:
        at_once: How many there are.
        clock: Seconds, of any clock that goes on; needed only where trials are started early.
        more: Returns the names of further trials, for so many free places; asked until the queue is emptied.
    """

    def __init__(
        self,
        at_once: int,
        *,
        clock: Callable[[], float] = lambda: 0.0,
        more: Callable[[int], Iterable[str]] | None = None,
    ) -> None:
        self.at_once = at_once
        self._clock = clock
        self._more = more
        self.refused: dict[str, str] = {}
        self._waiting: deque[str] = deque()
        self._taken: set[str] = set()
        self._leaving: set[str] = set()
        self._early: list[str] = []  # started, in their order, and the place of each is still another's
        self._began_s: dict[str, float] = {}
        self._look_at_s: float | None = None
        self._starts_s: list[float] = []

    @property
    def waiting(self) -> tuple[str, ...]:
        """Trials that have not started, in order."""
        return tuple(self._waiting)

    @property
    def late(self) -> Mapping[str, str]:
        """Trials that wait and would be done too late, as far as is known now: when, by name; none without a plan."""
        return {}

    @property
    def look_s(self) -> float | None:
        """In how many seconds a trial may have to be started early; None: as far as is known none."""
        if self._look_at_s is None or self._leaving or not self._waiting:
            return None
        return max(0.0, self._look_at_s - self._clock())

    @property
    def over(self) -> bool:
        """Whether no trial runs or waits."""
        return not self._waiting and not self._taken

    @property
    def free(self) -> int:
        """Places that trials may take now; none while trials are being stopped. One started early has none yet."""
        return 0 if self._leaving else max(0, self.at_once - len(self._taken) + len(self._early))

    def add(self, names: Iterable[str]) -> None:
        """Let trials wait, in their order."""
        self._waiting.extend(names)

    def start(self) -> list[str]:
        """Return the trials that start now, together; they have their places from here on."""
        lacking = self.free - len(self._waiting)
        if self._more is not None and lacking > 0:
            self.add(self._more(lacking))
        starting: list[str] = []
        for name in self._in_line()[: self.free]:
            if not self._admits(name, starting):
                break
            starting.append(name)
        self._look_at_s = self._clock()
        self._enter(starting, self._look_at_s)
        return starting

    def _admits(self, name: str, beside: Sequence[str]) -> bool:
        """Return whether the next in line takes a free place now, beside those that run and those that start."""
        return True

    def _enter(self, starting: Iterable[str], now_s: float) -> None:
        for name in starting:
            self._waiting.remove(name)
        self._taken.update(starting)
        self._began_s |= dict.fromkeys(starting, now_s)

    def start_early(self) -> list[str]:
        """Return the trials that start now, together, although their places are others' for a moment longer.

        When to look again is noted (`look_s`).
        """
        self._look_at_s = None
        early: list[str] = []
        known = None if self._leaving or not self._waiting else self._leavers()
        if known is None:
            return early
        now_s = self._clock()
        # at first soon: an epoch may be as short as two seconds, and of its first batches little is learnt
        known_for_s = (now_s - max(self._began_s.values(), default=now_s)) / 4
        self._look_at_s = now_s + min(SELDOM_S, max(AGAIN_S, known_for_s))
        leavers = sorted(known, key=lambda leaver: leaver.left_s)[len(self._early) :]
        for name, leaver in zip(self._in_line(), leavers, strict=False):
            start_s = self._start_s(name)
            if not math.isfinite(start_s):
                break
            soon_s = SHORTEST * start_s + (1 - LATE) * leaver.epoch_s
            wait_s = leaver.left_s - min(LEAD * start_s, soon_s)
            if wait_s > 0:
                # half of the time: what was predicted may be too late, and is better known then
                self._look_at_s = now_s + min(SELDOM_S, max(AGAIN_S, min(wait_s / 2, known_for_s)))
                break
            if not self._fit([*early, name]):
                break
            early.append(name)
        self._enter(early, now_s)
        self._early += early
        return early

    def _leavers(self) -> Iterable[Leaver] | None:
        """Return what is known of the ends of those that run, one for each place that will come free; None: nothing."""
        return None

    def _in_line(self) -> Sequence[str]:
        """Return those that wait, the next first."""
        return list(self._waiting)

    def _start_s(self, name: str) -> float:
        """Return how long a trial takes from its start until it can take a batch; infinite: it is not started early."""
        return math.inf

    def _fit(self, names: Sequence[str]) -> bool:
        """Return whether there is memory for these beside all that run."""
        return False

    def join(self, name: str) -> None:
        """Take in a trial that runs already, in the place of one that is being stopped."""
        self._taken.add(name)

    def attached(self, name: str) -> None:
        """Note that a trial could take a batch now, if there is one for it. Called once of each."""
        if name in self._began_s:
            self._starts_s.append(self._clock() - self._began_s[name])

    def leave(self, names: Iterable[str]) -> None:
        """Note that trials are being stopped."""
        self._leaving |= self._taken & set(names)

    def end(self, name: str) -> None:
        """Note that a trial has ended; its place is free, or that of the one that was started early for it."""
        self._taken.discard(name)
        self._leaving.discard(name)
        if self._early:
            self._early.remove(name if name in self._early else self._early[0])

    def changed(self) -> None:
        """Note that something beside the sweep may let a trial start, or keep it from that."""

    def clear(self) -> list[str]:
        """Empty the queue, and ask for no more; return the trials that waited."""
        self._more = None
        sent = list(self._waiting)
        self._waiting.clear()
        return sent

    def check(self) -> None:
        """Check what always holds. Called by tests after every event.

        Raises:
            AssertionError: It does not.
        """
        assert len(self._taken - self._leaving) <= self.at_once + len(self._early)
        assert self._leaving <= self._taken
        assert not self._taken & set(self._waiting)
