"""Energy as the machine itself counts it: GPUs through NVML, processor packages through RAPL. Never an estimate.

| what | counter | who may read it |
|---|---|---|
| a GPU (Volta and later) | `nvmlDeviceGetTotalEnergyConsumption`, mJ since the driver was loaded | everybody |
| a processor package | `/sys/class/powercap/intel-rapl:N/energy_uj`, which starts anew now and then | root, as a rule |

A MIG instance has no counter of its own. A virtual machine has none of the package's. What a counter counts is the
whole device, whoever used it: only where one trial had it for itself is it that trial's.

`energy_use` is pure: joules for 1,000 samples, of a stream and of its trials, from the counters in its readings.
Of the stream: all that was counted (GPUs, processor packages), whoever used it, over the samples of all its trials.
Of a trial: what the GPUs counted that it had to itself among the trials. Two trials on one GPU have no number each:
nothing tells whose joules are whose.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tsnb.telemetry.gpu import Gpus
from tsnb.telemetry.readings import HostReading, StreamReading

__all__ = [
    "NOT_MEASURABLE",
    "EnergyMeter",
    "EnergyUse",
    "energy_use",
    "gpu_energy_j",
    "per_1000",
    "words_on_energy",
]

_POWERCAP = Path("sys/class/powercap")


def gpu_energy_j(nvml: Any, handle: Any) -> float | None:
    """Return the joules that a GPU has spent since its driver was loaded; None where it does not count them."""
    try:
        return int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1000
    except nvml.NVMLError:
        return None


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
        """What is measured: "cuda:0", "package-0"; empty where nothing is."""
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
    """Return name, counter and range in joules of each package whose counter we may read."""
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
    return found


def _microjoules(file: Path) -> float | None:
    try:
        return int(file.read_text()) / 1e6
    except (OSError, ValueError):
        return None


def words_on_energy(sources: tuple[str, ...]) -> str:
    """Say what can be measured."""
    return f"measured of {', '.join(sources)}" if sources else NOT_MEASURABLE


NOT_MEASURABLE = "not measurable here"


@dataclass
class EnergyUse:
    """Energy between the first look at the machine and the last."""

    joules: dict[str, float] = field(default_factory=dict)
    """By what has a counter: "cuda:0", "package-0"."""
    samples: int = 0
    """That all trials took meanwhile."""
    trial_joules: dict[str, float] = field(default_factory=dict)
    """Of the GPUs that a trial had to itself, by its name."""
    trial_samples: dict[str, int] = field(default_factory=dict)
    """That it took meanwhile."""

    @property
    def text(self) -> str:
        """What to show: "12.5 J for 1,000 samples (cuda:0, package-0); small-cnn 4.2 J"."""
        whole = per_1000(sum(self.joules.values()) if self.joules else None, self.samples)
        if whole is None:
            return NOT_MEASURABLE
        own = {name: per_1000(j, self.trial_samples.get(name, 0)) for name, j in self.trial_joules.items()}
        parts = "".join(f"; {name} {joules:.3g} J" for name, joules in own.items() if joules is not None)
        return f"{whole:.3g} J for 1,000 samples ({', '.join(self.joules)}){parts}"


def per_1000(joules: float | None, samples: int) -> float | None:
    """Return the joules for 1,000 samples; None where nothing was measured, or no sample taken."""
    return None if joules is None or samples <= 0 else joules * 1000 / samples


def energy_use(readings: Iterable[StreamReading]) -> EnergyUse:
    """Add up what was counted.

    Args:
        readings: Oldest first; those with a look at the machine count.
    """
    use = EnergyUse()
    looks = [(r, r.host) for r in readings if r.host is not None and r.host.energy_j]
    for (before, was), (after, now) in itertools.pairwise(looks):
        spent = _spent(was, now)
        taken = _taken(before, after)
        if spent is None or before.pid != after.pid:
            continue  # another follower, or another producer: its counters begin anew
        for source, joules in spent.items():
            use.joules[source] = use.joules.get(source, 0.0) + joules
        use.samples += sum(taken.values())
        for name, joules in _own(now, spent).items():
            use.trial_joules[name] = use.trial_joules.get(name, 0.0) + joules
            use.trial_samples[name] = use.trial_samples.get(name, 0) + taken.get(name, 0)
    return use


def _spent(before: HostReading, after: HostReading) -> dict[str, float] | None:
    grown = {s: joules - before.energy_j[s] for s, joules in after.energy_j.items() if s in before.energy_j}
    return None if any(joules < 0 for joules in grown.values()) else grown


def _taken(before: StreamReading, after: StreamReading) -> dict[str, int]:
    had = {c.name: c.samples for c in before.consumers}
    # one that came anew under its old name counts from 0
    return {
        c.name: c.samples - had[c.name] if c.samples >= had.get(c.name, 0) and c.name in had else c.samples
        for c in after.consumers
    }


def _own(host: HostReading, spent: dict[str, float]) -> dict[str, float]:
    """Return the joules of the GPUs that one trial alone computes on, by trial."""
    found: dict[str, float] = {}
    on: dict[int, list[str]] = {}
    for name, process in host.consumers.items():
        for index in process.gpus:
            on.setdefault(index, []).append(name)
    for index, names in on.items():
        joules = spent.get(f"cuda:{index}")
        if len(names) == 1 and joules is not None:
            found[names[0]] = found.get(names[0], 0.0) + joules
    return found
