"""Starting kernels: forked from a server that is ready for it, where that is the same as a start of their own.

The server (`forkserver`) starts in the background with `%load_ext tsnb`, or with the first kernel. A kernel that is
asked for while it warms up waits for it, for a while. A kernel is spawned instead

- where it is to outlive this process (`--detach`): a fork ends with the server;
- where its environment differs from the server's in a variable that libraries read once, when they are imported
  or when Python starts (`variables.read_once`). Three of them can be set afterwards, and are: the numbers of threads;
- where the server refuses: it has more than one thread, or CUDA is initialised in it;
- where the server cannot be started, or does not answer;
- where the system cannot support it: without SEQPACKET sockets and /proc, as on macOS, whose own libraries do not
  survive a fork either;
- with `TSNB_START=spawn`.

All of it runs on the hub's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tsnb.kernels.hub import Hub
from tsnb.kernels.processes.death import cause_of_death, when_gone
from tsnb.kernels.processes.forkserver import LONGEST_PACKET
from tsnb.kernels.processes.process import (
    THREADS,
    KernelProcess,
    Launch,
    ProcessEnd,
    clear_files,
    entry,
    environment,
    read_once,
    spawn,
)
from tsnb.machine.processes import HAS_PROC, children, has_gone
from tsnb.native.memfd import has_memfd

__all__ = ["ForkServer", "Unable", "await_server", "start", "the_server", "warm_up"]

WARM_S = 20.0
"""How long a kernel waits for a server that is still importing. Later ones do not wait for one that took longer."""

LIMITS = tuple(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))
"""What `ulimit` sets. A process that is started inherits them, and a notebook may change its own at any time: more
open files, for a loader's workers."""

ANSWER_S = 5.0
"""How long a fork may take; it is milliseconds, unless the server stands still."""


FULL_S = 0.005
"""How long to wait where the server has taken nothing for a while."""


class Unable(Exception):
    """The server cannot fork this kernel; says why."""


class Gone(Unable):
    """The server has ended meanwhile; another one may be able to."""


