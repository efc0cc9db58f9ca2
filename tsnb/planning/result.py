"""`tsnb.plan` and what it returns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Any

from tsnb.experiments.trial import Trial
from tsnb.machine.memory import free_memory
from tsnb.machine.placement import known_devices
from tsnb.planners.fluid import Job, Resources
from tsnb.planners.proof import proven_s
from tsnb.planners.scheduling import soonest_s
from tsnb.planners.strategies import by_trial, fitting, in_threads, on_devices, steadied, with_strategies
from tsnb.planners.timeline import PlannedTrial, Span, Timeline, held_up, show
from tsnb.planning.choices import choices_for, not_run, profiled, strategies, too_large
from tsnb.planning.conducting import Started, conduct, end_of
from tsnb.planning.oversize import oversized
from tsnb.planning.planned_jobs import dragged, jobs_of, loader_costs, makespan_off
from tsnb.planning.profiling import FreeMemory
from tsnb.planning.progress import LONGER, about, loader_s, profiled_s, say, settings_text, trials_text
from tsnb.planning.trial_costs import Cost, gpu_room_bytes
from tsnb.planning.ways import LISTED, STAGGERED, Foretold, chosen, foretold, same_as, why
from tsnb.planning.wishes import TrialWish, one_epoch_text, wanted
from tsnb.reports.plotting import draw_timeline
from tsnb.stalling import Stalls, asked, contention, stalls
from tsnb.stalling.measuring import length_of
from tsnb.stalling.sentences import caution
from tsnb.words import duration, html_table, marked_html, short_number, text_table

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["Plan", "plan"]


@dataclass(frozen=True, repr=False)
class Plan:
    """How long trials take in which way. Shown as a table with the choice in words."""

    ways: tuple[Foretold, ...]
    """All of them."""
    choice: Foretold
    """The one that `run` takes."""
    costs: Mapping[str, Cost]
    """What a sample costs each trial, measured."""
    loading: Stalls
    """What the loader costs, measured."""
    text: str
    """The choice, in words."""
    wanted: tuple[TrialWish, ...] = ()
    """The trials."""
    loader: Any = field(default=None, compare=False)
    """What they train on."""
    memory_bytes: float = float("inf")
    """For all that run at once."""
    jobs: Mapping[str, Job] = field(default_factory=dict, repr=False)
    """What each trial needs in the chosen way, by name."""
    devices: Mapping[str, str] = field(default_factory=dict)
    """The GPU that each trial gets, by name; empty where none was asked for."""
    soonest_s: float = 0.0
    """Seconds before which no order on one stream can have all done, by the same costs."""
    proven: bool = False
    """Whether a solver has proven that (scipy, where it is installed); else it is a simpler bound, and less close."""
    cores: float = 0.0
    """For all of it."""
    _ran: Started = field(default_factory=Started, repr=False, compare=False)
    """What `run` has started."""

    @property
    def open_ended(self) -> list[str]:
        """Trials that do not say how many epochs they take, so that one was assumed."""
        return [each.name for each in self.wanted if each.open_ended]

    @property
    def actual(self) -> dict[str, Span]:
        """When each trial started and ended, or until now where it runs, in seconds from the beginning of `run`."""
        return self._ran.spans

    @property
    def table(self) -> list[list[str]]:
        """The ways, with their makespan and its interval; a head and a row each."""
        rows = [["way", "all done after", "four times in five", "memory", ""]]
        for way in self.ways:
            low, high = way.interval_s
            mark = "chosen" if way is self.choice else ""
            if way.way == STAGGERED:
                offset = f"{duration(way.apart_s)} apart" if way.apart_s else "not sooner at any offset"
                mark = f"{mark}, {offset}" if mark else offset
            elif twin := same_as(way, self.ways):
                mark = f"{mark}, the same as {twin}" if mark else f"the same as {twin}"
            fits = "fits" if way.fits else "does not fit"
            span = f"{duration(low)} to {duration(high)}"
            rows.append([way.way, duration(way.makespan_s), span, fits, mark])
        values = any(strategy.values for strategy in self.choice.strategies.values())
        if any(way.gives for way in self.ways):
            rows[0].insert(3, "with" if values else "threads")
            for row, way in zip(rows[1:], self.ways, strict=True):
                row.insert(3, "; ".join(way.gives) or in_threads(way.threads))
        return rows

    @property
    def profiles(self) -> list[list[str]]:
        """What each trial costs; a head and a row each."""
        rows = [["trial", "ms a sample", "CPU ms", "memory", "ends after", "four times in five"]]
        for name, cost in self.costs.items():
            end_s = self.choice.schedule.ends_s[name]
            memory = f"{cost.memory_bytes / 2**20:,.0f} MiB"
            low, high = (duration(end_s * (1 + sign * self.choice.off)) for sign in (-1, 1))
            step, spent = short_number(1000 * cost.step_s), short_number(1000 * cost.cpu_s)
            rows.append([name, step, spent, memory, duration(end_s), f"{low} to {high}"])
        if any(cost.device_bytes for cost in self.costs.values()) or self.devices:
            rows[0].insert(4, "GPU")
            for row, (name, cost) in zip(rows[1:], self.costs.items(), strict=True):
                device = self.devices.get(name) or cost.device or "none"
                row.insert(
                    4, f"{device}, {cost.device_bytes / 2**20:,.0f} MiB" if cost.device_bytes else device
                )
        return rows

    @property
    def timeline(self) -> Timeline:
        """When each trial of the chosen way starts and ends, and when it really did, as far as `run` has come."""
        schedule, actual = self.choice.schedule, self.actual
        paused = [name for name in self.choice.order if self._ran.paused(name)]
        waiting = {name: start_s for name, start_s in schedule.starts_s.items() if name not in actual}
        held = held_up(waiting, schedule.ends_s, paused)
        # of this run what is still to come is what was planned: nothing is measured anew
        trials = [
            PlannedTrial(
                name,
                (schedule.starts_s[name], schedule.ends_s[name]),
                actual.get(name),
                None
                if name in held
                else self._ran.ahead(name, schedule.starts_s[name], schedule.ends_s[name]),
                name in paused,
                name in held,
            )
            for name in self.choice.order
        ]
        basis = "the batches that each trial took while it was profiled"
        return Timeline(
            "plan", tuple(trials), tuple(self._ran.streams), self._ran.began_s, self.choice.off, basis
        )

    def gantt(self) -> str:
        """Return when each trial of the chosen way starts and ends, as bars of text; once `run` when it did, below."""
        return self.timeline.bars()

    def figure(self) -> go.Figure:
        """Return the same as a plotly figure (`tsnb.plot("plan")`)."""
        return draw_timeline(self.timeline)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values, for JSON."""
        ways = [
            {
                "way": way.way,
                "makespan_s": way.makespan_s,
                "interval_s": list(way.interval_s),
                "fits": way.fits,
                "at_once": way.at_once,
                "threads": way.threads,
                "gives": {name: strategy.values for name, strategy in way.strategies.items()},
                "order": list(way.order),
                "apart_s": way.apart_s,
                "same_as": same_as(way, self.ways) or None,
            }
            for way in self.ways
        ]
        actual = self.actual
        trials = [
            {
                "name": name,
                **asdict(self.costs[name]),
                "gets_device": self.devices.get(name),
                "gives": self.choice.strategies[name].values,
                "starts_s": self.choice.schedule.starts_s[name],
                "ends_s": self.choice.schedule.ends_s[name],
                "ends_interval_s": [
                    self.choice.schedule.ends_s[name] * (1 + sign * self.choice.off) for sign in (-1, 1)
                ],
                "actual_s": list(actual[name]) if name in actual else None,
                **end_of(self._ran.trial(name)),
            }
            for name in self.choice.order
        ]
        return {
            "choice": self.choice.way,
            "text": self.text,
            "basis": self._below(),
            "soonest_s": self.soonest_s,
            "proven": self.proven,
            "cores": self.cores,
            "open_ended": self.open_ended,
            "memory_bytes": self.memory_bytes if math.isfinite(self.memory_bytes) else None,
            "ways": ways,
            "trials": trials,
        }

    def run(self, *, name: str = "planned") -> dict[str, Trial]:
        """Carry the chosen way out, and return the trials when all have ended.

        The loader is served under a name while they run. An interrupt stops them all.

        Args:
            name: The stream's name; with a loader each, what their names begin with.

        Returns:
            The trials, by name; one that failed is among them, with its state.

        Raises:
            NameInUse: That name is being served.
            Exception: As `tsnb.serve` and `tsnb.run` raise.
        """
        self._ran.begin()
        show(lambda: self.timeline)
        return conduct(
            self.choice,
            [
                each.given(self.choice.strategies[each.name].values, self.devices.get(each.name))
                for each in self.wanted
            ],
            self.loader,
            name,
            self.jobs,
            self.memory_bytes,
            started=self._ran.started,
        )

    def __repr__(self) -> str:
        parts = [self.text, "\n".join(text_table(self.table)), "\n".join(text_table(self.profiles))]
        return "\n\n".join([*parts, self.gantt(), self._below()])

    def _repr_html_(self) -> str:
        tables = "".join(html_table(rows, "margin-bottom:1em") for rows in (self.table, self.profiles))
        # JupyterLab breaks lines of a <pre>, and bars that are broken say nothing
        bars = f'<pre style="overflow-x:auto;white-space:pre">{escape(self.gantt())}</pre>'
        below = f"{bars}<p><small>{marked_html(self._below())}</small></p>"
        return f"<p><b>{marked_html(self.text)}</b></p>{tables}{below}"

    def _below(self) -> str:
        batches = sum(cost.batches for cost in self.costs.values())
        beside = any(cost.beside for cost in self.costs.values())
        measured = self.loading.cores
        elsewhere = "" if self.cores == measured else f", for {self.cores:g} cores"
        by = " (proven by scipy's solver)" if self.proven else ""
        lists = [way.makespan_s for way in self.ways if way.way == LISTED]
        near = (
            f"; the list is within {max(0.01, min(lists) / self.soonest_s - 1):.0%} of that" if lists else ""
        )
        bound = f" No order on one stream can have all done before {duration(self.soonest_s)}{by}{near}."
        return (
            f"Predicted from {batches} batches that the trials really took{', alone and together' if beside else ''}, "
            f"and the loader measured alone, shared, and shared twice at once, on {measured:g} cores{elsewhere}."
            + " ".join([bound, *caution(self.loading)])
        )


