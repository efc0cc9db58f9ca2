"""Where each of several trials runs: now, later or nowhere, and why, in words. Starts nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tsnb.planners.fluid import Job
from tsnb.planners.scheduling import Listed, fit_devices
from tsnb.planning.co_runs import CoRun
from tsnb.planning.oversize import way_out
from tsnb.planning.ways import Foretold
from tsnb.planning.wishes import TrialWish
from tsnb.words import duration, size_text

__all__ = ["GROWS", "LEAST_OFF", "PlacedTrial", "placed", "said"]

GROWS = 0.05
"""A trial may grow by this share after the batches for which it was watched."""
LEAST_OFF = 0.1
"""No forecast from so few batches is closer than this."""


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
    """Those that run when it starts."""
    alone_per_s: float
    """Samples/s alone on the stream, measured; 0: not seen."""
    together_per_s: float
    """Samples/s in the largest group in which it was measured; 0: in none."""
    group: int
    """How large that was."""
    off: float
    """How far off the paces may be, as a share."""
    why: str
    """Its place, in words."""
    device: str = ""
    """The GPU that it computes on; empty: none was seen."""
    device_bytes: float = 0.0
    """Its largest part of that GPU's memory, as measured: what torch has reserved, and CUDA's context."""
    lacks: str = ""
    """What it waits for that others hold, in words: "the memory"; empty: it does not, or fewer at once are faster."""


def placed(
    several: Sequence[TrialWish],
    found: Listed,
    peaks: Mapping[str, float],
    alone_per_s: Mapping[str, float],
    runs: Sequence[CoRun],
    offs: Mapping[str, float],
    memory_bytes: float,
    jobs: Mapping[str, Job],
) -> tuple[PlacedTrial, ...]:
    """Return where each trial is, in the order in which they start; those that fit nowhere last.

    Args:
        several: The trials.
        found: The list of those that fit.
        peaks: Bytes that are kept free for each, by name.
        alone_per_s: Samples/s of each alone, by name; may lack some.
        runs: What was run together.
        offs: How far off those paces may be, as a share, by name; may lack some.
        memory_bytes: For all that run at once.
        jobs: What each of those that fit needs, by name.
    """
    starts, ends = found.schedule.starts_s, found.schedule.ends_s
    rows = []
    for name in (*found.order, *(each.name for each in several if each.name not in found.order)):
        high = peaks[name]
        with_: tuple[str, ...] = ()
        after: tuple[str, ...] = ()
        lacks = ""
        best = max((run for run in runs if name in run.names), key=lambda run: len(run.names), default=None)
        if name not in found.order:
            where = "nowhere"
            why = (
                f"its {size_text(high)} are more than the {size_text(memory_bytes)} there are: "
                f"{way_out(memory_bytes)}; or give it smaller batches or a smaller model, or run it on a machine with "
                "more memory"
                if high > memory_bytes
                else f"it was killed alone, at {size_text(high)}, before it was measured to its end; "
                f"{way_out(min(high, memory_bytes))}"
            )
        else:
            now_s = starts[name]
            with_ = tuple(n for n in found.order if n != name and starts[n] <= now_s < ends[n])
            after = tuple(n for n in found.order if ends[n] <= now_s)
            where = "queued" if now_s > 0 else "now"
            others = f" beside {', '.join(with_)}" if with_ else " alone"
            why = f"it fits{others}"
            lacks = _short(name, found, peaks, memory_bytes, after[-1], jobs) if after else ""
            if lacks:
                why = f"it would pass {lacks}; it fits{others} when {after[-1]} has ended"
            elif after:
                why = f"{_fastest(found.at_once)}; its place comes free when {after[-1]} has ended"
        rows.append(
            PlacedTrial(
                name,
                (high / (1 + GROWS), high),
                where,
                after,
                with_,
                alone_per_s.get(name, 0.0),
                best.per_s.get(name, 0.0) if best else 0.0,
                len(best.names) if best else 0,
                max(LEAST_OFF, offs.get(name, 0.0)),
                why,
                jobs[name].device if name in jobs else "",
                jobs[name].device_bytes if name in jobs else 0.0,
                lacks,
            )
        )
    return tuple(rows)


def _short(
    name: str,
    found: Listed,
    peaks: Mapping[str, float],
    memory_bytes: float,
    before: str,
    jobs: Mapping[str, Job],
) -> str:
    """Return what a trial waits for that another, which ended just before, held: memory, or a GPU's; empty: a place."""
    starts, ends = found.schedule.starts_s, found.schedule.ends_s
    there = {n for n in found.order if n != name and starts[n] < ends[before] <= ends[n]} | {name, before}
    if sum(peaks[n] for n in there) > memory_bytes:
        return "the memory"
    return "" if fit_devices([jobs[n] for n in there]) else f"the memory of {jobs[name].device}"


def said(rows: Sequence[PlacedTrial], way: Foretold, memory_bytes: float, where: str) -> str:
    """Say in words what fits.

    Args:
        rows: Where each trial is.
        way: How they run.
        memory_bytes: For all that run at once.
        where: What sets that limit.
    """
    now, queued, nowhere = (
        [row for row in rows if row.where == each] for each in ("now", "queued", "nowhere")
    )
    short, slow = ([row.name for row in queued if bool(row.lacks) == lacks] for lacks in (True, False))
    need_bytes = sum(row.peak_bytes[1] for row in rows)
    need = size_text(need_bytes)
    there = (
        f"the {size_text(memory_bytes)} {'left ' if where.startswith('of ') else ''}{where}"
        if math.isfinite(memory_bytes)
        else "the memory, which is not known here"
    )
    parts = []
    if now:
        if short or nowhere:
            more = "more than" if need_bytes > memory_bytes else "of"
            parts.append(f"Together they need {need}{',' if more != 'of' else ''} {more} {there}.")
        else:
            them = {1: "It", 2: "Both"}.get(len(rows), f"All {len(rows)}")
            fit = "fits" if len(rows) == 1 else "would fit at once" if slow else "fit at once"
            parts.append(f"{them} {fit}: {need} of {there}.")
        if queued or nowhere:
            starts = "start" if len(now) > 1 else "starts"
            parts.append(f"{len(now)} of {len(rows)} {starts} now: {', '.join(row.name for row in now)}.")
        if short:
            parts.append(f"{_wait(short)} until there is room: {', '.join(short)}.")
        if slow:
            parts.append(f"{_wait(slow)} for a place, as {_fastest(way.at_once)}: {', '.join(slow)}.")
        low, high = map(duration, way.interval_s)
        parts.append(f"All are done after {low} to {high}, four times in five.")
    if nowhere:
        names = ", ".join(row.name for row in nowhere)
        parts.append(f"{names}: too large for {there}, and not started.")
    return " ".join(parts)


def _wait(names: Sequence[str]) -> str:
    return f"{len(names)} {'wait' if len(names) > 1 else 'waits'}"


def _fastest(at_once: int) -> str:
    return "one at a time is the fastest" if at_once == 1 else f"{at_once} at once are the fastest"
