"""A kernel on a machine of a Ray cluster: the actor there that starts it, speaks for it, and ends with it.

The kernel is an ordinary one (`child`), a process of the actor's own: when the actor ends, however that happens, so
does the kernel. What it publishes and replies waits in one line (`backlog`) until the notebook asks for it; objects
come and go as files in the private directory of the actor's hub.

Methods are called by `remote.RemoteChild`, from the notebook's process, several at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tsnb.cluster import membership
from tsnb.cluster.backlog import DIED, REPLY, WANTED, Backlog, Message
from tsnb.kernels.cargo.lane import FileLane
from tsnb.kernels.cargo.unnamed_file import Cargo, CargoWriter
from tsnb.kernels.hub import Hub, the_hub
from tsnb.kernels.processes.child import Child
from tsnb.kernels.processes.death import KernelDied
from tsnb.private.files import open_foreign, write_private

__all__ = ["CHUNK_BYTES", "KernelActor"]

POLL_S = 10.0
"""How long a question for news waits for some."""
CHUNK_BYTES = 8 * 2**20
"""What of a file crosses at once: it lies in the object store meanwhile."""


T = TypeVar("T")


class _OwnKernel:
    """The kernel, and what it has to tell. On the hub's thread, all of it.

    Args:
        hub: That hub.
    """

    def __init__(self, hub: Hub) -> None:
        self.child: Child | None = None
        self._hub = hub
        self._opening = asyncio.Lock()
        self._outbox = Backlog()
        self._told = asyncio.Event()
        self._asked: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, label: str, env: dict[str, str]) -> int:
        """Start it, if that was not done yet; return its process.

        Raises:
            KernelDied: It ended before it answered.
        """
        async with self._opening:
            if self.child is None:
                self.child = Child(self._hub, label, self._take, env)
                await self.child.start()
                self._later(self._mourn(self.child))
            return self.child.pid

    async def _mourn(self, child: Child) -> None:
        self._tell(DIED, {"text": str(await child.death)})

    def execute(self, request: str, code: str, order: bool) -> None:
        """Have code run, once for each `request`."""
        if request not in self._asked:
            self._asked.add(request)
            self._later(self._reply(request, code, order))

    async def _reply(self, request: str, code: str, order: bool) -> None:
        assert self.child is not None
        with contextlib.suppress(KernelDied):  # `_mourn` tells that
            reply = await self.child.execute(code, order=order)
            self._tell(REPLY, {"request": request, "reply": reply})

    async def news(self, seen: int) -> list[Message]:
        """Return what came behind the first `seen` messages; waits a moment for some."""
        found = self._outbox.since(seen)
        if not found:
            self._told.clear()
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(self._told.wait(), POLL_S)
            found = self._outbox.since(seen)
        return found

    def _take(self, kind: str, content: dict[str, Any]) -> None:
        if kind == WANTED:
            self._later(self._bring(content["stream"], Path(content["answer"])))
        else:
            self._tell(kind, content)

    def _tell(self, kind: str, content: dict[str, Any]) -> None:
        self._outbox.add(kind, content)
        self._told.set()

    async def _bring(self, stream: str | None, answer: Path) -> None:
        """Have a stream of the cluster on this machine; the kernel itself has not joined the cluster."""
        try:
            if stream is None:
                name = await asyncio.to_thread(membership.only_stream)
            else:
                name = await asyncio.to_thread(membership.bring_here, stream)
            said = {"name": name}
        except Exception as error:  # noqa: BLE001 (raised again where it was asked)
            said = {"error": type(error).__name__, "text": str(error)}
        write_private(answer, json.dumps(said))

    def _later(self, work: Any) -> None:
        task = self._hub.loop.create_task(work)
        self._tasks.add(task)  # a loop itself does not keep a task alive
        task.add_done_callback(self._tasks.discard)


class KernelActor:
    """One kernel and what belongs to it.

    It has no coroutines: with one, Ray would call all methods on one thread, and a question for news would keep the
    others waiting.
    """

    def __init__(self) -> None:
        # one kernel: a server to fork it from would cost more than it saves
        os.environ["TSNB_START"] = "spawn"
        self._hub = the_hub()
        self._kernel = _OwnKernel(self._hub)
        self._loading: dict[int, CargoWriter] = {}
        self._sent: dict[int, int] = {}
        self._received: dict[int, Cargo] = {}
        self._gate: int | None = None
        self._gate_path = Path()

    def open(self, label: str, env: dict[str, str]) -> dict[str, Any]:
        """Start the kernel; return where it is, or why it could not be started.

        Returns:
            `host`, `version` of tsnb, and `pid`, or `died`.
        """
        facts = {"host": socket.gethostname(), "version": sys.modules["tsnb"].__version__}
        try:
            return {**facts, "pid": self._hub.call(self._kernel.open(label, env))}
        except KernelDied as error:
            return {**facts, "died": str(error)}

    def execute(self, request: str, code: str, order: bool) -> None:
        """Have code run; its reply comes with the news, behind all of its output.

        Args:
            request: A word for it; what was asked for by the same word already is not run again.
            code: What to run.
            order: As `Child.execute`.
        """
        self._hub.loop.call_soon_threadsafe(self._kernel.execute, request, code, order)

    def news(self, seen: int) -> list[Message]:
        """Return what the kernel had to tell behind the first `seen` messages; waits a moment for some."""
        return self._hub.call(self._kernel.news(seen))

    def request(self, kind: str, content: dict[str, Any]) -> dict[str, Any]:
        """Ask the kernel something in the middle of its code; as `Child.request`."""
        assert self._kernel.child is not None
        return self._hub.call(self._kernel.child.request(kind, content))

    def interrupt(self) -> None:
        """Interrupt what runs in the kernel."""
        if self._kernel.child is not None:
            self._hub.loop.call_soon_threadsafe(self._kernel.child.interrupt)

    def close(self) -> None:
        """End the kernel, and wait until it has gone."""
        if self._kernel.child is not None:
            self._hub.call(self._kernel.child.kill())

    # -- shipped variables -------------------------------------------------------------------------------------

    def load(self, number: int, offset: int, data: bytes) -> None:
        """Take the next part of the cargo for the kernel, under a number of the caller's."""
        loading = self._loading.setdefault(number, CargoWriter())
        if offset == loading.size:  # an answer may be lost on the way, and the question repeated
            loading.write(data)

    def send(self, number: int) -> int:
        """Hand what was taken under a number to the kernel; return the number under which that takes it."""
        if number not in self._sent:  # as above
            cargo = self._loading.pop(number, CargoWriter()).done()
            self._sent[number] = self._on_hub(lambda lane: lane.send(cargo))
        return self._sent[number]

    def expect(self) -> int:
        """Return a number under which the kernel is to send something."""
        return self._on_hub(lambda lane: lane.expect())

    def receive(self, number: int, offset: int) -> bytes:
        """Return a part of what the kernel has sent under a number; nothing behind its end."""
        if number not in self._received:
            assert self._kernel.child is not None
            self._received[number] = self._hub.call(self._kernel.child.lane.receive(number))
        return self._received[number].read(offset, CHUNK_BYTES)

    def forget(self, number: int) -> None:
        """Let go of what the kernel has sent under a number."""
        self._received.pop(number, None)
        self._on_hub(lambda lane: lane.forget(number))

    def _on_hub(self, work: Callable[[FileLane], T]) -> T:
        async def run() -> T:
            assert self._kernel.child is not None
            return work(self._kernel.child.lane)

        return self._hub.call(run())

    # -- files ------------------------------------------------------------------------------------------------

    def new_path(self, stem: str, suffix: str = "") -> str:
        """Return a new path on this machine, in a private directory."""
        return str(self._hub.new_path(stem, suffix))

    def read(self, path: str, offset: int) -> bytes:
        """Return a part of a file, `CHUNK_BYTES` of it at most; nothing behind its end."""
        with open_foreign(path) as file:
            file.seek(offset)
            return file.read(CHUNK_BYTES)

    def files(self, path: str) -> list[str] | None:
        """Return the files in a folder, relative to it; None if it is a file."""
        folder = Path(path)
        if not folder.is_dir():
            return None
        return [str(p.relative_to(folder)) for p in sorted(folder.rglob("*")) if p.is_file()]

    def remove(self, path: str) -> None:
        """Remove a file or folder, if it is there."""
        if Path(path).is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            Path(path).unlink(missing_ok=True)

    # -- a common start ---------------------------------------------------------------------------------------

    def shut_gate(self) -> str:
        """Make a gate on this machine and return its path: a trial at it waits for `open_gate`, or for our end."""
        if self._gate is None:
            self._gate_path = self._hub.new_path("gate")
            self._gate = os.open(self._gate_path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._gate, fcntl.LOCK_EX)
        return str(self._gate_path)

    def open_gate(self) -> None:
        """Let the kernel pass."""
        if self._gate is not None:
            self._gate_path.unlink(missing_ok=True)
            fcntl.flock(self._gate, fcntl.LOCK_UN)
            os.close(self._gate)
            self._gate = None
