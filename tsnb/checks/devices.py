"""`tsnb.devices()`: looks at this machine once and returns what there is, shown as text and as HTML.

It names the processes that are ours: loaders from the registry, trials from live streams and the project's records.
The tables read the plain values only; programs find them in `data-` attributes.
"""

from __future__ import annotations

import contextlib
import html
import importlib.util
import os
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import psutil

from tsnb.device_sharing.mps import with_mps
from tsnb.discovery import registry
from tsnb.errors import TsnbError
from tsnb.machine.cores import Machine, usable_cores
from tsnb.machine.energy import EnergyMeter, words_on_energy
from tsnb.machine.gpus import Gpus, list_gpus, look_for_mps, under_wsl
from tsnb.machine.inventory import Cores, Gpu, Inventory, advice_on, notes_on
from tsnb.machine.owners import alive
from tsnb.records.project import project_directory
from tsnb.records.reading import ENDED, read_runs
from tsnb.telemetry.observer import Observer
from tsnb.text.printable import harmless
from tsnb.text.words import marked_html, text_table

__all__ = ["Devices", "as_html", "as_text", "devices", "name_of_process", "our_processes"]

ANSWER_S = 1.0
"""How long a stream may take to list its consumers."""


def our_processes() -> dict[int, str]:
    """Return names of our own processes, by process number: "loader of digits", "small-cnn"."""
    found: dict[int, str] = {}
    with contextlib.suppress(TsnbError, OSError):
        for run in read_runs(project_directory(make=False)):
            # of one on a cluster the owner is the process that started it (`cluster.remote_attempt`)
            if run.state not in ENDED and "engine" not in run.options and alive(run.owner):
                found[run.owner.pid] = run.name
    with contextlib.suppress(TsnbError):
        for entry in registry.entries():
            if entry.elsewhere:  # its number is another process's here
                continue
            found.update(_attached(entry.name))
            found[entry.pid] = f"loader of {entry.name}"
    return found


def _attached(stream: str) -> dict[int, str]:
    """Return the consumers of a stream; none if it does not answer."""
    try:
        observer = Observer(stream)
    except TsnbError:
        return {}
    try:
        reading = observer.read(ANSWER_S)
    except TsnbError:
        return {}
    finally:
        observer.close()
    return {c.pid: c.name for c in reading.consumers} if reading is not None else {}


def name_of_process(pid: int, ours: dict[int, str]) -> str:
    """Return a process's name: as one of ours, or below one of ours (a loader's worker), else its program's name."""
    try:
        process = psutil.Process(pid)
        for one in (process, *process.parents()):
            if one.pid in ours:
                return ours[one.pid]
        return process.name()
    except psutil.Error:
        return ours.get(pid, "")


class Devices(Inventory):
    """This machine's means for training, and the processes that use them; shows as a table. Made by `tsnb.devices()`.

    Its `gpus`, `cores`, `mps`, `torch`, `notes` and `energy` are plain values.
    """

    def __getitem__(self, device: str) -> Gpu:
        """Return the GPU of that name: "cuda:0", "mig:MIG-...".

        Raises:
            KeyError: The machine has no such device.
        """
        for gpu in self.gpus:
            if gpu.device == device:
                return gpu
        raise KeyError(
            f"{device!r} does not exist. Available here: {', '.join(g.device for g in self.gpus) or 'no GPU'}"
        )

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def devices() -> Devices:
    """List this machine's GPUs, MIG instances, MPS, cores and energy meters.

    Starts nothing on a GPU and does not import torch. One number is `tsnb.devices()["cuda:0"].used_bytes`.

    Example:
        >>> print(tsnb.devices())

    Returns:
        The devices, shown as a table.
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
    mps = look_for_mps({**os.environ, **with_mps({})}) if found else None
    return Devices(
        gpus=found,
        cores=Cores(os.cpu_count() or 1, usable_cores(), machine.quota, machine.cores()),
        mps=mps,
        torch=_torch(),
        obstacle=obstacle,
        notes=notes_on(found, wsl=under_wsl()),
        energy=words_on_energy(EnergyMeter(gpus).sources),
        advice=advice_on(found, mps),
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


_COLUMNS = ("device", "name", "busy", "memory", "used by")
_GIB = 1 << 30


def as_text(devices: Inventory) -> str:
    """Return the table for a terminal."""
    lines = [_cores(devices)]
    if devices.gpus:
        rows = [_COLUMNS, *map(_cells, devices.gpus)]
        lines += text_table(rows)
    return harmless("\n".join([*lines, *_rest(devices)]))


def as_html(devices: Inventory) -> str:
    """Return the table for a notebook."""
    parts = [f"<p>{html.escape(_cores(devices))}</p>"]
    if devices.gpus:
        head = "".join(f"<th style='text-align:left'>{name}</th>" for name in _COLUMNS)
        body = "".join(_row(gpu) for gpu in devices.gpus)
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    parts += [f"<p>{marked_html(line)}</p>" for line in _rest(devices)]
    facts = {
        "gpus": len(devices.gpus),
        "cores": devices.cores.usable,
        "mps": "running" if devices.mps and devices.mps.running else "none",
    }
    return f"<div data-tsnb='devices'{_data(facts)}>{''.join(parts)}</div>"


def _row(gpu: Gpu) -> str:
    facts = {
        "device": gpu.device,
        "uuid": gpu.uuid,
        "used-bytes": gpu.used_bytes,
        "total-bytes": gpu.total_bytes,
        "busy": "" if gpu.busy is None else gpu.busy,
        "pids": " ".join(str(user.pid) for user in gpu.users),
    }
    cells = "".join(f"<td style='text-align:left'>{html.escape(cell)}</td>" for cell in _cells(gpu))
    return f"<tr{_data(facts)}>{cells}</tr>"


def _data(facts: Mapping[str, object]) -> str:
    return "".join(f" data-{name}='{html.escape(str(value), quote=True)}'" for name, value in facts.items())


def _cells(gpu: Gpu) -> tuple[str, ...]:
    busy = "unknown" if gpu.busy is None else f"{gpu.busy:.0%}"
    memory = f"{gpu.used_bytes / _GIB:.1f} of {gpu.total_bytes / _GIB:.1f} GiB"
    return gpu.device, gpu.name, busy, memory, _users(gpu)


def _users(gpu: Gpu) -> str:
    if not gpu.users_told:
        return "not available here"
    words = []
    for user in gpu.users:
        held = "" if user.used_bytes is None else f", {user.used_bytes / _GIB:.1f} GiB"
        words.append(f"{user.name or 'a process'} (pid {user.pid}{held})")
    return "; ".join(words) or "no process"


def _cores(devices: Inventory) -> str:
    cores = devices.cores
    text = f"{cores.usable} of {cores.machine} cores"
    if cores.quota is not None:
        text += f" (quota of this container: {cores.quota:g})"
    elif cores.allowed < cores.machine:
        text += " (allowed for this process)"
    return text if devices.gpus else f"{text}; no GPU: {devices.obstacle}"


def _rest(devices: Inventory) -> list[str]:
    lines = []
    mps = devices.mps
    if mps is not None:
        share = "" if mps.percent is None else f", {mps.percent:g}% of the threads per process"
        lines.append(f"MPS is running{share} ({mps.directory})" if mps.running else "MPS is not running")
    lines.append(f"torch {devices.torch}" if devices.torch else "torch is not installed")
    return [*lines, f"energy: {devices.energy}", *devices.notes, *devices.advice]
