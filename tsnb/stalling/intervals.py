"""How far figures may be off: by the rounds of measurement, the waits for the disk, what the page cache keeps. Pure.

Every figure of a `Stalls` is drawn from the medians of all rounds. Drawn from each round alone it differs from round
to round, and by that its median may be off (`spread`). Where a share in memory was assumed, how far the wait for
the disk may be off comes on top, and the bounds are those of what the page cache keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import mean, stdev
from typing import TYPE_CHECKING

from tsnb.stalling.figures import Interval, number_of, size
from tsnb.stalling.sharing import Sharing, Way, foretell, with_workers
from tsnb.stalling.sizing import Need, Sizing, sized
from tsnb.text.words import interval

if TYPE_CHECKING:
    from tsnb.stalling.result import Stalls

__all__ = ["Figure", "basis", "four_in_five", "rest", "rounds_of", "shared_out", "sized_out", "spread"]

LEAST_OFF = 0.05
"""No figure is closer than this: the same loader does not run as fast again, however alike the rounds were."""
T_80 = {2: 3.08, 3: 1.89, 4: 1.64, 5: 1.53, 6: 1.48, 8: 1.41, 12: 1.36, 30: 1.31}
"""Student's t that holds in 80 of 100 cases, by the number of rounds."""

Figure = Callable[["Stalls"], "float | None"]


def rounds_of(told: Stalls) -> tuple[Stalls, ...]:
    """Return each round of measurement alone, with as many workers as are told of; () where rounds are not known."""
    first = told.measured or told
    number = told.plain.workers

    def moved(way: Way) -> Way:
        return way if number == way.loading.workers else with_workers(way, number)

    return tuple(
        replace(first, own=moved(own), one=moved(one), rounds=(), measured=None) for own, one in first.rounds
    )


def four_in_five(told: Stalls, figure: Figure, off: float | None = None) -> Interval | None:
    """Return what a figure lies between in 80 of 100 cases, in its own unit; None where there is no such figure.

    Args:
        told: What it is a figure of.
        figure: Draws it from measurements.
        off: How far the rounds let it be off, as a share; None: as it differs between them.
    """
    low = high = value = figure(told)
    if low is None or high is None or value is None:
        return None
    if off is None:
        paces = [found for each in told.each_round if (found := figure(each)) is not None]
        off = spread(paces) if paces else told.off
    if told.hits is not None and told.storage is not None:
        ends = [figure(end) or 0.0 for end in told.ends]
        if told.hits.most > told.hits.least:
            low, high = min(value, *ends[:2]), max(value, *ends[:2])
        # two standard errors are 95 of 100 cases, and 0.64 of that 80
        off += 0.64 * told.storage.off * min(1.0, abs(1 - value / ends[2])) if ends[2] else 0.0
    return interval(low, off)[0], interval(high, off)[1]


def rest(interval: Interval | None) -> Interval | None:
    """Return the interval of what is left of 1, from that of a part; None: it is not known.

    Args:
        interval: Of the part, 0 or more: of the time that is not waited for data, of the CPU time that is left.
    """
    return None if interval is None else (1 - interval[1], 1 - interval[0])


def shared_out(told: Stalls, trials: int, cores: float) -> Sharing:
    """Return what so many equal trials get, with the intervals of it.

    Args:
        told: What was measured of one.
        trials: How many.
        cores: CPU cores for all of them.
    """

    def found(each: Stalls) -> Sharing:
        return foretell(trials, each.own, each.one, cores)

    now = found(told)
    return replace(
        now,
        separate=replace(
            now.separate, interval=four_in_five(told, lambda each: found(each).separate.samples_per_s)
        ),
        shared=replace(
            now.shared, interval=four_in_five(told, lambda each: found(each).shared.samples_per_s)
        ),
        gain_interval=four_in_five(told, lambda each: found(each).gain),
        cpu_saved_interval=rest(four_in_five(told, lambda each: 1 - found(each).cpu_saved)),
        basis=f"{basis(told)} Batches of {told.batch_size}, {number_of(cores)} cores.",
    )


def sized_out(
    told: Stalls, gpus: int, samples: int | None, vcpu_price: float | None, gpu_price: float | None
) -> Sizing:
    """Return what GPUs need so that no model waits, with the intervals of it.

    Args:
        told: What was measured, a step among it.
        gpus: How many there are.
        samples: In an epoch.
        vcpu_price: Of a vCPU for an hour.
        gpu_price: Of a GPU for an hour.
    """

    def found(each: Stalls) -> Sizing:
        return sized(each.own, each.one, gpus, samples, vcpu_price, gpu_price)

    def need(now: Need, of: Callable[[Sizing], Need]) -> Need:
        return replace(
            now,
            vcpus_interval=four_in_five(told, lambda each: of(found(each)).vcpus),
            workers_interval=four_in_five(told, lambda each: of(found(each)).workers),
            price_interval=four_in_five(told, lambda each: of(found(each)).epoch_price),
        )

    now = found(told)
    return replace(
        now,
        separate=need(now.separate, lambda each: each.separate),
        shared=need(now.shared, lambda each: each.shared),
        samples_interval=four_in_five(told, lambda each: found(each).samples_per_s),
        basis=basis(told),
    )


def basis(told: Stalls) -> str:
    """Say in a sentence what figures were drawn from."""
    first = told.measured or told
    number = len(first.rounds)
    text = f"From {number} rounds of measurement" if number else "Calculated from the measurement"
    changes = []
    if told.plain.workers != first.plain.workers:
        changes.append(f"{told.plain.workers} worker{'s' if told.plain.workers > 1 else ''}")
    if told.storage is not None and told.storage != first.storage and told.storage.disk_bytes_per_s:
        changes.append(f"a disk with {size(told.storage.disk_bytes_per_s)}/s")
    if told.hits is not None:
        changes.append(f"{told.hits.likely:.0%} of the samples from memory")
    return f"{text}, calculated for {', '.join(changes)}." if changes else f"{text}."


def spread(paces: list[float]) -> float:
    """Return how far a median of these may be off, as a share: so many standard errors hold in 80 of 100 cases.

    By Student's t, as the spread is known from a few rounds only: the normal distribution's 1.28 would hold less often.
    """
    if len(paces) < 2:
        return 0.0
    errors = T_80.get(len(paces), T_80[max(T_80)])
    return max(LEAST_OFF, float(errors * stdev(paces) / len(paces) ** 0.5 / mean(paces)))
