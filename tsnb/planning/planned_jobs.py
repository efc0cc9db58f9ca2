"""From what was measured to what the planners take: the trials, and the loader."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tsnb.planners.fluid import Course, Disk, Job, LoaderCost, Resources
from tsnb.planning.places import GROWS
from tsnb.planning.trial_costs import Profile
from tsnb.planning.wishes import TrialWish
from tsnb.stalling import LoaderContention, Stalls

__all__ = ["LEAST_OFF", "dragged", "jobs_of", "loader_costs", "makespan_off"]

LEAST_OFF = 0.08
"""No forecast is closer than this: with it the intervals of forty runs held (benchmarks/RESULTS.md)."""
CACHED = 0.9
"""With this share of the files in memory, what two loaders held each other up by was not the disk."""
OTHERS = 0.15
"""Where other programs took this share of the cores, the pace of all trials together tells nothing of them."""
MOST_DRAG = 2.0
"""A pace that was further off than this was off for another reason."""


def jobs_of(
    several: Sequence[TrialWish],
    found: Profile,
    epoch_samples: float,
    room_bytes: Mapping[str, float],
    taking_s: float,
) -> list[Job]:
    """Return trials as the planners take them, those that could be profiled, with memory for what they may grow.

    Args:
        several: The trials.
        found: What they cost.
        epoch_samples: Samples in an epoch.
        room_bytes: Memory of each GPU for all of them, by the GPU's name.
        taking_s: CPU seconds of taking a sample, which the loader's cost has too.
    """
    jobs = [
        found.costs[each.name].job(each.name, each.epochs * epoch_samples, room_bytes, taking_s=taking_s)
        for each in several
        if each.name in found.costs
    ]
    return [replace(job, memory_bytes=job.memory_bytes * (1 + GROWS)) for job in jobs]


def makespan_off(
    jobs: Sequence[Job], offs: Mapping[str, float], loader_off: float, least: float = 0.0
) -> float:
    """Return how far off the time of several trials may be, as a share of it, in four of five cases.

    Each trial errs by itself, and counts by its part of the time: the more there are, the more their errors cancel.

    Args:
        jobs: The trials.
        offs: How far off what a sample costs each may be, by name, as a share.
        loader_off: How far off what a sample costs the loader may be, as a share.
        least: The trials together are off by so much at least, as was seen while they ran together.
    """
    took_s = {job.name: job.samples * max(job.step_s, job.cpu_s) for job in jobs}
    whole_s = max(math.fsum(took_s.values()), 1e-12)
    theirs = math.hypot(*(each_s / whole_s * offs.get(name, 0.0) for name, each_s in took_s.items()))
    return math.hypot(LEAST_OFF, loader_off, max(theirs, least))


def loader_costs(
    told: Stalls, held_up: LoaderContention, epoch_samples: float, page_cache_bytes: float
) -> tuple[LoaderCost, LoaderCost]:
    """Return what a loader of one's own costs, and the shared one: both are served, each on a stream.

    Args:
        told: The loader, measured.
        held_up: Two of it at once.
        epoch_samples: Samples in an epoch.
        page_cache_bytes: Memory that no trial takes.
    """
    disk, warm, lone_s = None, told, held_up.lone_s
    storage = told.storage
    if storage is not None and storage.wait_s is not None and storage.total_bytes:
        fits = min(1.0, max(0.0, page_cache_bytes / storage.total_bytes))
        cached = 1.0 if storage.cached is None else storage.cached
        disk = Disk(storage.wait_s, storage.busy_s or 0.0, told.plain.workers, min(cached, fits), fits)
        warm = told.with_cached(1.0)
        lone_s = lone_s if cached > CACHED else 0.0  # else it is the disk's, which is told by itself

    loading = warm.served
    own = LoaderCost(
        loading.wall_s,
        loading.cpu_s,
        loading.taking_s,
        held_up.memory_bytes,
        lone_s,
        disk,
        epoch_samples=epoch_samples,
        fill_s=held_up.fill_s,
        serve_s=held_up.serve_s,
    )
    return own, replace(own, lone_s=0.0)


def dragged(one: LoaderCost, jobs: Sequence[Job], found: Profile, told: Stalls) -> LoaderCost:
    """Return the shared loader with what was seen of all trials on it; not where other programs took the cores."""
    if found.together_s is None or (told.others or 0.0) > OTHERS * told.cores:
        return one
    course = Course(Resources(one, told.cores, running=jobs), shared=True)
    drag = min(MOST_DRAG, max(1 / MOST_DRAG, found.together_s * course.paces()[0]))
    return replace(one, drag=drag, drag_of=len(jobs))
