"""Energy as the machine itself counts it: GPUs through NVML, processor packages through RAPL. Never an estimate.

| device | counter | readable by |
|---|---|---|
| a GPU (Volta and later) | `nvmlDeviceGetTotalEnergyConsumption`, mJ since the driver was loaded | everybody |
| a processor package | `/sys/class/powercap/intel-rapl:N/energy_uj`, which starts anew now and then | root, as a rule |

A laptop's zone `psys` counts the whole board, its packages too: it is not added to them, and is read only where there
are none. A MIG instance has no counter of its own. A virtual machine does not have the package's. A counter counts the
whole device, whatever used it: only if one trial had it for itself does the count belong to that trial.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tsnb.machine.gpus import Gpus, gpu_energy_j

__all__ = ["NOT_MEASURABLE", "EnergyMeter", "words_on_energy"]

_POWERCAP = Path("sys/class/powercap")
NOT_MEASURABLE = "not measurable here"


class EnergyMeter:
    """Reads the counters of this machine and adds up what they went on by.

    Not for several threads at once.

    Args:
        gpus: NVML; left out: this machine's.
        root: Where /sys is.
    """

    def __init__(self, gpus: Gpus | None = None, root: Path = Path("/")) -> None:
        self._gpus = gpus or Gpus()
        self._packages = _packages(root / _POWERCAP)
        self._last: dict[str, float] = self._counters()
        self._spent = dict.fromkeys(self._last, 0.0)

    @property
    def sources(self) -> tuple[str, ...]:
        """The measured devices: "cuda:0", "package-0"; empty if none is."""
        return tuple(self._spent)

    def spent(self) -> Mapping[str, float]:
        """Return the joules that each source has spent since this meter was made."""
        now = self._counters()
        for source, joules in now.items():
            if source in self._last:
                step = joules - self._last[source]
                if step < 0:  # the counter has started anew
                    step += self._range_j(source)
                self._spent[source] += max(0.0, step)
            else:
                self._spent.setdefault(source, 0.0)
        self._last = now
        return dict(self._spent)

    def _range_j(self, source: str) -> float:
        return next((limit for name, _, limit in self._packages if name == source), 0.0)

    def _counters(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for index, handle, whole in self._gpus.opened():
            joules = gpu_energy_j(self._gpus.nvml, handle) if whole else None
            if joules is not None:
                found[f"cuda:{index}"] = joules
        for name, file, _ in self._packages:
            joules = _microjoules(file)
            if joules is not None:
                found[name] = joules
        return found


def _packages(directory: Path) -> list[tuple[str, Path, float]]:
    """Return name, counter and range in joules of each package with a counter that we may read."""
    found = []
    for zone in sorted(directory.glob("*-rapl:*")):
        if zone.name.count(":") != 1:  # a part of a package, which that counts too
            continue
        file = zone / "energy_uj"
        if _microjoules(file) is None:
            continue
        try:
            name = (zone / "name").read_text().strip() or zone.name
        except OSError:
            name = zone.name
        found.append((name, file, _microjoules(zone / "max_energy_range_uj") or 0.0))
    packages = [each for each in found if not each[0].startswith("psys")]
    return packages or found[:1]


def _microjoules(file: Path) -> float | None:
    try:
        return int(file.read_text()) / 1e6
    except (OSError, ValueError):
        return None


def words_on_energy(sources: tuple[str, ...]) -> str:
    """Say what can be measured."""
    return f"measured for {', '.join(sources)}" if sources else NOT_MEASURABLE
