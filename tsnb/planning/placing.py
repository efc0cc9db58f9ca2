"""`tsnb.place`: which trials fit together, measured, so that none is killed for want of memory.

First each trial runs alone on one stream, for some batches with its optimizer's state: its peak memory is what the
system counted, and what all trials may use is what was free meanwhile, with what the trial held itself. Then groups
of up to four that fit run together on that stream, and two of each group go on when the others have been stopped: how
fast each is together, against alone.

    fits together     sum of peaks, each a little larger for what the rest of a training adds <= memory
    worth it          seconds a sample one after the other / seconds a sample of the slowest together, above 1

The order is the list with which all end soonest (`tsnb.planners.scheduling`); what does not fit waits in it.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tsnb.checks.devices import devices
from tsnb.config import PROFILED
from tsnb.errors import TsnbError
from tsnb.experiments.expected_memory import measured
from tsnb.experiments.trial import Trial
from tsnb.machine.cores import available_cores
from tsnb.planners.fluid import Job, Resources
from tsnb.planners.scheduling import annealed
from tsnb.planners.strategies import Strategy
from tsnb.planning.co_runs import GROUP, CoRun, at_once, co_runs, gpu_advice, groups
from tsnb.planning.conducting import conduct, end_of
from tsnb.planning.places import GROWS, PlacedTrial, placed, said
from tsnb.planning.planned_jobs import makespan_off
from tsnb.planning.profiling import FreeMemory, starter
from tsnb.planning.progress import LONGER, about, placed_s, say, trials_text
from tsnb.planning.served import LOADER_OFF, Meter
from tsnb.planning.trial_costs import gpu_room_bytes
from tsnb.planning.waves import Waves
from tsnb.planning.ways import LISTED, Foretold
from tsnb.planning.wishes import TrialWish, one_epoch_text, wanted
from tsnb.printable import harmless
from tsnb.producer import serve
from tsnb.stalling import asked
from tsnb.stalling.measuring import check_length, length_of
from tsnb.stalling.random_numbers import undisturbed
from tsnb.words import html_table, marked_html, short_number, size_text, text_table

__all__ = ["Fitting", "place"]

_numbers = itertools.count(1)


@dataclass(frozen=True, repr=False)
class Fitting:
    """Which trials fit together. Shown as a table with the reasons in words."""

    rows: tuple[PlacedTrial, ...]
    """The trials, in the order in which they start."""
    runs: tuple[CoRun, ...]
    """What was run together, measured."""
    way: Foretold
    """How `run` runs those that fit."""
    memory_bytes: float
    """For all that run at once."""
    memory_where: str
    """What sets that limit."""
    text: str
    """The result, in words."""
    wanted: tuple[TrialWish, ...] = ()
    """The trials."""
    loader: Any = field(default=None, compare=False)
    """What they train on."""
    jobs: Mapping[str, Job] = field(default_factory=dict, repr=False)
    """What each of those that fit needs, by name."""
    advice: tuple[str, ...] = ()
    """How several on one GPU share it, as NVIDIA's guides have it: in turns, by MPS or MIG; empty: no two do."""
    _ran: dict[str, Trial] = field(default_factory=dict, repr=False, compare=False)
    """The trials that `run` has started, by name."""

    @property
    def table(self) -> list[list[str]]:
        """A head and a row for each trial."""
        rows = [["trial", "peak memory", "where", "together with", "alone", "together", "why"]]
        for each in self.rows:
            low, high = each.peak_bytes
            rows.append(
                [
                    each.name,
                    f"{size_text(low)} to {size_text(high)}",
                    each.where,
                    ", ".join(each.together) or "none",
                    _pace(each.alone_per_s, each.off),
                    f"{_pace(each.together_per_s, each.off)}, {each.group} at once" if each.group else "",
                    each.why,
                ]
            )
        if any(each.device for each in self.rows):
            rows[0].insert(2, "GPU")
            for row, each in zip(rows[1:], self.rows, strict=True):
                row.insert(2, f"{each.device}, {size_text(each.device_bytes)}" if each.device else "none")
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values, for JSON."""
        return {
            "text": self.text,
            "basis": self._below(),
            "advice": list(self.advice),
            "memory_bytes": self.memory_bytes if math.isfinite(self.memory_bytes) else None,
            "memory_where": self.memory_where,
            "at_once": self.way.at_once,
            "order": list(self.way.order),
            "makespan_s": self.way.makespan_s,
            "interval_s": list(self.way.interval_s),
            "trials": [
                {
                    "name": each.name,
                    "peak_bytes": list(each.peak_bytes),
                    "device": each.device or None,
                    "device_bytes": each.device_bytes or None,
                    "where": each.where,
                    "after": list(each.after),
                    "together": list(each.together),
                    "alone_per_s": each.alone_per_s or None,
                    "together_per_s": each.together_per_s or None,
                    "group": each.group or None,
                    "off": each.off,
                    "why": each.why,
                    **end_of(self._ran.get(each.name)),
                }
                for each in self.rows
            ],
            "runs": [
                {"names": list(each.names), "per_s": dict(each.per_s), "seconds": each.seconds}
                for each in self.runs
            ],
        }

    def run(self, *, name: str = "placed") -> dict[str, Trial]:
        """Run the trials that fit, each when its memory is free; return them when all have ended.

        The loader is served under a name while they run. An interrupt stops them all.

        Args:
            name: The stream's name.

        Returns:
            The trials, by name; those that fit nowhere are not among them.

        Raises:
            TsnbError: None of them fits.
            NameInUse: That name is being served.
            Exception: As `tsnb.serve` and `tsnb.run` raise.
        """
        fits = [each for each in self.wanted if each.name in self.way.order]
        if not fits:
            raise TsnbError(self.text)
        self._ran.clear()

        def started(trial: Trial, _stream: str) -> None:
            self._ran[trial.name] = trial

        return conduct(self.way, fits, self.loader, name, self.jobs, self.memory_bytes, started)

    def __repr__(self) -> str:
        return harmless("\n\n".join([self.text, "\n".join(text_table(self.table)), self._below()]))

    def _repr_html_(self) -> str:
        text, below = marked_html(self.text), marked_html(self._below())
        return f"<p><b>{text}</b></p>{html_table(self.table)}<p><small>{below}</small></p>"

    def _below(self) -> str:
        seconds, groups = sum(each.seconds for each in self.runs), len(self.runs)
        together = f"{groups} group{'s' * (groups > 1)} together for {seconds:.1f} s in all"
        if not groups:
            together = "no group together: no two fit, or one of each had ended before it could be watched"
        return (
            f"Measured: each trial alone, and {together}. Peak memory is what the system counted, and that with room "
            f"to grow; speeds are samples/s.{''.join(f' {line}' for line in self.advice)}"
        )


def _pace(per_s: float, off: float) -> str:
    return f"{short_number(per_s * (1 - off))} to {short_number(per_s * (1 + off))}" if per_s else "not seen"


def place(
    fns: Any,
    *,
    loader: Any,
    epochs: float | None = None,
    samples: int | None = None,
    memory: str | float | None = None,
    threads: int = 1,
    seconds: float = 2.0,
) -> Fitting:
    """Find out which trials fit into memory together, and which must wait.

    Runs each trial for a moment in its own process, then groups of up to four that fit. Nothing of them is kept.

    Example:
        >>> fitting = tsnb.place([train], loader=loader, seconds=0.2)

    Args:
        fns: Functions as for `tsnb.run`, or pairs of a function and its parameters: a list, or a mapping by name. A
            trial (`tsnb.trials["cnn"]`) stands for its cell.
        loader: The `DataLoader` that they train on.
        epochs: Epochs per trial, passed to a function's parameter "epochs". Defaults to that parameter, else 1.
        samples: Samples per epoch. Defaults to what the loader says.
        memory: Memory for all trials, for example "12GiB". Defaults to what is free, of the machine or of a control
            group's limit.
        threads: Torch threads per trial. Defaults to 1.
        seconds: Seconds to watch each trial and each group. Defaults to 2.

    Returns:
        A table of peak memory, place, company, speed together and alone, and why. `run()` starts the trials.

    Raises:
        TypeError: If an entry is not a function, or `loader` is an iterator or no loader.
        ValueError: If no trial is given, or a number is out of range.
        TsnbError: If a trial raises, or takes too few batches to be profiled.
        LoaderFailed: If the loader cannot be shared.
        Exception: If a trial cannot start, as `tsnb.run` raises, before any measurement.
    """
    several = wanted(fns, epochs, caller="tsnb.place")
    asked.check_loader(loader)
    samples = None if samples is None else asked.SAMPLES.checked("samples", samples)
    seconds, threads = asked.SECONDS.checked("seconds", seconds), asked.THREADS.checked("threads", threads)
    check_length(loader, samples)
    given = math.inf if memory is None else asked.MEMORY.checked("memory", memory)
    for each in several:
        each.check(threads)
    took = about(placed_s(len(several), seconds, GROUP))
    say(f"placing {trials_text(len(several))}: {took} for some batches of each, alone and together; {LONGER}")
    stream = f"{PROFILED}{os.getpid()}-place{next(_numbers)}"
    starts = {each.name: starter(each, stream, threads) for each in several}
    gpu_rooms = gpu_room_bytes()
    with undisturbed(loader), serve(loader, name=stream, rubber_band=0.0):
        meter, free = Meter(stream), FreeMemory()
        waves = Waves(meter.look, threads, 0.0, patient=True, least_s=seconds, note=free.note)
        seen = waves.run(starts)
        each_epoch = samples or meter.batch_samples(seen.values()) * (length_of(loader) or 1)
        costs = {name: each.cost() for name, each in seen.items() if each.trial.state != "lost"}
        limit = min(free.bytes, given)
        peaks = {name: each.memory_bytes * (1 + GROWS) for name, each in seen.items()}
        for each in several:
            measured(each.known_as, peaks[each.name])
        several = [each.told(costs[each.name].epochs if each.name in costs else 0) for each in several]
        fits = [each for each in several if each.name in costs and peaks[each.name] <= limit]
        alone = {name: each.per_s[0] for name, each in seen.items()}
        by_name = {
            each.name: replace(costs[each.name], memory_bytes=peaks[each.name]).job(
                each.name, each.epochs * each_epoch, gpu_rooms
            )
            for each in fits
        }
        runs = [
            run
            for names in groups(list(by_name), peaks, limit, by_name)
            for run in co_runs({name: starts[name] for name in names}, meter.look, threads, seconds)
        ]
    several_off = {name: max(cost.off, seen[name].per_s[1]) for name, cost in costs.items()}
    off = makespan_off(list(by_name.values()), several_off, LOADER_OFF)
    resources = Resources(meter.cost(), available_cores(), limit, at_once(runs, alone))
    found = annealed(list(by_name.values()), resources)
    where = free.where if free.bytes <= given else "that you gave"
    offs = {name: each.per_s[1] for name, each in seen.items()}
    rows = placed(several, found, peaks, alone, runs, offs, limit, by_name)
    each_has = dict.fromkeys(found.order, Strategy(threads))
    way = Foretold(LISTED, found.schedule, off, found.order, found.at_once, strategies=each_has)
    text = said(rows, way, limit, where) + one_epoch_text([each.name for each in fits if each.open_ended])
    advice = gpu_advice(by_name, devices)
    return Fitting(rows, tuple(runs), way, limit, where, text, tuple(several), loader, by_name, advice)
