"""Rates: what two readings some seconds apart say about the time between them.

Counters come a few times a second; a step of a large model takes longer than that. So rates are taken over
`SPAN_S`, and over up to `PATIENCE_S` for a consumer that took nothing in that time: its numbers then fade
instead of flickering between zero and twice the truth.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from tsnb.telemetry.host_readings import HostReading
from tsnb.telemetry.readings import ConsumerReading, StreamReading

__all__ = ["PATIENCE_S", "SPAN_S", "UNKNOWN", "Pace", "RateWindow"]

SPAN_S = 2.0
"""Rates look back this far: long enough to be steady, short enough to be now."""

PATIENCE_S = 8.0
"""And up to this far for whoever took no batch within `SPAN_S`."""


@dataclass(frozen=True)
class Pace:
    """How fast a consumer is, and where its time goes, as shares of wall time.

    What is missing to 1 was spent between epochs.
    """

    samples_per_s: float
    """Samples taken a second."""
    computing: float
    """Share of time in the user's own code, 0 to 1."""
    waiting: float
    """Share of time waiting for the loader, 0 to 1."""
    held: float
    """Share of time held back by the window's slowest, 0 to 1."""


UNKNOWN = Pace(math.nan, math.nan, math.nan, math.nan)
"""The pace of a consumer that was seen only once."""


class RateWindow:
    """The readings of the last seconds."""

    def __init__(self) -> None:
        self._readings: deque[StreamReading] = deque()
        # the consumers of each reading: looked up many times a tick
        self._by_name: deque[dict[str, ConsumerReading]] = deque()

    def add(self, reading: StreamReading) -> None:
        """Take in the next reading; one of another producer, or from the past, starts anew."""
        if self._readings:
            last = self._readings[-1]
            if last.pid != reading.pid or last.batches > reading.batches or last.time_s >= reading.time_s:
                self._readings.clear()
                self._by_name.clear()
        self._readings.append(reading)
        self._by_name.append({consumer.name: consumer for consumer in reading.consumers})
        while reading.time_s - self._readings[0].time_s > PATIENCE_S:
            self._readings.popleft()
            self._by_name.popleft()

    @property
    def span(self) -> tuple[StreamReading, StreamReading]:
        """The reading about `SPAN_S` ago (or the oldest there is) and the last one.

        Raises:
            IndexError: Nothing was added yet.
        """
        last = self._readings[-1]
        old = (r for r in reversed(self._readings) if last.time_s - r.time_s >= SPAN_S)
        return next(old, self._readings[0]), last

    def batches_per_s(self) -> float:
        """Return how many batches the loader published a second; NaN after a single reading."""
        earlier, later = self.span
        if earlier is later:
            return math.nan
        return (later.batches - earlier.batches) / (later.time_s - earlier.time_s)

    def left_s(self) -> float:
        """Return how many seconds are left until the loader has published the epoch's last batch.

        At the pace of the last `PATIENCE_S`: steadier than the shown one, or the clock would jump.

        Returns:
            Seconds; NaN while nothing is being published, after a single reading, or where the loader has no length.
        """
        first, last = self._readings[0], self._readings[-1]
        whole, published = last.epoch_batches, last.batches - first.batches
        if whole is None or published <= 0 or last.state in ("idle", "failed", "stopping", "gone"):
            return math.nan
        return max(0, whole - last.published) * (last.time_s - first.time_s) / published

    @property
    def host(self) -> HostReading | None:
        """The last reading of the machine, which not every reading carries; None: none in the last seconds."""
        return next((r.host for r in reversed(self._readings) if r.host), None)

    def pace(self, consumer: ConsumerReading) -> Pace:
        """Return the pace of a consumer of the last reading."""
        now_s = self._readings[-1].time_s
        found: tuple[float, ConsumerReading] | None = None
        for age_s, before in self._lives(consumer, now_s):
            found = (age_s, before)
            if age_s >= SPAN_S and before.batches < consumer.batches:
                break
        return _between(found[1], consumer, found[0]) if found else UNKNOWN

    def _lives(self, consumer: ConsumerReading, now_s: float) -> Iterator[tuple[float, ConsumerReading]]:
        """Yield age in seconds and reading of this same attachment, newest first, as far back as it goes."""
        pairs = zip(reversed(self._readings), reversed(self._by_name), strict=True)
        next(pairs)  # the reading that the consumer is of
        for reading, by_name in pairs:
            before = by_name.get(consumer.name)
            # fewer batches than before, or another process: the name was attached anew
            if before is None or before.pid != consumer.pid or before.batches > consumer.batches:
                return
            yield now_s - reading.time_s, before


def _between(before: ConsumerReading, after: ConsumerReading, seconds: float) -> Pace:
    spent = [
        max(0.0, after.computing_s - before.computing_s),
        max(0.0, after.waiting_s - before.waiting_s),
        max(0.0, after.held_s - before.held_s),
    ]
    # time is booked when a step ends, so a long step can bring more seconds than have passed
    whole = max(seconds, sum(spent))
    return Pace((after.samples - before.samples) / seconds, *(s / whole for s in spent))
