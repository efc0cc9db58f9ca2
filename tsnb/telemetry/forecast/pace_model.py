"""At what pace the trials of a stream will go once some of them have ended. Pure; fed with readings.

One stream goes at one pace: a batch takes as long as whatever takes longest of it, s(trials). That is the longest step
among them, the loader, or the CPU seconds of all (`planners.fluid.bounds`), as they were seen lately. A trial's step is
what it computes between two batches, the loader's time what the producer waited for it, or the CPU seconds of its
workers divided by their number if that is more; both without what they waited for a core, which the last of the three
stands for. The cores are those that the trials and the workers kept busy, and those that were free; with those of other
streams, once these have ended (`StreamReading.beside`). What the producer's own process does counts where it has no
workers; else it is the notebook's, and goes on however fast batches come. The formula is asked only by how many times
the pace changes: `left = batches x seconds a batch as seen x s(those that stay) / s(those that are here)`.

It holds where a stream keeps its trials together (pacing "together"); elsewhere nothing is said to change.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from tsnb.planners.fluid import bounds
from tsnb.telemetry.readings import ConsumerReading, StreamReading

__all__ = ["PaceModel"]

LATELY_S = 15.0
"""What was seen this long ago counts 1/e of what is seen now: some looks at the machine, which come every 2 s."""
FORGOTTEN = 0.1
"""When somebody has come or gone, what was seen before counts this much of what it did: cores are shared otherwise."""


@dataclass
class _Mean:
    """A sum over a number, where what is old fades."""

    total: float = 0.0
    count: float = 0.0

    def fade(self, keep: float) -> None:
        self.total *= keep
        self.count *= keep

    def add(self, total: float, count: float) -> None:
        self.total += total
        self.count += count

    @property
    def value(self) -> float:
        """The mean; 0 where nothing was seen."""
        return self.total / self.count if self.count > 0 else 0.0


@dataclass
class _Seen:
    """What was seen of one trial."""

    last: ConsumerReading
    step_s: _Mean = field(default_factory=_Mean)
    """Seconds of its own code a batch."""
    cpu_s: _Mean = field(default_factory=_Mean)
    """CPU seconds of its process per batch."""
    core_s: _Mean = field(default_factory=_Mean)
    """As `step_s`, between two looks at the machine, without those in which it was ready and had no core."""


class PaceModel:
    """What a batch of one stream costs its loader and each of its trials, lately."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._here: frozenset[str] = frozenset()
        self._beside: frozenset[str] = frozenset()
        self._last: StreamReading | None = None
        self._looked: StreamReading | None = None
        self._loading_s = _Mean()
        self._loader_cpu_s = _Mean()
        self._loading_core_s = _Mean()
        self._cores = _Mean()

    def feed(self, reading: StreamReading, here: Collection[str]) -> None:
        """Take in the next reading.

        Args:
            reading: The new reading.
            here: Names of the trials that take batches.
        """
        before, self._last = self._last, reading
        same = before is not None and before.pid == reading.pid and before.batches <= reading.batches
        seconds = max(0.0, reading.time_s - before.time_s) if before is not None and same else 0.0
        self._fade(math.exp(-seconds / LATELY_S))
        beside = frozenset(each.name for each in reading.beside)
        if self._beside != beside:
            self._beside = beside
            self._cores.fade(FORGOTTEN)
        if before is None:
            self._here, self._looked = frozenset(here), reading  # the follower has met all processes with it
        elif self._here != frozenset(here):
            self._here, self._looked = frozenset(here), None  # what one who has left kept busy, nobody tells
            self._fade(FORGOTTEN)
        if before is None or not same:
            self._loading_s = _Mean(FORGOTTEN * reading.loading_s, FORGOTTEN * reading.batches)
        elif reading.batches > before.batches:
            self._loading_s.add(
                max(0.0, reading.loading_s - before.loading_s), reading.batches - before.batches
            )
        for consumer in reading.consumers:
            seen = self._seen.get(consumer.name)
            if seen is None or seen.last.pid != consumer.pid or seen.last.batches > consumer.batches:
                # what its counters say of the time before: better than nothing, until more has been seen
                mean = _Mean(FORGOTTEN * consumer.computing_s, FORGOTTEN * consumer.batches)
                self._seen[consumer.name] = _Seen(consumer, mean)
                continue
            if batches := consumer.batches - seen.last.batches:
                seen.step_s.add(max(0.0, consumer.computing_s - seen.last.computing_s), batches)
                seen.last = consumer
        self._look(reading)

    def _look(self, reading: StreamReading) -> None:
        """Take in what the machine does, if the reading tells of it."""
        host, before = reading.host, self._looked
        if host is None:
            return
        self._looked = reading
        if before is None or before.pid != reading.pid or before.batches >= reading.batches:
            return
        seconds, batches = max(0.0, reading.time_s - before.time_s), reading.batches - before.batches
        sharing = Counter(consumer.pid for consumer in reading.consumers)
        busy = 0.0
        for consumer in reading.consumers:
            if (use := host.consumers.get(consumer.name)) is not None:
                cpu = use.cpu / sharing[consumer.pid]
                seen = self._seen[consumer.name]
                seen.cpu_s.add(cpu * seconds, batches)
                was = next(
                    (c for c in before.consumers if (c.name, c.pid) == (consumer.name, consumer.pid)), None
                )
                if was is not None and was.batches <= consumer.batches:
                    step_s = consumer.computing_s - was.computing_s - use.kept_waiting * seconds
                    seen.core_s.add(max(0.0, step_s), batches)
                busy += cpu
        if host.producer is not None:
            loader = host.loader_cpu(reading.workers)
            self._loader_cpu_s.add(loader * seconds, batches)
            waited_s = seconds * host.producer.kept_waiting / max(1, reading.workers)
            self._loading_core_s.add(max(0.0, reading.loading_s - before.loading_s - waited_s), batches)
            busy += loader
        self._cores.add((busy + max(0.0, host.cores - host.cpu)) * seconds, seconds)

    def _fade(self, keep: float) -> None:
        for mean in (self._loading_s, self._loader_cpu_s, self._loading_core_s, self._cores):
            mean.fade(keep)
        for seen in self._seen.values():
            for mean in (seen.step_s, seen.cpu_s, seen.core_s):
                mean.total *= keep  # no call: this runs for each trial of each tick
                mean.count *= keep

    def batch_s(self, trials: Collection[str], free: float = 0.0) -> float:
        """Return the seconds that a batch takes with some of those that have been here; 0: nothing is known.

        Args:
            trials: Their names.
            free: Cores that other streams have given back.
        """
        last = self._last
        if last is None or last.pacing != "together":
            return 0.0
        seen = [self._seen[name] for name in trials if name in self._seen]
        loader_cpu_s, cores = self._loader_cpu_s.value, self._cores.value
        cpu_s = loader_cpu_s + sum(each.cpu_s.value for each in seen)
        loading_s = self._loading_core_s if self._loading_core_s.count > 0 else self._loading_s
        loader_s = max(loading_s.value, loader_cpu_s / max(1, last.workers))
        steps_s = (each.core_s.value if each.core_s.count > 0 else each.step_s.value for each in seen)
        return max(bounds(steps_s, loader_s, cpu_s, cores + free if cores > 0 else 0.0).values())
