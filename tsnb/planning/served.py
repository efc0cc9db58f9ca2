"""What trials cost on a stream that is served already, by this process or another: what a planned sweep starts from.

The trials run there for some batches each, as `profiling` does it, beside whatever else takes batches of the stream.
The loader is not measured by itself, since it is another process's; its cost comes from what the stream says meanwhile:

    CPU seconds a sample     of the producer's process and its workers
    seconds a sample         the larger of those CPU seconds divided by its workers, and of the time that it stood
                             waiting for the loader: the second is the loader's own pace where it is the limit

What it costs a trial to take a sample is in the trial's own CPU seconds. How many epochs each takes, it says itself.
"""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from tsnb import registry
from tsnb.errors import TsnbError
from tsnb.machine import clocks
from tsnb.machine.cores import available_cores
from tsnb.machine.memory import free_memory
from tsnb.machine.processes import children, children_of
from tsnb.planners.fluid import Job, LoaderCost
from tsnb.planning.profiling import Start, in_waves
from tsnb.planning.trial_costs import Cost, Profiled
from tsnb.telemetry.observer import status
from tsnb.telemetry.readings import StreamReading

__all__ = ["Meter", "ServedCosts", "costs_on", "samples_taken"]

LEAST_OFF = 0.1
"""No forecast from so few batches, on a stream that others may use too, is closer than this."""


@dataclass(frozen=True)
class ServedCosts:
    """What was measured."""

    stream: str
    """The stream's name."""
    jobs: tuple[Job, ...]
    """The trials, in their order."""
    feed: LoaderCost
    """The stream's loader."""
    cores: float
    """Those that this process may use."""
    memory_bytes: float
    """Free before any of them ran."""
    off: float
    """How far off a forecast may be, as a share, in four of five cases."""
    unsure: Mapping[str, str] = field(default_factory=dict)
    """Trials that could not be profiled, and why; they are taken to cost what the others do in the middle."""
    open_ended: tuple[str, ...] = ()
    """Trials that do not say how many epochs they take; one is assumed."""


def costs_on(stream: str | None, starts: Mapping[str, Start], *, threads: int) -> ServedCosts:
    """Run trials for some batches each on a stream, and return what they cost.

    Args:
        stream: Its name; None: the only one.
        starts: By name, what starts the trial on that stream, under a name of its own.
        threads: Torch threads of each.

    Raises:
        ProducerNotFound: Nobody serves it, or several streams are served and none is named.
        TsnbError: The stream does not say how long an epoch is, or none of the trials could be profiled.
    """
    name = registry.find(stream).name
    free = free_memory()
    memory_bytes = math.inf if free is None else float(free.size)
    epoch_batches = status(name).epoch_batches
    if not epoch_batches:
        raise TsnbError(
            f"the loader of stream {name!r} has no length, so nobody can say how long a trial takes: leave plan= and "
            "until= out, or serve a loader that has one"
        )
    meter = Meter(name)
    found = in_waves(starts, meter.look, threads=threads, memory_bytes=memory_bytes, patient=True)
    samples = meter.batch_samples(found) * epoch_batches
    epochs = {each: seen.last.planned if seen.last else 0 for each, seen in found.items()}
    costs: dict[str, Cost] = {}
    unsure: dict[str, str] = {}
    for each, seen in found.items():
        try:
            costs[each] = seen.cost()
        except TsnbError as error:
            if seen.trial.state == "done":  # too short to be profiled; but then how long it took is known
                costs[each] = _whole(seen, max(1, epochs[each]) * samples)
            else:
                unsure[each] = "it failed while it was profiled" if seen.failed else str(error)
    if not costs:
        next(iter(found.values())).cost()  # raises: it says why
    typical = _middle(list(costs.values()))
    known = [number for number in epochs.values() if number] or [1]
    jobs = []
    for each in starts:
        cost = costs.get(each, typical)
        takes = epochs[each] or (1 if each in costs else statistics.median(known))
        jobs.append(
            Job(
                each,
                takes * samples,
                cost.step_s,
                cost.cpu_s,
                cost.memory_bytes,
                # of all: the first one's is longer, as it waits for the fork server too
                typical.start_s if cost.batches else 0.0,
                typical.start_cpu_s if cost.batches else 0.0,
            )
        )
    off = max(LEAST_OFF, *(cost.off for cost in costs.values()))
    return ServedCosts(
        name,
        tuple(jobs),
        meter.cost(),
        available_cores(),
        memory_bytes,
        off,
        unsure,
        tuple(each for each in costs if not epochs[each]),
    )


def samples_taken(stream: str) -> dict[str, float]:
    """Return how many samples each consumer of a stream has taken so far, by name; nothing where it has gone."""
    try:
        return {consumer.name: float(consumer.samples) for consumer in status(stream).consumers}
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
    def batch_samples(found: Mapping[str, Profiled]) -> float:
        """Return the samples of a loader batch."""
        pairs = [(seen.last.samples, seen.last.batches) for seen in found.values() if seen.last]
        if not pairs:
            return 1.0
        return sum(samples for samples, _ in pairs) / max(1, sum(batches for _, batches in pairs))

    def cost(self) -> LoaderCost:
        """Return the loader's cost a sample, as far as it was seen."""
        if self._first is None or self._last is None:
            return LoaderCost(0.0, 0.0, 0.0)
        (first, cpu_before_s), (last, cpu_s) = self._first, self._last
        batches = last.batches - first.batches
        taken = [(c.samples, c.batches) for c in last.consumers if c.batches]
        each = sum(samples for samples, _ in taken) / max(1, sum(number for _, number in taken))
        if batches <= 0 or not each:
            return LoaderCost(0.0, 0.0, 0.0)
        spent_s = max(0.0, cpu_s - cpu_before_s) / (batches * each)
        stood_s = max(0.0, last.loading_s - first.loading_s) / (batches * each)
        return LoaderCost(max(spent_s / max(1, last.workers), stood_s), spent_s, 0.0)
