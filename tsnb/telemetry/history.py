"""History: the readings of a stream's life, bounded, so that a report can be written whenever somebody asks.

All of the last ten minutes is kept. What is older is thinned to even steps, except where something changed
(`tsnb.telemetry.marks`): the reading that shows it and the one before stay, so that joins, ends and the totals of
who has left remain exact however long the stream runs. So does the first reading that tells how a trial ended.
"""

from __future__ import annotations

import threading

from tsnb.telemetry.marks import Marker
from tsnb.telemetry.readings import StreamReading

__all__ = ["FULL_S", "MOST", "History"]

FULL_S = 600.0
"""The last ten minutes are kept whole: 2,400 readings at four a second."""

MOST = 6_000
"""Readings kept in all; of eight trials they take some 40 MB."""


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
        self._readings: list[StreamReading] = []
        self._turns: set[float] = set()  # times of the readings that stay, whatever their age
        self._ends: set[tuple[str, float]] = set()
        self._marker = Marker()
        self._lock = threading.Lock()

    def add(self, reading: StreamReading) -> None:
        """Take in the next reading; one that is not later than the last (a clock set back) is left out."""
        with self._lock:
            last = self._readings[-1] if self._readings else None
            if last is not None and reading.time_s <= last.time_s:
                return
            ends = {(end.name, end.time_s) for end in reading.ends} - self._ends
            self._ends |= ends
            if self._marker.feed(reading) and last is not None:
                self._turns |= {last.time_s, reading.time_s}
            if ends:
                self._turns.add(reading.time_s)
            self._readings.append(reading)
            if len(self._readings) > self._most:
                self._thin()

    def readings(self) -> list[StreamReading]:
        """Return what there is, oldest first."""
        with self._lock:
            return list(self._readings)

    def __len__(self) -> int:
        return len(self._readings)

    def _thin(self) -> None:
        """Leave of what is older than `full_s` as much as half of the room, in even steps."""
        first_s, last_s = self._readings[0].time_s, self._readings[-1].time_s
        since_s = last_s - self._full_s
        recent = [r for r in self._readings if r.time_s > since_s][-(3 * self._most // 4) :]
        old = self._readings[: len(self._readings) - len(recent)]
        room = max(1, (self._most - len(recent)) // 2)
        step_s = (since_s - first_s) / room
        kept: list[StreamReading] = []
        step = -1
        for reading in old:
            before, step = step, int((reading.time_s - first_s) / step_s)
            if step > before or reading.time_s in self._turns:
                kept.append(reading)
        # a stream on which something changes all the time: its latest changes are kept
        self._readings = kept[-(2 * room) :] + recent
        self._turns.intersection_update({r.time_s for r in self._readings})
