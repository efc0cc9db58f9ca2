"""How a kernel's process ends, and being told of it at once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tsnb.config import limit_met
from tsnb.errors import TsnbError
from tsnb.machine.memory import oom_kills
from tsnb.machine.processes import has_gone, watch

__all__ = ["Death", "KernelDied", "OutOfMemory", "cause_of_death", "when_gone"]

LOOK_S = 0.1
"""How often to look for a process that is not ours, where the system has no `pidfd`."""


class KernelDied(TsnbError):
    """A background kernel's process ended while something was expected of it."""


@dataclass(frozen=True)
class Death:
    """How a kernel's process ended."""

    code: int | None
    """Its exit status; negative: the signal that killed it; None: unknown (another process started it)."""
    tail: str = ""
    """The last lines that the process itself wrote (a crash's native traceback, say)."""
    reason: str = ""
    """Why, where more is known than the status says."""

    def __str__(self) -> str:
        cause = "its kernel has ended" if self.code is None else cause_of_death(self.code, "its kernel")
        return f"{self.reason or cause}{limit_met(self.tail)}\n{self.tail}".rstrip()


def cause_of_death(code: int, whose: str) -> str:
    """Say how a process ended.

    Args:
        code: Its exit status; negative: the signal that killed it.
        whose: Which process ("its kernel").
    """
    if code >= 0:
        return f"{whose} ended with exit status {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    hint = {
        "SIGKILL": " (by a user, or by the system because it ran out of memory)",
        "SIGSEGV": " (a crash in compiled code)",
        "SIGABRT": " (compiled code aborted)",
    }.get(name, "")
    return f"{whose} was killed by {name}{hint}"


class OutOfMemory:
    """Tells whether it was the system that killed a process, because memory ran out.

    The system counts such kills by control group. One that was counted while the process lived, and its death by
    SIGKILL, are taken for the same: nothing tells more.

    Args:
        pid: The process, alive.
        root: Where /proc and /sys are.
    """

    def __init__(self, pid: int, root: Path = Path("/")) -> None:
        self._root = root
        self._before = oom_kills(root, pid)

    def reason(self, code: int | None, whose: str) -> str:
        """Return what to say of that death; nothing if it was another one.

        Args:
            code: As `Death.code`.
            whose: Which process ("its kernel").
        """
        if code != -signal.SIGKILL or self._before is None:
            return ""
        now = self._before.again()
        if now is None or now.kills <= self._before.kills:
            return ""
        return (
            f"{whose} was killed by SIGKILL: the system ran out of memory ({now.where} counts "
            f"{now.kills - self._before.kills} such kills since it was started). Use a smaller batch "
            "or model, run fewer trials at once, or give this machine or container more memory."
        )


def when_gone(
    loop: asyncio.AbstractEventLoop, process: subprocess.Popen[bytes] | int, call: Callable[[], None]
) -> None:
    """Have `call` called on the loop's thread once a process has ended. Called on that thread.

    A `pidfd` is readable at that moment, whatever else goes on; where the system has none, a thread waits.

    Args:
        loop: The loop.
        process: One that we started, or the pid of one that another process started.
        call: What to call.
    """
    descriptor = watch(process if isinstance(process, int) else process.pid)
    if descriptor < 0:
        _wait_in_thread(loop, process, call)
        return

    def readable() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        call()

    loop.add_reader(descriptor, readable)


def _wait_in_thread(
    loop: asyncio.AbstractEventLoop, process: subprocess.Popen[bytes] | int, call: Callable[[], None]
) -> None:
    def wait() -> None:
        if isinstance(process, int):
            while not has_gone(process):
                time.sleep(LOOK_S)
        else:
            process.wait()
        loop.call_soon_threadsafe(call)

    threading.Thread(target=wait, name="tsnb-wait", daemon=True).start()
