"""Where a trial is put: settings for its process before it starts, and its device's name inside.

| asked for | told by | inside |
|---|---|---|
| `cuda:1` | CUDA_VISIBLE_DEVICES=GPU-... | cuda:0, the only one |
| `gpu`, `cuda` | the same of the first GPU | cuda:0, the only one |
| `mig:MIG-...` | CUDA_VISIBLE_DEVICES=MIG-... | cuda:0, the only one |
| `cpu` | CUDA_VISIBLE_DEVICES= | no GPU |
| another word of torch's (`meta`, `xpu:0`) | nothing | the same word |

Numbers count the GPUs as `nvidia-smi` does, or those that CUDA_VISIBLE_DEVICES leaves to the notebook, in its order.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tsnb.machine.gpus import Gpus, list_gpus, look_for_mps
from tsnb.machine.inventory import Gpu

__all__ = [
    "ANY_GPU", "VISIBLE", "Placement", "free_gpu_bytes", "inside_name", "known_devices", "place", "visible_gpus",
]  # fmt: skip

ANY_GPU = ("gpu", "cuda")
"""Words for any GPU: here the first one, on a cluster one that Ray chooses."""

VISIBLE = "CUDA_VISIBLE_DEVICES"
MPS_PERCENT = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


@dataclass(frozen=True)
class Placement:
    """Where a process is put."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to its environment before it starts."""
    inside: str | None = None
    """What its device is called there; None: none was asked for."""


def inside_name(device: str | None) -> str | None:
    """Return the name of a requested device inside the process that sees nothing else."""
    return "cuda:0" if device is not None and _is_gpu(device) else device


