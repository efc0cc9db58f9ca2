"""The figures of a `Stalls` as plain values, for JSON: each with what it lies between. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tsnb.stalling.figures import plain
from tsnb.stalling.intervals import Figure, basis, four_in_five

if TYPE_CHECKING:
    from tsnb.stalling.result import Stalls
    from tsnb.stalling.sharing import Sharing

__all__ = ["as_plain"]


def as_plain(told: Stalls, trials: Iterable[int], cores: float | None = None) -> dict[str, Any]:
    """Return the figures as plain values.

    Args:
        told: The measurements, or what was calculated from them.
        trials: Numbers of trials, of which each gets an entry of `sharing`.
        cores: CPU cores for all of these; None: those of this machine.
    """

    def both(name: str, figure: Figure) -> dict[str, Any]:
        return {name: figure(told), f"{name}_interval": plain(four_in_five(told, figure))}

    return {
        "cores": told.cores,
        "others": told.others,
        "threads": told.threads,
        "batch_size": told.batch_size,
        "workers": told.plain.workers,
        "basis": basis(told),
        "steps": told.steps,
        "loader_per_s": told.loader_per_s,
        "loader_per_s_interval": plain(told.interval),
        **both("served_per_s", lambda each: each.served_per_s),
        **both("model_per_s", lambda each: each.model_per_s),
        **both("together_per_s", lambda each: each.together_per_s),
        **both("together_served_per_s", lambda each: each.together_served_per_s),
        **both("loader_cpu_s", lambda each: each.plain.cpu_s + each.plain.taking_s),
        **both("served_cpu_s", lambda each: each.served.cpu_s + each.served.taking_s),
        **both("model_cpu_s", lambda each: each.computing.cpu_s if each.computing else None),
        "stalled": told.stalled,
        "stalled_interval": plain(told.stalled_interval),
        "storage": _storage(told),
        "hits": None if told.hits is None else asdict(told.hits),
        "sharing": [_shared(told.sharing(number, cores=cores), cores or told.cores) for number in trials],
        "sizing": None if told.computing is None else told.sizing(gpus=told.trials).to_dict(),
        "text": told.text,
    }


def _shared(found: Sharing, cores: float) -> dict[str, Any]:
    return {
        "trials": found.trials,
        "cores": cores,
        "separate_per_s": found.separate.samples_per_s,
        "separate_per_s_interval": plain(found.separate.interval),
        "separate_limit": found.separate.limit,
        "shared_per_s": found.shared.samples_per_s,
        "shared_per_s_interval": plain(found.shared.interval),
        "shared_limit": found.shared.limit,
        "gain": found.gain,
        "gain_interval": plain(found.gain_interval),
        "cpu_saved": found.cpu_saved,
        "cpu_saved_interval": plain(found.cpu_saved_interval),
    }


def _storage(told: Stalls) -> dict[str, Any] | None:
    """Return what a sample reads from files, and the disk's rate; None where nothing is read, or it was not seen."""
    seen = told.storage
    return None if seen is None else {**asdict(seen), "disk_bytes_per_s": seen.disk_bytes_per_s}
