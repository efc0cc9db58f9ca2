"""Scripts of the tests, forked from a process that has imported torch and tsnb: each is spared two seconds of imports.

One such process runs beside each pytest process that needs it, and ends with it; a second one in Python's development
mode for the tests that want that. What is forked is a process as any other: it has its own pid, environment, directory,
signals, `__main__` and end, and can be killed. Where its environment differs in what else is read once, at an import or
when Python starts, it is started by itself.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import io
import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from tsnb.kernels.processes.process import read_once
from tsnb.native.start_line import CLOSED
from tsnb.native.ties import tie_to_parent

__all__ = ["ENTRY", "Process", "output_of", "serve", "start"]

ROOT = Path(__file__).resolve().parents[1]
ENTRY = f"{CLOSED}from tests.forking import serve; serve()"
PRELOADED = (
    "torch.utils.data",
    "torch.nn.functional",
    "tsnb.stream.consumer",
    "tsnb.serving.starting",
    "tsnb.telemetry.observer",
)
PACKET_BYTES = 1 << 18
BIRTH_S = 120.0
DEVELOPMENT = "PYTHONDEVMODE"


# -- in the pytest process -------------------------------------------------------------------------------------


class Process:
    """A forked script, with what tests use of `subprocess.Popen`.

    Attributes:
        pid: Its process.
        returncode: As `Popen` has it: None while it runs, and minus the signal that ended it.
        stdin: Where it reads from, if that was asked for.
        stdout: What it prints; its errors too.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdin: io.TextIOWrapper | None = None
        self.stdout: io.TextIOWrapper | None = None
        self._ended = threading.Event()

    def end_with(self, code: int) -> None:
        """Note how it ended."""
        self.returncode = code
        self._ended.set()

    def poll(self) -> int | None:
        """Return how it ended, if it did."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("a forked script", timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)


def start(code: str, *arguments: str, stdin: bool) -> Process | subprocess.Popen[str]:
    """Run a script; return its `Process`, or `Popen` where it had to be started by itself."""
    environment = _environment()
    server = _server(environment.get(DEVELOPMENT))
    if read_once(environment, server.environment):
        return subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdin=subprocess.PIPE if stdin else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
    return server.fork(code, arguments, environment, stdin)


def output_of(code: str, *arguments: str) -> str:
    """Run a script to its end, which must be a good one; return what it printed, errors too, in their order."""
    process = start(code, *arguments, stdin=False)
    assert process.stdout is not None
    with process.stdout:
        said = process.stdout.read()
    assert process.wait(BIRTH_S) == 0, said
    return said


def _environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


class _Server:
    """Our end of the connection to the process that forks."""

    def __init__(self, development: str | None) -> None:
        # whichever test is the first: what it puts before the path is for its own scripts
        self.environment = {**_environment(), "PYTHONPATH": str(ROOT)}
        self.environment.pop(DEVELOPMENT, None)
        if development is not None:
            self.environment[DEVELOPMENT] = development
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", ENTRY, str(os.getpid()), str(theirs.fileno())],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )
        self._starting = threading.Lock()
        self._running: dict[int, Process] = {}
        self._born: queue.Queue[Process] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def fork(
        self, code: str, arguments: Sequence[str], environment: Mapping[str, str], stdin: bool
    ) -> Process:
        """Run a script."""
        request = {
            "code": code,
            "arguments": list(arguments),
            "environment": dict(environment),
            "directory": str(Path.cwd()),
        }
        read, write = os.pipe()
        theirs, ours = os.pipe() if stdin else (os.open(os.devnull, os.O_RDONLY), None)
        try:
            with self._starting:
                socket.send_fds(self._control, [json.dumps(request).encode()], [theirs, write])
                process = self._born.get(timeout=BIRTH_S)
        finally:
            os.close(theirs)
            os.close(write)
        process.stdout = open(read, encoding="utf-8")  # noqa: SIM115
        process.stdin = None if ours is None else open(ours, "w", encoding="utf-8")  # noqa: SIM115
        return process

    def _listen(self) -> None:
        while packet := self._control.recv(PACKET_BYTES):
            pid, code = json.loads(packet)
            if code is None:
                self._running[pid] = Process(pid)
                self._born.put(self._running[pid])
            else:
                self._running.pop(pid).end_with(code)


@functools.cache
def _server(development: str | None) -> _Server:
    return _Server(development)


# -- in the process that forks ---------------------------------------------------------------------------------


def serve() -> None:
    """Import, and fork until the pytest process has gone; in a fork, become the script."""
    tie_to_parent(int(sys.argv[1]))
    control = socket.socket(fileno=int(sys.argv[2]))
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    script = _wait_for_one(control)
    exec(compile(script, "<string>", "exec"), sys.modules["__main__"].__dict__)


def _wait_for_one(control: socket.socket) -> str:
    """Fork for each request and report each end. Returns in a fork only: its code."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    running: dict[int, int] = {}  # by pidfd
    while True:
        for descriptor, _ in poll.poll():
            if descriptor != control.fileno():
                poll.unregister(descriptor)
                os.close(descriptor)
                pid, status = os.waitpid(running.pop(descriptor), 0)
                control.send(json.dumps([pid, os.waitstatus_to_exitcode(status)]).encode())
                continue
            packet, streams, _, _ = socket.recv_fds(control, PACKET_BYTES, 2)
            if not packet:
                os._exit(0)
            parent, pid = os.getpid(), os.fork()
            if pid == 0:
                control.close()
                for watch in running:
                    os.close(watch)
                return _become(json.loads(packet), streams, parent)
            for stream in streams:
                os.close(stream)
            watch = os.pidfd_open(pid)
            running[watch] = pid
            poll.register(watch, select.POLLIN)
            control.send(json.dumps([pid, None]).encode())


def _become(request: dict[str, Any], streams: list[int], parent: int) -> str:
    """Be as a process that was started by itself; return the code to run."""
    tie_to_parent(parent)
    for target, source in zip((0, 1, 2), (streams[0], streams[1], streams[1]), strict=True):
        os.dup2(source, target)
    for stream in streams:
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    sys.argv[:] = ["-c", *request["arguments"]]
    sys.modules["__main__"] = ModuleType("__main__")
    code: str = request["code"]
    return code
