"""An NVML that answers what the real one does: calls, units and errors are its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pynvml

GIB = 1 << 30


class FakeNvml:
    """Devices are dicts; what one lacks raises as NVML does."""

    NVMLError = pynvml.NVMLError
    NVML_DEVICE_MIG_ENABLE = pynvml.NVML_DEVICE_MIG_ENABLE
    NVML_P2P_STATUS_OK = pynvml.NVML_P2P_STATUS_OK

    def __init__(self, *devices: dict[str, Any], starts: bool = True) -> None:
        self.devices, self.starts, self.started = devices, starts, 0

    def nvmlInit(self) -> None:
        self.started += 1
        if not self.starts:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    def nvmlDeviceGetCount(self) -> int:
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        return _of(self.devices, index, pynvml.NVML_ERROR_GPU_IS_LOST)

    def nvmlDeviceGetMigMode(self, device: dict[str, Any]) -> list[int]:
        return [1, 1] if "instances" in device else _get(device, "mig")

    def nvmlDeviceGetMaxMigDeviceCount(self, device: dict[str, Any]) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: dict[str, Any], number: int) -> dict[str, Any]:
        return _of(device["instances"], number, pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetMemoryInfo(self, device: dict[str, Any]) -> Any:
        used, total = _get(device, "memory")
        return SimpleNamespace(used=used, total=total)

    def nvmlDeviceGetUtilizationRates(self, device: dict[str, Any]) -> Any:
        return SimpleNamespace(gpu=_get(device, "percent"), memory=1)

    def nvmlDeviceGetName(self, device: dict[str, Any]) -> Any:
        return _get(device, "name")

    def nvmlDeviceGetComputeRunningProcesses(self, device: dict[str, Any]) -> list[Any]:
        return [SimpleNamespace(pid=p, usedGpuMemory=b) for p, b in _get(device, "processes")]

    def nvmlDeviceGetUUID(self, device: dict[str, Any]) -> Any:
        return _get(device, "uuid")

    def nvmlDeviceGetP2PStatus(self, device: dict[str, Any], other: dict[str, Any], what: int) -> int:
        assert what == 0  # reading; a number, as the C function takes it
        return self.NVML_P2P_STATUS_OK if other.get("uuid") in _get(device, "peers") else 1

    def nvmlDeviceGetTotalEnergyConsumption(self, device: dict[str, Any]) -> int:
        found: int = _get(device, "millijoules")
        return found


class OlderDriver(FakeNvml):
    """A driver without the newest functions; the bindings turn that into an error that is no NVMLError."""

    NVMLLibraryMismatchError = pynvml.NVMLLibraryMismatchError

    @pynvml.throwOnVersionMismatch  # type: ignore[untyped-decorator]
    def _missing(self, *_: Any) -> Any:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    nvmlDeviceGetComputeRunningProcesses = nvmlDeviceGetUUID = nvmlDeviceGetP2PStatus = _missing
    nvmlDeviceGetTotalEnergyConsumption = _missing


class OldDriver(OlderDriver):
    """One of some years later."""

    def nvmlDeviceGetComputeRunningProcesses_v2(self, device: dict[str, Any]) -> list[Any]:
        return FakeNvml.nvmlDeviceGetComputeRunningProcesses(self, device)


def _get(device: dict[str, Any], name: str) -> Any:
    if name not in device:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return device[name]


def _of(devices: Any, number: int, error: int) -> dict[str, Any]:
    if number >= len(devices) or devices[number] is None:
        raise pynvml.NVMLError(error)
    found: dict[str, Any] = devices[number]
    return found


H200 = {
    "name": "NVIDIA H200",
    "memory": (20 * GIB, 140 * GIB),
    "percent": 87,
    "mig": [0, 0],
    "processes": [(10, 3 * GIB), (11, 2 * GIB)],
}
