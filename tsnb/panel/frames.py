"""Frames: one tick of a stream as a row of float32 numbers.

What changes every tick travels as numbers, what seldom changes (names, states, sentences) as JSON beside it
(`tsnb.panel.tape`). A frame says its own length, so a history is frames laid end to end, and a trial that
joins or leaves changes nothing that was written before.

```
frame     = header, row, row, ..., machine             little-endian float32
header    = `HEADER` below                             12 numbers
row       = `ROW` below, then the lane's metrics       11 numbers + one for each metric that it had then
machine   = `MACHINE` below, then processes and GPUs   only in ticks with a host reading, every other second
process   = `PROCESS` below                            5 numbers
GPU       = `GPU` below                                4 numbers
```

A *lane* is a place in the panel: the number of a consumer's name in the order of first appearance. It never
changes hands, so a colour stays with its trial. Unknown numbers are NaN.

The reel keeps a stream's frames, all of the last ten minutes and every so many seconds before:

```
older: at most 800 frames, one every `step_s` (4 s, then 8 s, 16 s, ...)      recent: all frames, 2400
├───────────┬───────────┬───────────┬───────────┬───────────┬───────────┼─┼─┼─┼─┼─┼─┼─┼─┼─┼─┼─┼─┤ now
```

So a stream of a day costs about as much as one of an hour, and no moment of it is lost altogether. When the older
part is full, every other frame of it goes and the step doubles. The front end keeps the same reel (reel.js).
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np

from tsnb.telemetry.rates import Pace
from tsnb.telemetry.readings import (
    CONSUMER_STATES,
    ConsumerReading,
    HostReading,
    ProcessReading,
    StreamReading,
)

__all__ = [
    "GPU",
    "HEADER",
    "MACHINE",
    "OLDER_TICKS",
    "PROCESS",
    "RECENT_TICKS",
    "ROW",
    "Lane",
    "Reel",
    "frame",
]

HEADER = (
    "time_s",  # seconds since the tape's origin
    "numbers",  # numbers in this frame, header included
    "batches_per_s",  # loader batches published a second
    "window_fill",  # batches between the fastest and the slowest consumer
    "epoch",  # from 0
    "published",  # loader batches published in that epoch
    "left_s",  # seconds until the loader has published the epoch's last batch
    "slots_used",
    "touched_mib",  # MiB of shared memory in use
    "batches",  # published so far, all epochs
    "copied",  # batches that the producer had to copy into the arena
    "alone_per_s",  # loader batches a second at most, if nobody held the loader back
)
"""What each number of a frame's header means."""

ROW = (
    "place",  # 128 lane + 16 metrics + state: how many metrics follow, and its place in `CONSUMER_STATES`
    "fill",  # batches published and not taken
    "lag",  # batches behind the fastest
    "samples_per_s",
    "computing",  # share of the last seconds, 0 to 1; likewise the next two
    "waiting",
    "held",
    "epochs",  # that it has taken itself, the one under way as a share; -1 before the first
    "position",  # loader batches taken in that epoch
    "step_ms",  # milliseconds that it computes on a loader batch
    "alone_per_s",  # samples a second with a batch always ready and nobody to wait for
)
"""What each number of a consumer's row means; the lane's metrics follow in the order of `Lane.metrics`."""

MACHINE = (
    "mark",  # -1: no row begins so
    "cores",  # that the notebook's user may use
    "cpu",  # cores busy
    "used_mib",
    "total_mib",
    "processes",  # how many follow
)
"""What each number on the machine means; GPUs follow the processes, to the frame's end."""

PROCESS = (
    "lane",  # -1: the producer with its loader's workers
    "cpu",  # cores busy
    "memory_mib",  # of its own
    "cores",  # that it may use
    "gpu_mib",
)
"""What each number on a process with its children means."""

GPU = (
    "index",
    "busy",  # share of the last second, 0 to 1; NaN where it is not told
    "used_mib",
    "total_mib",
)
"""What each number on a GPU means."""

_MIB = 1024.0 * 1024.0
_STATES = {state: number for number, state in enumerate(CONSUMER_STATES)}
_METRICS_AT, _LANES_AT = 16, 128
_PRODUCER = -1


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
    awaits: str = ""
    """The ranks of its group that it waits for, in words."""
    end: str = ""
    """How it ended, one of `END_STATES`; empty while it is here, or where nobody knows."""
    error: str = ""
    """What it failed of, one line."""
    last: dict[str, float] = field(default_factory=dict)
    """The last of its logged numbers, once it has ended."""
    epochs: float = -1.0
    """Epochs that it has taken, for the frames."""


