"""GPUs through NVML: utilisation and memory of each, and each process's share of the memory.

Without a GPU or a driver, or if NVML is in a bad way, all answers are empty: a machine without a GPU is not an error.

Two things NVML cannot say:

- how busy a MIG instance is (`GpuReading.busy` is None); instances are listed in place of the GPU they are cut from;
- who is who inside a container that counts its processes anew: NVML counts as the host does, so there memory by
  process is left out rather than put down to the wrong one.

`Gpus` holds NVML; `list_gpus` says of each all that it tells, also who uses it. Numbers are those of `nvidia-smi`, by
place on the bus. CUDA's own order may be another one on a machine with GPUs of several kinds; trials are therefore put
on a GPU by its UUID (`placement`).

`look_for_mps` looks for the control daemon of NVIDIA's Multi-Process Service, and for what it gives each process. The
daemon keeps its pipes in one directory (CUDA_MPS_PIPE_DIRECTORY, else /tmp/nvidia-mps), with its process number in
`nvidia-cuda-mps-control.pid`; where that tells nothing, its socket does. A container may see neither: there it counts
as running where somebody has set the directory on purpose, and the control pipe lies in it.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tsnb.machine.inventory import Gpu, GpuReading, GpuUser, Mps
from tsnb.machine.processes import program_name
from tsnb.private.files import read_foreign

__all__ = ["MPS_DIRECTORY", "Gpus", "gpu_energy_j", "list_gpus", "look_for_mps", "mps_answers", "under_wsl"]

_HOST_PIDS = 0xEFFFFFFC
"""The inode of the machine's first process-number namespace; Linux gives it this number everywhere."""

_READS_FROM_PEER = 0
"""NVML's NVML_P2P_CAPS_INDEX_READ, which the bindings have as a tuple, by a comma too many."""

NameOf = Callable[[int], str]

MPS_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"
_USUAL = "/tmp/nvidia-mps"  # noqa: S108  # NVIDIA's own default
_DAEMON = "nvidia-cuda-mps-control"
_SEEN_AS = _DAEMON[:15]  # a process's name in /proc has no more letters
_ANSWER_S = 2.0

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
        """The module `pynvml`, or a substitute; None if there is none."""
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
        except refusals(self._nvml) as error:
            _log.debug("GPU %d does not answer: %s", index, error)
            return None

    def by_process_and_gpu(self) -> dict[int, dict[int, int]]:
        """Return the bytes of GPU memory that each process holds, by process number and the GPU's index."""
        held: dict[int, dict[int, int]] = {}
        if not self._host_pids:
            return held
        for index, device, _ in self._found():
            try:
                running = _running(self._nvml, device)
            except refusals(self._nvml) as error:
                _log.debug("GPU %d does not list its processes: %s", index, error)
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
        except refusals(nvml):  # virtual GPUs do not tell
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
        except refusals(self._nvml) as error:  # no driver, or one of another version than its library
            _log.debug("no GPU information: %s", error)
            self.obstacle = f"NVML says: {error}"
            return []

    def _parts(self, index: int) -> Iterator[tuple[int, Any, bool]]:
        """Give a GPU, or the MIG instances that it is cut into."""
        nvml = self._nvml
        try:
            device = nvml.nvmlDeviceGetHandleByIndex(index)
        except refusals(nvml) as error:  # lost, or not for this user
            _log.debug("GPU %d cannot be opened: %s", index, error)
            return
        try:
            cut = nvml.nvmlDeviceGetMigMode(device)[0] == nvml.NVML_DEVICE_MIG_ENABLE
        except refusals(nvml):  # a GPU that cannot be cut
            cut = False
        if not cut:
            yield index, device, True
            return
        for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(device)):
            try:
                yield index, nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, number), False
            except refusals(nvml):  # a place where no instance is
                continue


def refusals(nvml: Any) -> tuple[type[Exception], ...]:
    """Return what NVML's functions raise: a driver that is older than the bindings has an error of another kind."""
    older = getattr(nvml, "NVMLLibraryMismatchError", None)
    return (nvml.NVMLError,) if older is None else (nvml.NVMLError, older)


def _running(nvml: Any, handle: Any) -> Any:
    """Return the processes that use a GPU, from a driver before 510 as well.

    Raises:
        Exception: One of `refusals`.
    """
    try:
        return nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except refusals(nvml) as error:
        second = getattr(nvml, "nvmlDeviceGetComputeRunningProcesses_v2", None)
        if isinstance(error, nvml.NVMLError) or second is None:
            raise
        return second(handle)


def _counts_as_the_host() -> bool:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino == _HOST_PIDS
    except OSError:
        return False


def list_gpus(gpus: Gpus, name_of: NameOf | None = None) -> tuple[Gpu, ...]:
    """Return every GPU, or the MIG instances that it is cut into; one that does not answer is left out.

    Args:
        gpus: NVML.
        name_of: Gives a process's name by its number; left out: users are not listed.
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


def gpu_energy_j(nvml: Any, handle: Any) -> float | None:
    """Return the joules that a GPU has spent since its driver was loaded; None where it does not count them."""
    try:
        return int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1000
    except refusals(nvml):
        return None


def _uuid(nvml: Any, handle: Any) -> str:
    try:
        uuid = nvml.nvmlDeviceGetUUID(handle)
    except refusals(nvml):
        return ""
    return uuid.decode() if isinstance(uuid, bytes) else str(uuid)


def _users(gpus: Gpus, handle: Any, name_of: NameOf | None) -> tuple[tuple[GpuUser, ...], bool]:
    if name_of is None:
        return (), False
    try:
        running = _running(gpus.nvml, handle)
    except refusals(gpus.nvml):
        return (), False
    # inside a container the same number is another process's
    name = name_of if gpus.tells_processes else lambda _pid: ""
    return tuple(GpuUser(p.pid, name(p.pid), p.usedGpuMemory) for p in running), True


def _peers(nvml: Any, handle: Any, index: int, opened: list[tuple[int, Any, bool]]) -> tuple[int, ...]:
    peers = []
    for other, other_handle, whole in opened:
        if other == index or not whole:
            continue
        try:
            status = nvml.nvmlDeviceGetP2PStatus(handle, other_handle, _READS_FROM_PEER)
        except refusals(nvml):
            continue
        if status == nvml.NVML_P2P_STATUS_OK:
            peers.append(other)
    return tuple(peers)


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
        pid = int(read_foreign(directory / f"{_DAEMON}.pid"))
        if program_name(pid)[:15] == _SEEN_AS:
            return True
    except (OSError, ValueError):
        pass  # an older daemon, or not for us to read
    return on_purpose or mps_answers(directory)


def mps_answers(directory: Path) -> bool:
    """Tell whether a control daemon listens in a directory of pipes: a dead one leaves its socket there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_ANSWER_S)
        try:
            probe.connect(str(directory / "control"))
        except (FileNotFoundError, NotADirectoryError, PermissionError, ConnectionRefusedError):
            return False
        except OSError:  # it is busy, or its socket is of another kind
            return True
    return True


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
