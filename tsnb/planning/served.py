"""What trials cost on a stream that is served already, by this process or another: what a planned sweep starts from.

The trials run there for some batches each, as `profiling` does it, beside whatever else takes batches of the stream.
The loader is not measured by itself, since it is another process's; its cost comes from what the stream says meanwhile:

    CPU seconds a sample     of the producer's process and its workers
    seconds a sample         the larger of those CPU seconds divided by its workers, and of the time that it stood
                             waiting for the loader: the second is the loader's own pace where it is the limit

What it costs a trial to take a sample is in the trial's own CPU seconds. How many epochs each takes, it says itself.

Where a trial may be run with several strategies, it runs with each of them, one after the other.

Beside more others a sample costs more (caches, the memory bus), so no more are profiled at once than will train. Trials
that differ in how many epochs they take alone cost the same a sample: one of them is profiled.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tsnb.discovery import registry
from tsnb.errors import TsnbError
from tsnb.machine import clocks
from tsnb.machine.cores import available_cores
from tsnb.machine.processes import children, children_of
from tsnb.planners.fluid import Job, LoaderCost, Resources
from tsnb.planners.strategies import Jobs, Strategy, steadied
from tsnb.planning.profiling import FreeMemory, free_bytes
from tsnb.planning.trial_costs import Cost, Profiled, gpu_room_bytes
from tsnb.planning.waves import Start, Waves
from tsnb.planning.ways import makespan_off
from tsnb.telemetry.observer import status
from tsnb.telemetry.readings import StreamReading

__all__ = ["LOADER_OFF", "Meter", "ServedCosts", "Twin", "costs_on", "samples_taken"]

LOADER_OFF = 0.06
"""So far off the loader's part may be: it is not measured by itself, and others may use the stream too."""
UNSEEN_OFF = 0.5
"""So far off is what is assumed of a trial that could not be profiled."""


@dataclass(frozen=True)
class Twin:
    """A trial that is not profiled, as another one differs from it in its number of epochs alone."""

    of: str
    """The name of that one."""
    times: float
    """It takes so many times as many epochs."""


@dataclass(frozen=True)
class ServedCosts:
    """What was measured."""

    stream: str
    """The stream's name."""
    jobs: Jobs
    """Each trial with each strategy with which it can be run."""
    resources: Resources
    """The stream's loader, the cores that this process may use, and the memory that was free while some of them ran."""
    off: float
    """How far off a forecast may be, as a share, in four of five cases."""
    unsure: Mapping[str, str] = field(default_factory=dict)
    """Trials that could not be profiled, and what is assumed of them and why, in words."""
    open_ended: tuple[str, ...] = ()
    """Trials that do not say how many epochs they take; one is assumed."""
    room_bytes: Mapping[str, float] = field(default_factory=dict)
    """What was free on each GPU before any of them ran, by its name."""


def costs_on(
    stream: str | None,
    starts: Mapping[Strategy, Mapping[str, Start]],
    *,
    twins: Mapping[str, Twin] = MappingProxyType({}),
    at_once: int | None = None,
    must_end: bool = False,
) -> ServedCosts:
    """Run trials for some batches each on a stream, and return what they cost.

    Args:
        stream: Its name; None: the only one.
        starts: By strategy, the preferred one first, and by name, what starts the trial with it on that stream, under a
            name of its own; the same trials for every strategy.
        twins: Trials that are not among those, by name.
        at_once: So many will train at once at most; None: that is not known.
        must_end: Whether each has to say how many epochs it takes. The first that does not ends it all.

    Raises:
        ValueError: One does not say how many epochs it takes, and has to.
        ProducerNotFound: Nobody serves it, or several streams are served and none is named.
        TsnbError: The stream does not say how long an epoch is, or none of the trials could be profiled, or
            one ended without taking a batch.
    """
    name = registry.find(stream).name
    memory_bytes, rooms = free_bytes(), gpu_room_bytes()
    epoch_batches = status(name).epoch_batches
    if not epoch_batches:
        raise TsnbError(
            f"plan= and deadline= need a loader with a length, and the loader of {name!r} has none. Serve one "
            "that defines __len__"
        )
    meter, free = Meter(name), FreeMemory()
    found: dict[Strategy, dict[str, Profiled]] = {}
    for strategy, several in starts.items():
        failed = {
            each
            for other, seen in found.items()
            for each, one in seen.items()
            if one.failed and other.values == strategy.values
        }
        going = {each: start for each, start in several.items() if each not in failed}
        found[strategy] = _seen(
            going, meter, strategy.threads, memory_bytes, at_once, free.note, must_end=must_end
        )
    samples = meter.batch_samples(one for seen in found.values() for one in seen.values()) * epoch_batches
    names = list(next(iter(starts.values())))
    epochs = {each: max(_epochs(seen.get(each)) for seen in found.values()) for each in names}
    costs, whys = _costs(found, {each: max(1, epochs[each]) * samples for each in names})
    if not any(costs.values()):
        next(iter(next(iter(found.values())).values())).cost()  # raises: it says why
    typical = _middle(list(next(each for each in costs.values() if each).values()))
    known = [number for number in epochs.values() if number] or [1]
    seen = [each for each in names if any(each in mine for mine in costs.values())]
    takes = {each: epochs[each] or (1 if each in seen else statistics.median(known)) for each in names}
    jobs, unsure = _jobs(
        {each: number * samples for each, number in takes.items()}, costs, whys, typical, rooms
    )
    offs = {
        each: max((mine[each].off for mine in costs.values() if each in mine), default=UNSEEN_OFF)
        for each in names
    }
    _add_twins(twins, jobs, offs, unsure)
    off = makespan_off([next(iter(each.values())) for each in jobs.values()], offs, LOADER_OFF)
    return ServedCosts(
        name,
        steadied(jobs, offs),
        Resources(
            replace(meter.cost(), epoch_samples=samples), available_cores(), min(memory_bytes, free.bytes)
        ),
        off,
        unsure,
        tuple(each for each in (*seen, *twins) if not epochs[twins[each].of if each in twins else each]),
        rooms,
    )


