"""The sweeps of this process, the last of each name."""

from __future__ import annotations

from tsnb.experiments import trials
from tsnb.sweeps.sweep import Sweep

__all__ = ["enter", "find", "live"]

_sweeps: dict[str, Sweep] = {}


def enter(made: Sweep) -> None:
    """Take in a sweep; one of the same name that still runs is stopped first, as a trial's former run is."""
    former = _sweeps.get(made.name)
    if former is not None and not former.over:
        former.stop()
    _sweeps[made.name] = made


def find(name: str) -> Sweep | None:
    """Return the last sweep of a name, if there was one."""
    return _sweeps.get(name)


def live() -> list[Sweep]:
    """Return those that are not over."""
    return [sweep for sweep in _sweeps.values() if not sweep.over]


def _stop_all() -> None:
    for sweep in live():
        sweep.stop()


trials.starters.append(_stop_all)
