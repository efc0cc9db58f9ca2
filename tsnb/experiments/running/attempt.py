"""One life of a trial's kernel: it starts, takes in the variables, runs the code once, and says how that ended.

All of it runs on the hub's thread. A trial whose process dies may have several (`Trial`, with `restart`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tsnb.device_sharing.mps import with_mps
from tsnb.errors import TsnbError
from tsnb.experiments.news import (
    GO_ON,
    RELEASE,
    SET,
    Begun,
    Branched,
    Ended,
    KeptForClone,
    News,
    NotBranched,
    how_it_ended,
    news_in,
)
from tsnb.experiments.plan import TrialPlan
from tsnb.experiments.running.branches import Branch, Branches
from tsnb.experiments.running.states import Outcome
from tsnb.kernels.cargo import orders
from tsnb.kernels.cargo.unnamed_file import Cargo
from tsnb.kernels.hub import Hub
from tsnb.kernels.processes.child import Child
from tsnb.kernels.processes.death import KernelDied
from tsnb.machine.placement import place

if TYPE_CHECKING:
    from tsnb.experiments.running.trial_life import TrialLife

__all__ = ["Attempt", "CloneAttempt", "Delivery", "Kernel"]

INSIDE = "tsnb.experiments.in_kernel.steps"
"""The module with the steps that its kernel runs."""


Delivery = tuple[dict[str, Any], Cargo | None]
"""A kernel's reply, and the cargo that it has sent if that is "ok"."""

REPLY_S = 5.0
"""How long the reply may stay out after the kernel has said how its code ended."""


class Kernel(Protocol):
    """A kernel process, here (`kernels.processes.child`) or on a machine of a cluster (`kernels.remote`)."""

    pid: int

    @property
    def alive(self) -> bool:
        """Whether it runs."""

    async def start(self) -> None:
        """Start it, and wait until it answers."""

    async def execute(self, code: str, *, order: bool = False) -> dict[str, Any]:
        """Run code in it; return the reply."""

    async def request(self, kind: str, content: dict[str, Any]) -> dict[str, Any]:
        """Ask it something in the middle of its code; return its answer."""

    def interrupt(self) -> None:
        """Interrupt what runs in it."""

    async def kill(self) -> None:
        """End it."""


