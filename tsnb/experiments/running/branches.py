"""Clones of a trial that runs: its kernel is forked between two batches, or writes its state for a new process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tsnb.errors import TsnbError
from tsnb.experiments.news import BRANCH, FORGET_BRANCH, Branched, KeptForClone, NotBranched, raised
from tsnb.experiments.plan import TrialPlan
from tsnb.kernels.hub import Hub
from tsnb.kernels.processes.child import Child
from tsnb.kernels.processes.death import KernelDied

if TYPE_CHECKING:
    from tsnb.experiments.running.attempt import Kernel

__all__ = ["Branch", "Branches", "KeptStart"]

BRANCH_S = 60.0
"""How long a trial that is to be cloned may take to come to its next batch: the step that runs, or a validation."""
LATE_S = 15.0
"""How long one that has begun with it may take on."""


class Branch:
    """A clone that stands at its place, and waits to be told to go on.

    Attributes:
        child: Its kernel.
        place: Where it stands.
        take: Takes what its kernel publishes, once there is an attempt for it.
    """

    def __init__(self) -> None:
        self.child: Child
        self.place: Branched
        self.take: Callable[[str, dict[str, Any]], None] = lambda _kind, _content: None


class KeptStart(NamedTuple):
    """A state that a clone begins with in a process of its own, where its parent was not forked."""

    path: Path
    """Its file."""
    place: tuple[int | None, int | None, int]
    """Where it was taken: the trial's epoch, from 1, loader batches taken of it, samples in all."""
    copied: bool = False
    """Whether the file stays where it is; else it is the clone's alone."""
    why: str = ""
    """Why there was no fork."""


class _WroteInstead(Exception):
    """A trial has written its state for a clone, in place of a fork."""

    def __init__(self, start: KeptStart) -> None:
        super().__init__(start.why)
        self.start = start


class Branches:
    """The clones that are made of one kernel, one after the other.

    Args:
        hub: The hub on whose thread it lives.
        plan: What the kernel runs.
        over: Set when its code has ended.
    """

    def __init__(self, hub: Hub, plan: TrialPlan, over: asyncio.Event) -> None:
        self._hub = hub
        self._plan = plan
        self._over = over
        self._one_by_one = asyncio.Lock()
        self._answer: asyncio.Future[Branched | NotBranched | KeptForClone] | None = None

    def hear(self, news: Branched | NotBranched | KeptForClone) -> None:
        """Take what the kernel says of the clone that it was asked for."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(news)

    async def branch(self, child: Kernel, name: str, changes: Mapping[str, Any]) -> Branch | KeptStart:
        """Have the kernel cloned at its next batch; where it cannot be forked, have its state written for the clone.

        Args:
            child: The kernel.
            name: The clone's name.
            changes: New values of its live values.

        Raises:
            NoSuchLiveValue, ValueError: A change is not possible.
            TsnbError: It cannot be cloned; says why.
            TimeoutError: It does not come to its next batch.
            KernelDied: It or the clone has died.
        """
        if not isinstance(child, Child):
            raise TsnbError(
                f"Trial {self._plan.name!r} runs on a cluster. Only trials of this machine can be cloned"
            )
        async with self._one_by_one:
            branch = Branch()

            async def fork(place: dict[str, Any]) -> int:
                if self._plan.options.detach:  # it outlives this process, which would look after a fork of it
                    place["server"] = None
                branch.place = await self._forked(child, {**place, "name": name, "changes": dict(changes)})
                return branch.place.pid

            try:
                branch.child = await Child.clone(
                    child,
                    name,
                    lambda *message: branch.take(*message),  # noqa: PLW0108 (`take` is set later)
                    fork,
                )
            except _WroteInstead as instead:
                return instead.start
            return branch

    async def _forked(self, child: Child, wish: dict[str, Any]) -> Branched:
        """Ask for the fork, and wait until it has been done."""
        name = self._plan.name
        answer = self._answer = self._hub.loop.create_future()
        reply = await child.request(BRANCH, wish)
        if reply["status"] != "ok":
            raise raised(reply, name)
        over = asyncio.ensure_future(self._over.wait())
        death = child.death
        there: set[asyncio.Future[Any]] = {answer, over, death}
        try:
            await asyncio.wait(there, timeout=BRANCH_S, return_when=asyncio.FIRST_COMPLETED)
            if (
                not answer.done()
                and not self._over.is_set()
                and not death.done()
                and not await self._forgotten(child)
            ):
                await asyncio.wait(there, timeout=LATE_S, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            with contextlib.suppress(TsnbError, TimeoutError):
                await self._forgotten(child)
            raise
        finally:
            over.cancel()
        if answer.done():
            said = answer.result()
            if isinstance(said, Branched):
                return said
            if isinstance(said, KeptForClone):
                raise _WroteInstead(KeptStart(Path(said.path), said[2:], why=said.why))
            raise TsnbError(f"Trial {name!r} cannot be cloned now: {said.why}.")
        if death.done():
            raise KernelDied(f"Trial {name!r} died before it was cloned")
        if self._over.is_set():
            raise TsnbError(f"Trial {name!r} was not cloned because it ended before its next batch")
        raise TimeoutError(
            f"Trial {name!r} was not cloned because it has not requested a batch for {BRANCH_S:.0f} s. Trials "
            "are cloned between batches"
        )

    async def _forgotten(self, child: Child) -> bool:
        """Take the wish back; return whether that came in time."""
        reply = await child.request(FORGET_BRANCH, {})
        return bool(reply.get("answer"))