def _add_twins(
    twins: Mapping[str, Twin],
    jobs: dict[str, dict[Strategy, Job]],
    offs: dict[str, float],
    unsure: dict[str, str],
) -> None:
    """Add trials that were not profiled: each costs what its twin does, and is as sure."""
    for name, twin in twins.items():
        offs[name] = offs[twin.of]
        if twin.of in unsure:
            unsure[name] = f"{name} is assumed to cost the same as {twin.of}"
        jobs[name] = {
            strategy: replace(job, name=name, samples=job.samples * twin.times)
            for strategy, job in jobs[twin.of].items()
        }


def _seen(
    starts: Mapping[str, Start],
    meter: Meter,
    threads: int,
    memory_bytes: float,
    most: int | None,
    note: Callable[[Sequence[Profiled]], None],
    *,
    must_end: bool,
) -> dict[str, Profiled]:
    """Run trials for some batches each; those that died beside others once more, each alone."""

    def refuse(name: str, seen: Profiled) -> None:
        if seen.idle:
            seen.cost()  # raises: it is not one that was too short
        if must_end and seen.last and not seen.last.planned:
            raise ValueError(
                f"deadline= (--deadline) needs the number of epochs, and {name} has no parameter epochs. Add "
                "one, for example epochs=10, or remove the deadline."
            )

    waves = Waves(meter.look, threads, memory_bytes, most=most, note=note, refuse=refuse)
    seen = waves.run(starts)
    return seen | waves.again_alone(dict(list(starts.items())[1:]), seen)


def _epochs(seen: Profiled | None) -> int:
    """Return how many epochs a trial takes, as it says; 0: it does not."""
    return seen.last.planned if seen is not None and seen.last else 0


def _costs(
    found: Mapping[Strategy, Mapping[str, Profiled]], samples: Mapping[str, float]
) -> tuple[dict[Strategy, dict[str, Cost]], dict[Strategy, dict[str, str]]]:
    """Return what each trial costs with each strategy, and of those that could not be profiled why not.

    Args:
        found: The trials as they were seen, by strategy and name.
        samples: What each takes in all, by name.
    """
    costs: dict[Strategy, dict[str, Cost]] = {strategy: {} for strategy in found}
    whys: dict[Strategy, dict[str, str]] = {strategy: {} for strategy in found}
    for strategy, mine in found.items():
        for each in samples:
            if (seen := mine.get(each)) is None:
                whys[strategy][each] = "it failed with fewer threads"
                continue
            try:
                costs[strategy][each] = seen.cost()
            except TsnbError as error:
                if seen.trial.state == "done":  # too short to be profiled; but then how long it took is known
                    costs[strategy][each] = _whole(seen, samples[each])
                elif seen.failed:
                    whys[strategy][each] = seen.how_it_failed(alone=not strategy.values)
                else:
                    whys[strategy][each] = str(error)
    return costs, whys