def place(
    device: str | None,
    mps_percent: int | None = None,
    environment: Mapping[str, str] | None = None,
    gpus: Gpus | None = None,
) -> Placement:
    """Return what a process needs so that it sees just one device.

    Args:
        device: "cuda:1", "mig:UUID", "cpu", or None for whatever there is.
        mps_percent: Share of the GPU's threads that it may use, 1 to 100; only where MPS runs.
        environment: The variables that the process gets beside ours.
        gpus: NVML; left out: this machine's.

    Raises:
        ValueError: The device does not exist, MPS does not run, or either is asked for in two ways; lists the devices.
    """
    given = {**os.environ, **(environment or {})}
    told: dict[str, str] = {}
    if device is not None and device != "cpu" and not _is_gpu(device):
        _check_word(device, given.get(VISIBLE), gpus)
    elif device is not None:
        if VISIBLE in (environment or {}):
            raise ValueError(
                f"device={device!r} and {VISIBLE} in env= both choose the GPU. Leave one of them out."
            )
        gpu = None if device == "cpu" else _find(device, given.get(VISIBLE), gpus or _this_machine())
        if gpu is not None and not gpu.uuid:
            told = {VISIBLE: str(gpu.index), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        else:
            told = {VISIBLE: gpu.uuid if gpu is not None else ""}
    if mps_percent is not None:
        told[MPS_PERCENT] = _checked_percent(mps_percent, device, given)
    return Placement(told, inside_name(device))


def known_devices(devices: Iterable[str]) -> tuple[str, ...]:
    """Return several devices among which trials are divided, each once.

    Args:
        devices: Each as `place` takes it.

    Raises:
        ValueError: One does not exist, or the CPU is among GPUs.
    """
    found = tuple(dict.fromkeys(map(str, devices)))
    for device in found:
        place(device)
    if "cpu" in found and len(found) > 1:
        raise ValueError(
            f"devices {', '.join(found)} mix the CPU and GPUs. Each trial is measured on one device, "
            "and CPU measurements do not predict a GPU. Pass GPUs, or only the CPU."
        )
    return found


@functools.cache
def _this_machine() -> Gpus:
    return Gpus()


def _is_gpu(device: str) -> bool:
    return device in ANY_GPU or device.startswith(("cuda:", "mig:"))


def _check_word(device: str, visible: str | None, nvml: Gpus | None) -> None:
    """Refuse a device of which torch does not know, or which it does not have here.

    Raises:
        ValueError: It is one of these; lists the devices.
    """
    import torch  # only who names such a device waits for it

    try:
        kind = torch.device(device).type
    except RuntimeError:
        there = False
    else:
        homes = (getattr(torch, kind, None), getattr(torch.backends, kind, None))
        asks = [ask for home in homes if (ask := getattr(home, "is_available", None)) is not None]
        there = all(ask() for ask in asks)
    if there:
        return
    raise _no_device(device, visible_gpus(list_gpus(nvml or _this_machine()), visible), visible)


def _find(device: str, visible: str | None, nvml: Gpus) -> Gpu:
    gpus = list_gpus(nvml)
    if not gpus:
        why = nvml.obstacle or "NVML lists none"
        raise ValueError(
            f"device={device!r}: there is no GPU here ({why}). Leave it out, or pass device='cpu'. If "
            "torch sees a GPU all the same, use it inside the trial with tsnb.attach(device='cuda:0')."
        )
    here = visible_gpus(gpus, visible)
    if device.startswith("mig:"):
        found = [gpu for gpu in here if gpu.mig and gpu.device == device]
    else:
        number = device.partition(":")[2] or "0"
        if visible is None:
            found = [gpu for gpu in here if str(gpu.index) == number and not gpu.mig]
        else:
            found = [gpu for n, gpu in enumerate(here) if str(n) == number]
    if found:
        return found[0]
    raise _no_device(device, here, visible)


def _no_device(device: str, here: Sequence[Gpu], visible: str | None) -> ValueError:
    """Return the error that says what there is instead.

    Args:
        device: What was asked for.
        here: The GPUs that are there, in CUDA's order.
        visible: What CUDA_VISIBLE_DEVICES says; None: nothing.
    """
    names = ", ".join(
        f"{gpu.device if visible is None or gpu.mig else f'cuda:{n}'} ({gpu.name})"
        for n, gpu in enumerate(here)
    )
    left = "" if visible is None else f" (limited by {VISIBLE}={visible!r})"
    return ValueError(
        f"device={device!r} does not exist here. Available: {names or 'no GPU'}{left}, and cpu."
    )


def visible_gpus(gpus: Sequence[Gpu], visible: str | None) -> list[Gpu]:
    """Return the GPUs that CUDA shows to a process, in its order; CUDA stops at the first that there is not."""
    if visible is None:
        return list(gpus)
    found = []
    for word in (part.strip() for part in visible.split(",")):
        gpu = next((g for g in gpus if str(g.index) == word or (word and g.uuid.startswith(word))), None)
        if gpu is None:
            break
        found.append(gpu)
    return found


def free_gpu_bytes(device: Any, gpus: Gpus | None = None) -> int | None:
    """Return the free memory of the GPU that trials train on; None: they train on none, or it does not tell.

    Args:
        device: As `place` takes it, or several; None: the first GPU there is, as code that names no device takes it.
        gpus: NVML; left out: this machine's.
    """
    visible = os.environ.get(VISIBLE)
    here = visible_gpus(list_gpus(gpus or _this_machine()), visible)
    free = {
        gpu.device if visible is None or gpu.mig else f"cuda:{n}": gpu.total_bytes - gpu.used_bytes
        for n, gpu in enumerate(here)
    }
    if not free:
        return None
    first = next(iter(free))
    asked = (first,) if device is None else (device,) if isinstance(device, str) else device
    found = [free[name] for word in asked if (name := first if word in ANY_GPU else word) in free]
    return sum(found) if found else None


def _checked_percent(percent: int, device: str | None, environment: Mapping[str, str]) -> str:
    if isinstance(percent, bool) or not isinstance(percent, int) or not 1 <= percent <= 100:
        raise ValueError(f"mps_percent={percent!r} is invalid. Pass a whole number from 1 to 100.")
    if device == "cpu":
        raise ValueError("mps_percent= shares a GPU, and device='cpu' hides the GPUs. Leave one of them out.")
    mps = look_for_mps(environment)
    if not mps.running:
        raise ValueError(
            f"mps_percent={percent}: MPS is not running here (no control daemon at {mps.directory}). "
            "Start it with `tsnb mps start`, or leave mps_percent= out."
        )
    return str(percent)
