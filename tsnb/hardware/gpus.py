"""GPUs as NVML tells of them, with who uses each. What one of them does not tell is left out, never an error.

Numbers are those of `nvidia-smi`, by place on the bus. CUDA's own order may be another one on a machine with GPUs of
several kinds; trials are therefore put on a GPU by its UUID (`placing`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tsnb.hardware.inventory import Gpu, GpuUser
from tsnb.telemetry.energy import gpu_energy_j
from tsnb.telemetry.gpu import Gpus

__all__ = ["list_gpus"]

_READS_FROM_PEER = 0
"""NVML's NVML_P2P_CAPS_INDEX_READ, which the bindings have as a tuple, by a comma too many."""

NameOf = Callable[[int], str]


def list_gpus(gpus: Gpus, name_of: NameOf | None = None) -> tuple[Gpu, ...]:
    """Return every GPU, or the MIG instances that it is cut into; one that does not answer is left out.

    Args:
        gpus: NVML.
        name_of: Says what a process is called, by its number; left out: nobody asks who uses them.
    """
    opened = gpus.opened()
    found = []
    for index, handle, whole in opened:
        reading = gpus.read(index, handle, whole)
        if reading is None:
            continue
        uuid = _uuid(gpus.nvml, handle)
        users, told = _users(gpus, handle, name_of)
        found.append(
            Gpu(
                f"cuda:{index}" if whole else f"mig:{uuid}",
                index,
                uuid,
                reading.name,
                reading.busy,
                reading.used_bytes,
                reading.total_bytes,
                users,
                told,
                _peers(gpus.nvml, handle, index, opened) if whole else (),
                gpu_energy_j(gpus.nvml, handle) if whole else None,
            )
        )
    return tuple(found)


def _uuid(nvml: Any, handle: Any) -> str:
    try:
        uuid = nvml.nvmlDeviceGetUUID(handle)
    except nvml.NVMLError:
        return ""
    return uuid.decode() if isinstance(uuid, bytes) else str(uuid)


def _users(gpus: Gpus, handle: Any, name_of: NameOf | None) -> tuple[tuple[GpuUser, ...], bool]:
    if name_of is None:
        return (), False
    try:
        running = gpus.nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except gpus.nvml.NVMLError:
        return (), False
    # inside a container the same number is somebody else's
    name = name_of if gpus.tells_processes else lambda _pid: ""
    return tuple(GpuUser(p.pid, name(p.pid), p.usedGpuMemory) for p in running), True


def _peers(nvml: Any, handle: Any, index: int, opened: list[tuple[int, Any, bool]]) -> tuple[int, ...]:
    peers = []
    for other, other_handle, whole in opened:
        if other == index or not whole:
            continue
        try:
            status = nvml.nvmlDeviceGetP2PStatus(handle, other_handle, _READS_FROM_PEER)
        except nvml.NVMLError:
            continue
        if status == nvml.NVML_P2P_STATUS_OK:
            peers.append(other)
    return tuple(peers)