def _jobs(
    samples: Mapping[str, float],
    costs: Mapping[Strategy, Mapping[str, Cost]],
    whys: Mapping[Strategy, Mapping[str, str]],
    typical: Cost,
    room_bytes: Mapping[str, float] | None = None,
) -> tuple[dict[str, dict[Strategy, Job]], dict[str, str]]:
    """Return each trial with the strategies that could be profiled, and what is assumed where one could not.

    One of which none could is taken to have the preferred one, and to cost what the others do.

    Args:
        samples: What each takes in all, by name.
        costs: By strategy and name.
        whys: Why one lacks, by name.
        typical: What the others cost.
        room_bytes: Memory of each GPU for all of them, by the GPU's name.
    """
    jobs: dict[str, dict[Strategy, Job]] = {}
    unsure: dict[str, str] = {}
    for name, count in samples.items():
        there = {strategy: mine[name] for strategy, mine in costs.items() if name in mine}
        if lacking := [strategy for strategy in costs if strategy not in there]:
            why = whys[lacking[0]][name]
            unsure[name] = (
                f"{name} is not run with {lacking[0]}: {why}"
                if there
                else f"{name} is assumed to cost the same as the other trials: {why}"
            )
        jobs[name] = {}
        for strategy, cost in (there or {next(iter(costs)): typical}).items():
            # starts are those of all: the first one's is longer, as it waits for the fork server
            start_s, start_cpu_s = (typical.start_s, typical.start_cpu_s) if cost.batches else (0.0, 0.0)
            job = cost.job(name, count, room_bytes or {})
            jobs[name][strategy] = replace(job, start_s=start_s, start_cpu_s=start_cpu_s)
    return jobs, unsure


def samples_taken(stream: str) -> dict[str, float]:
    """Return how many samples have passed each consumer of a stream so far, by name; nothing where it has gone."""
    try:
        return {consumer.name: float(consumer.passed) for consumer in status(stream).consumers}
    except (TsnbError, OSError):
        return {}


def _kernels_of(pid: int) -> set[int]:
    """Return the children of a process that are no workers: trials and their fork server have sessions of their own."""
    found = set()
    for child in children(pid):
        with contextlib.suppress(OSError):
            if os.getsid(child) != os.getsid(pid):
                found.add(child)
    return found


def _whole(seen: Profiled, samples: float) -> Cost:
    """Return the cost of a trial that was over before it could be profiled, from how long all of it took."""
    each_s = seen.trial.duration_s / max(1.0, samples)
    return Cost(each_s, each_s, seen.memory_bytes, 0.0, 0, 1.0)


def _middle(costs: list[Cost]) -> Cost:
    return Cost(
        statistics.median(cost.step_s for cost in costs),
        statistics.median(cost.cpu_s for cost in costs),
        max(cost.memory_bytes for cost in costs),
        statistics.median(cost.start_s for cost in costs),
        1,
        1.0,
        statistics.median(cost.start_cpu_s for cost in costs),
    )


class Meter:
    """Reads a stream while trials take batches of it, and what its loader spends.

    Args:
        name: The stream's.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._first: tuple[StreamReading, float] | None = None
        self._last: tuple[StreamReading, float] | None = None

    def look(self) -> StreamReading:
        """Return a reading, and note the loader's clocks."""
        reading = status(self._name)
        here = reading, self._cpu_s(reading)
        if reading.batches:  # its first batch starts the workers
            self._first = self._first or here
            self._last = here
        return reading

    @staticmethod
    def _cpu_s(reading: StreamReading) -> float:
        """Return the CPU seconds of the producer and its workers; without this thread's, which only looks."""
        pids = [reading.pid, *children_of(reading.pid, _kernels_of(reading.pid))]
        looking_s = time.thread_time() if reading.pid == os.getpid() else 0.0
        return sum(clocks.cpu_s(pid) or 0.0 for pid in pids) - looking_s

    @staticmethod
    def batch_samples(found: Iterable[Profiled]) -> float:
        """Return the samples of a loader batch.

        Args:
            found: Trials that took some.
        """
        pairs = [(seen.last.passed, seen.last.batches) for seen in found if seen.last]
        if not pairs:
            return 1.0
        return sum(samples for samples, _ in pairs) / max(1, sum(batches for _, batches in pairs))

    def cost(self) -> LoaderCost:
        """Return the loader's cost a sample, as far as it was seen."""
        if self._first is None or self._last is None:
            return LoaderCost(0.0, 0.0, 0.0)
        (first, cpu_before_s), (last, cpu_s) = self._first, self._last
        batches = last.batches - first.batches
        taken = [(c.passed, c.batches) for c in last.consumers if c.batches]
        each = sum(samples for samples, _ in taken) / max(1, sum(number for _, number in taken))
        if batches <= 0 or not each:
            return LoaderCost(0.0, 0.0, 0.0)
        spent_s = max(0.0, cpu_s - cpu_before_s) / (batches * each)
        stood_s = max(0.0, last.loading_s - first.loading_s) / (batches * each)
        return LoaderCost(max(spent_s / max(1, last.workers), stood_s), spent_s, 0.0)
