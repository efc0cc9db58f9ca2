"""Joules for 1,000 samples, of a stream and of its trials, from the counters in its readings. Pure.

Of the stream: all that was counted (GPUs, processor packages), whatever used it, over the samples of all its trials.
Of a trial: the count of the GPUs that it had to itself among the trials. Two trials on one GPU have no number each:
their joules cannot be told apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

from tsnb.machine.energy import NOT_MEASURABLE
from tsnb.telemetry.readings import HostReading, StreamReading

__all__ = ["EnergyUse", "energy_use", "per_1000"]


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
