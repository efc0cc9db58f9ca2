"""Dividing compute among a stream's consumers: whether they compete for the machine.

With weights, no consumer is held back for cores that lie idle (`Contention`):

    they compete  unless a whole core was idle over the last second, and always where two of their
                  processes have a GPU open: whether that is busy, cores do not tell

Used by the serving thread, once a second, only while a stream divides by weight.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from tsnb.machine.cores import Machine
from tsnb.machine.processes import has_open
from tsnb.stream.decisions import events as ev
from tsnb.stream.producer.core import Core

__all__ = ["Contention"]

IDLE_CORES = 1.0
"""Less than a whole one idle is what steps, the loader and the measurement itself leave."""

GPU_FILES = "/dev/nvidia"
"""What a process has open that computes on a GPU."""


class Contention:
    """Watches the cores of this machine, or of this container.

    Args:
        machine: The machine to watch.
        gpu_files: How the names of a GPU's device files begin.
    """

    def __init__(self, machine: Machine | None = None, gpu_files: str = GPU_FILES) -> None:
        self._machine = machine
        self._gpu_files = gpu_files
        self._seen: tuple[float, float] | None = None  # monotonic seconds, CPU seconds

    def watch(self, core: Core) -> None:
        """Tell a stream that divides by weight, once a second, whether its consumers compete."""
        if core.dispatch.balance.pacing != "weights":
            self._seen = None
            return
        sessions = list(core.sessions.values())
        contended = self.look(s.channel.peer.pid for s in sessions if s.role == "consumer")
        if contended != core.dispatch.balance.contended:
            core.step(ev.Contended(contended))

    def look(self, pids: Iterable[int]) -> bool:
        """Return whether they compete; the first look has nothing to compare with, and says so of all.

        Args:
            pids: The consumers' processes.
        """
        if self._machine is None:
            self._machine = Machine()
        now, used_s = time.monotonic(), self._machine.cpu_s()
        before, self._seen = self._seen, (now, used_s)
        if before is None or now <= before[0] or sum(has_open(pid, self._gpu_files) for pid in set(pids)) > 1:
            return True
        busy = (used_s - before[1]) / (now - before[0])
        return self._machine.cores() - busy < IDLE_CORES
