"""One background kernel: its process, from the start to its death; `channels` is how it is spoken with.

Everything here runs on the hub's thread. `process` and `forking` start its process and see its end, at once,
whatever the interpreter in the child was doing. The rest of its process group (DataLoader workers, shell commands) goes
with it. Transport is `ipc` under a private prefix of its own: with a shared one concurrent starts would race for the
same socket names, and over TCP any user of the machine could connect.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from jupyter_client.connect import write_connection_file

from tsnb.config import private_directory, runtime_directory
from tsnb.kernels.cargo.lane import FileLane
from tsnb.kernels.cargo.unnamed_file import Cargo
from tsnb.kernels.hub import Hub, lock_directory, short_parent
from tsnb.kernels.ipython_directory import warn_of_ipython
from tsnb.kernels.processes import forking
from tsnb.kernels.processes.channels import Channels, Output, channels_context
from tsnb.kernels.processes.death import Death, KernelDied, OutOfMemory
from tsnb.kernels.processes.process import (
    ENTRY,
    KernelProcess,
    Launch,
    adopt,
    clear_files,
    environment,
    require_directory,
)
from tsnb.machine.owners import Owner
from tsnb.native.sweeping import Sweeper
from tsnb.private.files import read_private, remove_private

__all__ = ["ENTRY", "Child", "log_path"]

START_S = 60.0
"""How long a kernel may take until it answers: a second on an idle machine, many on a thrashing one."""


class Child:
    """A kernel process of this notebook's own.

    Attributes:
        pid: Its process; 0 before the start.
        death: Done when the process has gone and been cleared away, for whatever reason.
        connection_file: How others reach the kernel (`adopt`), once it was started from here.
        grace_s: How long the process may take, after a SIGTERM, to put things in order when it is killed.

    Args:
        hub: The hub on whose thread all of this runs.
        label: A word for file names.
        output: Takes everything the kernel publishes.
        env: Added to this process's environment.
        detached_log: A detached kernel's log file: it outlives this process, in a directory of its own, once
            it has called `native.ties.untie`. None: it dies with this process.
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
        self.connection_file: Path | None = None
        self._unwanted = False
        self.death: asyncio.Future[Death] = hub.loop.create_future()
        self._hub = hub
        self._label = label
        self._output = output
        self._env = env or {}
        self._detached_log = detached_log
        self._log = detached_log or hub.new_path(label, ".log")
        self._process: KernelProcess | None = None
        self._lane: FileLane | None = None  # of one that was started from here
        self._sweeper: Sweeper | None = None  # of a detached one's directory
        self._memory: OutOfMemory
        self._channels: Channels
        self._burial: asyncio.Task[None]

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return bool(self.pid) and not self.death.done()

    async def start(self) -> None:
        """Start the process and wait until it answers.

        Raises:
            KernelDied: It ended before it answered, or took too long; carries its last words. Or the working
                directory has been removed.
            RuntimeError: This user or container has no threads left.
        """
        require_directory()
        channels_context(self._hub)
        process = await self._launch()
        self._connect(process, str(self.connection_file))
        if self._detached_log is None:
            self._hub.at_end(self, self.kill)
        if self._unwanted:  # killed before there was a process
            await self.kill()
        try:
            await asyncio.wait_for(self._channels.answer(), START_S)
        except (asyncio.TimeoutError, TimeoutError):
            await self.kill()
            raise KernelDied(
                f"a background kernel did not answer within {START_S:.0f} s\n{self._tail()}"
            ) from None

    @classmethod
    async def adopt(
        cls,
        hub: Hub,
        label: str,
        output: Output,
        connection_file: Path,
        found: Owner,
        log: Path | None = None,
    ) -> Child:
        """Return a running kernel that another process started. It may be in the middle of a cell.

        Its output is taken from now on; its end is noticed, but not how it ended; its files are left alone.

        Args:
            hub: As for a new one.
            label: As for a new one.
            output: As for a new one.
            connection_file: How to reach it.
            found: Its process, which leads a process group.
            log: Where its standard streams go, for its last words.

        Raises:
            KernelDied: It has gone, or does not answer.
            OSError: The connection file cannot be read.
            RuntimeError: This user or container has no threads left.
        """
        channels_context(hub)
        child = cls(hub, label, output)
        child._log = log or Path(os.devnull)
        child._connect(adopt(found, hub.loop), str(connection_file))
        try:
            await asyncio.wait_for(child._channels.answer_meanwhile(), START_S)
        except BaseException as error:
            child._burial.cancel()
            child._channels.close()
            if isinstance(error, (asyncio.TimeoutError, TimeoutError)):
                raise KernelDied(f"the kernel of {label!r} (pid {found.pid}) does not answer") from None
            raise
        return child

    @classmethod
    async def clone(
        cls,
        parent: Child,
        label: str,
        output: Output,
        fork: Callable[[dict[str, Any]], Awaitable[int]],
    ) -> Child:
        """Return the kernel that a fork of another one becomes. Its end is seen as that of one that was started here.

        Args:
            parent: The kernel that is forked.
            label: As for a new one.
            output: As for a new one.
            fork: Has it forked; takes `server`, `connection_file`, `log` and `lane`, by which it takes the clone's own
                lane, and returns the clone's process.

        Raises:
            KernelDied: The clone ended before it answered, or the parent has no fork server.
            RuntimeError: This user or container has no threads left.
            Exception: As `fork` raises. Nothing is left then.
        """
        channels_context(parent._hub)
        server = None if parent._process is None else parent._process.server
        child = cls(parent._hub, label, output)
        lane = child._lane = FileLane(parent._hub.loop)
        try:
            child.connection_file = child._write_connection(parent._hub.new_path("k"))
            try:
                number = parent.lane.pass_on(lane.theirs.fileno())
            except OSError as error:
                if isinstance(error, ConnectionError) or error.errno == errno.EBADF:
                    raise KernelDied("the kernel that was to be cloned has died") from None
                raise
            lane.handed_over()
            said = {"server": None if server is None else server.pid, "lane": number}
            pid = await fork({**said, "connection_file": str(child.connection_file), "log": str(child._log)})
            if server is None:
                raise KernelDied("the kernel has no fork server")
            child._connect(await server.take_in(pid), str(child.connection_file))
        except BaseException as error:
            lane.close()  # which ends a clone that nobody knows
            child._clear_files()
            if isinstance(error, forking.Unable):
                raise KernelDied(str(error)) from None
            raise
        child._hub.at_end(child, child.kill)
        try:
            await asyncio.wait_for(child._channels.be_heard(), START_S)
        except BaseException:
            await child.kill()
            raise
        return child

    async def _launch(self) -> KernelProcess:
        """Start the process, with a lane to it."""
        lane = self._lane = FileLane(self._hub.loop)
        try:
            return await self._launch_with(lane.theirs.fileno())
        except BaseException:
            lane.close()
            raise
        finally:
            lane.handed_over()

    async def _launch_with(self, lane: int) -> KernelProcess:
        """Start it, with its files in the hub's directory or, detached, in one of its own."""
        passed: list[int] = []
        detached = self._detached_log is not None
        if detached:
            directory = Path(tempfile.mkdtemp(prefix="hub-", dir=short_parent()))
            prefix, passed = directory / "connection", [lock_directory(directory)]
            self._sweeper = Sweeper(directory)
            passed += [self._sweeper.descriptor] if self._sweeper.descriptor >= 0 else []
            remove_private(self._log)  # the one before may still write to it
        else:
            prefix = self._hub.new_path("k")
        self.connection_file = self._write_connection(prefix)
        connection_file = str(self.connection_file)
        # quiet: its log is for last words, and for what remains of its output once this notebook has gone
        arguments = ["-f", connection_file, "--HistoryManager.enabled=False", "--IPKernelApp.log_level=50"]
        arguments.append("--IPKernelApp.ignore_cwd=True")  # its path arrives with the first order
        if detached:
            arguments.append("--IPKernelApp.quiet=False")
        its_environment = environment(self._env)
        warn_of_ipython(its_environment)
        launch = Launch(arguments, its_environment, self._log, lane, tuple(passed), detached)
        try:
            return await forking.start(launch, self._hub)
        except BaseException:
            self._clear_files()
            raise
        finally:
            for lock in passed[:1]:  # the child's copy holds it now
                os.close(lock)
            if self._sweeper is not None:
                self._sweeper.hand_over()

    @staticmethod
    def _write_connection(prefix: Path) -> Path:
        """Write down how the kernel with this prefix is reached, with a key of its own; return the file."""
        file, key = f"{prefix}.json", secrets.token_hex(16).encode()
        write_connection_file(file, ip=str(prefix), key=key, transport="ipc")
        return Path(file)

    def _connect(self, process: KernelProcess, connection_file: str) -> None:
        """Open the channels to a process, and watch it."""
        self._process, self.pid = process, process.pid
        self._memory = OutOfMemory(process.pid)
        context = channels_context(self._hub)
        self._channels = Channels(connection_file, self._label, self._output, self.death, context)
        self._burial = asyncio.create_task(self._bury(process))

    async def _bury(self, process: KernelProcess) -> None:
        """Wait for the end of the process; clear it away, its group with it; then tell."""
        ending = await process.ended
        process.signal_group(signal.SIGKILL)
        self._hub.forget(self)
        await self._channels.drain()
        reason = ending.reason or ("" if self._unwanted else self._memory.reason(ending.code, "its kernel"))
        death = Death(ending.code, self._tail(), reason)
        self._channels.fail(death)
        if self._lane is not None:
            self._lane.close()
        self._channels.close()
        self._clear_files()
        self.death.set_result(death)

    def _clear_files(self) -> None:
        if self.connection_file is None:  # adopted: the process that started it may want them
            return
        above = self.connection_file.parent
        if self._detached_log is not None:
            shutil.rmtree(above, ignore_errors=True)
            if self._sweeper is not None:
                self._sweeper.reap()
            return
        clear_files(self.connection_file, self._log)

    @property
    def lane(self) -> FileLane:
        """The line on which files come and go, once it was started from here.

        Raises:
            KernelDied: It has not been.
        """
        if self._lane is None:
            raise KernelDied("its kernel was not started here")
        return self._lane

    def sent(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Send each `Cargo` among the settings; return them with the numbers by which the kernel takes it.

        Raises:
            KernelDied: The process has ended.
        """
        try:
            return {
                word: self.lane.send(value) if isinstance(value, Cargo) else value
                for word, value in settings.items()
            }
        except OSError as error:
            raise KernelDied(f"its kernel cannot be reached: {error}") from None

    async def execute(self, code: str, *, order: bool = False) -> dict[str, Any]:
        """As `Channels.execute`.

        Raises:
            KernelDied: The process ended meanwhile, or has not been started.
        """
        return await self._connected().execute(code, order=order)

    async def request(self, kind: str, content: dict[str, Any]) -> dict[str, Any]:
        """As `Channels.request`.

        Raises:
            KernelDied: The process has ended, or has not been started.
            TimeoutError: It did not answer: its interpreter is held up, in C say.
        """
        return await self._connected().request(kind, content)

    def _connected(self) -> Channels:
        if not self.pid:
            raise KernelDied("its kernel was not started")
        return self._channels

    def interrupt(self) -> None:
        """Interrupt what runs in the kernel (SIGINT to its process group, as Jupyter does)."""
        if self.alive and self._process is not None:
            self._process.signal_group(signal.SIGINT)

    async def kill(self) -> None:
        """End the process and wait until it has gone: by SIGTERM where it has a grace, then by SIGKILL.

        A start that is under way ends with `KernelDied`.
        """
        self._unwanted = True
        if self._process is None:
            return
        if self.grace_s and self.alive:
            self._process.signal(signal.SIGTERM)
            await asyncio.wait({self.death}, timeout=self.grace_s)
        if self.alive:
            self._process.signal_group(signal.SIGKILL)
            await asyncio.wait({self.death}, timeout=START_S)

    def _tail(self, lines: int = 15) -> str:
        """Return the last lines of what the process itself wrote to its standard streams."""
        with contextlib.suppress(OSError):
            written = read_private(self._log)[-20_000:].decode(errors="replace")
            _, crash, frames = written.rpartition("Fatal Python error")
            if crash:  # innermost frame first; the last ones are ipykernel's own
                return "\n".join((crash + frames).splitlines()[:lines])
            return "\n".join(written.strip().splitlines()[-lines:])
        return ""


def log_path(name: str) -> Path:
    """Return where a detached kernel of that name logs."""
    return private_directory(runtime_directory() / "logs") / f"{name}.log"
