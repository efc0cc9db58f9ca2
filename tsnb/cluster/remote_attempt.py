"""One life of a trial's kernel on a machine of a Ray cluster: as `experiments.running.attempt`, with files that travel.

The kernel gets the same orders as a local one, and sends the same news. A local one writes into the project's records
itself; here this process does so, from that news; the run belongs to this process, since it ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsnb.cluster.remote_kernel import RemoteChild
from tsnb.cluster.room import Needs
from tsnb.errors import TsnbError
from tsnb.experiments.bookkeeping import asked, noted
from tsnb.experiments.news import Artifact, Begun, Changed, Consumed, Logged, News
from tsnb.experiments.plan import RESULT, TrialPlan
from tsnb.experiments.running.attempt import Attempt, Delivery
from tsnb.experiments.running.states import Outcome
from tsnb.kernels.cargo import orders
from tsnb.kernels.hub import Hub
from tsnb.kernels.processes.death import KernelDied
from tsnb.machine.placement import ANY_GPU
from tsnb.records.run import Run
from tsnb.text.printable import block

if TYPE_CHECKING:
    from tsnb.experiments.running.trial_life import TrialLife

__all__ = ["ClusterAttempt", "needs_of"]

INSIDE = "tsnb.cluster.remote_run"
"""The module with the step that gets its kernel ready."""
GATE_S = 0.05
"""How often to look whether the gate has been opened."""


def needs_of(plan: TrialPlan) -> Needs:
    """Return the room that a trial takes on its machine."""
    return Needs(plan.options.threads or 1, int(plan.options.device in ANY_GPU))


class ClusterAttempt(Attempt):
    """A kernel on a machine of the cluster, for one run through a trial's code.

    Args:
        hub: As `Attempt`.
        plan: As `Attempt`.
        settings: As `Attempt`.
        host: The trial.
        run: Its place in the project's records.
    """

    child: RemoteChild

    def __init__(
        self, hub: Hub, plan: TrialPlan, settings: Mapping[str, Any], host: TrialLife, run: Run
    ) -> None:
        self._run = run
        self._coming: set[asyncio.Future[None]] = set()
        self._fetching = asyncio.Lock()
        self._gate: asyncio.Future[None] | None = None
        super().__init__(hub, plan, settings, host)

    @property
    def where(self) -> str:
        """Which process it is."""
        return f"pid {self.child.pid} on {self.child.host}"

    def _new_child(self, log: Path | None) -> RemoteChild:
        options = self._plan.options
        threads = orders.thread_variables(options.threads or 1)
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if options.device == "cpu" else {}
        env = {**threads, **hidden, **options.env}
        return RemoteChild(
            self._hub, self._plan.name, self._take, env, needs_of(self._plan), self._wait_for_room
        )

    def _wait_for_room(self, why: str) -> None:
        """Show that the trial waits for room in the cluster, or that it has some."""
        self._host.become("queued" if why else "starting")
        self._host.wait_for(why)
        if why:
            self._host.say(f"Trial {self._plan.name!r} is queued: {why}.\n")

    async def _arrival(self) -> Mapping[str, Any]:
        given = self._settings
        files: dict[str, Any] = {}
        if given["gate"]:
            files["gate"] = await self.child.ask("shut_gate")
            self._gate = asyncio.ensure_future(self._open_gate(Path(given["gate"])))
        files["outbox"] = await self.child.ask("new_path", "outbox")
        return await self.child.sent({**given, **files})

    async def _enter(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return await self.child.execute(orders.call(INSIDE, "enter", settings), order=True)

    async def _open_gate(self, gate: Path) -> None:
        """Open the gate there when the sweep has opened its own here, which is gone then."""
        while gate.exists() and self.child.alive:  # noqa: ASYNC110, ASYNC240 (there is no event to wait for)
            await asyncio.sleep(GATE_S)
        with contextlib.suppress(KernelDied):
            await self.child.ask("open_gate")

    def _hear(self, news: News) -> None:
        match news:
            case Artifact(path, name):
                coming = asyncio.ensure_future(self._fetch(path, name))
                self._coming.add(coming)
                coming.add_done_callback(self._coming.discard)
                return
            case Begun(versions):
                noted(self._run.process, os.getpid(), versions)
            case Logged(rows):
                noted(self._run.add_rows, rows)
            case Changed(changes):
                noted(self._run.changed, changes)
            case Consumed(report):
                noted(self._run.report, report)
        super()._hear(news)

    async def _fetch(self, there: str, name: str) -> None:
        """Bring an artifact home."""
        here = self._hub.new_path("artifact")
        try:
            async with (
                self._fetching
            ):  # one after the other: a later one of the same name takes the earlier one's place
                await self.child.receive(there, here)
                await asked(self._run.add_artifact, here, name)
        except (TsnbError, OSError) as error:
            first = str(error).partition("\n")[0]
            self._host.say(f"The artifact {name!r} of trial {self._plan.name!r} is lost: {first}\n", "stderr")
        finally:
            shutil.rmtree(here, ignore_errors=True)
            here.unlink(missing_ok=True)

    async def run(self, begun: Callable[[], None]) -> Outcome:
        """Run the code; as `Attempt.run`. Artifacts are here when it returns, and its room is given back."""
        try:
            outcome = await super().run(begun)
        finally:
            if self._gate is not None:
                self._gate.cancel()
        with contextlib.suppress(KernelDied):
            while self._coming:
                await asyncio.wait(set(self._coming))
            await self._make_way(outcome)
        return outcome

    async def _make_way(self, outcome: Outcome) -> None:
        """Give back what it computed on. A process that holds a GPU has to end for that: its result is kept here."""
        if not self.child.needs.gpus:
            await self.child.give_back()
            return
        if outcome.state == "done":
            reply, self._kept = await self._deliver([RESULT], [])
            if reply["status"] == "ok":
                pass
            elif reply["ename"] != "KeyError":
                self._host.say(f"Trial {self._plan.name!r}: {block(reply['evalue'])}\n", "stderr")
        await self.child.kill()

    async def release(self, *, everything: bool = False) -> None:
        """Do nothing: what it computed on was given back, and its process does not load this machine."""

    def keeps(self, variables: Sequence[str]) -> bool:
        """Return whether variables are still available although the process has ended."""
        return list(variables) == [RESULT] and self._kept is not None

    async def deliver(self, variables: Sequence[str], before: Sequence[str]) -> Delivery:
        """Have some of its variables sent here; return the reply with them."""
        if self._kept is not None and self.keeps(variables):
            return {"status": "ok"}, self._kept
        return await self._deliver(variables, before)

    async def _deliver(self, variables: Sequence[str], before: Sequence[str]) -> Delivery:
        number = await self.child.ask("expect")
        reply = await self._order("deliver", list(variables), list(before), number)
        cargo = await self.child.delivered(number) if reply["status"] == "ok" else None
        await self.child.ask("forget", number)
        return reply, cargo