class ForkServer:
    """A server of this process's.

    Attributes:
        pid: Its process; 0 before the start.
        usable: Whether kernels may still be forked from it, now or once it is ready.

    Args:
        hub: The hub on whose thread all of this runs.
    """

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.pid = 0
        self.usable = True
        self.failed = False
        self._late = False
        self._ready: asyncio.Future[None] = hub.loop.create_future()
        self._ready.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )  # never "not retrieved"
        self._sending = asyncio.Lock()
        self._counter = 0
        self._requests: dict[int, asyncio.Future[KernelProcess]] = {}
        self._kernels: dict[int, KernelProcess] = {}
        self._unwanted: dict[int, Launch] = {}
        """Starts that were cancelled: a kernel that comes after all may make its files before it is killed."""
        self._environment = environment(dict.fromkeys(THREADS, "1"))
        self._log = tempfile.TemporaryFile(dir=hub.directory)  # noqa: SIM115 (lives as long as the server)
        self._control, self._process = self._start()
        self.pid = self._process.pid
        hub.loop.add_reader(self._control, self._take)
        when_gone(hub.loop, self._process, self._gone)
        hub.at_end(self, self.end, last=True)

    def _start(self) -> tuple[socket.socket, subprocess.Popen[bytes]]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            words = [sys.executable, "-c", entry("forkserver"), str(os.getpid()), str(theirs.fileno())]
            process = subprocess.Popen(
                words,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        return ours, process

    async def fork(self, launch: Launch) -> KernelProcess:
        """Fork a kernel.

        Raises:
            Unable: A kernel cannot be forked now; says why.
        """
        differ = read_once(launch.environment, self._environment)
        if differ:
            raise Unable(f"{', '.join(differ)} must be set before the fork server starts")
        await self._wait_until_ready()
        self._counter += 1
        number = self._counter
        request = self._requests[number] = self.hub.loop.create_future()
        try:
            packet = _request(number, launch)
            async with self._sending:
                await self._send(packet, launch.lane)
            return await asyncio.wait_for(request, ANSWER_S)  # cancelled: the kernel is killed when it comes
        except (asyncio.TimeoutError, TimeoutError):  # before OSError, which it is one of
            self.usable = False
            raise Unable(f"it did not answer within {ANSWER_S:.0f} s") from None
        except OSError as error:
            self._requests.pop(number, None)  # nobody hears what becomes of it
            gone = error.errno in {errno.EPIPE, errno.ECONNRESET, errno.EBADF}
            raise (Gone if gone else Unable)(f"it could not be reached: {error}") from None
        except asyncio.CancelledError:  # where the server refuses, a kernel is spawned with these files
            self._unwanted[number] = launch
            if request.done() and not request.cancelled() and request.exception() is None:
                request.result().signal_group(signal.SIGKILL)  # it came just then, and is not wanted any more
            raise

    async def take_in(self, pid: int) -> KernelProcess:
        """Have the server look after a clone of one of its kernels; return its process.

        Raises:
            Unable: It has ended, or the server does not answer; says so.
        """
        self._counter += 1
        number = self._counter
        request = self._requests[number] = self.hub.loop.create_future()
        try:
            async with self._sending:
                await self._send(json.dumps({"id": number, "adopt": pid}).encode())
            return await asyncio.wait_for(request, ANSWER_S)
        except (asyncio.TimeoutError, TimeoutError):
            raise Unable(f"the fork server did not answer within {ANSWER_S:.0f} s") from None
        except OSError as error:
            self._requests.pop(number, None)
            raise Unable(f"the fork server could not be reached: {error}") from None

    async def _send(self, packet: bytes, *lane: int) -> None:
        while True:
            try:
                socket.send_fds(self._control, [packet], lane)
            except BlockingIOError:
                await asyncio.sleep(FULL_S)
            else:
                return

    async def _wait_until_ready(self) -> None:
        if not self.usable or (self._late and not self._ready.done()):
            raise Unable("it is not ready")
        try:
            await asyncio.wait_for(asyncio.shield(self._ready), WARM_S)
        except (asyncio.TimeoutError, TimeoutError):
            self._late = True
            raise Unable(f"it was not ready within {WARM_S:.0f} s") from None

    async def is_ready(self, wait_s: float) -> bool:
        """Wait until it can fork; return whether it can."""
        try:
            await asyncio.wait_for(asyncio.shield(self._ready), wait_s)
        except (asyncio.TimeoutError, TimeoutError, Unable):
            return False
        self._late = False
        return self.usable

    def _take(self) -> None:
        """Take one packet, if there is one."""
        try:
            packet = self._control.recv(LONGEST_PACKET)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:  # its end is told by `when_gone`
            self.hub.loop.remove_reader(self._control)
            return
        try:
            self._hear(json.loads(packet))
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            self._distrust(packet)

    def _hear(self, message: dict[str, Any]) -> None:
        """Act on what the server, or a new kernel, has said.

        Raises:
            ValueError, TypeError, KeyError, OverflowError: It is nothing that they say.
        """
        if "ready" in message:
            if not self._ready.done():
                self._ready.set_result(None)
            return
        # a request without a valid id is answered with the same one: no call waits for that
        number = message["id"] if type(message["id"]) is int else -1
        if "pid" in message:
            self._born(number, _own_child(message["pid"], self.pid))
        elif "ended" in message:
            self._died(number, os.waitstatus_to_exitcode(message["ended"]))
        else:
            refused = Unable(f"{message['refused']}"[:1000])
            request = self._requests.pop(number, None)
            if request is not None and not request.done():
                request.set_exception(refused)

    def _distrust(self, packet: bytes) -> None:
        """Fork no more kernels from a server that breaks the protocol; those that it has forked go on."""
        unable = Unable("it broke its protocol")
        if self.usable:
            logging.getLogger("tsnb").warning(
                "the fork server sent %.200r, which is not part of its protocol. No more kernels are "
                "forked from it.",
                packet,
            )
        self.usable = False
        if not self._ready.done():
            self.failed = True
            self._ready.set_exception(unable)
        for request in self._requests.values():
            if not request.done():
                request.set_exception(unable)
        self._requests.clear()

    def _born(self, number: int, pid: int) -> None:
        process = self._kernels[number] = KernelProcess(pid, self.hub.loop)
        process.server = self
        request = self._requests.pop(number, None)
        if request is None or request.done():  # no call waits for it any more
            process.signal_group(signal.SIGKILL)
        else:
            request.set_result(process)

    def _died(self, number: int, code: int) -> None:
        self._has_ended(number, ProcessEnd(code))
        request = self._requests.pop(number, None)
        if request is not None and not request.done():
            request.set_exception(Unable(cause_of_death(code, "the new process")))

    def _has_ended(self, number: int, ending: ProcessEnd) -> None:
        """Note that a kernel's process has gone."""
        process, unwanted = self._kernels.pop(number, None), self._unwanted.pop(number, None)
        if unwanted is not None:
            clear_files(Path(unwanted.arguments[1]), unwanted.log)
        if process is not None:
            process.end_with(ending)

    def _gone(self) -> None:
        """See to what depended on the server, which has ended: its kernels were killed with it."""
        for _ in range(len(self._kernels) + len(self._requests) + 1):  # what it said last
            self._take()
        self.hub.loop.remove_reader(self._control)
        self._control.close()
        self.hub.forget(self)
        cause = cause_of_death(self._process.wait(), "the process that it was forked from")
        tail = self._last_words()
        self._log.close()
        self.usable = False
        if not self._ready.done():
            self.failed = True
            self._ready.set_exception(Unable(f"{cause}{tail}"))
            if not self.hub.closing:
                logging.getLogger("tsnb").warning("kernels are spawned, not forked: %s%s", cause, tail)
        for request in self._requests.values():
            if not request.done():
                request.set_exception(Gone(cause))
        reason = f"its kernel ended because {cause}{tail}\nThe next kernel is forked from a new one."
        for number, process in list(self._kernels.items()):
            process.signal_group(signal.SIGKILL)  # the system did so already, unless a child untied itself
            self._has_ended(number, ProcessEnd(-signal.SIGKILL, reason))

    def _last_words(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            size = self._log.seek(0, os.SEEK_END)
            self._log.seek(max(0, size - 2000))
            words = self._log.read().decode(errors="replace").strip()
            return f"\n{words}" if words else ""
        return ""

    async def end(self) -> None:
        """End it, and with it what was forked from it."""
        self.usable = False
        self._process.kill()


def _own_child(pid: Any, server: int) -> int:
    """Return the process of a new kernel, if it is one of the server's: it will be signalled by that number.

    Raises:
        ValueError: It is another one.
    """
    if type(pid) is not int or pid <= 1 or not (pid in children(server) or has_gone(pid)):
        raise ValueError(f"a kernel's process {pid!r:.80}")
    return pid


def _request(number: int, launch: Launch) -> bytes:
    packet = {
        "id": number,
        "arguments": list(launch.arguments),
        "environment": dict(launch.environment),
        "directory": os.getcwd(),  # noqa: PTH109 (plain text for the packet)
        "log": str(launch.log),
        "umask": _umask(),
        "limits": [(number, *resource.getrlimit(number)) for number in LIMITS],
    }
    return json.dumps(packet).encode()


def _umask() -> int | None:
    """Return which permissions new files of this process lack; None where the system does not say.

    Asking for it in the ordinary way would set it, for all threads.
    """
    status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    found = re.search(r"^Umask:\s*([0-7]+)", status, re.MULTILINE)
    return int(found[1], 8) if found else None


_CARRIED = HAS_PROC and has_memfd()  # Linux: macOS names SEQPACKET, too, and has it not
_current: ForkServer | None = None


def the_server(hub: Hub) -> ForkServer | None:
    """Return the hub's server, started if needed; None where kernels have to be spawned."""
    global _current
    if os.environ.get("TSNB_START") == "spawn" or hub.closing or not _CARRIED:
        return None
    if _current is None or _current.hub is not hub or not (_current.usable or _current.failed):
        try:
            _current = ForkServer(hub)
        except OSError as error:  # no process, no descriptor: a start of its own may say more
            logging.getLogger("tsnb").warning("the fork server could not be started: %s", error)
            return None
    return _current


async def warm_up(hub: Hub) -> None:
    """Start the server, and leave it to its imports."""
    the_server(hub)


async def await_server(hub: Hub, wait_s: float) -> bool:
    """Wait until kernels are forked and no longer spawned; return whether they are.

    Args:
        hub: The hub.
        wait_s: How long at most, in seconds.
    """
    server = the_server(hub)
    return server is not None and await server.is_ready(wait_s)


async def start(launch: Launch, hub: Hub) -> KernelProcess:
    """Start a kernel's process, by the quickest way that makes no difference.

    Raises:
        OSError: The system starts none.
    """
    for _ in range(2):
        server = None if launch.detached else the_server(hub)
        if server is None:
            break
        try:
            return await server.fork(launch)
        except Gone:
            server.usable = False
        except Unable as error:
            logging.getLogger("tsnb").debug("a kernel is spawned: %s", error)
            break
    return spawn(launch, hub.loop)
