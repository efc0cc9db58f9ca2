"""A background kernel on some machine of a Ray cluster, as the notebook sees it: like one of its own (`child.Child`).

| step | request to Ray |
|---|---|
| room for it: cores, perhaps a GPU | a placement group; it may have to be waited for |
| the kernel | an actor on that machine (`actor.KernelActor`), which starts it there |
| its output and replies | the actor is asked for news, again and again |
| its code has ended | the room is given back; the kernel stays for its variables, unless it holds a GPU |

Actor and room belong to this process: when it ends, however that happens, Ray ends them, and so the kernel. All
of this runs on the hub's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tsnb.cluster.actor import CHUNK_BYTES, KernelActor
from tsnb.cluster.backlog import DIED, REPLY
from tsnb.cluster.room import LEFT, KernelRoom, Needs, cannot_start, cause_of_loss, job_here
from tsnb.engines import joined
from tsnb.errors import TsnbError
from tsnb.kernels.cargo.unnamed_file import Cargo, CargoWriter
from tsnb.kernels.hub import Hub
from tsnb.kernels.processes.channels import Output
from tsnb.kernels.processes.death import KernelDied
from tsnb.private.directories import make_private
from tsnb.private.files import open_private, place_in

__all__ = ["RemoteChild"]

LOOK_S = 1.0
"""How often to look whether this process still is in the cluster while an answer stays out."""
PAUSE_S = 0.02
"""Between two questions for news: fifty a second look live."""
AGAIN_S = 0.5
"""An actor that cannot be reached, and is not known to have died, is asked again."""
CLOSE_S = 3.0
"""How long the actor may take to end its kernel; then it is ended itself, which ends the kernel."""


class RemoteChild:
    """A kernel process on a machine of the cluster that this process has joined.

    Attributes:
        pid: Its process, there; 0 before the start.
        host: That machine's name.
        needs: The room that it takes.

    Args:
        hub: The hub on whose thread all of this runs.
        label: A word for file names.
        output: Takes everything the kernel publishes.
        env: Added to the environment that Ray's processes have there.
        needs: The room that it takes.
        waiting: Called with a sentence while there is no room, and with "" once there is.
    """

    def __init__(
        self,
        hub: Hub,
        label: str,
        output: Output,
        env: dict[str, str],
        needs: Needs,
        waiting: Callable[[str], None],
    ) -> None:
        self.pid = 0
        self.host = "its machine"
        self._hub = hub
        self._label = label
        self._output = output
        self._env = env
        self.needs = needs
        self._room = KernelRoom(needs, waiting)
        self._job = job_here()
        self._actor: Any = None
        self._death: str | None = None
        self._gone: asyncio.Future[None] = hub.loop.create_future()
        self._unwanted = False
        self._replies: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._cargoes = 0
        self._tasks: set[asyncio.Future[Any]] = set()

    @property
    def alive(self) -> bool:
        """Whether the process runs, as far as is known here."""
        return bool(self.pid) and self._death is None

    async def start(self) -> None:
        """Wait for room, start the process, and wait until it answers.

        Raises:
            KernelDied: It ended before it answered, or this process is in no cluster any more.
            TsnbError: It cannot be started there: another version of tsnb, or none.
        """
        self._hub.at_end(self, self.kill)
        try:
            await self._open(await self._room.reserve(self._refusal))
        except BaseException:
            await self._end("it was not started")
            raise
        self._later(self._listen())

    def _refusal(self) -> str:
        if self._unwanted:
            return "it was stopped before it was started"
        return "" if self._member else LEFT

    async def _open(self, node: str) -> None:
        import ray
        from ray.util.scheduling_strategies import (
            NodeAffinitySchedulingStrategy,
            PlacementGroupSchedulingStrategy,
        )

        # without a GPU the actor stands beside its room, which it outlives: no trial should wait for others' variables
        at: Any = NodeAffinitySchedulingStrategy(node, soft=False)
        if self.needs.gpus:
            at = PlacementGroupSchedulingStrategy(self._room.group, 0)
        actor: Any = ray.remote(KernelActor)
        options = {"num_cpus": 0, "num_gpus": self.needs.gpus, "max_concurrency": 8}
        self._actor = actor.options(scheduling_strategy=at, **options).remote()
        try:
            facts = await self._ask("open", self._label, self._env)
        except KernelDied:
            raise
        except ray.exceptions.RayError as error:
            raise TsnbError(cannot_start(error)) from None
        self.host = facts["host"]
        here = sys.modules["tsnb"].__version__
        if facts["version"] != here:
            raise TsnbError(
                f"{self.host} has tsnb {facts['version']} and this machine {here}. Install the same "
                "version on every machine of the cluster (docs/ray-cluster.md)."
            )
        if "died" in facts:
            raise KernelDied(f"on {self.host}: {facts['died']}")
        self.pid = facts["pid"]

    async def _listen(self) -> None:
        """Take what the kernel has to tell, until it has ended."""
        seen = 0
        try:
            while self._death is None:
                news = await self._ask("news", seen)
                seen += len(news)
                for kind, content in news:
                    self._hear(kind, content)
                await asyncio.sleep(PAUSE_S)
        except KernelDied as error:
            await self._end(str(error))

    def _hear(self, kind: str, content: dict[str, Any]) -> None:
        if kind == REPLY:
            reply = self._replies.get(content["request"])
            if reply is not None and not reply.done():
                reply.set_result(content["reply"])
        elif kind == DIED:
            self._later(self._end(f"on {self.host}: {content['text']}"))
        else:
            try:
                self._output(kind, content)
            except Exception:  # a page that cannot be reached must not end the trial
                logging.getLogger("tsnb").exception("output of %s could not be shown", self._label)

    async def execute(self, code: str, *, order: bool = False) -> dict[str, Any]:
        """Run code in the kernel; as `Child.execute`.

        Raises:
            KernelDied: The process, its machine or the cluster ended meanwhile.
        """
        if not self.alive:
            raise KernelDied(self._death or "its kernel was not started")
        request = uuid.uuid4().hex
        reply: asyncio.Future[dict[str, Any]] = self._hub.loop.create_future()
        reply.add_done_callback(lambda done: done.cancelled() or done.exception())  # never "not retrieved"
        self._replies[request] = reply
        try:
            await self._ask("execute", request, code, order)
            return await reply
        finally:
            self._replies.pop(request, None)

    def interrupt(self) -> None:
        """Interrupt what runs in the kernel."""
        if self.alive:
            self._later(self._try("interrupt"))

    async def give_back(self) -> None:
        """Give the room back: the kernel computes no more."""
        await self._room.give_back()

    async def kill(self) -> None:
        """End the process and wait until it has gone. A start that is under way ends with `KernelDied`."""
        self._unwanted = True
        if self.alive:
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(self._try("close"), CLOSE_S)
        await self._end("it was ended")

    async def _end(self, death: str) -> None:
        """Note that the process has gone, wake all waiting calls, and give back its room. The first call counts."""
        if self._death is not None:
            return
        self._death = death
        self._gone.set_result(None)
        self._hub.forget(self)
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(KernelDied(death))
        actor, self._actor = self._actor, None
        if actor is not None and self._member:
            joined().kill(actor)
        with contextlib.suppress(Exception):  # Ray's own words for a cluster that has just ended
            await self.give_back()

    # -- files there ------------------------------------------------------------------------------------------

    async def sent(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Send each `Cargo` among the settings; return them with the numbers by which the kernel takes it."""
        return {
            word: await self._send(value) if isinstance(value, Cargo) else value
            for word, value in settings.items()
        }

    async def _send(self, cargo: Cargo) -> int:
        self._cargoes += 1
        number, offset = self._cargoes, 0
        while chunk := cargo.read(offset, CHUNK_BYTES):
            await self._ask("load", number, offset, chunk)
            offset += len(chunk)
        return int(await self._ask("send", number))

    async def delivered(self, number: int) -> Cargo:
        """Bring what the kernel has sent under a number that the actor has named (`expect`)."""
        loading, offset = CargoWriter(), 0
        while chunk := await self._ask("receive", number, offset):
            offset += loading.write(chunk)
        return loading.done()

    async def receive(self, there: str, path: Path) -> None:
        """Bring a file or folder from the kernel's machine, and remove it there."""
        files = await self._ask("files", there)
        if files is None:
            await self._receive(there, path)
        else:
            path.mkdir(mode=0o700)  # noqa: ASYNC240 (as quick as any other file's)
            for name in files:
                target = place_in(path, name)  # a name that leads out of the folder is refused
                make_private(target.parent, below=path.parent)
                await self._receive(f"{there}/{name}", target)
        await self._ask("remove", there)

    async def _receive(self, there: str, path: Path) -> None:
        with os.fdopen(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            while chunk := await self._ask("read", there, file.tell()):
                file.write(chunk)

    async def request(self, kind: str, content: dict[str, Any]) -> dict[str, Any]:
        """Ask the kernel something in the middle of its code; as `Child.request`."""
        reply: dict[str, Any] = await self._ask("request", kind, content)
        return reply

    async def ask(self, method: str, *arguments: Any) -> Any:
        """Ask the actor for something (`actor.KernelActor`).

        Raises:
            KernelDied: It, its machine or the cluster has gone.
        """
        return await self._ask(method, *arguments)

    async def _try(self, method: str) -> None:
        with contextlib.suppress(TsnbError):
            await self._ask(method)

    async def _ask(self, method: str, *arguments: Any) -> Any:
        from ray.exceptions import ActorDiedError, ActorUnavailableError

        while True:
            actor = self._actor
            if actor is None or not self._member:
                raise KernelDied(self._death or LEFT)
            try:
                return await self._answer(getattr(actor, method).remote(*arguments))
            except ActorUnavailableError:
                await asyncio.sleep(AGAIN_S)
            except ActorDiedError as error:
                if not self.pid and not self._unwanted and error.actor_init_failed:
                    raise  # it is not that it died: it never came to be
                raise KernelDied(self._death or cause_of_loss(str(error), self.host)) from None

    async def _answer(self, asked: Any) -> Any:
        """Wait for an answer while one can come: none comes after `ray.shutdown()` or from an ended actor."""
        answer = asyncio.ensure_future(asked)
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # never "not retrieved"
        while not answer.done():
            either: set[asyncio.Future[Any]] = {answer, self._gone}
            await asyncio.wait(either, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done() and (self._gone.done() or not self._member):
                answer.cancel()
                raise KernelDied(self._death or LEFT)
        return answer.result()

    @property
    def _member(self) -> bool:
        """Whether this process is in the cluster that it was in at the start."""
        return bool(self._job) and job_here() == self._job

    def _later(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)  # a loop itself does not keep a task alive
        task.add_done_callback(self._tasks.discard)
