"""How the trials of a stream ended, and when some trial was there.

Panel, `tsnb top` and reports all use it, so that they say the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import replace

from tsnb.telemetry.readings import EndReading, StreamReading
from tsnb.telemetry.shown.rows import newly_logged, taken

__all__ = ["Ends"]


class Ends:
    """How each trial ended, by its lane: the names of its consumers, its own where it never attached."""

    def __init__(self) -> None:
        self.by_name: dict[str, EndReading] = {}
        self._told: set[tuple[str, float]] = set()
        self._pids: dict[str, int] = {}
        self._here: set[str] = set()
        self._first_s = math.inf  # when the first trial attached, as far as it is known
        self._spans: list[tuple[float, float]] = []  # in which some trial was there, oldest first
        self._last_s = 0.0
        self._to_come_s: dict[str, float] = {}  # since when each that is to come has been

    @property
    def trained(self) -> tuple[float, float] | None:
        """From when to when trials trained, wall clock: that of those which have ended; None: none has."""
        last_s = max((end.time_s for end in self.by_name.values()), default=-math.inf)
        return (self._first_s, last_s) if self._first_s < last_s else None

    @property
    def idle_s(self) -> float:
        """Seconds between trials in which none was there, as between a training and a sweep that comes later."""
        gaps = itertools.pairwise(self._spans)
        return sum(max(0.0, later[0] - max(before[1], self._first_s)) for before, later in gaps)

    def _there(self, since_s: float, until_s: float) -> None:
        """Note that some trial was there meanwhile."""
        if self._spans and self._spans[-1][0] <= since_s <= self._spans[-1][1]:  # most ticks
            self._spans[-1] = (self._spans[-1][0], max(until_s, self._spans[-1][1]))
            return
        joined: list[tuple[float, float]] = []
        for begin_s, end_s in sorted([*self._spans, (since_s, until_s)]):
            if joined and begin_s <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(end_s, joined[-1][1]))
            else:
                joined.append((begin_s, end_s))
        self._spans = joined

    def feed(self, reading: StreamReading) -> dict[str, EndReading]:
        """Take in the next reading; return the ends that are news, by name."""
        here = {c.name: c.pid for c in reading.consumers if c.state != "gone"}
        known = {**self._pids, **here}
        began = [end.since_s for end in reading.ends if end.since_s]
        self._first_s = min([self._first_s, *began, *([reading.time_s] if here else [])])
        if here:
            self._there(self._last_s if self._here else reading.time_s, reading.time_s)
        self._last_s = reading.time_s
        news: dict[str, EndReading] = {}
        for end in reading.ends:
            if (end.name, end.time_s) not in self._told:
                self._told.add((end.name, end.time_s))
                self._there(end.since_s or end.time_s - end.attached_s, end.time_s)
                for name in _names(end, known):
                    self._take(name, end, news)
        for name in here.keys() - self._here:
            if name in news and known[name] == news[name].pid and self._pids.get(name) != known[name]:
                continue  # it came and went between two readings, and is about to leave
            known_end = self.by_name.get(name)
            if known_end and known_end.pid == here[name] and reading.time_s < known_end.time_s:
                continue  # the end was told before the readings from before it were heard
            # another run of the name has come; or the producer hears later that this one has left, and then it tells
            # the end once more
            if known_end:
                del self.by_name[name]
                self._told.discard((known_end.name, known_end.time_s))
            news.pop(name, None)
        self._here, self._pids = set(here), known
        if reading.pending or self._to_come_s:
            self._to_come_s = {name: self._to_come_s.get(name, reading.time_s) for name in reading.pending}
        return news

    def to_come(self, last: StreamReading) -> dict[str, str]:
        """Return state and reason of the trials that are not attached yet.

        Their notebook tells of an end at once and of all that waits now and then: a trial that has ended since is none.

        Args:
            last: The last that was fed.
        """
        if not last.pending:  # most ticks
            return last.pending
        return {
            name: said
            for name, said in last.pending.items()
            if (end := self.by_name.get(name)) is None or end.time_s < self._to_come_s[name]
        }

    def over(self, last: StreamReading) -> StreamReading | None:
        """Return a stream's last reading without those whose end is known: after its end no reading says they left.

        Args:
            last: The last that was fed.

        Returns:
            One a moment later, without ends of its own; None where nobody is left to leave.
        """
        stay = tuple(
            c
            for c in last.consumers
            if c.state == "gone" or (end := self.by_name.get(c.name)) is None or end.pid not in (0, c.pid)
        )
        if len(stay) == len(last.consumers):
            return None
        return replace(last, time_s=last.time_s + 1e-3, consumers=stay, ends=(), host=None)

    def _take(self, name: str, end: EndReading, news: dict[str, EndReading]) -> None:
        before = self.by_name.get(name)
        if end.state == "left" and before is not None and before.pid == end.pid and before.state != "left":
            end = _joined(end, before)
        elif before is not None and before.state == "left" and before.pid == end.pid:
            end = _joined(before, end)
        self.by_name[name] = news[name] = end


def _joined(left: EndReading, end: EndReading) -> EndReading:
    """Return a trial's own word on its end, with what its stream knows of the numbers that it logged."""
    later = {name for name, *_ in newly_logged(dict(left.metrics), {}, replace(end, logged_at={}))}
    at = {name: batch for name, batch in left.logged_at.items() if name not in later}
    end = replace(end, metrics={**left.metrics, **end.metrics}, logged_at=at, sparse=left.sparse)
    spent = taken(left)
    if end.attached_s:  # its process has told the results the same
        spent |= {"attached_s": end.attached_s, "paused_s": end.paused_s}
    return replace(end, epochs=left.epochs, batches=left.batches, logged=left.logged, **spent)


def _names(end: EndReading, pids: dict[str, int]) -> Iterable[str]:
    """Return the consumers that an end is of: a trial's process may have had several, of other names."""
    if end.state == "left" or not end.pid:
        return [end.name]
    return [name for name, pid in pids.items() if pid == end.pid] or [end.name]
