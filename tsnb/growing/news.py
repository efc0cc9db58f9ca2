"""What a stream tells of its growing data set: rounds that began, and samples that entered an epoch.

Samples that enter one by one are told together: the first at once, those after it every `TOGETHER_S`, and at the end of
their epoch. So a folder that gets a file every second makes six marks a minute, and their numbers still add up.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from tsnb.telemetry.readings import GrowthReading

__all__ = ["GrowthNews"]

MOST = 8
"""The last so many are told: a reading a quarter of a second tells each of them."""
TOGETHER_S = 10.0
"""How long samples that enter are counted before they are told."""
LATER_S = 1e-3
"""Each is later than the one before, whatever the clock does: who watches knows by that what is new."""
REASON_LETTERS = 80


class GrowthNews:
    """The last rounds and entries of one stream. Used from any thread.

    Args:
        clock: Seconds since 1970.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._told: deque[GrowthReading] = deque(maxlen=MOST)
        self._epoch = -1  # of the samples that are not told yet
        self._entered = 0
        self._last_s = float("-inf")  # when samples were told

    def begin_round(self, epoch: int, samples: int, select: str, reason: str) -> None:
        """Note that a round begins.

        Args:
            epoch: Its number.
            samples: How many it has.
            select: Which, as they were asked for.
            reason: Why now, in words; empty where that is not known.
        """
        with self._lock:
            self._tell_entered()
            self._tell("round", epoch, samples, select, reason[:REASON_LETTERS])

    def enter(self, epoch: int, samples: int) -> None:
        """Note that samples enter an epoch."""
        with self._lock:
            if epoch != self._epoch:
                self._tell_entered()
                self._last_s = float("-inf")
            self._epoch = epoch
            self._entered += samples
            self._tell_if_due()

    def look(self) -> None:
        """Tell what has been counted for long enough. Called a few times a second."""
        with self._lock:
            self._tell_if_due()

    def end_epoch(self) -> None:
        """Tell all that has been counted."""
        with self._lock:
            self._tell_entered()

    @property
    def readings(self) -> tuple[GrowthReading, ...]:
        """The last ones, oldest first."""
        with self._lock:
            return tuple(self._told)

    def _tell_if_due(self) -> None:
        if not 0 <= self._clock() - self._last_s < TOGETHER_S:
            self._tell_entered()

    def _tell_entered(self) -> None:
        if self._entered:
            self._last_s = self._clock()
            self._tell("entered", self._epoch, self._entered, "", "")
            self._entered = 0

    def _tell(self, kind: str, epoch: int, samples: int, select: str, reason: str) -> None:
        least_s = self._told[-1].time_s + LATER_S if self._told else 0.0
        self._told.append(GrowthReading(max(self._clock(), least_s), kind, epoch, samples, select, reason))
