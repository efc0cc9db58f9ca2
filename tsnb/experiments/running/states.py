"""The states of a trial, and what leads from one to the next. Pure: no process, no clock, no thread.

    queued, starting, running (shown as paused while it is) -> done, failed, crashed, stopped, interrupted or pruned

| what happens | then |
|---|---|
| it waits for its turn or for memory, has a kernel, runs its code, begins again after a death | `enter` |
| somebody wants it to end: only the first who does interrupts its code, and says as what it ends | `ask_to_end` |
| Ctrl-C: its code decides whether it ends; if it does, it is "interrupted" | `interrupt` |
| its process died | `may_restart` |
| its code has ended, or its process has gone | `conclude`, then `end` |
| it is to train for more epochs | `extend` |

An ended trial enters no other state, except by `extend`.
"""

from __future__ import annotations

from typing import NamedTuple

from tsnb.records.reading import ENDED as ENDED_STATES

__all__ = ["ENDED", "RESTARTS_AT_MOST", "TRIAL_STATES", "Outcome", "Reached", "TrialStates"]

ALIVE = ("queued", "starting", "running")
TRIAL_STATES = (*ALIVE, "paused", *ENDED_STATES)
ENDED = frozenset(ENDED_STATES)

RESTARTS_AT_MOST = 3
"""How often in a row a trial with `restart` is started again: a cell that kills its process does so every time. A later
state that it has kept since then begins a new row."""

Reached = tuple[int, int]
"""Epoch and batch of the last state that a trial has kept; zeros: none."""


class Outcome(NamedTuple):
    """How a trial's code ended."""

    state: str
    """One of the states that a trial ends in."""
    failure: str = ""
    """What went wrong: one line, then the traceback. Of a stop: who or what stopped it."""
    took_s: float | None = None
    """Seconds from when it was asked for, where it ended before now."""


class TrialStates:
    """Where a trial is between its start and its end.

    Attributes:
        state: One of `TRIAL_STATES` without "paused".
        paused: Whether it was asked to pause, while it runs.
        asked: Whether it was asked to end while it lived.
        restarts: How often its process was started again.
        in_a_row: How many of them came one after the other, without a state kept between them.

    Args:
        state: The first.
    """

    def __init__(self, state: str = "queued") -> None:
        self.state = state
        self.paused = False
        self.asked = False
        self.restarts = self.in_a_row = 0
        self._kind, self._by = "stopped", ""
        self._reached: Reached = (0, 0)

    @property
    def shown(self) -> str:
        """The state for its user: a trial that runs may be paused."""
        return "paused" if self.state == "running" and self.paused else self.state

    @property
    def has_ended(self) -> bool:
        """Whether it has come to its end."""
        return self.state in ENDED

    def enter(self, state: str) -> None:
        """Enter a state of a trial that lives.

        Raises:
            ValueError: It has ended, or trials that live have no such state.
        """
        if self.has_ended or state not in ALIVE:
            raise ValueError(f"a trial that is {self.state} cannot become {state}")
        self.state = state

    def ask_to_end(self, kind: str = "stopped", by: str = "") -> bool:
        """Note that it is to end; return whether nobody has asked before.

        Whoever asks later waits only: another interrupt would break what the first makes its code put in order.

        Args:
            kind: As what it ends then: "stopped" or "pruned".
            by: Who or what ends it, in words: "in the panel".
        """
        if self.asked or self.has_ended:
            return False
        self.asked, self._kind, self._by = True, kind, by
        return True

    def interrupt(self) -> None:
        """Note that its code is interrupted: if it ends by that, and nobody asks for another end, it says so."""
        if not self.asked:
            self._kind = "interrupted"

    def may_restart(self, reached: Reached) -> bool:
        """Return whether it is started again after a death, and count that.

        Args:
            reached: The last state that it has kept.
        """
        self.in_a_row = 1 if reached > self._reached else self.in_a_row + 1
        self._reached = max(reached, self._reached)
        again = self.in_a_row <= RESTARTS_AT_MOST
        self.restarts += again
        return again

    def conclude(self, outcome: Outcome, *, abandoned: bool = False) -> Outcome:
        """Return how it has ended, from how its code has: a death that somebody wanted is a stop, of the kind wanted.

        Args:
            outcome: How its code or its process ended.
            abandoned: Whether this process ends, and its trials with it.
        """
        if outcome.state == "crashed" and (self.asked or abandoned):
            outcome = Outcome("stopped", "", outcome.took_s)
        if outcome.state != "stopped":
            return outcome
        return outcome._replace(state=self._kind, failure=outcome.failure or self._by)

    def end(self, state: str) -> None:
        """Enter the last state. The first end counts: a trial that was found may have ended before.

        Raises:
            ValueError: This is no state that a trial ends in.
        """
        if state not in ENDED:
            raise ValueError(f"a trial cannot end as {state}")
        if not self.has_ended:
            self.state = state

    def extend(self) -> None:
        """Have it wait for its turn again.

        Raises:
            ValueError: It has not ended.
        """
        if not self.has_ended:
            raise ValueError(f"a trial that is {self.state} cannot be extended")
        self.state, self.asked, self.in_a_row = "queued", False, 0
        self._kind, self._by = "stopped", ""
