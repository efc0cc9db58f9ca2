"""Where each trial of a plan runs: now, later or nowhere, and why, in words; what one that is too large can do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tsnb.checks.devices import Devices
from tsnb.planners.fluid import Job
from tsnb.planners.scheduling import fit_devices, fits
from tsnb.planning.ways import STAGGERED, Foretold
from tsnb.text.words import duration, size_text

__all__ = ["GROWS", "PlacedTrial", "died", "gpu_advice", "memory_text", "oversized", "placed", "way_out"]

GIB = 1 << 30
MIB = 1 << 20

GROWS = 0.05
"""A trial may grow by this share after the batches for which it was watched."""


@dataclass(frozen=True)
class PlacedTrial:
    """Where one trial runs, and with which others."""

    name: str
    """Its name."""
    peak_bytes: tuple[float, float]
    """Its largest memory: as measured, and what is kept free for it."""
    where: str
    """"now", "queued" or "nowhere"."""
    after: tuple[str, ...]
    """Trials that end before it starts, if it is queued."""
    together: tuple[str, ...]
    """Trials that run when it starts."""
    why: str
    """The reason, in words."""
    device: str = ""
    """The GPU that it computes on; empty: none was seen."""
    device_bytes: float = 0.0
    """Its largest part of that GPU's memory, as measured: what torch has reserved, and CUDA's context."""
    lacks: str = ""
    """The memory that it waits for and others hold, in words; empty: it does not, or fewer at once are faster."""


def placed(way: Foretold, jobs: Mapping[str, Job], memory_bytes: float) -> tuple[PlacedTrial, ...]:
    """Return where each trial is, in the order in which they start; those that fit nowhere last.

    Args:
        way: How those run that fit.
        jobs: What each trial needs, by name, with what is kept free for it; those too that fit nowhere.
        memory_bytes: For all that run at once.
    """
    starts, ends = way.schedule.starts_s, way.schedule.ends_s
    order = sorted((name for name in way.order if fits(jobs[name], memory_bytes)), key=starts.__getitem__)
    rows = []
    with_: tuple[str, ...]
    after: tuple[str, ...]
    for name in (*order, *(each for each in jobs if each not in order)):
        job, with_, after, lacks = jobs[name], (), (), ""
        if name not in order:
            where, why = "nowhere", _too_large(job, memory_bytes)
        else:
            now_s = starts[name]
            with_ = tuple(n for n in order if n != name and starts[n] <= now_s < ends[n])
            after = tuple(n for n in order if ends[n] <= now_s)
            where = "queued" if now_s > 0 else "now"
            others = f" next to {', '.join(with_)}" if with_ else " alone"
            why = f"it fits{others}"
            lacks = _short(name, way, jobs, memory_bytes, after[-1]) if after else ""
            if lacks:
                why = f"it would exceed {lacks}; it fits{others} when {after[-1]} has ended"
            elif after:
                why = f"{_fastest(way.at_once)}; it starts when {after[-1]} has ended"
            elif way.way == STAGGERED and now_s > 0:
                why = f"it starts {duration(way.apart_s)} after the trial before it"
        peak = (job.memory_bytes / (1 + GROWS), job.memory_bytes)
        rows.append(PlacedTrial(name, peak, where, after, with_, why, job.device, job.device_bytes, lacks))
    return tuple(rows)


def _too_large(job: Job, memory_bytes: float) -> str:
    if job.memory_bytes > memory_bytes:
        need, there = job.memory_bytes, f"the {size_text(memory_bytes)} available"
    else:
        need, there = job.device_bytes, f"the {size_text(job.device_room_bytes)} free on {job.device}"
    return (
        f"it needs {size_text(need)}, more than {there}. Use smaller batches or a smaller model, or run it on "
        "a larger machine"
    )


def _short(name: str, way: Foretold, jobs: Mapping[str, Job], memory_bytes: float, before: str) -> str:
    """Return what a trial waits for that another, which ended just before, held: memory, or a GPU's; empty: a place."""
    starts, ends = way.schedule.starts_s, way.schedule.ends_s
    there = {n for n in way.order if n != name and starts[n] < ends[before] <= ends[n]} | {name, before}
    if sum(jobs[n].memory_bytes for n in there) > memory_bytes:
        return "the memory"
    return "" if fit_devices([jobs[n] for n in there]) else f"the memory of {jobs[name].device}"