class Attempt:
    """A kernel for one run through a trial's code.

    Attributes:
        child: Its process.
        branches: The clones that are made of it.

    Args:
        hub: The hub on whose thread it lives.
        plan: What is run.
        settings: What `in_kernel.trial.enter` takes, beside what the plan says.
        host: The trial.
        log: Where a detached kernel logs; None for one that ends with this process.
    """

    def __init__(
        self,
        hub: Hub,
        plan: TrialPlan,
        settings: Mapping[str, Any],
        host: TrialLife,
        log: Path | None = None,
    ) -> None:
        self._hub = hub
        self._plan = plan
        self._settings = {**plan.options.attach, **plan.arrival, "name": plan.name, **settings}
        self._host = host
        self._said: Outcome | None = None
        self._over = asyncio.Event()
        self._kept: Cargo | None = None
        self._stays = False
        self._sending = asyncio.Lock()
        self._begun: Callable[[], None] = lambda: None
        self.branches = Branches(hub, plan, self._over)
        self.child: Kernel = self._new_child(log)

    @property
    def where(self) -> str:
        """Which process it is."""
        return f"pid {self.child.pid}"

    def _new_child(self, log: Path | None) -> Kernel:
        options = self._plan.options
        placed = place(options.device, options.mps_percent, with_mps(options.env))
        threads = orders.thread_variables(options.threads or 1)
        env = {**threads, **placed.environment, **options.env}
        return Child(self._hub, self._plan.name, self._take, env, detached_log=log)

    async def _arrival(self) -> Mapping[str, Any]:
        """Return the settings that the kernel takes, what was shipped sent to it."""
        assert isinstance(self.child, Child)
        return self.child.sent(self._settings)

    def _take(self, kind: str, content: dict[str, Any]) -> None:
        """Take what the kernel publishes."""
        news = news_in(kind, content)
        if news is None:
            self._host.show(kind, content)
        else:
            self._hear(news)

    def _hear(self, news: News) -> None:
        """Keep what the kernel says of its own end: that holds even if the reply is lost on the way."""
        if isinstance(news, Begun):
            self._begun()
        elif isinstance(news, Ended):
            self._said = Outcome(*news)
            self._over.set()
        elif isinstance(news, (Branched, NotBranched, KeptForClone)):
            self.branches.hear(news)
        else:
            self._host.hear(news)

    async def run(self, begun: Callable[[], None]) -> Outcome:
        """Run the code.

        Args:
            begun: Called when the code begins.

        Raises:
            KernelDied: The process ended before the code had.
        """
        try:
            await self.child.start()
            reply = await self._enter(await self._arrival())
            setup = self._plan.arrival.get("setup", "")
            if reply["status"] == "ok" and setup:
                reply = await self.child.execute(setup)
                if reply["status"] != "ok":
                    return _of_setup(_outcome(reply))
                reply = await self._order("begin")
            if reply["status"] == "ok":
                self._begun = begun
                reply = await self._execute()
                if self._said is None:  # an interrupt came before the kernel's own last step
                    await self._order("finish", *_outcome(reply)[:2])
        except KernelDied:
            if self._said is None:
                raise
            return self._said
        return self._said or _outcome(reply)

    async def _execute(self) -> dict[str, Any]:
        """Run the code; return the reply, or an empty success where the kernel ended it and the reply is missing.

        A reply is missing when an interrupt met the kernel between the code's end and the sending.
        """
        running = asyncio.ensure_future(self.child.execute(self._plan.source))
        ended = asyncio.ensure_future(self._over.wait())
        both: set[asyncio.Future[Any]] = {running, ended}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if self._over.is_set():
                await asyncio.wait({running}, timeout=REPLY_S)
            return await running if running.done() else {"status": "ok"}
        finally:
            for waiting in both:
                waiting.cancel()

    async def set(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Have live values changed; return the kernel's reply."""
        return await self.child.request(SET, changes)

    async def release_memory(self, *, wanted: bool) -> dict[str, Any]:
        """Have its GPU memory given back when it is paused, or not after all; return the kernel's reply."""
        return await self.child.request(RELEASE, {"wanted": wanted})

    async def leave(self) -> None:
        """End the process; nothing can be fetched from it after this."""
        await self.child.kill()
        self._kept = None

    async def release(self, *, everything: bool = False) -> None:
        """Keep the variables here, and end the process; where they are too large, it stays. Called after `run`.

        Args:
            everything: All of them, those too that it took along.
        """
        async with self._sending:
            if not self.child.alive or self._stays:
                return
            with contextlib.suppress(
                TsnbError, TimeoutError
            ):  # it was stopped meanwhile, or is stuck: it stays
                _, self._kept = await self._sent("keep", everything)
            self._stays = self._kept is None
            if not self._stays:
                await self.child.kill()

    def keeps(self, variables: Sequence[str]) -> bool:
        """Return whether variables are still available although the process has ended."""
        return self._kept is not None

    async def deliver(self, variables: Sequence[str], before: Sequence[str]) -> Delivery:
        """Have some of its variables sent here; return the reply with them."""
        async with self._sending:
            if self._kept is not None:
                return {"status": "ok"}, self._kept
            return await self._sent("deliver", list(variables), list(before))

    async def _sent(self, order: str, *arguments: Any) -> Delivery:
        """Have the kernel send something by an order that takes, last, the number under which it is expected."""
        assert isinstance(self.child, Child)
        lane = self.child.lane
        number = lane.expect()
        try:
            reply = await self._order(order, *arguments, number)
            return reply, await lane.receive(number) if reply["status"] == "ok" else None
        finally:
            lane.forget(number)

    async def _enter(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Have the kernel get ready for the code."""
        return await self._order("enter", settings)

    async def _order(self, function: str, *arguments: Any) -> dict[str, Any]:
        return await self.child.execute(orders.call(INSIDE, function, *arguments), order=True)


class CloneAttempt(Attempt):
    """The rest of a trial's code in a clone of its kernel.

    Args:
        hub: The hub on whose thread it lives.
        plan: What is run.
        settings: The clone's own: `run` and `started_s`.
        host: The trial that the clone is.
        branch: The clone, which waits to be told to go on.
    """

    def __init__(
        self, hub: Hub, plan: TrialPlan, settings: Mapping[str, Any], host: TrialLife, branch: Branch
    ) -> None:
        self._clone = branch
        self._going: Mapping[str, Any] = settings
        super().__init__(hub, plan, settings, host)
        branch.take = self._take

    def _new_child(self, log: Path | None) -> Kernel:
        return self._clone.child

    async def run(self, begun: Callable[[], None]) -> Outcome:
        """Let it go on, to the end of its code.

        Raises:
            KernelDied: The process ended before the code had.
        """
        self._begun = begun
        child = self._clone.child
        await child.request(GO_ON, dict(self._going))
        over = asyncio.ensure_future(self._over.wait())
        both: set[asyncio.Future[Any]] = {over, child.death}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        if self._said is not None:
            return self._said
        raise KernelDied(str(child.death.result()))


def _of_setup(outcome: Outcome) -> Outcome:
    """Say that it was the cell before the trial's own that ended so."""
    said = outcome.failure and f"the set-up cell (%%trial --setup) raised {outcome.failure}"
    return outcome._replace(failure=said)


def _outcome(reply: Mapping[str, Any]) -> Outcome:
    """Read how it ended from the kernel's reply."""
    if reply["status"] == "ok":
        return Outcome(*how_it_ended(""))
    raised = reply.get("ename", "Error")
    return Outcome(*how_it_ended(raised, f"{raised}: {reply.get('evalue', '')}", reply.get("traceback", ())))
