"""GPUs through NVML: utilisation and memory of each, and each process's share of the memory.

Where there is no GPU, no driver, or NVML is in a bad way, all answers are empty: a machine without a GPU is no error.

Two things NVML cannot say:

- how busy a MIG instance is (`GpuReading.busy` is None); instances are listed in place of the GPU they are cut from;
- who is who inside a container that counts its processes anew: NVML counts as the host does, so there memory by
  process is left out rather than put down to the wrong one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tsnb.telemetry.readings import GpuReading

__all__ = ["Gpus"]

_HOST_PIDS = 0xEFFFFFFC
"""The inode of the machine's first process-number namespace; Linux gives it this number everywhere."""

_log = logging.getLogger(__name__)


class Gpus:
    """Looks at the GPUs of this machine; NVML is started at the first look and left running.

    Args:
        nvml: The module `pynvml`; left out: the installed one.
        host_pids: Whether this process counts processes as the host does; left out: looks.

    Attributes:
        obstacle: Once it was looked: why NVML tells nothing; empty where it answers.
    """

    def __init__(self, nvml: Any = None, host_pids: bool | None = None) -> None:
        self._nvml = nvml
        self._host_pids = _counts_as_the_host() if host_pids is None else host_pids
        self._devices: list[tuple[int, Any, bool]] | None = None
        self.obstacle = ""

    @property
    def nvml(self) -> Any:
        """The module `pynvml`, or what stands for it; None where there is none."""
        return self._nvml

    @property
    def tells_processes(self) -> bool:
        """Whether the processes that NVML names are those of the same number here."""
        return self._host_pids

    def opened(self) -> list[tuple[int, Any, bool]]:
        """Return NVML's handle on each GPU or MIG instance: its index, the handle, whether it is a whole GPU."""
        return list(self._found())

    def look(self) -> tuple[GpuReading, ...]:
        """Return every GPU, or its MIG instances; one that does not answer is left out."""
        readings = (self.read(index, device, whole) for index, device, whole in self._found())
        return tuple(reading for reading in readings if reading is not None)

    def read(self, index: int, device: Any, whole: bool) -> GpuReading | None:
        """Return what one of `opened` does; None where it does not answer."""
        try:
            return self._reading(index, device, whole)
        except self._nvml.NVMLError as error:
            _log.debug("GPU %d does not answer: %s", index, error)
            return None

    def by_process(self) -> dict[int, int]:
        """Return the bytes of GPU memory that each process holds, over all devices, by process number."""
        return {pid: sum(held.values()) for pid, held in self.by_process_and_gpu().items()}

    def by_process_and_gpu(self) -> dict[int, dict[int, int]]:
        """Return the bytes of GPU memory that each process holds, by process number and the GPU's index."""
        held: dict[int, dict[int, int]] = {}
        if not self._host_pids:
            return held
        for index, device, _ in self._found():
            try:
                running = self._nvml.nvmlDeviceGetComputeRunningProcesses(device)
            except self._nvml.NVMLError as error:
                _log.debug("GPU %d does not tell its processes: %s", index, error)
                continue
            for process in running:
                # None where the driver does not say (WSL)
                own = held.setdefault(process.pid, {})
                own[index] = own.get(index, 0) + (process.usedGpuMemory or 0)
        return held

    def _reading(self, index: int, device: Any, whole: bool) -> GpuReading:
        nvml = self._nvml
        memory = nvml.nvmlDeviceGetMemoryInfo(device)
        try:
            busy = nvml.nvmlDeviceGetUtilizationRates(device).gpu / 100 if whole else None
        except nvml.NVMLError:  # virtual GPUs do not tell
            busy = None
        name = nvml.nvmlDeviceGetName(device)
        name = (
            name.decode() if isinstance(name, bytes) else str(name)
        )  # bindings of drivers before 2023 give bytes
        return GpuReading(index, name, busy, int(memory.used), int(memory.total))

    def _found(self) -> list[tuple[int, Any, bool]]:
        """Return index, device and whether it is a whole one; looks for them once."""
        if self._devices is None:
            self._devices = self._start()
        return self._devices

    def _start(self) -> list[tuple[int, Any, bool]]:
        if self._nvml is None:
            try:
                import pynvml
            except ImportError:
                self.obstacle = "the package nvidia-ml-py is not installed"
                return []
            self._nvml = pynvml
        try:
            self._nvml.nvmlInit()
            return [
                device for index in range(self._nvml.nvmlDeviceGetCount()) for device in self._parts(index)
            ]
        except self._nvml.NVMLError as error:  # no driver, or one of another version than its library
            _log.debug("no GPU to look at: %s", error)
            self.obstacle = f"NVML says: {error}"
            return []

    def _parts(self, index: int) -> Iterator[tuple[int, Any, bool]]:
        """Give a GPU, or the MIG instances that it is cut into."""
        nvml = self._nvml
        try:
            device = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:  # lost, or not for this user
            _log.debug("GPU %d cannot be opened: %s", index, error)
            return
        try:
            cut = nvml.nvmlDeviceGetMigMode(device)[0] == nvml.NVML_DEVICE_MIG_ENABLE
        except nvml.NVMLError:  # a GPU that cannot be cut
            cut = False
        if not cut:
            yield index, device, True
            return
        for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(device)):
            try:
                yield index, nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, number), False
            except nvml.NVMLError:  # a place where no instance is
                continue


def _counts_as_the_host() -> bool:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino == _HOST_PIDS
    except OSError:
        return False
