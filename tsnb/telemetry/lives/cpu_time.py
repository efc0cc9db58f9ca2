"""CPU seconds of each trial, and of the loader, over the life of a stream. Pure.

The machine is looked at from outside every two seconds (`telemetry.host`). Each look tells of the time since the one
before; the first that sees a process, of the time since its first reading. All that a trial computed since it attached
its process tells at its end (`EndReading.cpu_s`). What no look has seen of that, the whole of a short life, belongs to
the time that none has seen:

    attached  first reading      look                 look       end
        |-unseen-|--- stretch -----|------ stretch -----|-unseen--|

A trial that was killed tells nothing: it has what was seen of it last, or no stretch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tsnb.telemetry.readings import EndReading, StreamReading
from tsnb.telemetry.shown.ends import Ends
from tsnb.text.numbers import count

__all__ = ["LOADER", "Stretch", "cpu_text", "cpu_until", "stretches"]

LEAST_S = 1e-3
"""Less is written as less than this."""

LOADER = ""
"""What the producer and its workers are called among the trials."""


@dataclass(frozen=True)
class Stretch:
    """CPU seconds of one process, with all below it, over a while."""

    from_s: float
    """Wall clock, seconds since 1970."""
    until_s: float
    """Wall clock, seconds since 1970."""
    cpu_s: float
    """In that time."""

    def before(self, time_s: float) -> float:
        """Return those spent before a moment, by its part of the time."""
        if time_s >= self.until_s:
            return self.cpu_s
        return 0.0 if time_s <= self.from_s else self.cpu_s * (time_s - self.from_s) / self.seconds

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.until_s - self.from_s


def cpu_until(its: Iterable[Stretch], time_s: float = math.inf) -> float | None:
    """Return the CPU seconds of some stretches before a moment; None where nothing was seen before it.

    Looks go by steps of 10 ms, and what computed less in each of them has not computed nothing: that is None, too.
    """
    return math.fsum(one.before(time_s) for one in its if one.from_s < time_s) or None


def cpu_text(cpu_s: float) -> str:
    """Write CPU seconds: a little is not 0, and what is not known is a dash."""
    if not cpu_s < 1:
        return count(cpu_s)
    return f"{cpu_s:.2g}" if cpu_s >= LEAST_S else f"<{LEAST_S:g}"


def stretches(readings: Iterable[StreamReading]) -> dict[str, list[Stretch]]:
    """Return what each trial and the `LOADER` computed, by name, in the order of time.

    Args:
        readings: The stream's, oldest first.
    """
    found: dict[tuple[str, int], list[Stretch]] = {}
    met_s: dict[tuple[str, int], float] = {}
    looked_s = -math.inf
    ends = Ends()
    for reading in readings:
        pids = {LOADER: reading.pid, **{c.name: c.pid for c in reading.consumers}}
        for key in pids.items():
            met_s.setdefault(key, reading.time_s)
        if reading.host is not None:
            seen = {LOADER: reading.host.producer, **reading.host.consumers}
            for name, process in seen.items():
                key = name, pids.get(name, 0)
                from_s = max(looked_s, met_s.setdefault(key, reading.time_s))
                if process is not None and from_s < reading.time_s:
                    spent_s = process.cpu * (reading.time_s - from_s)
                    found.setdefault(key, []).append(Stretch(from_s, reading.time_s, spent_s))
            looked_s = reading.time_s
        for name, end in ends.feed(reading).items():
            key = name, end.pid
            found[key] = _whole(found.get(key, []), end, met_s.get(key))
    by_name: dict[str, list[Stretch]] = {}
    for (name, _), its in found.items():
        by_name.setdefault(name, []).extend(its)
    return by_name


def _whole(seen: list[Stretch], end: EndReading, met_s: float | None) -> list[Stretch]:
    """Return the stretches of a process that has ended, which come to what it said of itself."""
    if end.cpu_s is None:
        return seen
    seen_s = math.fsum(one.cpu_s for one in seen)
    since_s = end.since_s or met_s or end.time_s
    edges = [since_s, *((seen[0].from_s, seen[-1].until_s) if seen else ()), end.time_s]
    unseen = [(edges[k], edges[k + 1]) for k in range(0, len(edges), 2) if edges[k] < edges[k + 1]]
    unseen_s = math.fsum(until_s - from_s for from_s, until_s in unseen)
    if end.cpu_s <= seen_s or not unseen:  # looks go by steps of 10 ms, and not all of a long life are kept
        if not seen_s:  # what it computed, it computed in this time, unseen
            return [Stretch(edges[0], edges[-1], end.cpu_s)]
        return [replace(one, cpu_s=one.cpu_s * end.cpu_s / seen_s) for one in seen]
    per_s = (end.cpu_s - seen_s) / unseen_s
    added = [Stretch(from_s, until_s, per_s * (until_s - from_s)) for from_s, until_s in unseen]
    return sorted([*seen, *added], key=lambda one: one.from_s)