def plan(
    trials: Any,
    *,
    loader: Any,
    epochs: float | None = None,
    samples: int | None = None,
    cores: float | None = None,
    memory: str | float | None = None,
    threads: int | Sequence[int] = 1,
    devices: Sequence[str] | None = None,
    choose: Mapping[str, Sequence[Any]] | None = None,
    cold: bool = False,
    seconds: float = 1.0,
) -> Plan:
    """Predict how long several unequal trials take, one after the other, with a loader each, or on one stream.

    The loader is measured as `tsnb.stalls` does, and served twice at once. Every trial runs for some 20 batches in a
    process of its own: the first alone, then all together on one stream, if they fit; then they are stopped, and
    nothing of them is kept. The notebook is not changed.

    Args:
        trials: Functions as for `tsnb.run`, which take their batches from `tsnb.attach()`: a list, or a mapping by
            name; each alone, or a pair of the function and its parameters. A trial stands for its cell:
            `tsnb.trials["cnn"]`, or a pair of it and what is to be other than there.
        loader: The DataLoader that they train on.
        epochs: Epochs of each trial that is not given a number of its own. A function that has a parameter "epochs"
            gets it, so `run` trains as long as was planned. Left out: that parameter, given or by default, or 1.
        samples: Samples in an epoch, if the loader does not say.
        cores: CPU cores for all of them; by default those of this process.
        memory: Memory for all of them: "12GiB"; by default all that is free.
        threads: Torch threads of each; several numbers, `(1, 2)`: each trial is profiled with each of them, and a way
            has those with which it ends soonest. Sums in other numbers of threads may differ in their last digits.
        devices: GPUs for them, as `device=` of `tsnb.run` names them: `["cuda:0", "cuda:1"]`. Each trial gets one: the
            longest first, where the least is to be done. By default each sees what this process sees.
        choose: Parameters that are left to the plan, and their values: `{"limit": [None, "2GiB"]}`. They change how a
            trial is run and nothing of what it learns. Each trial is profiled with each value, and has the first, but
            where it fails or does not fit the memory with that, or all are done sooner with another.
        cold: Also measure what the disk costs: the files of some samples leave the page cache and are read again. A
            trial that starts later then finds files in memory that another has read.
        seconds: How long each measurement of the loader takes, and how long each trial is watched at least.

    Returns:
        The plan: a table of ways, a choice in words, `run()`.

    Raises:
        TypeError: Something other than functions was given, one does not take what is to be chosen, or `loader` is an
            iterator or no loader.
        ValueError: No trial was given, a number is out of range, or what is to be chosen is invalid or given, too.
        TsnbError: A trial failed, or takes no or too few batches to be profiled.
        LoaderFailed: The loader cannot be shared.
        Exception: As `tsnb.run` raises of what cannot start, before anything is measured.
    """
    several = wanted(trials, epochs)
    asked.check_loader(loader)
    asked.check_cold(cold)
    choices = choices_for(several, choose or {})
    cores = None if cores is None else asked.CORES.checked("cores", cores)
    samples = None if samples is None else asked.SAMPLES.checked("samples", samples)
    seconds = asked.SECONDS.checked("seconds", seconds)
    numbers = _numbers(threads)
    if isinstance(devices, str):
        raise ValueError(f'devices={devices!r}: give a list, for example devices=["cuda:0", "cuda:1"].')
    gpus, rooms, free = known_devices(devices or ()), gpu_room_bytes(), FreeMemory()
    memory_bytes = _free_bytes() if memory is None else asked.MEMORY.checked("memory", memory)
    if samples is None and length_of(loader) is None:
        raise ValueError("The loader does not say how many samples an epoch has: give samples= (--samples).")
    placed = [replace(each, device=gpus[at % len(gpus)]) if gpus else each for at, each in enumerate(several)]
    to_try = strategies(choices, numbers if len(numbers) > 1 else (), numbers[0])
    for each in placed:
        each.given(to_try[0].values).check(min(numbers))
    took_s = loader_s(seconds, getattr(loader, "num_workers", 0), cold=cold)
    trials_s = profiled_s(len(placed), len(to_try), seconds)
    say(
        f"planning {trials_text(len(placed))}: {about(took_s)} for the loader, then {about(trials_s)} for some batches "
        f"of each{settings_text(to_try)}; {LONGER}"
    )
    loading = stalls(loader, seconds=seconds, threads=min(numbers), cold=cold)
    epoch_samples = samples or loading.epoch_samples or 1
    contended = contention(loader, loading.served, seconds / 2)
    profiles = profiled(placed, to_try, loader, memory_bytes=memory_bytes, least_s=seconds, note=free.note)
    memory_bytes = memory_bytes if memory is not None else min(memory_bytes, free.bytes)
    known = {
        each.name: [found.costs[each.name] for found in profiles.values() if each.name in found.costs]
        for each in several
    }
    several = [each.told(max(cost.epochs for cost in known[each.name])) for each in several]
    measured = by_trial(
        {
            strategy: jobs_of(several, found, epoch_samples, rooms, loading.served.taking_s)
            for strategy, found in profiles.items()
        }
    )
    offs = {name: max(cost.off for cost in costs) for name, costs in known.items()}
    gpu_of, jobs = on_devices(steadied(measured, offs), {gpu: rooms.get(gpu, math.inf) for gpu in gpus})
    preferred = [next(iter(each.values())) for each in measured.values()]
    page_cache_bytes = memory_bytes - sum(job.memory_bytes for job in preferred)
    own, shared = loader_costs(loading, contended, epoch_samples, page_cache_bytes)
    shared = dragged(shared, preferred, next(iter(profiles.values())), loading)
    resources = Resources(shared, loading.cores if cores is None else cores, memory_bytes)
    off = makespan_off(preferred, offs, loading.off, max(found.off for found in profiles.values()))
    lacking = [*not_run(profiles), *(too_large(jobs, memory_bytes) if choices else [])]
    jobs = fitting(jobs, memory_bytes) if choices else jobs
    ways = foretold(jobs, own, resources, off)
    choice = chosen(ways)
    planned = with_strategies(jobs, choice.strategies)
    text = _said(ways, choice, planned, resources, lacking)
    proof_s = proven_s(planned, resources)
    made = Plan(
        tuple(ways),
        choice,
        {name: profiles[strategy].costs[name] for name, strategy in choice.strategies.items()},
        loading,
        text + one_epoch_text([each.name for each in several if each.open_ended]),
        tuple(several),
        loader,
        memory_bytes,
        {job.name: job for job in planned},
        gpu_of,
        max(soonest_s(planned, resources), proof_s or 0.0),
        proof_s is not None,
        resources.cores,
    )
    show(lambda: made.timeline)
    return made


