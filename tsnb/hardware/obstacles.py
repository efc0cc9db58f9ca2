"""Where batches cannot be shared on a GPU, and what happens instead, in plain words. Pure.

CUDA's memory handles (IPC) work between processes that use the same whole GPU, on Linux itself, in one container.
"""

from __future__ import annotations

from collections.abc import Sequence

from tsnb.hardware.inventory import Gpu

__all__ = ["INSTEAD", "notes_on", "obstacle_between"]

INSTEAD = "each trial copies its batches from the shared memory of the CPU to the GPU"
"""What happens where they cannot."""


def obstacle_between(producer: str, consumer: str, device: str, *, wsl: bool = False) -> str:
    """Return why two processes cannot share a GPU's memory; empty where nothing speaks against it.

    Args:
        producer: The namespaces of the loader's process, as one word.
        consumer: Those of the trial's.
        device: The GPU's UUID, "MIG-..." of an instance.
        wsl: Whether this is Linux inside Windows.
    """
    if device.startswith("MIG-"):
        return "a MIG instance cannot share its memory between processes"
    if wsl:
        return "CUDA under WSL cannot share memory between processes"
    if producer != consumer:
        return "the loader runs in another container (another IPC or process namespace)"
    return ""


def notes_on(gpus: Sequence[Gpu], *, wsl: bool = False) -> tuple[str, ...]:
    """Return one sentence for each thing that cannot be done with these GPUs, with what happens instead."""
    found = []
    cut = [gpu.device for gpu in gpus if gpu.mig]
    if cut:
        found.append(
            f"Batches cannot be shared on MIG instances ({len(cut)} here): {INSTEAD}; "
            "a trial sees one instance."
        )
    if wsl and gpus:
        found.append(f"Batches cannot be shared on a GPU under WSL: {INSTEAD}.")
    whole = [gpu for gpu in gpus if not gpu.mig]
    apart = [(a.index, b.index) for a in whole for b in whole if a.index < b.index and b.index not in a.peers]
    if apart:
        pairs = ", ".join(f"{a} and {b}" for a, b in apart)
        found.append(
            f"No direct access between GPU {pairs}: a batch that is wanted on both is copied from the CPU to each."
        )
    return tuple(found)
