"""What a machine has, as plain values: GPUs, MIG instances, MPS, cores. Nothing here looks at anything. Pure.

It also says where batches cannot be shared on a GPU, and what happens instead: CUDA's memory handles (IPC) work between
processes that use the same whole GPU, on Linux itself, in one container.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tsnb.text.foreign import Number, Text, Whole

__all__ = ["INSTEAD", "Cores", "Gpu", "GpuReading", "GpuUser", "Inventory", "Mps", "advice_on", "notes_on"]


@dataclass(frozen=True)
class GpuReading:
    """One GPU."""

    index: Whole
    """Its number, as NVML and `nvidia-smi` count; MIG instances carry that of their GPU."""
    name: Text
    """What it is called."""
    busy: Number | None
    """Share of the last second in which a kernel ran, 0 to 1; None: not told, as of a MIG instance."""
    used_bytes: Whole
    """Memory in use, by anybody."""
    total_bytes: Whole
    """Memory in all."""


@dataclass(frozen=True)
class GpuUser:
    """One process that computes on a GPU."""

    pid: int
    """Its number, as the host of the machine counts."""
    name: str
    """Which trial or loader it is, else the program's name; empty: it cannot be told from here."""
    used_bytes: int | None
    """GPU memory it holds; None: the driver does not say."""


@dataclass(frozen=True)
class Gpu:
    """One GPU, or one MIG instance."""

    device: str
    """What `--device` calls it: "cuda:0", by `nvidia-smi`'s number, or "mig:MIG-...", by its UUID."""
    index: int
    """The GPU's number as `nvidia-smi` counts (by place on the bus)."""
    uuid: str
    """Its own name in the whole world; empty if the driver does not say."""
    name: str
    """What it is called."""
    busy: float | None
    """Share of the last second in which a kernel ran, 0 to 1; None: not told, as of a MIG instance."""
    used_bytes: int
    """Memory in use, by anybody."""
    total_bytes: int
    """Memory in all."""
    users: tuple[GpuUser, ...] = ()
    """Processes that compute on it."""
    users_told: bool = True
    """Whether those could be asked for."""
    peers: tuple[int, ...] = ()
    """GPUs (by number) with memory that it can read directly."""
    energy_j: float | None = None
    """Joules since the driver was loaded; None: not measured here."""

    @property
    def mig(self) -> bool:
        """Whether it is a MIG instance."""
        return self.device.startswith("mig:")


@dataclass(frozen=True)
class Mps:
    """NVIDIA's Multi-Process Service, by which kernels of several processes run on one GPU at the same time."""

    running: bool
    """Whether its control daemon is there."""
    directory: str
    """Where its pipes are (CUDA_MPS_PIPE_DIRECTORY)."""
    percent: float | None = None
    """Share of a GPU's threads that a process gets unless it asks for less, in percent; None: not told."""


@dataclass(frozen=True)
class Cores:
    """Processor cores."""

    machine: int
    """Cores of the machine."""
    allowed: int
    """Cores that this process may run on."""
    quota: float | None
    """CPU time that the container or control group gives, in cores; None: as much as there is."""
    usable: int
    """How many are left for trials: the smaller of the two, at least 1."""


@dataclass(frozen=True)
class Inventory:
    """All of it at one moment."""

    gpus: tuple[Gpu, ...]
    """GPUs; one that is cut into MIG instances is listed as those."""
    cores: Cores
    """Processor cores."""
    mps: Mps | None
    """NVIDIA's Multi-Process Service; None without a GPU."""
    torch: str
    """The torch that is installed, and the CUDA it was built for: "2.13.0, CUDA 12.8"."""
    obstacle: str = ""
    """Why no GPU is listed; empty where one is."""
    notes: tuple[str, ...] = ()
    """What cannot be done here, and what happens instead."""
    energy: str = "not measurable here"
    """What can be measured of the energy spent."""
    advice: tuple[str, ...] = ()
    """How several trials on one GPU share it, and what else there is."""


INSTEAD = "each trial copies its batches from shared CPU memory to the GPU"
"""What happens where they cannot."""


def notes_on(gpus: Sequence[Gpu], *, wsl: bool = False) -> tuple[str, ...]:
    """Return one sentence for each thing that cannot be done with these GPUs, with what happens instead."""
    found = []
    cut = [gpu.device for gpu in gpus if gpu.mig]
    if cut:
        found.append(
            f"Batches cannot be shared on MIG instances ({len(cut)} here): {INSTEAD}. A trial sees one "
            "instance."
        )
    if wsl and gpus:
        found.append(f"Batches cannot be shared on a GPU under WSL: {INSTEAD}.")
    whole = [gpu for gpu in gpus if not gpu.mig]
    apart = [(a.index, b.index) for a in whole for b in whole if a.index < b.index and b.index not in a.peers]
    if apart:
        pairs = ", ".join(f"{a} and {b}" for a, b in apart)
        found.append(
            f"No direct access between GPU {pairs}: a batch that is needed on both is copied from the "
            "CPU to each."
        )
    return tuple(found)


def advice_on(gpus: Sequence[Gpu], mps: Mps | None) -> tuple[str, ...]:
    """Return how several trials on one GPU share it as it is, and when to take which other way: turns, MPS, MIG.

    As NVIDIA's guides to its Multi-Process Service and to MIG have it; not measured here.

    Args:
        gpus: What is there.
        mps: Whether it runs.
    """
    found = []
    if any(gpu.mig for gpu in gpus):
        found.append(
            "Trials on different MIG instances are isolated: each instance has its own memory and "
            "compute units, and a CUDA error in one does not affect the others. Use MIG when several "
            "people share a GPU. A trial cannot use the idle part of another instance."
        )
    if any(not gpu.mig for gpu in gpus):
        fault = "A CUDA error or a killed trial ends all trials on that GPU"
        people = "If several people share the GPU, use MIG instead: MPS serves one user at a time."
        found.append(
            (
                f"Several trials on one GPU run at the same time, through MPS. {fault}. To limit the share "
                f"of a trial, pass --mps-percent. {people}"
            )
            if mps is not None and mps.running
            else (
                "Several trials on one GPU take turns, and the idle part of the GPU is not used. To run "
                "them at the same time, start NVIDIA MPS once before the trials: tsnb mps start. With MPS, "
                f"note: {fault}. {people}"
            )
        )
    return tuple(found)
