"""How a kernel's process ends, and being told of it at once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass

from tsnb.errors import TsnbError

__all__ = ["Death", "KernelDied", "cause_of_death", "when_gone"]


class KernelDied(TsnbError):
    """A background kernel's process ended while something was expected of it."""


@dataclass(frozen=True)
class Death:
    """How a kernel's process ended."""

    code: int
    """Its exit status; negative: the signal that killed it."""
    tail: str = ""
    """The last lines that the process itself wrote (a crash's native traceback, say)."""

    def __str__(self) -> str:
        return f"{cause_of_death(self.code, 'its kernel')}\n{self.tail}".rstrip()


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
        "SIGKILL": " (somebody, or the system because memory ran out)",
        "SIGSEGV": " (a crash in compiled code)",
        "SIGABRT": " (compiled code gave up)",
    }.get(name, "")
    return f"{whose} was killed by {name}{hint}"


def when_gone(
    loop: asyncio.AbstractEventLoop, process: subprocess.Popen[bytes], call: Callable[[], None]
) -> None:
    """Have `call` called on the loop's thread once the process has ended. Called on that thread.

    A `pidfd` is readable at that moment, whatever else goes on; where the system has none, a thread waits.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:  # an old kernel, or a sandbox that does not allow it
        _wait_in_thread(loop, process, call)
        return

    def readable() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        call()

    loop.add_reader(descriptor, readable)


def _wait_in_thread(
    loop: asyncio.AbstractEventLoop, process: subprocess.Popen[bytes], call: Callable[[], None]
) -> None:
    def wait() -> None:
        process.wait()
        loop.call_soon_threadsafe(call)

    threading.Thread(target=wait, name=f"tsnb-wait-{process.pid}", daemon=True).start()
