"""One background kernel: its process, its channels, its death.

Everything here runs on the hub's thread. A death is seen through a `pidfd` in the loop, at once, whatever the
interpreter in the child was doing; the rest of its process group (DataLoader workers, shell commands) goes
with it. Transport is `ipc` under a private prefix of its own: with a shared one concurrent starts would race
for the same socket names, and over TCP any user of the machine could connect.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

from tsnb.config import private_directory, runtime_directory
from tsnb.kernels.death import Death, KernelDied, when_gone
from tsnb.kernels.hub import Hub, lock_directory, short_parent
from tsnb.kernels.launch import DETACHED

__all__ = ["Child", "log_path"]

START_S = 60.0
"""How long a kernel may take until it answers: a second on an idle machine, many on a thrashing one."""

ENTRY = (
    f"import sys; sys.path.append({str(Path(__file__).resolve().parents[2])!r}); "
    "from tsnb.kernels.launch import main; main()"
)
"""A child's code. It finds this package where this process has it, installed or not, without a PYTHONPATH that
other Pythons started from a cell would inherit."""

ASK_AGAIN_S = 0.5
"""A kernel we are not subscribed to yet answers without our seeing its output: ask again."""

NOT_INHERITED = ("JPY_PARENT_PID", "PYTEST_CURRENT_TEST")
"""Left out of a child's environment: the notebook server's pid would make it watch the wrong process, and
under pytest ipykernel would not capture what C code prints."""

ADDED = {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}
"""Added to it: keeps a debugger's warning about frozen modules out of the output."""

Output = Callable[[str, dict[str, Any]], None]
"""Takes a message's type and content, on the hub's thread."""


