"""`tsnb.plan`: measures a loader and trials on it, plays every way with that, and chooses one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tsnb.checks.devices import devices
from tsnb.experiments.memory_queue import measured as noted
from tsnb.frozen.loaders import frozen_loader
from tsnb.frozen.part import FrozenPart
from tsnb.machine.placement import known_devices
from tsnb.planners.fluid import Course, Disk, Job, LoaderCost, Resources, bounds
from tsnb.planners.scheduling import fits, proven_s, soonest_s
from tsnb.planners.strategies import Strategy, by_trial, fitting, on_devices, steadied, with_strategies
from tsnb.planners.timeline import show
from tsnb.planning.places import GROWS, PlacedTrial, gpu_advice, memory_text, oversized, placed
from tsnb.planning.profiling import FreeMemory, free_bytes, profiled
from tsnb.planning.result import Plan
from tsnb.planning.trial_costs import Cost, Profile, gpu_room_bytes
from tsnb.planning.waves import LONGER, about, loader_s, profiled_s, say, settings_text, trials_text
from tsnb.planning.ways import chosen, foretold, makespan_off, why
from tsnb.planning.wishes import (
    TrialWish,
    choices_for,
    not_run,
    one_epoch_text,
    strategies,
    too_large,
    wanted,
)
from tsnb.stalling import Stalls, asked, contention, stalls
from tsnb.stalling.contention import LoaderContention
from tsnb.stalling.measuring import check_length
from tsnb.stalling.sentences import frozen_limit

__all__ = ["plan"]

CACHED = 0.9
"""With this share of the files in memory, what two loaders held each other up by was not the disk."""
OTHERS = 0.15
"""Where other programs took this share of the cores, the pace of all trials together tells nothing of them."""
MOST_DRAG = 2.0
"""A pace that was further off than this was off for another reason."""


def plan(
    fns: Any,
    *,
    loader: Any,
    then: Callable[[Any], Any] | None = None,
    epochs: float | None = None,
    samples: int | None = None,
    cores: float | None = None,
    memory: str | float | None = None,
    threads: int | Sequence[int] = 1,
    device: Sequence[str] | None = None,
    choose: Mapping[str, Sequence[Any]] | None = None,
    cold: bool = False,
    seconds: float = 1.0,
) -> Plan:
    """Predict which trials fit into memory together and how long they take.

    Measures the loader as `tsnb.stalls` does. Runs every trial for some 20 batches in its own process, alone and
    then together, and keeps nothing of them.

    Example:
        >>> plan = tsnb.plan([train, (train, {"lr": 0.01})], loader=loader, seconds=0.2)
        >>> print(plan.choice)

    Args:
        fns: Functions as for `tsnb.run`, or pairs of a function and its parameters: a list, or a mapping by name. A
            trial (`tsnb.trials["cnn"]`) stands for its cell.
        loader: The `DataLoader` that they train on.
        then: Frozen network, or function of a batch, as `tsnb.serve` takes it. Defaults to None.
        epochs: Epochs per trial, passed to a function's parameter "epochs". Defaults to that parameter, else 1.
        samples: Samples per epoch. Defaults to the length of the loader.
        cores: CPU cores for all trials. Defaults to the cores of this process.
        memory: Memory for all trials, for example "12GiB". Defaults to the free memory.
        threads: Torch threads per trial, or several numbers to choose from. Defaults to 1.
        device: GPUs to divide between the trials, for example ["cuda:0", "cuda:1"]. Defaults to what this process
            sees.
        choose: Values by parameter name from which the plan picks one per trial, the preferred first. Defaults to
            None.
        cold: Whether to measure what the disk costs. Defaults to False.
        seconds: Seconds per measurement of the loader, and at least per trial. Defaults to 1.

    Returns:
        The plan, with a table of ways, a choice in words, and `run()`.

    Raises:
        TypeError: If an entry is not a function or does not take what is to be chosen, or `loader` is an iterator
            or no loader.
        ValueError: If no trial is given, a number is out of range, or a value to choose is invalid or given as a
            parameter too.
        TsnbError: If a trial fails, or takes too few batches to be profiled.
        LoaderFailed: If the loader cannot be shared.
        Exception: If a trial cannot start, as `tsnb.run` raises, before any measurement.
    """
    several = wanted(fns, epochs)
    asked.check_loader(loader)
    loader = loader if then is None else frozen_loader(loader, FrozenPart(then))
    asked.check_cold(cold)
    choices = choices_for(several, choose or {})
    cores = None if cores is None else asked.CORES.checked("cores", cores)
    samples = None if samples is None else asked.SAMPLES.checked("samples", samples)
    seconds = asked.SECONDS.checked("seconds", seconds)
    numbers = _numbers(threads)
    if isinstance(device, str):
        raise ValueError(
            f'device={device!r} is invalid. Pass a list, for example device=["cuda:0", "cuda:1"].'
        )
    gpus = known_devices(device or ())
    limit_bytes = None if memory is None else asked.MEMORY.checked("memory", memory)
    check_length(loader, samples)
    placed = [replace(each, device=gpus[at % len(gpus)]) if gpus else each for at, each in enumerate(several)]
    to_try = strategies(choices, numbers if len(numbers) > 1 else (), numbers[0])
    for each in placed:
        each.given(to_try[0].values).check(min(numbers))
    measured = _measure(placed, to_try, loader, seconds=seconds, limit_bytes=limit_bytes, cold=cold)
    several = [
        each.told(max((cost.epochs for cost in measured.costs(each.name)), default=0)) for each in several
    ]
    made = _decide(
        several, measured, gpus, cores=cores, samples=samples, choices=bool(choices), loader=loader
    )
    show(lambda: made.timeline)
    return made


@dataclass(frozen=True)
class _Measured:
    """What was measured of a loader and of trials on it."""

    loading: Stalls
    """The loader, alone and shared."""
    contended: LoaderContention
    """It, served twice at once."""
    profiles: Mapping[Strategy, Profile]
    """The trials, with each strategy."""
    memory_bytes: float
    """For all that run at once."""
    memory_where: str
    """What sets that limit, in words."""
    room_bytes: Mapping[str, float]
    """What was free on each GPU before any of them ran, by its name."""

    def costs(self, name: str) -> list[Cost]:
        """Return what a trial costs with each strategy with which it could be profiled."""
        return [found.costs[name] for found in self.profiles.values() if name in found.costs]

    def died(self) -> list[PlacedTrial]:
        """Return those whose process died whatever they were given, as trials that fit nowhere."""
        rows = {}
        for found in self.profiles.values():
            for name, size in found.died_bytes.items():
                if not self.costs(name):
                    peak = (size, size * (1 + GROWS))
                    rows[name] = PlacedTrial(name, peak, "nowhere", (), (), found.failed[name])
        return list(rows.values())


def _measure(
    trials: Sequence[TrialWish],
    to_try: Sequence[Strategy],
    loader: Any,
    *,
    seconds: float,
    limit_bytes: float | None,
    cold: bool,
) -> _Measured:
    """Measure the loader, and then the trials on it; say before about how long that takes.

    Args:
        trials: They, each on its device.
        to_try: The strategies, the preferred one first.
        loader: What they train on.
        seconds: As `plan` takes it.
        limit_bytes: Memory for all of them, as the user gave it; None: all that is free.
        cold: As `plan` takes it.
    """
    took_s = loader_s(seconds, getattr(loader, "num_workers", 0), cold=cold)
    trials_s = profiled_s(len(trials), len(to_try), seconds)
    say(
        f"planning {trials_text(len(trials))}: {about(took_s)} for the loader, then {about(trials_s)} for "
        f"some batches of each{settings_text(to_try)}; {LONGER}"
    )
    rooms, free = gpu_room_bytes(), FreeMemory()
    memory_bytes = free_bytes() if limit_bytes is None else limit_bytes
    threads = min(strategy.threads for strategy in to_try)
    loading = stalls(loader, seconds=seconds, threads=threads, cold=cold)
    contended = contention(loader, loading.served, seconds / 2)
    profiles = profiled(trials, to_try, loader, memory_bytes=memory_bytes, least_s=seconds, note=free.note)
    memory_bytes = min(memory_bytes, free.bytes) if limit_bytes is None else memory_bytes
    where = free.where if limit_bytes is None else "that memory= allows"
    return _Measured(loading, contended, profiles, memory_bytes, where, rooms)


def _decide(
    trials: Sequence[TrialWish],
    measured: _Measured,
    gpus: Sequence[str],
    *,
    cores: float | None,
    samples: int | None,
    choices: bool,
    loader: Any,
) -> Plan:
    """Play every way with what was measured, and choose one.

    Args:
        trials: They, with their epochs.
        measured: What they and the loader cost.
        gpus: Of which each trial gets one; empty: each is where it was seen.
        cores: For all of them; None: those of this process.
        samples: In an epoch, as the user gave them; None: as the loader says.
        choices: Whether values are left to the plan.
        loader: What they train on.
    """
    loading, profiles, memory_bytes = measured.loading, measured.profiles, measured.memory_bytes
    epoch_samples = samples or loading.epoch_samples or 1

    def jobs_of(costs: Mapping[str, Cost]) -> list[Job]:
        """Return the trials that could be profiled, each with memory for what it may grow."""
        room_bytes, taking_s = measured.room_bytes, loading.served.taking_s
        found = [
            costs[each.name].job(each.name, each.epochs * epoch_samples, room_bytes, taking_s=taking_s)
            for each in trials
            if each.name in costs
        ]
        return [replace(job, memory_bytes=job.memory_bytes * (1 + GROWS)) for job in found]

    known = by_trial({strategy: jobs_of(seen.costs) for strategy, seen in profiles.items()})
    offs = {name: max(cost.off for cost in measured.costs(name)) for name in known}
    rooms = {gpu: measured.room_bytes.get(gpu, math.inf) for gpu in gpus}
    gpu_of, jobs = on_devices(steadied(known, offs), rooms)
    lacking = [*not_run(profiles), *(too_large(jobs, memory_bytes) if choices else [])]
    jobs = fitting(jobs, memory_bytes) if choices else jobs
    small = {
        name: each for name, each in jobs.items() if any(fits(job, memory_bytes) for job in each.values())
    }
    # where none fits, they are foretold as if each ran alone
    runs = small or jobs
    preferred = [next(iter(each.values())) for each in runs.values()]
    page_cache_bytes = memory_bytes - sum(job.memory_bytes for job in preferred)
    own, shared = _loader_costs(loading, measured.contended, epoch_samples, page_cache_bytes)
    shared = _dragged(shared, preferred, next(iter(profiles.values())), loading)
    resources = Resources(shared, loading.cores if cores is None else cores, memory_bytes)
    off = makespan_off(preferred, offs, loading.off, max(seen.off for seen in profiles.values()))
    ways = foretold(runs, own, resources, off)
    choice = chosen(ways)
    planned = with_strategies(runs, choice.strategies)
    needs = {job.name: job for job in planned} | {
        name: min(each.values(), key=lambda job: job.memory_bytes)
        for name, each in jobs.items()
        if name not in runs
    }
    rows = (*placed(choice, needs, memory_bytes), *measured.died())
    for each in trials:
        noted(each.known_as, next(row.peak_bytes[1] for row in rows if row.name == each.name))
    said = [
        why(ways, choice, _limit(planned, resources), frozen=frozen_limit(loading)),
        memory_text(rows, memory_bytes, measured.memory_where),
        *(f"{line}." for line in lacking),
        oversized({name: job.memory_bytes for name, job in needs.items()}, memory_bytes),
    ]
    proof_s = proven_s(planned, resources)
    return Plan(
        tuple(ways),
        choice,
        {name: profiles[strategy].costs[name] for name, strategy in choice.strategies.items()},
        loading,
        " ".join(filter(None, said)) + one_epoch_text([each.name for each in trials if each.open_ended]),
        rows,
        tuple(trials),
        loader,
        memory_bytes,
        needs,
        gpu_of,
        max(soonest_s(planned, resources), proof_s or 0.0),
        proof_s is not None,
        resources.cores,
        gpu_advice({job.name: job for job in planned}, devices),
    )


def _loader_costs(
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


def _dragged(one: LoaderCost, jobs: Sequence[Job], found: Profile, told: Stalls) -> LoaderCost:
    """Return the shared loader with what was seen of all trials on it; not where other programs took the cores."""
    if found.together_s is None or (told.others or 0.0) > OTHERS * told.cores:
        return one
    course = Course(Resources(one, told.cores, running=jobs), shared=True)
    drag = min(MOST_DRAG, max(1 / MOST_DRAG, found.together_s * course.paces()[0]))
    return replace(one, drag=drag, drag_of=len(jobs))


def _numbers(threads: int | Sequence[int]) -> list[int]:
    """Return the numbers of torch threads that were asked for, the fewest first."""
    some = threads if isinstance(threads, Sequence) and len(threads) else [threads]
    return sorted({asked.THREADS.checked("threads", number) for number in some})


def _limit(jobs: Sequence[Job], resources: Resources) -> str:
    """Return what all of them on one stream cannot go past."""
    loader, slowest = resources.loader, max(jobs, key=lambda job: job.step_s)
    cpu_s = loader.cpu_s + sum(job.cpu_s + loader.taking_s for job in jobs)
    found = bounds([slowest.step_s + loader.taking_s], loader.wall_s, cpu_s, resources.cores)
    limit = max(found, key=found.__getitem__)
    return slowest.name if limit == "model" else limit
