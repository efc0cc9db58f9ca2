"""Frames: one tick of a stream as a row of float32 numbers.

What changes every tick travels as numbers, what seldom changes (names, states, sentences) as JSON beside it
(`tsnb.panel.tape`). A frame says its own length, so a history is frames laid end to end, and a trial that
joins or leaves changes nothing that was written before.

```
frame     = header, row, row, ...                      little-endian float32
header    = `HEADER` below                             10 numbers
row       = `ROW` below, then the lane's metrics       11 numbers + one for each metric that it had then
```

A *lane* is a place in the panel: the number of a consumer's name in the order of first appearance. It never
changes hands, so a colour stays with its trial. Unknown numbers are NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tsnb.telemetry.rates import Pace
from tsnb.telemetry.readings import CONSUMER_STATES, ConsumerReading, StreamReading

__all__ = ["HEADER", "ROW", "Lane", "frame"]

HEADER = (
    "time_s",  # seconds since the tape's origin
    "numbers",  # numbers in this frame, header included
    "batches_per_s",  # loader batches published a second
    "window_fill",  # batches between the fastest and the slowest consumer
    "epoch",  # from 0
    "published",  # loader batches published in that epoch
    "slots_used",
    "touched_mib",  # MiB of shared memory in use
    "batches",  # published so far, all epochs
    "copied",  # batches that the producer had to copy into the arena
)
"""What each number of a frame's header means."""

ROW = (
    "lane",
    "state",  # its place in `CONSUMER_STATES`
    "fill",  # batches published and not taken
    "lag",  # batches behind the fastest
    "samples_per_s",
    "computing",  # share of the last seconds, 0 to 1; likewise the next two
    "waiting",
    "held",
    "epoch",  # from 0; -1 before the first
    "position",  # loader batches taken in that epoch
    "metrics",  # how many numbers follow in this row
)
"""What each number of a consumer's row means; the lane's metrics follow in the order of `Lane.metrics`."""

_MIB = 1024.0 * 1024.0
_STATES = {state: number for number, state in enumerate(CONSUMER_STATES)}


@dataclass
class Lane:
    """A consumer's place in the panel."""

    name: str
    """The consumer's name."""
    here: bool
    """Whether it is attached; its state stands in the frames."""
    since_s: float
    """When it came or left, seconds since the tape's origin."""
    metrics: list[str]
    """Names of its logged numbers, in the order of first appearance."""


def frame(
    reading: StreamReading, origin_s: float, batches_per_s: float, rows: Sequence[tuple[int, Lane, Pace]]
) -> bytes:
    """Return one tick as bytes.

    Args:
        reading: The stream now.
        origin_s: What `time_s` counts from (wall clock): float32 could not hold today's date.
        batches_per_s: The loader's pace.
        rows: Lane number, lane and pace of each consumer, in the order of `reading.consumers`.
    """
    body: list[float] = []
    for consumer, (number, lane, pace) in zip(reading.consumers, rows, strict=True):
        body += _row(consumer, number, lane, pace)
    header = [
        reading.time_s - origin_s,
        len(HEADER) + len(body),
        batches_per_s,
        reading.window_fill,
        reading.epoch,
        reading.published,
        reading.slots_used,
        reading.touched_bytes / _MIB,
        reading.batches,
        reading.copied,
    ]
    return np.asarray(header + body, dtype="<f4").tobytes()


def _row(consumer: ConsumerReading, number: int, lane: Lane, pace: Pace) -> list[float]:
    return [
        number,
        _STATES.get(consumer.state, math.nan),
        consumer.fill,
        consumer.lag,
        pace.samples_per_s,
        pace.computing,
        pace.waiting,
        pace.held,
        consumer.epoch,
        consumer.position,
        len(lane.metrics),
        *(consumer.metrics.get(name, math.nan) for name in lane.metrics),
    ]
