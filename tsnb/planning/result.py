"""`tsnb.plan` and what it returns."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from tsnb.experiments.trial import Trial
from tsnb.machine.memory import free_memory
from tsnb.planners.scheduling import Job, LoaderCost
from tsnb.planners.thread_counts import in_threads
from tsnb.planners.timeline import PlannedTrial, Span, Timeline, show
from tsnb.planning.conducting import conduct, still_to_come
from tsnb.planning.oversize import oversized
from tsnb.planning.profiling import Cost, TrialWish, profile, wanted
from tsnb.planning.ways import Foretold, chosen, foretold, why
from tsnb.reports.plotting import draw_timeline
from tsnb.stalling import Loading, Stalls, stalls
from tsnb.words import bytes_of, duration, html_table, text_table

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["Plan", "plan"]

LEAST_OFF = 0.05
"""No forecast is closer than this: the same training does not take the same time again."""


class _Ran:
    """What has been started of a plan."""

    def __init__(self) -> None:
        self.began_s: float | None = None
        self.streams: dict[str, None] = {}
        self._trials: dict[str, Trial] = {}

    def begin(self) -> None:
        """Note that it begins now, maybe once more."""
        self.began_s = time.time()
        self.streams.clear()
        self._trials.clear()

    def started(self, trial: Trial, stream: str) -> None:
        """Note a trial that has been started."""
        self.streams[stream] = None
        self._trials[trial.name] = trial

    @property
    def spans(self) -> dict[str, Span]:
        """From when to when each has run, or until now; seconds from the beginning."""
        began_s = self.began_s or 0.0
        return {
            name: (trial.started_s - began_s, trial.started_s + trial.duration_s - began_s)
            for name, trial in list(self._trials.items())
        }

    def ahead(self, name: str, start_s: float, end_s: float) -> Span | None:
        """Return what is still to come of a trial, if it takes as long as was planned; None: it is over, or all is."""
        if self.began_s is None:
            return None
        now_s, began_s = time.time(), self.began_s
        if (trial := self._trials.get(name)) is None:
            first_s = max(now_s - began_s, start_s)
            return first_s, first_s + end_s - start_s
        left = still_to_come(trial, now_s, trial.started_s + end_s - start_s)
        return None if left is None else (left[0] - began_s, left[1] - began_s)


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
    _ran: _Ran = field(default_factory=_Ran, repr=False, compare=False)
    """What `run` has started."""

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
            fits = "fits" if way.fits else "does not fit"
            span = f"{duration(low)} to {duration(high)}"
            rows.append([way.way, duration(way.makespan_s), span, fits, mark])
        if any(set(way.threads.values()) - {1} for way in self.ways):
            rows[0].insert(3, "threads")
            for row, way in zip(rows[1:], self.ways, strict=True):
                row.insert(3, in_threads(way.threads))
        return rows

    @property
    def profiles(self) -> list[list[str]]:
        """What each trial costs; a head and a row each."""
        rows = [["trial", "ms a sample", "CPU ms", "memory", "ends after"]]
        for name, cost in self.costs.items():
            end = duration(self.choice.schedule.ends_s[name])
            memory = f"{cost.memory_bytes / 2**20:,.0f} MiB"
            rows.append([name, f"{1000 * cost.step_s:.3g}", f"{1000 * cost.cpu_s:.3g}", memory, end])
        return rows

    @property
    def timeline(self) -> Timeline:
        """When each trial of the chosen way starts and ends, and when it really did, as far as `run` has come."""
        schedule, actual = self.choice.schedule, self.actual
        # of this run what is still to come is what was planned: nothing is measured anew
        trials = [
            PlannedTrial(
                name,
                (schedule.starts_s[name], schedule.ends_s[name]),
                actual.get(name),
                self._ran.ahead(name, schedule.starts_s[name], schedule.ends_s[name]),
            )
            for name in self.choice.order
        ]
        return Timeline("plan", tuple(trials), tuple(self._ran.streams), self._ran.began_s)

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
                "threads": dict(way.threads),
                "order": list(way.order),
            }
            for way in self.ways
        ]
        actual = self.actual
        trials = [
            {
                "name": name,
                **asdict(self.costs[name]),
                "starts_s": self.choice.schedule.starts_s[name],
                "ends_s": self.choice.schedule.ends_s[name],
                "actual_s": list(actual[name]) if name in actual else None,
            }
            for name in self.choice.order
        ]
        return {
            "choice": self.choice.way,
            "text": self.text,
            "cores": self.loading.cores,
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
        sizes = {each: cost.memory_bytes for each, cost in self.costs.items()}
        self._ran.begin()
        show(lambda: self.timeline)
        return conduct(
            self.choice,
            self.wanted,
            self.loader,
            name,
            sizes,
            self.memory_bytes,
            started=self._ran.started,
        )

    def __repr__(self) -> str:
        parts = [self.text, "\n".join(text_table(self.table)), "\n".join(text_table(self.profiles))]
        return "\n\n".join([*parts, self.gantt(), self._below()])

    def _repr_html_(self) -> str:
        tables = "".join(html_table(rows, "margin-bottom:1em") for rows in (self.table, self.profiles))
        below = f"<pre>{escape(self.gantt())}</pre><p><small>{escape(self._below())}</small></p>"
        return f"<p><b>{escape(self.text)}</b></p>{tables}{below}"

    def _below(self) -> str:
        batches = sum(cost.batches for cost in self.costs.values())
        return (
            f"Predicted from {batches} batches that the trials really took, and the loader measured alone and shared, "
            f"on {self.loading.cores:g} cores."
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
    seconds: float = 1.0,
) -> Plan:
    """Predict how long several unequal trials take, one after the other, with a loader each, or on one stream.

    The loader is measured as `tsnb.stalls` does, and every trial runs for some 20 batches in a process of its own, all
    on one stream; then they are stopped, and nothing of them is kept. The notebook is not changed.

    Args:
        trials: Functions as for `tsnb.run`, which take their batches from `tsnb.attach()`: a list, or a mapping by
            name; each alone, or a pair of the function and its parameters.
        loader: The DataLoader that they train on.
        epochs: Epochs of each trial; by default its parameter "epochs", given or by default, or 1.
        samples: Samples in an epoch, if the loader does not say.
        cores: CPU cores for all of them; by default those of this process.
        memory: Memory for all of them: "12GiB"; by default all that is free.
        threads: Torch threads of each; several numbers, `(1, 2)`: each trial is profiled with each of them, and a way
            has those with which it ends soonest. Sums in other numbers of threads may differ in their last digits.
        seconds: How long each measurement of the loader takes.

    Returns:
        The plan: a table of ways, a choice in words, `run()`.

    Raises:
        TypeError: Something other than functions was given.
        ValueError: No trial was given, or a number is out of range.
        TsnbError: A trial failed, or takes too few batches to be profiled.
        LoaderFailed: The loader cannot be shared.
    """
    several = wanted(trials, epochs)
    if cores is not None and not cores > 0:
        raise ValueError(f"cores={cores!r}: give more than 0 cores.")
    numbers = tuple(dict.fromkeys(threads if isinstance(threads, Sequence) else [threads]))
    if not numbers or not all(isinstance(number, int) and number >= 1 for number in numbers):
        raise ValueError(f"threads={threads!r}: give a number from 1 on, or several: threads=(1, 2).")
    memory_bytes = _free_bytes() if memory is None else bytes_of(memory)
    told = stalls(loader, seconds=seconds, threads=min(numbers))
    each_epoch = samples or told.epoch_samples
    if each_epoch is None:
        raise ValueError("The loader does not say how many samples an epoch has: give samples=.")
    costs = {
        number: profile(several, loader, threads=number, memory_bytes=memory_bytes) for number in numbers
    }
    taking_s = told.served.taking_s
    jobs = {
        number: [
            Job(
                each.name,
                each.epochs * each_epoch,
                found[each.name].step_s,
                max(0.0, found[each.name].cpu_s - taking_s),
                found[each.name].memory_bytes,
                found[each.name].start_s,
                found[each.name].start_cpu_s,
            )
            for each in several
        ]
        for number, found in costs.items()
    }
    has = told.cores if cores is None else cores
    widest = max(cost.off for found in costs.values() for cost in found.values())
    off = max(LEAST_OFF, (told.off**2 + widest**2) ** 0.5)
    ways = foretold(jobs, _feed(told.plain), _feed(told.served), has, memory_bytes, off)
    choice = chosen(ways)
    taken = {name: costs[number][name] for name, number in choice.threads.items()}
    limit = _limit(
        [job for number, found in jobs.items() for job in found if choice.threads[job.name] == number],
        _feed(told.served),
        has,
    )
    too_large = oversized({name: cost.memory_bytes for name, cost in taken.items()}, memory_bytes)
    text = " ".join(part for part in (why(ways, choice, limit), too_large) if part)
    made = Plan(tuple(ways), choice, taken, told, text, tuple(several), loader, memory_bytes)
    show(lambda: made.timeline)
    return made


def _free_bytes() -> float:
    free = free_memory()
    return float("inf") if free is None else float(free.size)


def _feed(loading: Loading) -> LoaderCost:
    return LoaderCost(loading.wall_s, loading.cpu_s, loading.taking_s)


def _limit(jobs: list[Job], feed: LoaderCost, cores: float) -> str:
    """Return what all of them on one stream cannot go past."""
    slowest = max(jobs, key=lambda job: job.step_s)
    bounds = {
        slowest.name: slowest.step_s + feed.taking_s,
        "loader": feed.wall_s,
        "cores": (feed.cpu_s + sum(job.cpu_s + feed.taking_s for job in jobs)) / cores,
    }
    return max(bounds, key=bounds.__getitem__)
