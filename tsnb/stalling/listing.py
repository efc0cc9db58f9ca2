"""The figures of a `Stalls` as plain values, for JSON: each with what it lies between. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tsnb.stalling.figures import Interval
from tsnb.stalling.intervals import Figure, basis, four_in_five

if TYPE_CHECKING:
    from tsnb.stalling.result import Stalls
    from tsnb.stalling.sharing import Sharing
    from tsnb.stalling.sizing import Need

__all__ = ["as_plain"]


def as_plain(told: Stalls, trials: Iterable[int]) -> dict[str, Any]:
    """Return the figures as plain values.

    Args:
        told: The measurements, or what was calculated from them.
        trials: Numbers of trials, of which each gets an entry of `sharing`.
    """

    def known(figure: Figure) -> list[float] | None:
        return _pair(four_in_five(told, figure))

    return {
        "cores": told.cores,
        "others": told.others,
        "threads": told.threads,
        "batch_size": told.batch_size,
        "workers": told.plain.workers,
        "basis": basis(told),
        "steps": told.steps,
        "loader_per_s": told.loader_per_s,
        "loader_per_s_interval": _pair(told.interval),
        "served_per_s": told.served_per_s,
        "served_per_s_interval": known(lambda each: each.served_per_s),
        "model_per_s": told.model_per_s,
        "model_per_s_interval": known(lambda each: each.model_per_s),
        "stalled": told.stalled,
        "stalled_interval": _pair(told.stalled_interval),
        "storage": _storage(told),
        "hits": None if told.hits is None else asdict(told.hits),
        "sharing": [_shared(told.sharing(number)) for number in trials],
        "sizing": _sizing(told),
        "text": told.text,
    }


def _pair(interval: Interval | None) -> list[float] | None:
    return None if interval is None else list(interval)


def _shared(found: Sharing) -> dict[str, Any]:
    return {
        "trials": found.trials,
        "separate_per_s": found.separate.samples_per_s,
        "separate_per_s_interval": _pair(found.separate.interval),
        "separate_limit": found.separate.limit,
        "shared_per_s": found.shared.samples_per_s,
        "shared_per_s_interval": _pair(found.shared.interval),
        "shared_limit": found.shared.limit,
        "gain": found.gain,
        "gain_interval": _pair(found.gain_interval),
        "cpu_saved": found.cpu_saved,
        "cpu_saved_interval": _pair(found.cpu_saved_interval),
    }


def _storage(told: Stalls) -> dict[str, Any] | None:
    """Return what a sample reads from files, and the disk's rate; None where nothing is read, or it was not seen."""
    seen = told.storage
    return None if seen is None else {**asdict(seen), "disk_bytes_per_s": seen.disk_bytes_per_s}


def _sizing(told: Stalls) -> dict[str, Any] | None:
    """Return the vCPUs that each of as many GPUs as trials needs; None without a step."""
    if told.computing is None:
        return None
    found = told.sizing(gpus=told.trials)

    def need(one: Need) -> dict[str, Any]:
        return {
            "vcpus": one.vcpus,
            "vcpus_interval": _pair(one.vcpus_interval),
            "workers": one.workers,
            "workers_interval": _pair(one.workers_interval),
        }

    return {
        "gpus": found.gpus,
        "samples_per_s": found.samples_per_s,
        "samples_per_s_interval": _pair(found.samples_interval),
        "separate": need(found.separate),
        "shared": need(found.shared),
    }
