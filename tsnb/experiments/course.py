"""The course of a trial that this process has started: its turn comes, its kernel runs, perhaps more than once.

| step | it waits for |
|---|---|
| the run of the same name before it | that one's end: it is asked to stop, and killed after a grace |
| the trial that it comes after | that one to be done; if it ends otherwise, this one does not run |
| an attempt | its kernel's end; with `restart` another one follows when the process died |

On the hub's thread, all of it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from tsnb.errors import TsnbError
from tsnb.experiments.attempt import Attempt, Delivery, Outcome
from tsnb.experiments.engine import engine_of
from tsnb.experiments.plan import TrialPlan
from tsnb.experiments.recording import written
from tsnb.kernels.hub import Hub
from tsnb.kernels.processes.death import KernelDied
from tsnb.records.run import Run

if TYPE_CHECKING:
    from tsnb.experiments.hosting import Hosting
    from tsnb.experiments.trial import Trial

__all__ = ["RESTARTS_AT_MOST", "Course", "OwnCourse", "discard"]

RESTARTS_AT_MOST = 3
"""How often a trial with `restart` is started again: a cell that kills its process does so every time."""


class Course(Protocol):
    """How a trial comes to its end."""

    restarts: int
    """How often its process was started again."""

    @property
    def pid(self) -> int | None:
        """Its process, while there is one."""

    async def go(self, host: Hosting) -> Outcome:
        """Go the whole way.

        Raises:
            KernelDied: Its process ended without a word.
        """

    def interrupt(self) -> None:
        """Interrupt its code."""

    async def leave(self) -> None:
        """End its process, or its waiting for one, and have `go` return."""

    async def release(self) -> None:
        """Keep the variables of a trial that has ended here, and end its process, where that can be."""

    def keeps(self, variable: str) -> bool:
        """Return whether a variable can be had although the process has ended."""

    async def deliver(self, variable: str) -> Delivery:
        """Have one of its variables sent; return the kernel's reply with it.

        Raises:
            TsnbError: There is no process to ask.
        """


class OwnCourse:
    """The course of a trial of this process's own.

    Args:
        hub: The hub on whose thread it is gone.
        plan: What is run.
        run: Its place in the project's records.
        after: The trial that has to be done first.
    """

    def __init__(self, hub: Hub, plan: TrialPlan, run: Run, after: Trial | None = None) -> None:
        self.restarts = 0
        self._hub = hub
        self._plan = plan
        self._run = run
        self._after = after
        self._attempt: Attempt | None = None
        self._unwanted = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """Its process, while there is one."""
        attempt = self._attempt
        return attempt.child.pid if attempt is not None and attempt.child.alive else None

    async def go(self, host: Hosting) -> Outcome:
        """Wait for its turn, and run; see `Course`."""
        if self._after is not None:
            refusal = await self._turn(host, self._after)
            if refusal is not None:
                return refusal
        while not self._unwanted.is_set():
            try:
                return await self._once(host)
            except KernelDied as error:
                if self._unwanted.is_set() or not self._may_restart():
                    raise
                self.restarts += 1
                times = f"{self.restarts} of {RESTARTS_AT_MOST}"
                host.say(
                    f"trial {host.name!r} lost its process: {str(error).partition(chr(10))[0]}; "
                    f"started again from the top ({times})\n",
                    "stderr",
                )
        return Outcome("stopped")

    def _may_restart(self) -> bool:
        allowed = self._plan.options.restart and self.restarts < RESTARTS_AT_MOST
        return allowed and not self._hub.closing

    async def _turn(self, host: Hosting, after: Trial) -> Outcome | None:
        """Wait for the trial before this one; return how this one ends if it is not to run."""
        host.say(f"trial {host.name!r} queued: it starts when {self._plan.options.after!r} is done\n")
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
        said = f"it was to run after {self._plan.options.after!r}, which is {state}; it was not run"
        return Outcome("failed" if state in {"failed", "lost"} else "stopped", said)

    async def _once(self, host: Hosting) -> Outcome:
        """Run through the code once, in a new kernel."""
        host.become("starting")
        await written(self._run.state, "starting")
        settings = {"run": self._run.as_settings(), "started_s": host.started_s}
        self._attempt = attempt = engine_of(self._plan).attempt(
            self._hub, self._plan, settings, host, self._run
        )

        def begun() -> None:
            host.become("running")
            host.say(f"trial {host.name!r} running ({attempt.where}){self._beyond()}{host.hint}\n")

        if self._unwanted.is_set():
            return Outcome("stopped")
        outcome = await attempt.run(begun)
        if self._plan.options.sweep and not self._unwanted.is_set():
            await attempt.release()
        return outcome

    def _beyond(self) -> str:
        """Say what becomes of it when this process ends, where that is not what one expects."""
        return (
            f"; it goes on without this notebook, log: {self._run.log_path}"
            if self._plan.options.detach
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
        """Keep the variables here, and end the process; see `Course`."""
        if self._attempt is not None:
            await self._attempt.release(everything=True)

    def keeps(self, variable: str) -> bool:
        """Return whether a variable can be had although the process has ended; see `Course`."""
        return self._attempt is not None and self._attempt.keeps(variable)

    async def deliver(self, variable: str) -> Delivery:
        """Have one of its variables sent; see `Course`."""
        if self._attempt is None:
            raise TsnbError("it has never run, so it has no variables")
        return await self._attempt.deliver(variable)


def discard(plan: TrialPlan) -> None:
    """Let go of what was shipped for a trial: nobody will run it again."""
    for cargo in (plan.arrival["cargo"], plan.arrival["changed"]):
        if cargo is not None:
            cargo.close()