class _OwnSpec(KernelSpecManager):
    """Kernels on this interpreter, tied to this process; no kernel needs to be installed."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        argv = [sys.executable, "-c", ENTRY, kernel_name, "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name="tsnb", language="python")


class Child:
    """A kernel process of this notebook's own.

    Attributes:
        pid: Its process; 0 before the start.
        death: Done when the process has gone and been cleared away, for whatever reason.
        grace_s: How long the process may take, after a SIGTERM, to put things in order when it is killed.

    Args:
        hub: The hub on whose thread all of this runs.
        label: A word for file names.
        output: Takes everything the kernel publishes.
        env: Added to this process's environment.
        detached_log: A detached kernel's log file: it outlives this process, in a directory of its own, once
            it has called `launch.untie`. None: it dies with this process.
    """

    def __init__(
        self,
        hub: Hub,
        label: str,
        output: Output,
        env: dict[str, str] | None = None,
        detached_log: Path | None = None,
    ) -> None:
        self.pid = 0
        self.grace_s = 0.0
        self._unwanted = False
        self.death: asyncio.Future[Death] = hub.loop.create_future()
        self._hub = hub
        self._label = label
        self._output = output
        self._env = env or {}
        self._detached_log = detached_log
        self._log = detached_log or hub.new_path(label, ".log")
        self._replies: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._idle: dict[str, asyncio.Event] = {}
        self._orders: set[str] = set()
        self._pumps: list[asyncio.Task[None]] = []
        self._published = asyncio.Event()
        self._manager: AsyncKernelManager
        self._client: AsyncKernelClient

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return bool(self.pid) and not self.death.done()

    async def start(self) -> None:
        """Start the process and wait until it answers.

        Raises:
            KernelDied: It ended before it answered, or took too long; carries its last words.
        """
        await self._spawn()
        self._client = self._manager.client()
        self._client.start_channels(stdin=False, hb=False)
        self._pumps = [asyncio.create_task(self._pump_output()), asyncio.create_task(self._pump_replies())]
        if self._unwanted:  # killed before there was a process
            await self.kill()
        try:
            await asyncio.wait_for(self._answer(), START_S)
        except (asyncio.TimeoutError, TimeoutError):
            await self.kill()
            raise KernelDied(
                f"a background kernel did not answer within {START_S:.0f} s\n{self._tail()}"
            ) from None

    async def _spawn(self) -> None:
        """Start the process, with its files in the hub's directory or, detached, in one of its own."""
        passed: list[int] = []
        detached = self._detached_log is not None
        if detached:
            directory = Path(tempfile.mkdtemp(prefix="hub-", dir=short_parent()))
            prefix, passed = directory / "k", [lock_directory(directory)]
            self._log.unlink(missing_ok=True)  # the one before may still write to it
        else:
            prefix = self._hub.new_path("k")
        self._manager = AsyncKernelManager(
            kernel_name=f"{DETACHED if detached else ''}{os.getpid()}",
            kernel_spec_manager=_OwnSpec(),
            transport="ipc",
            ip=str(prefix),
            connection_file=f"{prefix}.json",
        )
        arguments = ["--HistoryManager.enabled=False"]
        if detached:  # its log file is all that remains of its output once this notebook has gone
            arguments += ["--IPKernelApp.quiet=False", "--IPKernelApp.log_level=50"]
        with self._log.open("wb") as log:
            await self._manager.start_kernel(
                extra_arguments=arguments,
                env=self._environment(),
                independent=detached,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=passed,
            )
        for lock in passed:  # the child's copy holds it now
            os.close(lock)
        if detached:  # the manager removes its file with this process
            os.link(f"{prefix}.json", prefix.with_name("connection.json"))
        self._watch()

    def _environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k not in NOT_INHERITED}
        return {**kept, **ADDED, **self._env}

    def _watch(self) -> None:
        """Be told by the system, through the loop, when the process has ended."""
        loop, process = self._hub.loop, self._manager.provisioner.process  # type: ignore[union-attr]
        self.pid = process.pid
        if self._detached_log is None:
            self._hub.at_end(self, self.kill)

        def gone() -> None:
            loop.create_task(self._bury(process.wait()))

        when_gone(loop, process, gone)

    async def _bury(self, code: int) -> None:
        """Clear away a process that has ended, its group with it; then tell."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._hub.forget(self)
        await self._drain()
        death = Death(code, self._tail())
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(KernelDied(str(death)))
        for pump in self._pumps:
            pump.cancel()
        self._client.stop_channels()
        await self._manager.cleanup_resources()
        if self._detached_log is None:
            self._log.unlink(missing_ok=True)
        else:
            shutil.rmtree(Path(str(self._manager.ip)).parent, ignore_errors=True)
        self.death.set_result(death)

    async def _drain(self) -> None:
        """Let what the process published before its end arrive."""
        for _ in range(20):
            self._published.clear()
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(self._published.wait(), 0.02)
            if not self._published.is_set():
                return

    async def _answer(self) -> None:
        """Ask until the kernel has answered and its output is seen to arrive."""
        while not self.death.done():
            request = self._client.kernel_info()
            reply = self._expect(request)
            both: set[asyncio.Future[Any]] = {reply, self.death}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(self._published.wait(), ASK_AGAIN_S)
                if reply.done():
                    reply.result()
                    return
        raise KernelDied(f"a background kernel did not start: {self.death.result()}")

    def _expect(self, request: str) -> asyncio.Future[dict[str, Any]]:
        future: asyncio.Future[dict[str, Any]] = self._hub.loop.create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # never "not retrieved"
        self._replies[request] = future
        self._idle[request] = asyncio.Event()
        return future

    async def execute(self, code: str, *, order: bool = False) -> dict[str, Any]:
        """Run code in the kernel; return the reply's content once all its output was handed over.

        Args:
            code: What to run.
            order: It is ours, not the user's: it is not counted, and an error of it is in the reply only.

        Raises:
            KernelDied: The process ended meanwhile.
        """
        if not self.alive:
            raise KernelDied(str(self.death.result()) if self.death.done() else "its kernel was not started")
        request = self._client.execute(
            code, silent=order, store_history=not order, allow_stdin=False, stop_on_error=False
        )
        if order:
            self._orders.add(request)
        try:
            reply = await self._expect(request)
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(self._idle[request].wait(), 5.0)
        finally:
            self._replies.pop(request, None)
            self._idle.pop(request, None)
            self._orders.discard(request)
        return reply

    async def _pump_output(self) -> None:
        while True:
            message = await self._client.get_iopub_msg()
            self._published.set()
            request = message["parent_header"].get("msg_id")
            if message["msg_type"] == "status":
                if message["content"]["execution_state"] == "idle" and request in self._idle:
                    self._idle[request].set()
            elif message["msg_type"] != "error" or request not in self._orders:
                try:
                    self._output(message["msg_type"], message["content"])
                except Exception:  # a page that cannot be reached must not end the trial
                    logging.getLogger("tsnb").exception("output of %s could not be shown", self._label)

    async def _pump_replies(self) -> None:
        while True:
            message = await self._client.get_shell_msg()
            reply = self._replies.get(message["parent_header"].get("msg_id", ""))
            if reply is not None and not reply.done():
                reply.set_result(message["content"])

    def interrupt(self) -> None:
        """Interrupt what runs in the kernel (SIGINT to its process group, as Jupyter does)."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGINT)

    async def kill(self) -> None:
        """End the process and wait until it has gone: by SIGTERM where it has a grace, then by SIGKILL.

        A start that is under way ends with `KernelDied`.
        """
        self._unwanted = True
        if self.grace_s and self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
            await asyncio.wait({self.death}, timeout=self.grace_s)
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            await asyncio.wait({self.death}, timeout=START_S)

    def _tail(self, lines: int = 15) -> str:
        """Return the last lines of what the process itself wrote to its standard streams."""
        with contextlib.suppress(OSError):
            written = self._log.read_bytes()[-20_000:].decode(errors="replace")
            _, crash, frames = written.rpartition("Fatal Python error")
            if crash:  # innermost frame first; the last ones are ipykernel's own
                return "\n".join((crash + frames).splitlines()[:lines])
            return "\n".join(written.strip().splitlines()[-lines:])
        return ""


def log_path(name: str) -> Path:
    """Return where a detached kernel of that name logs."""
    return private_directory(runtime_directory() / "logs") / f"{name}.log"
