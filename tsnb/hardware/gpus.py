"""The GPUs of this machine, as NVIDIA's own tools tell of them. What one of them does not tell is left out.

`list_gpus` asks NVML, also who uses each. Numbers are those of `nvidia-smi`, by place on the bus. CUDA's own order may
be another one on a machine with GPUs of several kinds; trials are therefore put on a GPU by its UUID (`placing`).

`look_for_mps` looks for the control daemon of NVIDIA's Multi-Process Service, and for what it gives each process. The
daemon keeps its pipes in one directory (CUDA_MPS_PIPE_DIRECTORY, else /tmp/nvidia-mps), with its process number in
`nvidia-cuda-mps-control.pid`. Inside a container that process cannot be seen: there it counts as running where
somebody has set the directory on purpose, and the control pipe lies in it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from tsnb.hardware.inventory import Gpu, GpuUser, Mps
from tsnb.telemetry.energy import gpu_energy_j
from tsnb.telemetry.gpu import Gpus

__all__ = ["MPS_DIRECTORY", "list_gpus", "look_for_mps", "under_wsl"]

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


MPS_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"
_USUAL = "/tmp/nvidia-mps"  # noqa: S108  # NVIDIA's own default
_DAEMON = "nvidia-cuda-mps-control"
_SEEN_AS = _DAEMON[:15]  # a process's name in /proc has no more letters
_ANSWER_S = 2.0


def look_for_mps(environ: Mapping[str, str] | None = None) -> Mps:
    """Look for the daemon that a process with this environment would use.

    Args:
        environ: Left out: this process's own.
    """
    given = os.environ if environ is None else environ
    directory = given.get(MPS_DIRECTORY) or _USUAL
    running = _runs(Path(directory), on_purpose=bool(given.get(MPS_DIRECTORY)))
    return Mps(running, directory, _percent(given) if running else None)


def _runs(directory: Path, *, on_purpose: bool) -> bool:
    if not (directory / "control").exists():
        return False
    try:
        pid = int((directory / f"{_DAEMON}.pid").read_text())
        if _name(pid) == _SEEN_AS:
            return True
    except (OSError, ValueError):
        pass  # an older daemon, or not for us to read
    if any((process.info["name"] or "")[:15] == _SEEN_AS for process in psutil.process_iter(["name"])):
        return True
    return on_purpose


def _name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()[:15]
    except psutil.Error:
        return ""


def _percent(environ: Mapping[str, str]) -> float | None:
    own = environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
    if own:
        return _number(own)
    program = shutil.which(_DAEMON)
    if program is None:
        return None
    try:
        asked = subprocess.run(
            [program],
            input="get_default_active_thread_percentage\n",
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            env=dict(environ),
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return _number(asked.stdout)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def under_wsl() -> bool:
    """Whether this is Linux inside Windows."""
    try:
        return "microsoft" in Path("/proc/sys/kernel/osrelease").read_text().lower()
    except OSError:
        return False
