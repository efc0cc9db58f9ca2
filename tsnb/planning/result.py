"""`Plan`, what `tsnb.plan` returns: a table of ways, the choice in words, where each trial is, bars, and `run()`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from tsnb.errors import TsnbError
from tsnb.experiments.trial import Trial
from tsnb.planners.fluid import Job
from tsnb.planners.strategies import in_threads
from tsnb.planners.timeline import Span, Timeline, show
from tsnb.planning.conducting import Started, conduct, end_of
from tsnb.planning.places import PlacedTrial
from tsnb.planning.trial_costs import Cost
from tsnb.planning.ways import LISTED, STAGGERED, Foretold, same_as
from tsnb.planning.wishes import TrialWish
from tsnb.reports.plotting import draw_timeline
from tsnb.stalling import Stalls
from tsnb.stalling.sentences import caution
from tsnb.text.printable import harmless
from tsnb.text.words import duration, html_table, interval, marked_html, short_number, size_text, text_table

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["Plan"]


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
    trials: tuple[PlacedTrial, ...] = ()
    """Where each trial runs, in the order in which they start; those that fit nowhere last."""
    wanted: tuple[TrialWish, ...] = ()
    """The trials."""
    loader: Any = field(default=None, compare=False)
    """What they train on."""
    memory_bytes: float = float("inf")
    """For all that run at once."""
    jobs: Mapping[str, Job] = field(default_factory=dict, repr=False)
    """What each trial needs in the chosen way, by name, with memory for what it may grow."""
    devices: Mapping[str, str] = field(default_factory=dict)
    """The GPU that each trial gets, by name; empty where none was asked for."""
    soonest_s: float = 0.0
    """Seconds before which no order on one stream can have all done, by the same costs."""
    proven: bool = False
    """Whether a solver has proven that (scipy, where it is installed); else it is a simpler bound, and less close."""
    cores: float = 0.0
    """For all of it."""
    advice: tuple[str, ...] = ()
    """How several on one GPU share it, as NVIDIA's guides have it: in turns, by MPS or MIG; empty: no two do."""
    _ran: Started = field(default_factory=Started, repr=False, compare=False)
    """What `run` has started."""

    @property
    def open_ended(self) -> list[str]:
        """Trials that do not say how many epochs they take, so that one was assumed."""
        return [each.name for each in self.wanted if each.open_ended]

    @property
    def actual(self) -> dict[str, Span]:
        """When each trial started and ended, or until now where it runs, in seconds from the beginning of `run`."""
        return {each.name: each.actual for each in self.timeline.trials if each.actual is not None}

    @property
    def table(self) -> list[list[str]]:
        """The ways, with their makespan and its interval; a head and a row each."""
        rows = [["way", "all done after", "80% interval", "memory", ""]]
        for way in self.ways:
            low, high = way.interval_s
            mark = "chosen" if way is self.choice else ""
            if way.way == STAGGERED:
                offset = f"{duration(way.apart_s)} apart" if way.apart_s else "no faster at any offset"
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
        rows = [["trial", "ms a sample", "CPU ms", "memory", "ends after", "80% interval"]]
        for name, cost in self.costs.items():
            end_s = self.choice.schedule.ends_s[name]
            memory = f"{cost.memory_bytes / 2**20:,.0f} MiB"
            low, high = map(duration, interval(end_s, self.choice.off))
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
    def places(self) -> list[list[str]]:
        """Where each trial runs, and why; a head and a row each."""
        rows = [["trial", "peak memory", "where", "next to", "why"]]
        for each in self.trials:
            low, high = map(size_text, each.peak_bytes)
            next_to = ", ".join(each.together) or "none"
            rows.append([each.name, f"{low} to {high}", each.where, next_to, each.why])
        return rows

    @property
    def timeline(self) -> Timeline:
        """When each trial of the chosen way starts and ends, and when it really did, as far as `run` has come."""
        # of this run what is still to come is what was planned: nothing is measured anew
        starts_s, ends_s = self.choice.schedule.starts_s, self.choice.schedule.ends_s
        trials = self._ran.drawn({name: (starts_s[name], ends_s[name]) for name in self.choice.order})
        basis = "the batches that each trial took while it was profiled"
        return Timeline("plan", trials, tuple(self._ran.streams), self._ran.began_s, self.choice.off, basis)

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
        actual, there = self.actual, {each.name: each for each in self.trials}
        trials = [
            {
                "name": name,
                **_place(there[name]),
                **asdict(self.costs[name]),
                "gets_device": self.devices.get(name),
                "gives": self.choice.strategies[name].values,
                "starts_s": self.choice.schedule.starts_s[name],
                "ends_s": self.choice.schedule.ends_s[name],
                "ends_interval_s": list(interval(self.choice.schedule.ends_s[name], self.choice.off)),
                "actual_s": list(actual[name]) if name in actual else None,
                **end_of(self._ran.trials.get(name)),
            }
            for name in self.choice.order
        ]
        trials += [{"name": each.name, **_place(each)} for each in self.trials if each.name not in self.costs]
        return {
            "choice": self.choice.way,
            "text": self.text,
            "basis": self._below(),
            "soonest_s": self.soonest_s,
            "proven": self.proven,
            "cores": self.cores,
            "open_ended": self.open_ended,
            "memory_bytes": self.memory_bytes if math.isfinite(self.memory_bytes) else None,
            "advice": list(self.advice),
            "ways": ways,
            "trials": trials,
        }

    def run(self, *, name: str = "planned") -> dict[str, Trial]:
        """Run the trials that fit, in the chosen way, and return them when all have ended.

        The loader is served under a name while they run. An interrupt stops them all.

        Args:
            name: The stream's name; with a loader each, what their names begin with.

        Returns:
            The trials, by name; one that failed is among them, with its state. Those that fit nowhere are not.

        Raises:
            TsnbError: None of them fits.
            NameInUse: That name is being served.
            Exception: As `tsnb.serve` and `tsnb.run` raise.
        """
        fit = {each.name for each in self.trials if each.where != "nowhere"}
        if not fit:
            raise TsnbError(self.text)
        self._ran.begin()
        show(lambda: self.timeline)
        return conduct(
            self.choice,
            [
                each.given(self.choice.strategies[each.name].values, self.devices.get(each.name))
                for each in self.wanted
                if each.name in fit
            ],
            self.loader,
            name,
            {name: job for name, job in self.jobs.items() if name in fit},
            self.memory_bytes,
            self._ran,
        )

    def __repr__(self) -> str:
        parts = [self.text, *("\n".join(text_table(rows)) for rows in self._tables)]
        return harmless("\n\n".join([*parts, self.gantt(), self._below()]))

    def _repr_html_(self) -> str:
        tables = "".join(
            html_table(rows, "margin-bottom:1em") for rows in (self.table, self.profiles, self.places)
        )
        # JupyterLab breaks lines of a <pre>, and bars that are broken say nothing
        bars = f'<pre style="overflow-x:auto;white-space:pre">{escape(self.gantt())}</pre>'
        below = f"{bars}<p><small>{marked_html(self._below())}</small></p>"
        return f"<p><b>{marked_html(self.text)}</b></p>{tables}{below}"

    @property
    def _tables(self) -> list[list[list[str]]]:
        """What is shown: where each trial runs only if that is not the same for all."""
        waits = any(each.where != "now" for each in self.trials)
        return [self.table, self.profiles, *([self.places] if waits else [])]

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
        bound = f" No order on one stream can finish before {duration(self.soonest_s)}{by}{near}."
        return (
            f"Predicted from {batches} real batches of the trials{', alone and together' if beside else ''}, "
            f"and from the loader measured alone, shared, and shared twice at once, on {measured:g} "
            f"cores{elsewhere}." + " ".join([bound, *caution(self.loading), *self.advice])
        )


def _place(each: PlacedTrial) -> dict[str, Any]:
    """Return where a trial runs, for JSON."""
    return {
        "peak_bytes": list(each.peak_bytes),
        "where": each.where,
        "after": list(each.after),
        "together": list(each.together),
        "why": each.why,
    }
