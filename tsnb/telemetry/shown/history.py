"""History: the readings of one stream, bounded, with the frames that screens draw.

One list and one policy for both, so that a report and a panel know the same moments:

- all of the last ten minutes is kept;
- older readings are thinned to even steps, keeping from each step one with a look at the machine if there is one;
- except where something changed (`marks`): the reading that shows it and the one before stay, so that
  joins, ends and the totals of trials that left remain exact however long the stream runs. So does the first reading
  that tells how a trial ended.

A page that opens gets all frames up to a bound of bytes, and of more the same policy once again.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import NamedTuple

from tsnb.config import is_profiled
from tsnb.telemetry.readings import StreamReading
from tsnb.telemetry.shown.marks import Marker

__all__ = ["FULL_S", "MOST", "PAGE_BYTES", "History", "Moment", "without_profiled"]

FULL_S = 600.0
"""The last ten minutes are kept whole: 2,400 readings at four a second."""

MOST = 3_600
"""Readings kept in all; of eight trials they take some 25 MB."""

PAGE_BYTES = 750_000
"""Of frames that a page is given when it opens: an hour of three trials, some minutes of fifty."""

PAGE_FULL_S = 120.0
"""Of more than that, the last two minutes stay whole."""


class Moment(NamedTuple):
    """One reading, and what screens draw of it."""

    reading: StreamReading
    frame: bytes
    number: int
    """How many came before it."""

    @property
    def time_s(self) -> float:
        """When: wall clock, seconds since 1970."""
        return self.reading.time_s


class History:
    """What was read of one stream, oldest first.

    May be filled from one thread and read from others.

    Args:
        most: Readings kept in all, at least four times what `full_s` seconds bring.
        full_s: Seconds of which every reading is kept.
    """

    def __init__(self, most: int = MOST, full_s: float = FULL_S) -> None:
        self._most = most
        self._full_s = full_s
        self._moments: list[Moment] = []
        self._added = 0
        self._begin = 0  # the number of this stream's first
        self._turns: set[int] = set()  # numbers of the readings that stay, whatever their age
        self._ends: set[tuple[str, float]] = set()
        self._marker = Marker()
        self._lock = threading.Lock()

    def add(self, reading: StreamReading, frame: bytes = b"", changed: bool | None = None) -> None:
        """Take in the next reading.

        Args:
            reading: The reading.
            frame: What screens draw of it.
            changed: Whether anything in it is worth a mark, as a view has found that was fed all readings; with it the
                reading is the view's own. None: to be found here.
        """
        if changed is None:
            reading = without_profiled(reading)
        with self._lock:
            last = self._moments[-1] if self._moments else None
            ends = {(end.name, end.time_s) for end in reading.ends} - self._ends
            self._ends |= ends
            changed = bool(self._marker.feed(reading)) if changed is None else changed
            if changed and last is not None:
                self._turns |= {last.number, self._added}
            if ends:
                self._turns.add(self._added)
            self._moments.append(Moment(reading, frame, self._added))
            self._added += 1
            if len(self._moments) > self._most:
                self._moments = thinned(self._moments, self._most, self._full_s, self._turns)
                self._turns.intersection_update({moment.number for moment in self._moments})

    @property
    def added(self) -> int:
        """How many readings there were in all."""
        return self._added

    def anew(self) -> None:
        """Another stream of that name begins: `readings` are those from now on; frames go on, with their trials."""
        with self._lock:
            self._begin = self._added

    def readings(self) -> list[StreamReading]:
        """Return what there is, oldest first; one that is not later than another (a clock set back) is left out."""
        with self._lock:
            found: list[StreamReading] = []
            for moment in self._moments:
                if moment.number >= self._begin and (not found or moment.time_s > found[-1].time_s):
                    found.append(moment.reading)
            return found

    def frames(self, until: int | None = None, most_bytes: int = PAGE_BYTES) -> bytes:
        """Return what screens draw, oldest first.

        Args:
            until: Of as many readings; None: of all.
            most_bytes: About as many bytes at most.
        """
        with self._lock:
            end = self._added if until is None else until
            moments = [moment for moment in self._moments if moment.number < end and moment.frame]
            turns = set(self._turns)
        size = sum(len(moment.frame) for moment in moments)
        if size > most_bytes:
            room = max(100, len(moments) * most_bytes // size)
            moments = thinned(moments, room, PAGE_FULL_S, turns)
        return b"".join(moment.frame for moment in moments)

    def __len__(self) -> int:
        return len(self._moments)


def thinned(moments: list[Moment], most: int, full_s: float, turns: set[int]) -> list[Moment]:
    """Return all of the last seconds, and of the older ones even steps and those that must stay.

    Args:
        moments: Oldest first.
        most: How many there may be; those of the last seconds get three quarters of it.
        full_s: The last seconds that stay whole.
        turns: Numbers of moments that stay in any case, unless there are too many of them.
    """
    first_s, last_s = moments[0].time_s, moments[-1].time_s
    since_s = last_s - full_s
    recent = [moment for moment in moments if moment.time_s > since_s][-(3 * most // 4) :]
    old = moments[: len(moments) - len(recent)]
    room = max(1, (most - len(recent)) // 2)
    step_s = max((old[-1].time_s - first_s) / room if old else 0.0, 1e-9)
    kept: list[Moment] = []
    at, looked = -1, False  # the step that is under way, and whether the one kept of it looked at the machine
    for moment in old:
        step = int((moment.time_s - first_s) / step_s)
        looks = moment.reading.host is not None
        if moment.number in turns:
            kept.append(moment)
        elif step != at:
            kept.append(moment)
            at, looked = step, looks
        elif looks and not looked and len(kept) > 1 and kept[-1].number not in turns:
            kept[-1], looked = moment, True
    # a stream on which something changes all the time: its latest changes are kept
    return kept[-(2 * room) :] + recent


def without_profiled(reading: StreamReading) -> StreamReading:
    """Return a reading without trials that are only profiled (`tsnb.plan`, a planned sweep)."""
    names = [*[each.name for each in reading.consumers], *[each.name for each in reading.ends]]
    if not any(map(is_profiled, [*names, *reading.pending])):
        return reading
    host = reading.host
    if host is not None:
        seen = {name: process for name, process in host.consumers.items() if not is_profiled(name)}
        host = replace(host, consumers=seen)
    return replace(
        reading,
        host=host,
        consumers=tuple(each for each in reading.consumers if not is_profiled(each.name)),
        ends=tuple(each for each in reading.ends if not is_profiled(each.name)),
        moves=tuple(each for each in reading.moves if not is_profiled(each.consumer)),
        pending={name: said for name, said in reading.pending.items() if not is_profiled(name)},
    )
