"""Host readings: what the machine does, seen from outside the processes; part of a recorded stream.

Plain numbers, as in `readings`. CPU is counted in cores busy (1.5: one and a half), children included.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tsnb.telemetry.decoding import decoded

__all__ = ["GpuReading", "HostReading", "ProcessReading"]


@dataclass(frozen=True)
class ProcessReading:
    """One process with its children: a trial, or the producer with its loader's workers.

    Consumers of one process share its numbers, so sums go over `ConsumerReading.pid`.
    """

    cpu: float
    """Cores busy since the last host reading."""
    memory_bytes: int
    """Memory of its own, and its part of what forks share; the arena (`touched_bytes`) and files count nowhere here."""
    cores: int
    """Cores it may use."""
    gpu_bytes: int = 0
    """GPU memory, all devices; 0 where it is not told, as inside most containers."""
    gpus: tuple[int, ...] = ()
    """The GPUs (`GpuReading.index`) that it computes on; empty where that is not told."""


@dataclass(frozen=True)
class GpuReading:
    """One GPU."""

    index: int
    """Its number, as NVML and `nvidia-smi` count; MIG instances carry that of their GPU."""
    name: str
    """What it is called."""
    busy: float | None
    """Share of the last second in which a kernel ran, 0 to 1; None: not told, as of a MIG instance."""
    used_bytes: int
    """Memory in use, by anybody."""
    total_bytes: int
    """Memory in all."""


@dataclass(frozen=True)
class HostReading:
    """The machine at one moment."""

    cores: int
    """Cores that the notebook's user may use."""
    cpu: float
    """How many of them are busy, with all that runs on the machine, or in this container where it has a quota."""
    memory_used_bytes: int
    """Memory in use, of this container where there is a limit."""
    memory_total_bytes: int
    """Memory in all, or the container's limit."""
    producer: ProcessReading | None = None
    """The producer's process and its loader's workers; None: not to be seen from here."""
    consumers: dict[str, ProcessReading] = field(default_factory=dict)
    """By the consumer's name; who cannot be seen (another machine or container) is not there."""
    gpus: tuple[GpuReading, ...] = ()
    """Empty where there is none."""
    energy_j: dict[str, float] = field(default_factory=dict)
    """Joules since the follower began to look, by what has a counter: "cuda:0", "package-0"; empty: not measurable."""

    @classmethod
    def of(cls, fields: Any) -> HostReading:
        """Make one of what JSON gave. Unknown fields are ignored.

        Raises:
            ValueError: It is not one.
        """
        return decoded(cls, fields)
