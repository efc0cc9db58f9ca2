"""How the trials of a stream ended, and how far each has come, as one goes along its readings. Pure.

Panel, `tsnb top` and reports all go along with an `Ends` and a `Taken`, so that they say the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tsnb.telemetry.readings import ConsumerReading, EndReading, StreamReading

__all__ = ["Ends", "Taken", "never_attached"]


class Ends:
    """How each trial ended, by its lane: the names of its consumers, its own where it never attached."""

    def __init__(self) -> None:
        self.by_name: dict[str, EndReading] = {}
        self._told: set[tuple[str, float]] = set()
        self._pids: dict[str, int] = {}
        self._here: set[str] = set()

    def feed(self, reading: StreamReading) -> dict[str, EndReading]:
        """Take in the next reading; return the ends that are news, by name."""
        here = {c.name: c.pid for c in reading.consumers if c.state != "gone"}
        known = {**self._pids, **here}
        news: dict[str, EndReading] = {}
        for end in reading.ends:
            if (end.name, end.time_s) not in self._told:
                self._told.add((end.name, end.time_s))
                for name in _names(end, known):
                    self._take(name, end, news)
        for name in here.keys() - self._here:
            if name in news and known[name] == news[name].pid and self._pids.get(name) != known[name]:
                continue  # it came and went between two readings, and is about to leave
            self.by_name.pop(name, None)  # another run of the name has come
            news.pop(name, None)
        self._here, self._pids = set(here), known
        return news

    def _take(self, name: str, end: EndReading, news: dict[str, EndReading]) -> None:
        before = self.by_name.get(name)
        if end.state == "left" and before is not None and before.pid == end.pid and before.state != "left":
            end = replace(before, metrics={**end.metrics, **before.metrics})  # the trial's own word counts
        self.by_name[name] = news[name] = end


def _names(end: EndReading, pids: dict[str, int]) -> Iterable[str]:
    """Return the consumers that an end is of: a trial's process may have had several, of other names."""
    if end.state == "left" or not end.pid:
        return [end.name]
    return [name for name, pid in pids.items() if pid == end.pid] or [end.name]


def never_attached(end: EndReading) -> ConsumerReading:
    """Return a reading of a trial that ended without ever having been a consumer."""
    return ConsumerReading(end.name, end.pid, "gone", -1, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, dict(end.metrics))


@dataclass
class _Life:
    last: ConsumerReading
    batches: int = 0
    """Those of attachments before this one."""
    epochs: int = 0


class Taken:
    """How many epochs each trial has taken: over attachments of one process, and restarts of its producer."""

    def __init__(self) -> None:
        self._lives: dict[str, _Life] = {}
        self._whole: int | None = None
        self._pid = 0

    def feed(self, reading: StreamReading) -> None:
        """Take in the next reading."""
        self._whole = reading.epoch_batches
        for consumer in reading.consumers:
            life = self._lives.get(consumer.name)
            if life is None or life.last.pid != consumer.pid:
                self._lives[consumer.name] = _Life(consumer)
                continue
            if reading.pid != self._pid or consumer.batches < life.last.batches:
                life.batches += life.last.batches
                life.epochs += life.last.epochs
            life.last = consumer
        self._pid = reading.pid

    def epochs(self, name: str) -> float:
        """Return the epochs that a trial has taken, the one under way as a share; nan before its first.

        Where the loader has no length, those that it has begun.
        """
        life = self._lives.get(name)
        if life is None or (life.last.epoch < 0 and not life.batches):
            return math.nan
        if self._whole:
            return (life.batches + life.last.batches) / self._whole
        return float(life.epochs + life.last.epochs)