def frame(
    reading: StreamReading,
    origin_s: float,
    batches_per_s: float,
    alone_per_s: float,
    left_s: float,
    rows: Sequence[tuple[int, Lane, Pace]],
    lanes: Mapping[str, int],
) -> bytes:
    """Return one tick as bytes.

    Args:
        reading: The stream now.
        origin_s: What `time_s` counts from (wall clock): float32 could not hold today's date.
        batches_per_s: The loader's pace.
        alone_per_s: What that could be if nobody held it back.
        left_s: Seconds left of the epoch.
        rows: Lane number, lane and pace of each consumer, in the order of `reading.consumers`.
        lanes: Lane numbers by name, for the machine's processes.
    """
    body: list[float] = []
    for consumer, (number, lane, pace) in zip(reading.consumers, rows, strict=True):
        body += _row(consumer, number, lane, pace)
    if reading.host:
        body += _machine(reading.host, reading.consumers, lanes)
    header = [
        reading.time_s - origin_s,
        len(HEADER) + len(body),
        batches_per_s,
        reading.window_fill,
        reading.epoch,
        reading.published,
        left_s,
        reading.slots_used,
        reading.touched_bytes / _MIB,
        reading.batches,
        reading.copied,
        alone_per_s,
    ]
    return np.asarray(header + body, dtype="<f4").tobytes()


def _row(consumer: ConsumerReading, number: int, lane: Lane, pace: Pace) -> list[float]:
    state = _STATES.get(consumer.state, _METRICS_AT - 1)
    return [
        _LANES_AT * number + _METRICS_AT * len(lane.metrics) + state,
        consumer.fill,
        consumer.lag,
        pace.samples_per_s,
        pace.computing,
        pace.waiting,
        pace.held,
        lane.epochs,
        consumer.position,
        pace.step_s * 1000,
        pace.alone_per_s,
        *(consumer.metrics.get(name, math.nan) for name in lane.metrics),
    ]


def _machine(
    host: HostReading, consumers: Sequence[ConsumerReading], lanes: Mapping[str, int]
) -> list[float]:
    # consumers of one process have all its numbers each: in equal parts, so that sums are right
    pids = {consumer.name: consumer.pid for consumer in consumers}
    shared = Counter(pids[name] for name in host.consumers if name in pids)
    seen = [
        (lanes[name], process, shared[pids[name]])
        for name, process in host.consumers.items()
        if name in pids and name in lanes
    ]
    if host.producer:
        seen.append((_PRODUCER, host.producer, 1))
    used, total = host.memory_used_bytes / _MIB, host.memory_total_bytes / _MIB
    numbers = [-1.0, host.cores, host.cpu, used, total, len(seen)]
    for number, process, parts in seen:
        numbers += _process(number, process, parts)
    for gpu in host.gpus:
        busy = math.nan if gpu.busy is None else gpu.busy
        numbers += [gpu.index, busy, gpu.used_bytes / _MIB, gpu.total_bytes / _MIB]
    return numbers


def _process(number: int, process: ProcessReading, parts: int) -> list[float]:
    mib = _MIB * parts
    return [number, process.cpu / parts, process.memory_bytes / mib, process.cores, process.gpu_bytes / mib]


RECENT_TICKS = 2400
"""Ten minutes at four ticks a second; about 0.5 MB for three trials."""

OLDER_TICKS = 800
"""Frames kept of the time before."""

_FIRST_STEP_S = 4.0


class _Shot(NamedTuple):
    time_s: float
    wanted: bool  # whether it carries the machine's numbers, which one in eight does
    frame: bytes


class Reel:
    """Frames in the order of time, bounded."""

    def __init__(self) -> None:
        self._recent: deque[_Shot] = deque()
        self._older: list[_Shot] = []
        self._step_s = _FIRST_STEP_S

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)

    def add(self, time_s: float, frame: bytes, *, wanted: bool = False) -> None:
        """Take in the next frame.

        Args:
            time_s: Its time.
            frame: Its bytes.
            wanted: Whether to prefer it to its neighbours where frames are thinned.
        """
        self._recent.append(_Shot(time_s, wanted, frame))
        if len(self._recent) > RECENT_TICKS:
            self._keep(self._recent.popleft())

    def history(self) -> bytes:
        """Return all frames, oldest first."""
        return b"".join(shot.frame for shot in chain(self._older, self._recent))

    def _keep(self, shot: _Shot) -> None:
        if self._older:
            passed_s = shot.time_s - self._older[-1].time_s
            if 0 <= passed_s < (self._step_s if shot.wanted else 1.5 * self._step_s):
                return
        self._older.append(shot)
        if len(self._older) > OLDER_TICKS:
            self._older = self._older[::2]
            self._step_s *= 2
