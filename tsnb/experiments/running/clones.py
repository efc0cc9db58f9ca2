"""Trials that begin as clones of others: the wish, and the two ways in which they begin.

| way | where | begins with |
|---|---|---|
| `CloneLife` | the parent is a process that can be forked | that process, at its next batch |
| `KeptCloneLife` | it cannot, or they part at a past epoch | a state by `tsnb.checkpoint`, in a new process |

On the hub's thread, but for the wish.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tsnb.experiments.bookkeeping import asked, written
from tsnb.experiments.plan import TrialPlan
from tsnb.experiments.running.attempt import CloneAttempt, Outcome
from tsnb.experiments.running.branches import Branch, KeptStart
from tsnb.experiments.running.own_life import OwnLife
from tsnb.experiments.running.trial_life import Launch, TrialLife
from tsnb.kernels.hub import Hub
from tsnb.kernels.output.outlets import Outlet
from tsnb.records.run import Run
from tsnb.records.writes import Parent

if TYPE_CHECKING:
    from tsnb.experiments.trial import Trial

__all__ = ["CloneLife", "CloneWish", "KeptCloneLife"]


@dataclass(frozen=True)
class CloneWish:
    """A clone that is wanted of a trial."""

    parent: Trial
    """The trial."""
    name: str | None
    """The clone's name; None: one is made."""
    changes: Mapping[str, Any]
    """New values of its live values."""
    sweep: str = ""
    """The sweep that the clone belongs to; empty: it stands alone."""
    at: int | None = None
    """The epoch at whose start they part, as the trial's loop counts, from 0; None: they part at its next batch."""


class CloneLife(OwnLife):
    """The life of a trial that began as the clone of another, at one of its batches.

    Args:
        plan: What is run.
        hub: The hub on whose thread it is lived.
        outlet: Where its output goes.
        run: Its place in the project's records.
        launch: Starts a trial from its plan.
        parent: The life of the trial that was cloned.
        origin: Which trial that is, and where they part.
        branch: Its kernel, which waits to be told to go on.
    """

    def __init__(
        self,
        plan: TrialPlan,
        hub: Hub,
        outlet: Outlet,
        run: Run,
        launch: Launch,
        parent: TrialLife,
        origin: Parent,
        branch: Branch,
    ) -> None:
        super().__init__(plan, hub, outlet, run, launch)
        self.parent = origin
        self._branched = False  # it has gone on with its parent's state
        self.state = "running"
        self.live, self.changes = dict(parent.live), list(parent.changes)
        self.bounds = parent.bounds
        settings = {"run": run.as_settings(), "started_s": self.started_s}
        self._attempt = CloneAttempt(hub, plan, settings, self, branch)

    async def _once(self) -> Outcome:
        """Go on where its parent was; after that (a restart, an extension) as any trial, in a new kernel."""
        if self._branched:
            return await super()._once()
        self._branched = True
        assert self._attempt is not None
        if self.changes:
            await written(self._run.changed, self.changes)

        def begun() -> None:
            self.become("running")
            assert self._attempt is not None
            self.say(f"trial {self.name!r} running ({self._attempt.where}){self._beyond()}{self.hint}\n")

        if self._unwanted.is_set():
            await self._attempt.leave()
            return Outcome("stopped")
        return await self._attempt.run(begun)

    def _may_restart(self) -> bool:
        """Tell whether it is started again after a death: from the top it would be another trial."""
        return self._run.kept.newest is not None and super()._may_restart()

    def _beyond(self) -> str:
        """Say whose clone it is."""
        return f", {self.parent}"


class KeptCloneLife(OwnLife):
    """The life of a trial that begins with a state that another has kept, in a new process.

    Args:
        plan: What is run.
        hub: The hub on whose thread it is lived.
        outlet: Where its output goes.
        run: Its place in the project's records.
        launch: Starts a trial from its plan.
        parent: The life of the trial whose state it is.
        origin: Which trial that is, and where they part.
        start: The state.
        changes: New values of its live values, from its first batch on.
    """

    def __init__(
        self,
        plan: TrialPlan,
        hub: Hub,
        outlet: Outlet,
        run: Run,
        launch: Launch,
        parent: TrialLife,
        origin: Parent,
        start: KeptStart,
        changes: Mapping[str, Any],
    ) -> None:
        super().__init__(plan, hub, outlet, run, launch)
        self.parent = origin
        self.changes = [change for change in parent.changes if change.samples <= origin.samples]
        self._start: KeptStart | None = start
        self._resume = {"exact": True, "begins": dict(changes)}

    async def _once(self) -> Outcome:
        """Take the state over; after that it is a trial that goes on from a checkpoint."""
        if self._start is not None:
            await asked(lambda start: self._run.kept.take_in(start.path, copied=start.copied), self._start)
            self._start = None
            if self.changes:
                await written(self._run.changed, self.changes)
        return await super()._once()

    def _beyond(self) -> str:
        """Say whose clone it is."""
        return f", {self.parent}{super()._beyond()}"
