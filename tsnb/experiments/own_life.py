"""The life of a trial that this process has started: its turn comes, its kernel runs, perhaps more than once.

| step | it waits for |
|---|---|
| the run of the same name before it | that one's end: it is asked to stop, and killed after a grace |
| the trial that it comes after | that one to be done; if it ends otherwise, this one does not run |
| an attempt | its kernel's end; with `restart` another one follows when the process died |

On the hub's thread, all of it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tsnb.errors import TsnbError
from tsnb.experiments.attempt import Attempt, Delivery, Outcome
from tsnb.experiments.bookkeeping import written
from tsnb.experiments.engine import engine_of
from tsnb.experiments.plan import TrialPlan
from tsnb.experiments.trial_life import Launch, TrialLife
from tsnb.kernels.hub import Hub
from tsnb.kernels.output.outlets import Outlet
from tsnb.kernels.processes.death import KernelDied
from tsnb.records.run import Run

__all__ = ["RESTARTS_AT_MOST", "OwnLife"]

RESTARTS_AT_MOST = 3
"""How often a trial with `restart` is started again: a cell that kills its process does so every time."""


class OwnLife(TrialLife):
    """The life of a trial that this process has started.

    Args:
        plan: What is run.
        hub: The hub on whose thread it is lived.
        outlet: Where its output goes.
        run: Its place in the project's records.
        launch: Starts a trial from its plan.
        after: The trial that has to be done first.
    """

    def __init__(
        self,
        plan: TrialPlan,
        hub: Hub,
        outlet: Outlet,
        run: Run,
        launch: Launch,
        after: TrialLife | None = None,
    ) -> None:
        super().__init__(plan, hub, outlet, run, launch)
        self._after = after
        self._attempt: Attempt | None = None
        self._unwanted = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """Its process, while there is one."""
        attempt = self._attempt
        return attempt.child.pid if attempt is not None and attempt.child.alive else None

    async def _go(self) -> Outcome:
        """Wait for its turn, and run."""
        if self._after is not None:
            refusal = await self._turn(self._after)
            if refusal is not None:
                return refusal
        while not self._unwanted.is_set():
            try:
                return await self._once()
            except KernelDied as error:
                if self._unwanted.is_set() or not self._may_restart():
                    raise
                self.restarts += 1
                times = f"{self.restarts} of {RESTARTS_AT_MOST}"
                self.say(
                    f"trial {self.name!r} lost its process: {str(error).partition(chr(10))[0]}; "
                    f"started again from the top ({times})\n",
                    "stderr",
                )
        return Outcome("stopped")

    def _may_restart(self) -> bool:
        allowed = self.plan.options.restart and self.restarts < RESTARTS_AT_MOST
        return allowed and not self.hub.closing

    async def _turn(self, after: TrialLife) -> Outcome | None:
        """Wait for the trial before this one; return how this one ends if it is not to run."""
        self.say(f"trial {self.name!r} queued: it starts when {self.plan.options.after!r} is done\n")
        over = asyncio.ensure_future(after.over())
        unwanted = asyncio.ensure_future(self._unwanted.wait())
        both: set[asyncio.Future[Any]] = {over, unwanted}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for waiting in both:
            waiting.cancel()
        if self._unwanted.is_set():
            return Outcome("stopped")
        state = over.result().state
        if state == "done":
            return None
        said = f"it was to run after {self.plan.options.after!r}, which is {state}; it was not run"
        return Outcome("failed" if state in {"failed", "lost"} else "stopped", said)

    async def _once(self) -> Outcome:
        """Run through the code once, in a new kernel."""
        self.become("starting")
        await written(self._run.state, "starting")
        self.live, self.paused = {}, False
        settings = {"run": self._run.as_settings(), "started_s": self.started_s}
        self._attempt = attempt = engine_of(self.plan).attempt(self.hub, self.plan, settings, self, self._run)

        def begun() -> None:
            self.become("running")
            self.say(f"trial {self.name!r} running ({attempt.where}){self._beyond()}{self.hint}\n")

        if self._unwanted.is_set():
            return Outcome("stopped")
        outcome = await attempt.run(begun)
        if self.plan.options.sweep and not self._unwanted.is_set():
            await attempt.release()
        return outcome

    def _beyond(self) -> str:
        """Say what becomes of it when this process ends, where that is not what one expects."""
        return (
            f"; it goes on without this notebook, log: {self._run.log_path}"
            if self.plan.options.detach
            else ""
        )

    def interrupt(self) -> None:
        """Interrupt its code."""
        if self._attempt is not None:
            self._attempt.child.interrupt()

    async def leave(self) -> None:
        """End its process, or its waiting for its turn."""
        self._unwanted.set()
        if self._attempt is not None:
            await self._attempt.leave()

    async def release(self) -> None:
        """Keep the variables here, and end the process."""
        if self._attempt is not None:
            await self._attempt.release(everything=True)

    def keeps(self, variable: str) -> bool:
        """Return whether a variable is still available although the process has ended."""
        return self._attempt is not None and self._attempt.keeps(variable)

    async def set(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Have live values changed."""
        if self._attempt is None:
            raise TsnbError("it has never run")
        return await self._attempt.set(changes)

    async def deliver(self, variable: str) -> Delivery:
        """Have one of its variables sent."""
        if self._attempt is None:
            raise TsnbError("it has never run, so it has no variables")
        return await self._attempt.deliver(variable)
