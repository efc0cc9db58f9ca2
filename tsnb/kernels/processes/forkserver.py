"""The fork server: a process that has imported torch and ipykernel once, and forks kernels that are ready to run.

It is started by the hub (`forking`), is tied to its thread as every child is (`native.ties`), and ends
with it. Its kernels are tied to it in turn: whichever of the three is killed, nothing below it stays.

It has one thread and has computed nothing: what OpenMP or CUDA start would be broken in a fork. So it does no more
than import, and looks again before each fork. It runs none of the user's code.

| packet | from | what it says |
|---|---|---|
| `{"ready": true}` | server | everything is imported |
| `{"id", "arguments", "environment", "directory", "log", "umask", "limits"}` | hub | fork a kernel with this lane |
| `{"id", "adopt"}` | hub | a kernel was cloned, by a fork of its own: watch the clone, which has this pid |
| `{"id", "pid"}` | the new kernel itself | it leads its own process group and is tied to the server |
| `{"id", "pid"}` | server | the clone is its child, and watched |
| `{"id", "refused"}` | server, or the new kernel | it refuses; why |
| `{"id", "ended"}` | server | its wait status; its process group has been killed |

A clone (`in_kernel.hazards`) is forked twice over, and the process between ends at once: the server is then its
parent, since it inherits the orphans below it. So a clone outlives the kernel that it is a copy of, and is buried as
any kernel.

The connection is a pair of sockets of packets (`SOCK_SEQPACKET`), which no other process can open, and on which
nothing arrives by halves.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

from tsnb.kernels.cargo.lane import open_here
from tsnb.kernels.processes.launch import become_kernel
from tsnb.machine.processes import has_open, watch
from tsnb.native.ties import CLOEXEC, inherit_orphans, tie_to_parent

__all__ = ["LONGEST_PACKET", "main"]

LONGEST_PACKET = 1 << 20
"""Bytes. What a socket buffer holds is less as a rule."""

LOOK_S = 0.25
"""How often to look for ended kernels, where the system has no `pidfd`."""

PRELOADED = (
    "numpy.random", "torch", "torch.utils.data", "torch.nn.functional", "torch.optim", "tqdm.auto", "encodings.idna",
    "ipykernel.kernelapp", "ipykernel.ipkernel", "ipykernel.debugger", "comm",
    "tornado.platform.asyncio", "tornado.queues", "IPython.core.completerlib", "IPython.core.debugger",
    "IPython.core.logger", "IPython.core.oinspect", "IPython.extensions.storemagic",
    "tsnb.experiments.in_kernel.steps", "tsnb.hosting.in_kernel", "tsnb.kernels.in_kernel.forked",
    "tsnb.kernels.in_kernel.application", "tsnb.kernels.in_kernel.output_channel", "tsnb.experiments.in_kernel.cloning",
    "tsnb.attaching", "tsnb.stream.producer",
)  # fmt: skip
"""Modules that every kernel would import. Any that is missing here is imported by the kernel, or not at all."""

AT_FIRST_USE = ("torch._dynamo",)
"""What torch imports when a process makes its first optimizer: 800 modules, over a second for every trial."""

BARE = "bare"
"""Argument of a server that leaves these to its kernels."""


def main() -> None:
    """Serve; in each kernel, become it. Called with the arguments `PARENT CONTROL`: a pid and a descriptor.

    What the modules of `AT_FIRST_USE` do besides depends on torch's version and on the machine. If no fork could follow
    them, for example because one starts a thread, this process begins anew without them.
    """
    parent, descriptor = int(sys.argv[1]), int(sys.argv[2])
    tie_to_parent(parent)
    inherit_orphans()
    signal.signal(
        signal.SIGCHLD, signal.SIG_DFL
    )  # where the notebook ignores it, no status would be kept for us
    control = socket.socket(fileno=descriptor)
    _import(PRELOADED)
    if BARE not in sys.argv and not _obstacle():
        _import(AT_FIRST_USE)
        if _obstacle():
            os.execv(sys.executable, [*sys.orig_argv, BARE])  # noqa: S606 (this very program)
    gc.collect()
    gc.disable()  # in here: a collection would write to memory that all kernels share
    gc.freeze()
    control.send(b'{"ready": true}')
    arguments = _Forker(control).serve()
    gc.enable()
    become_kernel(arguments)


def _import(names: Iterable[str]) -> None:
    for name in names:
        with contextlib.suppress(Exception):  # the kernel will meet it, and can say so
            importlib.import_module(name)


class _Forker:
    """Forks, and reports ends.

    Args:
        control: The connection to the hub.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._pid = os.getpid()
        self._requests: dict[int, Any] = {}  # by pid: the id of the request it was forked for
        self._watched: dict[int, int] = {}  # by pidfd: the pid
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._ends = socket.socketpair()  # for the signals of children that have ended

    def serve(self) -> list[str]:
        """Do so until the hub has gone. Returns in a new kernel only: its arguments."""
        for end in self._ends:
            end.setblocking(False)
        self._poll.register(self._ends[0], select.POLLIN)
        signal.set_wakeup_fd(self._ends[1].fileno())
        signal.signal(
            signal.SIGCHLD, lambda *_: None
        )  # wakes the poll: an orphan may end that nobody has told of
        while True:
            for descriptor, _ in self._poll.poll(self._pause_ms()):
                if descriptor == self._ends[0].fileno():
                    self._ends[0].recv(1 << 12)
                if descriptor == self._control.fileno():
                    arguments = self._answer()
                    if arguments is not None:
                        return arguments
            self._bury()

    def _pause_ms(self) -> int | None:
        everybody_is_watched = len(self._watched) == len(self._requests)
        return None if everybody_is_watched else int(LOOK_S * 1000)

    def _answer(self) -> list[str] | None:
        """Take one request. Returns its arguments in the new kernel, None in the server."""
        packet, passed, _, _ = socket.recv_fds(self._control, LONGEST_PACKET, 1, CLOEXEC)
        if not packet:
            _leave()
        try:
            return self._fork(packet, passed)
        finally:
            if os.getpid() == self._pid:
                for descriptor in passed:
                    os.close(descriptor)

    def _fork(self, packet: bytes, passed: list[int]) -> list[str] | None:
        request: Any = None
        try:
            request = json.loads(packet)
            if isinstance(request, dict) and "adopt" in request:
                self._adopt(request)
                return None
            obstacle = _obstacle() or _wrong(request) or ("" if passed else "a request without a lane")
            pid = 0 if obstacle else os.fork()
        except (ValueError, RecursionError, OSError) as error:
            obstacle = str(error)
        if obstacle:
            self._say(id=request.get("id") if isinstance(request, dict) else None, refused=obstacle)
            return None
        if pid == 0:
            return self._begin(request, passed[0])
        self._look_after(pid, request["id"])
        return None

    def _look_after(self, pid: int, number: int) -> None:
        self._requests[pid] = number
        if (descriptor := watch(pid)) >= 0:
            self._watched[descriptor] = pid
            self._poll.register(descriptor, select.POLLIN)

    def _adopt(self, request: dict[str, Any]) -> None:
        """Look after a clone, if it is a child of this process."""
        number, pid = request.get("id"), request["adopt"]
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except (OSError, TypeError, OverflowError):
            self._say(id=number, refused="the new process has ended")
            return
        if pid not in self._requests and isinstance(number, int):
            self._look_after(pid, number)
            self._say(id=number, pid=pid)

    def _begin(self, request: dict[str, Any], lane: int) -> list[str]:
        """Become a kernel's process, apart from the server's. Called in the child."""
        from tsnb.kernels.in_kernel.forked import settle

        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for end in self._ends:
                end.close()
            for descriptor in self._watched:
                os.close(descriptor)
            settle(request, self._pid)
            open_here(lane)
            self._say(id=request["id"], pid=os.getpid())
            self._control.close()
        except BaseException as error:  # noqa: BLE001 (whatever it is, this must not go on as a second server)
            self._say(id=request["id"], refused=f"{type(error).__name__}: {error}")
            os._exit(1)
        arguments: list[str] = request["arguments"]
        return arguments

    def _bury(self) -> None:
        """Report the kernels that have ended, and kill what they left in their process groups."""
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                return
            pid = found.si_pid
            if pid in self._requests:  # else an orphan, whose group is its own affair
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)  # before its pid is given back, which names the group
            _, status = os.waitpid(pid, 0)
            if pid not in self._requests:
                continue
            for descriptor in [each for each, watched in self._watched.items() if watched == pid]:
                self._poll.unregister(descriptor)
                os.close(descriptor)
                del self._watched[descriptor]
            self._say(id=self._requests.pop(pid), ended=status)

    def _say(self, **packet: Any) -> None:
        with contextlib.suppress(OSError):  # the hub has gone: this process is about to end
            self._control.send(json.dumps(packet).encode())


def _obstacle() -> str:
    """Return why this process must not fork any more; empty if it may."""
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 (asked before each fork)
    if threads != 1:
        return f"the fork server has {threads} threads"
    torch = sys.modules.get("torch")
    if (torch is not None and torch.cuda.is_initialized()) or has_open("self", "/dev/nvidia"):
        return "CUDA is initialised in the fork server"
    return ""


def _wrong(request: Any) -> str:
    """Return the fields of a request that are invalid; empty if none is."""
    wanted: dict[str, Any] = {
        "id": int, "arguments": list, "environment": dict, "directory": str, "log": str, "umask": (int, type(None)),
        "limits": list,
    }  # fmt: skip
    if not isinstance(request, dict):
        return "a request is a JSON object"
    wrong = [name for name, kind in wanted.items() if not isinstance(request.get(name), kind)]
    return f"a request without a valid {', '.join(wrong)}" if wrong else ""


def _leave() -> NoReturn:
    os._exit(0)  # the hub closed its end: its kernels go with this process