def _free_bytes() -> float:
    free = free_memory()
    return float("inf") if free is None else float(free.size)


def _numbers(threads: int | Sequence[int]) -> list[int]:
    """Return the numbers of torch threads that were asked for, the fewest first."""
    some = threads if isinstance(threads, Sequence) and len(threads) else [threads]
    return sorted({asked.THREADS.checked("threads", number) for number in some})


def _said(
    ways: Sequence[Foretold],
    choice: Foretold,
    jobs: Sequence[Job],
    resources: Resources,
    lacking: Sequence[str],
) -> str:
    """Say in words which way is chosen and why, and what does not run as was preferred, or does not fit at all.

    Args:
        ways: All of them.
        choice: The chosen one.
        jobs: The trials as they run in it.
        resources: What they have.
        lacking: Trials that are not run with a strategy, and why.
    """
    large = oversized({job.name: job.memory_bytes for job in jobs}, resources.memory_bytes)
    text = why(ways, choice, _limit(jobs, resources))
    return " ".join([text, *(f"{line}." for line in lacking), *([large] if large else [])])


def _limit(jobs: Sequence[Job], resources: Resources) -> str:
    """Return what all of them on one stream cannot go past."""
    loader, slowest = resources.loader, max(jobs, key=lambda job: job.step_s)
    bounds = {
        slowest.name: slowest.step_s + loader.taking_s,
        "loader": loader.wall_s,
        "cores": (loader.cpu_s + sum(job.cpu_s + loader.taking_s for job in jobs)) / resources.cores,
    }
    return max(bounds, key=bounds.__getitem__)