def memory_text(rows: Sequence[PlacedTrial], memory_bytes: float, where: str) -> str:
    """Say in words whether trials fit into memory together, and which wait for room; empty where none fits.

    Args:
        rows: Where each trial is.
        memory_bytes: For all that run at once.
        where: What sets that limit.
    """
    fit = [row for row in rows if row.where != "nowhere"]
    short = [row.name for row in fit if row.lacks]
    if not fit or not math.isfinite(memory_bytes):
        return ""
    need_bytes = sum(row.peak_bytes[1] for row in fit)
    there = f"{size_text(memory_bytes)} {'left ' if where.startswith('of ') else ''}{where}"
    if not short:
        them = {1: f"{fit[0].name} fits", 2: "Both fit"}.get(len(fit), f"All {len(fit)} fit")
        over = need_bytes > memory_bytes
        return "" if over else f"{them} into memory: {size_text(need_bytes)} of the {there}."
    waits = "waits" if len(short) == 1 else "wait"
    need = f"Together they need {size_text(need_bytes)}"
    more = f"{need}, more than the {there}" if need_bytes > memory_bytes else f"{need} of the {there}"
    return f"{more}. {', '.join(short)} {waits} until there is room."


def _fastest(at_once: int) -> str:
    return "one at a time is fastest" if at_once == 1 else f"{at_once} at once is fastest"


def gpu_advice(jobs: Mapping[str, Job], look: Callable[[], Devices]) -> tuple[str, ...]:
    """Return how trials share a GPU where several compute on one; nothing where no two do.

    Args:
        jobs: The trials, by name.
        look: Looks at the machine.
    """
    on = [job.device for job in jobs.values() if job.device]
    return look().advice if len(set(on)) < len(on) else ()


def oversized(sizes: Mapping[str, float], memory_bytes: float) -> str:
    """Say of trials that are larger than all of the memory what they can do; empty: there are none.

    Args:
        sizes: Bytes of memory of each, by name.
        memory_bytes: For all that run at once.
    """
    large = [(name, size) for name, size in sizes.items() if size > memory_bytes]
    if not large:
        return ""
    named = ", ".join(f"{name} ({size_text(size)})" for name, size in large)
    what = "does not fit into memory, even alone" if len(large) == 1 else "do not fit into memory, even alone"
    return f"{named} {what}: {size_text(memory_bytes)} are available. {way_out(memory_bytes)}."


def way_out(memory_bytes: float) -> str:
    """Return in words what a training can do that is larger than the memory.

    Half of it for parameters and states is where to begin: activations, one gradient and the process need the rest.

    Args:
        memory_bytes: What there is.
    """
    half = memory_bytes / 2
    limit = f"{int(half / GIB)}GiB" if half >= 10 * GIB else f"{max(1, int(half / MIB))}MiB"
    return (
        f'tsnb.offload(model, optimizer, limit="{limit}") keeps parameters and optimizer states in a file, '
        "and at most this much of them in memory"
    )


def died(process: str, peak_bytes: float, *, alone: bool = True) -> str:
    """Say in words that a trial's process died while it was measured, and what to do if memory was the reason.

    Args:
        process: Whose process it was, "its process".
        peak_bytes: The largest memory that it was seen to have.
        alone: Whether nothing smaller is tried anyhow; else it is only said.
    """
    if not (math.isfinite(peak_bytes) and peak_bytes > 0):
        return f"{process} died while it was measured"
    if not alone:
        return f"{process} died while it was measured, with {size_text(peak_bytes)}"
    return (
        f"{process} died while it was measured, with {size_text(peak_bytes)}. If the system killed it for "
        f"lack of memory: {way_out(peak_bytes)}"
    )
