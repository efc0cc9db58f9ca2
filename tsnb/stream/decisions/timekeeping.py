"""Where a consumer's time goes: computing, waiting for the loader, or held by others. Pure, a part of `dispatch`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

__all__ = ["Outside", "TimeTaken", "Times"]


class Outside(Enum):
    """What a consumer does outside epochs; anything else is the user's own code."""

    JOINING = "it asked for an epoch, and waits for a pass that it can join"
    PAUSED = "it is paused"
    TIMED_OUT = "it stood still, and was taken off the window"


class TimeTaken(NamedTuple):
    """Where a consumer's seconds went, from when it attached."""

    computing_s: float
    waiting_s: float
    held_s: float
    joining_s: float
    """In which it had asked for an epoch, and waited for a pass that it could join."""
    paused_s: float
    timed_out_s: float
    """In which it was off the window, since it stood still."""
    attached_s: float
    """All of them, and those that it spent outside epochs in the user's own code."""


@dataclass(eq=False)
class Times:
    """What a consumer has spent its time on, and since when it does what it does now. Nothing else writes here."""

    moved_s: float = 0.0
    """When it last asked, took or joined."""
    offered_s: float = 0.0
    """When it was last granted a batch while it had none to take."""
    waiting_since_s: float | None = None
    """Since when it waits for a batch."""
    wants_since_s: float | None = None
    """Since when it has had nothing, though it wants a batch: the wait for an epoch counts too."""
    joined_s: float = 0.0
    """When it attached."""
    outside: Outside | None = None
    """What it does outside epochs; None: it takes one, or is in the user's own code."""
    outside_since_s: float = 0.0
    """Since when."""
    queued_since_s: float | None = None
    """Since when it waits for its turn."""
    withheld_since_s: float | None = None
    """Since when a batch lies ready that it is not granted, because others have had less than their share."""
    computing_s: float = 0.0
    waiting_s: float = 0.0
    held_s: float = 0.0
    joining_s: float = 0.0
    paused_s: float = 0.0
    timed_out_s: float = 0.0
    queued_s: float = 0.0
    """Seconds that it has waited for its turn, in all."""
    withheld_s: float = 0.0
    """Seconds that it waited because a batch was withheld: a part of `held_s`."""
    _blocked_then_s: float = 0.0
    """The stream's blocked clock when it began to wait for a batch."""
    _queued_then_s: float = 0.0
    _withheld_then_s: float = 0.0

    def move(self, now: float) -> None:
        """It does something now: it does not stand still."""
        self.moved_s = now

    def turn_to(self, outside: Outside | None, now: float) -> None:
        """It does something else from now on."""
        joining_s, paused_s, timed_out_s = self._outside(now)
        self.joining_s, self.paused_s, self.timed_out_s = joining_s, paused_s, timed_out_s
        self.outside, self.outside_since_s = outside, now

    def pause(self, now: float) -> None:
        """It is asked to pause."""
        self.moved_s = now
        self.turn_to(Outside.PAUSED, now)

    def ask(self, now: float) -> None:
        """It asks for an epoch; while it is paused, it stays so."""
        self.moved_s = self.wants_since_s = now
        if self.outside is not Outside.PAUSED:
            self.turn_to(Outside.JOINING, now)

    def want(self, now: float) -> None:
        """It asked before, and its ask counts from now on."""
        self.wants_since_s = now

    def offer(self, now: float) -> None:
        """It is granted what it can have, and has nothing to take."""
        self.offered_s = now

    def forgive(self, seconds: float, now: float) -> None:
        """Do as if some of the time had not been."""
        self.moved_s = min(now, self.moved_s + seconds)
        self.offered_s = min(now, self.offered_s + seconds)
        if self.waiting_since_s is not None:
            self.waiting_since_s = min(now, self.waiting_since_s + seconds)
        if self.wants_since_s is not None:
            self.wants_since_s = min(now, self.wants_since_s + seconds)

    def began_waiting(self, now: float, blocked_s: float) -> None:
        """It has nothing left to take."""
        if self.waiting_since_s is None:
            self.computing_s += now - self.moved_s
            self.waiting_since_s = now
            self.wants_since_s = now if self.wants_since_s is None else self.wants_since_s
            self._blocked_then_s = blocked_s
            self._withheld_then_s = self.withheld_s
            self._queued_then_s = self.queued_s

    def withhold(self, now: float) -> None:
        """A batch lies ready, and it is not granted."""
        if self.withheld_since_s is None:
            self.withheld_since_s = now

    def let_go(self, now: float) -> None:
        """Let it have its next batch: that is no longer withheld."""
        self.withheld_s = self._withheld(now)
        self.withheld_since_s = None

    def queue(self, now: float) -> None:
        """It waits for its turn from now on."""
        self.queued_since_s = now

    def leave_queue(self, now: float) -> None:
        """It has its turn, or wants none."""
        if self.queued_since_s is not None:
            self.queued_s += now - self.queued_since_s
            self.queued_since_s = None

    def _withheld(self, now: float) -> float:
        """Return `withheld_s` up to now: only what it waited counts."""
        if self.withheld_since_s is None or self.waiting_since_s is None:
            return self.withheld_s
        return self.withheld_s + now - max(self.withheld_since_s, self.waiting_since_s)

    def _held(self, now: float, blocked_s: float) -> float:
        """Return how much of its present wait was for the others: the slowest, those with less use, its turn."""
        assert self.waiting_since_s is not None
        others = blocked_s - self._blocked_then_s + self._withheld(now) - self._withheld_then_s
        queued_s = self.queued_s + (now - self.queued_since_s if self.queued_since_s is not None else 0.0)
        return min(now - self.waiting_since_s, others + queued_s - self._queued_then_s)

    def took(self, now: float, blocked_s: float) -> None:
        """It took a batch: the time since the last one was spent waiting, held, or computing."""
        if self.waiting_since_s is None:
            self.computing_s += now - self.moved_s
        else:
            self.stopped_waiting(now, blocked_s)
        self.moved_s = now
        self.wants_since_s = None

    def computed(self, now: float) -> None:
        """It computed until now."""
        self.computing_s += now - self.moved_s
        self.moved_s = now

    def stopped_waiting(self, now: float, blocked_s: float) -> None:
        """Split the time it waited by the stream's blocked clock: window-bound or loader-bound."""
        if self.waiting_since_s is None:
            return
        if self.withheld_since_s is not None:
            self.let_go(now)
        waited, held = now - self.waiting_since_s, self._held(now, blocked_s)
        self.held_s += held
        self.waiting_s += waited - held
        self.waiting_since_s = None
        self.moved_s = now

    def left_epoch(self, now: float, blocked_s: float, *, computed: bool) -> None:
        """It takes its epoch no more; `computed`: it computed until now, if it did not wait."""
        self.let_go(now)
        if self.waiting_since_s is not None:
            self.stopped_waiting(now, blocked_s)
        elif computed:
            self.computing_s += now - self.moved_s
        self.moved_s = now

    def _outside(self, now: float) -> tuple[float, float, float]:
        """Return `joining_s`, `paused_s` and `timed_out_s` up to now."""
        for_s = {self.outside: max(0.0, now - self.outside_since_s)}
        return (
            self.joining_s + for_s.get(Outside.JOINING, 0.0),
            self.paused_s + for_s.get(Outside.PAUSED, 0.0),
            self.timed_out_s + for_s.get(Outside.TIMED_OUT, 0.0),
        )

    def read(self, now: float, blocked_s: float, *, computes: bool) -> TimeTaken:
        """Return where its time went up to now; `computes`: the time since it moved counts as computing."""
        computing_s, waiting_s, held_s = self.computing_s, self.waiting_s, self.held_s
        if self.waiting_since_s is not None:
            waited, held = now - self.waiting_since_s, self._held(now, blocked_s)
            waiting_s, held_s = waiting_s + waited - held, held_s + held
        elif computes:
            computing_s += now - self.moved_s
        return TimeTaken(computing_s, waiting_s, held_s, *self._outside(now), now - self.joined_s)
