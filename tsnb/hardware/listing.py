"""`tsnb.devices()`: looks at this machine once and returns what there is."""

from __future__ import annotations

import importlib.util
import os
import re
from importlib import metadata
from pathlib import Path

from tsnb.hardware.gpus import list_gpus
from tsnb.hardware.inventory import Cores, Gpu, Inventory
from tsnb.hardware.mps import look_for_mps
from tsnb.hardware.obstacles import notes_on
from tsnb.hardware.tables import as_html, as_text
from tsnb.hardware.users import name_of_process, our_processes
from tsnb.hardware.wishes import under_wsl
from tsnb.native.cores import usable_cores
from tsnb.telemetry.energy import EnergyMeter, words_on_energy
from tsnb.telemetry.gpu import Gpus
from tsnb.telemetry.machine import Machine

__all__ = ["Devices", "devices"]


class Devices(Inventory):
    """What this machine has for training, and who uses it; shows as a table. Made by `tsnb.devices()`.

    Its `gpus`, `cores`, `mps`, `torch`, `notes` and `energy` are plain values.
    """

    def __getitem__(self, device: str) -> Gpu:
        """Return the GPU of that name: "cuda:0", "mig:MIG-...".

        Raises:
            KeyError: There is none.
        """
        for gpu in self.gpus:
            if gpu.device == device:
                return gpu
        raise KeyError(f"{device!r}; here: {', '.join(g.device for g in self.gpus) or 'no GPU'}")

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def devices() -> Devices:
    """Look at this machine: GPUs, MIG instances and who uses them, MPS, cores, what can be measured of energy.

    Nothing is started on a GPU for it, and torch is not imported.

    Returns:
        The devices, shown as a table in a terminal and in a notebook. One number is
        `tsnb.devices()["cuda:0"].used_bytes`.
    """
    return look(Gpus(), Machine())


def look(gpus: Gpus, machine: Machine) -> Devices:
    """Return what NVML and the machine tell.

    Args:
        gpus: NVML.
        machine: Counts cores.
    """
    ours = our_processes() if gpus.opened() else {}
    found = list_gpus(gpus, lambda pid: name_of_process(pid, ours))
    obstacle = "" if found else gpus.obstacle or "NVML lists none"
    return Devices(
        gpus=found,
        cores=Cores(os.cpu_count() or 1, usable_cores(), machine.quota, machine.cores()),
        mps=look_for_mps() if found else None,
        torch=_torch(),
        obstacle=obstacle,
        notes=notes_on(found, wsl=under_wsl()),
        energy=words_on_energy(EnergyMeter(gpus).sources),
    )


def _torch() -> str:
    """Return torch's version and the CUDA that it was built for, without importing it."""
    try:
        version = metadata.version("torch")
        spec = importlib.util.find_spec("torch")
    except (metadata.PackageNotFoundError, ImportError, ValueError):
        return ""
    folder = Path(spec.origin).parent if spec is not None and spec.origin else None
    cuda = None
    if folder is not None and (file := folder / "version.py").is_file():
        cuda = re.search(r"^cuda\b.*?=\s*'([^']*)'", file.read_text(), re.MULTILINE)
    return f"{version}, CUDA {cuda.group(1)}" if cuda else f"{version}, built without CUDA"
