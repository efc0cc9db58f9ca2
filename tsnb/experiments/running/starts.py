"""Where a trial's code begins, and the wish for a clone.

| start | its code begins | in |
|---|---|---|
| `FromTheTop` | at its first line | a new kernel |
| `Forked` | at its parent's next batch | its parent's kernel, forked |
| `FromKept` | at a state that its parent has kept (`tsnb.checkpoint`), or wrote for it | a new kernel |

A trial that can be cloned by a fork is; where it cannot, or at a past epoch, a clone begins with a kept state. What
follows the first run (a restart, an extension) is the same for all: `own_life`. On the hub's thread, but for the wish.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tsnb.experiments.bookkeeping import asked, written
from tsnb.experiments.running.attempt import Attempt, CloneAttempt
from tsnb.experiments.running.branches import Branch, KeptStart
from tsnb.experiments.running.trial_life import TrialLife
from tsnb.records.run import Run
from tsnb.records.writes import LiveChange, Parent

__all__ = ["CloneWish", "Forked", "FromKept", "FromTheTop"]


@dataclass(frozen=True)
class CloneWish:
    """A clone that is wanted of a trial."""

    parent: TrialLife
    """The trial's life."""
    name: str | None
    """The clone's name; None: one is made."""
    changes: Mapping[str, Any]
    """New values of its live values."""
    sweep: str = ""
    """The sweep that the clone belongs to; empty: it stands alone."""
    at: int | None = None
    """The epoch at whose start they part, as the trial's loop counts, from 0; None: they part at its next batch."""


class FromTheTop:
    """A start at the first line of the code; what other starts do not say is as here.

    Attributes:
        state: The trial's first state.
        is_repeatable: Whether it may begin so again after a death, without a state that it has kept since.
        resume: What its first kernel is told of the state that it begins with.
    """

    state = "queued"
    is_repeatable = True
    resume: Mapping[str, Any] = {}

    def take_over(self, life: TrialLife) -> None:
        """Give a trial what it has from its parent. Called once, when its life is made."""

    def attempt(self, life: TrialLife, run: Run) -> Attempt | None:
        """Return the kernel that is there already; None: a new one is started."""
        return None

    async def note(self, run: Run, changes: Sequence[LiveChange]) -> None:
        """Enter in the trial's record what it begins with. Called once, before its code runs.

        Args:
            run: Its place in the project's records.
            changes: Those of its live values that its parent has made.
        """

    def of_whom(self) -> str:
        """Return whose clone it is, as its first line says it; empty: nobody's."""
        return ""


@dataclass
class _Clone(FromTheTop):
    """What clones have in common."""

    parent: TrialLife
    """The life of the trial that was cloned."""
    origin: Parent
    """Which trial that is, and where they part."""

    async def note(self, run: Run, changes: Sequence[LiveChange]) -> None:
        """Enter its parent's changes."""
        if changes:
            await written(run.changed, changes)

    def of_whom(self) -> str:
        """Name its parent, and where they part."""
        return f", {self.origin}"


@dataclass
class Forked(_Clone):
    """A start at one of the parent's batches, in a fork of its kernel."""

    branch: Branch
    """The fork, which waits to be told to go on."""
    state = "running"
    is_repeatable = False  # from the top it would be another trial

    def take_over(self, life: TrialLife) -> None:
        """Give it its parent's live values, as they are."""
        life.parent, life.bounds = self.origin, self.parent.bounds
        life.live, life.changes = dict(self.parent.live), list(self.parent.changes)

    def attempt(self, life: TrialLife, run: Run) -> Attempt:
        """Return the fork."""
        settings = {"run": run.as_settings(), "started_s": life.started_s}
        return CloneAttempt(life.hub, life.plan, settings, life, self.branch)


@dataclass
class FromKept(_Clone):
    """A start at a state that the parent has kept, in a new kernel."""

    kept: KeptStart
    """The state."""
    changes: Mapping[str, Any]
    """New values of its live values, from its first batch on."""

    def __post_init__(self) -> None:
        self.resume = {"exact": True, "begins": dict(self.changes)}

    def take_over(self, life: TrialLife) -> None:
        """Give it the changes that its parent had made until then."""
        life.parent = self.origin
        life.changes = [change for change in self.parent.changes if change.samples <= self.origin.samples]

    async def note(self, run: Run, changes: Sequence[LiveChange]) -> None:
        """Take the state over."""
        await asked(lambda: run.kept.take_in(self.kept.path, copied=self.kept.copied))
        await super().note(run, changes)
