"""Frames and curves: a stream's past, kept for screens that open later, as rows of float32 numbers.

Values that change every tick travel as numbers, those that seldom change (names, states, sentences) as JSON beside
them (`tsnb.panel.tape`). A frame says its own length, so a history is frames laid end to end, and a trial that
joins or leaves changes nothing that was written before.

```
frame     = header, row, row, ..., apart, paces, machine, logged     little-endian float32
header    = `HEADER` below                                    12 numbers
row       = `ROW` below                                       9 numbers a consumer
apart     = -4, how many, `APART` of each                     only of consumers that did not take part all the time
paces     = -3, how many, `ALL`, then `PACE` of each          only every other second
machine   = `MACHINE` below, then processes and GPUs          only with a look at the machine, every other second
process   = `PROCESS` below                                   5 numbers
GPU       = `GPU` below                                       4 numbers
logged    = -2, then `LOGGED` of each, to its end             only what was logged since the frame before
```

A *lane* is a place in the panel: the number of a consumer's name in the order of first appearance. It never
changes hands, so a colour stays with its trial. Unknown numbers are NaN.

A trial may log any number of metrics: what it logs costs two numbers when it does, and nothing in between. So frames
can be thinned as they like (`history`): the learning curves are kept apart, in `Curves`, each bounded by
itself. A curve has one point for every stretch of equal width, in loader batches. A full curve has its stretches
joined in pairs, so a day's first hour is as fine as its last. A page has the same function (`curves.js`). So one that
opens late, and goes on from what it is given, has the points of one that stayed open, to the last bit.

```
curves    = curve, curve, ...
curve     = lane, metric, width, points, then `POINT` of each
```
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tsnb.telemetry.forecast.eta import NO_ETA, Eta
from tsnb.telemetry.readings import (
    CONSUMER_STATES,
    ConsumerReading,
    HostReading,
    ProcessReading,
    StreamReading,
)
from tsnb.telemetry.shown.rates import Pace
from tsnb.telemetry.trial_readings import LoggedReading

__all__ = [
    "ALL",
    "APART",
    "GPU",
    "HEADER",
    "LOGGED",
    "MACHINE",
    "PACE",
    "POINT",
    "PROCESS",
    "ROW",
    "SMOOTH",
    "Curve",
    "Curves",
    "Logged",
    "frame",
    "smoothed",
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
    "alone_per_s",  # loader batches a second at most, if no trial held the loader back
)
"""What each number of a frame's header means."""

ROW = (
    "place",  # 16 lane + state: its place in `CONSUMER_STATES`
    "fill",  # batches published and not taken
    "lag",  # batches behind the fastest
    "samples_per_s",
    "computing",  # share of the last seconds, 0 to 1, as the next two
    "waiting",
    "held",
    "epochs",  # that it has taken itself, the one under way as a share; -1 before the first
    "batches",  # loader batches that it has taken itself, all epochs
)
"""What each number of a consumer's row means."""

APART = (
    "lane",
    "joining",  # share of the last seconds, as a row's
    "paused",  # share of all of the last seconds, as the next one: those of rows are of the rest
    "timed_out",
)
"""What each number on a consumer means that joins a pass, or stands still; of others all three are 0."""

PACE = (
    "lane",
    "step_ms",  # milliseconds that it computes on a loader batch
    "alone_per_s",  # samples a second with a batch always ready and no other trial to wait for
    "left_s",  # seconds until its last epoch is over; with 0 epochs until this one is; NaN: not known
    "epochs",  # that it takes in all; 0: not known
)
"""What each number of a consumer's pace means: what changes seldom, and is looked at seldom."""

ALL = (
    "left_s",  # seconds until the last epoch of the last trial is over; NaN: not known of one
    "low_s",  # four times in five not less than this...
    "high_s",  # ... nor more than this
)
"""What each number on all trials together means."""

MACHINE = (
    "mark",  # -1: no row begins so
    "cores",  # that the notebook's user may use
    "cpu",  # cores busy
    "used_mib",
    "total_mib",
    "processes",  # how many follow
    "gpus",  # and how many after them
)
"""What each number on the machine means."""

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

LOGGED = (
    "place",  # 1024 lane + metric: its place among the names that the lane has logged
    "value",
)
"""What each number on a logged value means. It was logged at the batch that the lane's row in the same frame counts.

Where it was not, the place is -1 - place, and the loader batches that the trial had taken by then follow the value. Of
the last of several the place is -1.5 - place, and lowest, highest, mean and count of the finite ones follow them."""

At = tuple[float, float, float]
"""Time, batches and epochs, as `POINT` says."""
Logged = tuple[int, int, float, "int | None", "LoggedReading | None"]
"""Lane, metric, value, batches taken by then (None: those of its row), and the values of which it is the last."""

POINT = (
    "time_s",  # of its last value, since the tape's origin
    "batches",  # loader batches that the trial had taken by then
    "epochs",  # that it had taken by then
    "last",  # the last value of the stretch
    "low",  # the lowest of them
    "high",  # the highest
    "mean",
    "values",  # how many they are; 0: none was finite
)
"""What each number of a curve's point means. Values that are not finite count only as the last."""

_A_POINT = len(POINT)
_MIB = 1024.0 * 1024.0
_STATES = {state: number for number, state in enumerate(CONSUMER_STATES)}
_LANES_AT, _METRICS_AT = 16, 1024
_PRODUCER, _MACHINE_MARK, _LOGGED_MARK, _PACES_MARK, _APART_MARK = -1.0, -1.0, -2.0, -3.0, -4.0


def frame(
    reading: StreamReading,
    origin_s: float,
    loader: tuple[float, float, float],
    rows: Sequence[tuple[ConsumerReading, int, Pace, float, int]],
    lanes: Mapping[str, int],
    logged: Sequence[Logged] = (),
    *,
    etas: Mapping[int, Eta] | None = None,
) -> bytes:
    """Return one tick as bytes.

    Args:
        reading: The stream now.
        origin_s: What `time_s` counts from (wall clock): float32 could not hold today's date.
        loader: Batches a second, the same if no trial held it back, and seconds left of the epoch.
        rows: Reading, lane, pace, epochs (-1 before the first) and batches of each consumer.
        lanes: Lane numbers by name, for the machine's processes.
        logged: What was logged since the frame before.
        etas: How long each still takes, by lane, and all of them (-1); None: the frame has no paces.
    """
    batches_per_s, alone_per_s, left_s = loader
    body: list[float] = []
    for row in rows:
        body += _row(*row)
    if apart := [(lane, pace) for _, lane, pace, *_ in rows if pace.joining or pace.paused or pace.timed_out]:
        body += (_APART_MARK, len(apart))
        for lane, pace in apart:
            body += (lane, pace.joining, pace.paused, pace.timed_out)
    if etas is not None:
        every = etas.get(-1, NO_ETA)
        body += (_PACES_MARK, len(rows), every.left_s, every.low_s, every.high_s)
        for _, lane, pace, *_ in rows:
            eta = etas.get(lane, NO_ETA)
            body += (lane, pace.step_s * 1000, pace.alone_per_s, eta.left_s, eta.epochs)
    if reading.host:
        body += _machine(reading.host, reading.consumers, lanes)
    if logged:
        body.append(_LOGGED_MARK)
        taken = {lane: batches for _, lane, _, _, batches in rows}
        for lane, metric, value, batches, part in logged:
            place = _METRICS_AT * lane + metric
            if part is not None:
                at = taken.get(lane, 0) if batches is None else batches
                body += (-1.5 - place, value, at, *map(_bounded, part.spread), part.values)
            else:
                body += (place, value) if batches is None else (-1 - place, value, batches)
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
    return array("f", header + body).tobytes()


def _row(consumer: ConsumerReading, lane: int, pace: Pace, epochs: float, batches: int) -> Iterable[float]:
    here = consumer.state != "gone"
    return (
        _LANES_AT * lane + _STATES.get(consumer.state, _LANES_AT - 1),
        consumer.fill if here else math.nan,
        consumer.lag if here else math.nan,  # one that only says how it ended is nowhere in the stream
        pace.samples_per_s,
        pace.computing,
        pace.waiting,
        pace.held,
        epochs,
        batches,
    )


def _machine(
    host: HostReading, consumers: Sequence[ConsumerReading], lanes: Mapping[str, int]
) -> list[float]:
    # consumers of one process have all its numbers each: in equal parts, so that sums are right
    pids = {consumer.name: consumer.pid for consumer in consumers}
    shared = Counter(pids[name] for name in host.consumers if name in pids)
    seen: list[tuple[float, ProcessReading, int]] = [
        (lanes[name], process, shared[pids[name]])
        for name, process in host.consumers.items()
        if name in pids and name in lanes
    ]
    if host.producer:
        seen.append((_PRODUCER, host.producer, 1))
    used, total = host.memory_used_bytes / _MIB, host.memory_total_bytes / _MIB
    numbers = [_MACHINE_MARK, host.cores, host.cpu, used, total, len(seen), len(host.gpus)]
    for lane, process, parts in seen:
        mib = _MIB * parts
        numbers += (
            lane,
            process.cpu / parts,
            process.memory_bytes / mib,
            process.cores,
            process.gpu_bytes / mib,
        )
    for gpu in host.gpus:
        busy = math.nan if gpu.busy is None else gpu.busy
        numbers += (gpu.index, busy, gpu.used_bytes / _MIB, gpu.total_bytes / _MIB)
    return numbers


POINTS = 512
"""Points of one curve at most..."""

FEWEST = 40
"""... and at least, however many curves there are."""

BUDGET = 60_000
"""Points of all curves: 2 MB, which a page is given as it opens."""


class Curves:
    """What trials have logged, by lane and metric: where each value was taken, and what it was. Bounded."""

    def __init__(self) -> None:
        self._curves: dict[tuple[int, int], _Kept] = {}
        self._room = POINTS

    def __len__(self) -> int:
        return len(self._curves)

    def add(self, lane: int, metric: int, at: At, value: float, part: LoggedReading | None = None) -> None:
        """Take in a value, or several.

        Args:
            lane: The trial's number.
            metric: Its place among the names that the lane has logged.
            at: Where it was taken.
            value: What was logged; of several the last.
            part: Those several.
        """
        curve = self._curves.get((lane, metric))
        if curve is None:
            curve = self._curves[lane, metric] = _Kept()
            self._share_room()
        last = value if (finite := -_MOST <= value <= _MOST) else _bounded(value)
        alone = (last, last, last, 1.0 if finite else 0.0)
        curve.add(at, (last, *(alone if part is None else (*map(_bounded, part.spread), float(part.values)))))
        if len(curve.points) > _A_POINT * self._room:
            curve.fit(self._room)

    def _share_room(self) -> None:
        """Settle how many points a curve may have, by how many curves there are."""
        self._room = max(FEWEST, min(POINTS, BUDGET // len(self._curves)))
        for each in self._curves.values():
            each.fit(self._room)

    def begin_anew(self, lane: int) -> None:
        """Keep what a lane has logged as its former run's, at -1 - lane: another run of its trial begins."""
        now, former = ([key for key in self._curves if key[0] == one] for one in (lane, -1 - lane))
        if now:
            for key in former:
                del self._curves[key]
            for _, metric in now:
                self._curves[-1 - lane, metric] = self._curves.pop((lane, metric))

    def points(self, lane: int, metric: int) -> list[tuple[float, ...]]:
        """Return a curve's points, oldest first."""
        points = self._curves[lane, metric].points if (lane, metric) in self._curves else array("f")
        return [tuple(points[k : k + _A_POINT]) for k in range(0, len(points), _A_POINT)]

    def to_bytes(self) -> bytes:
        """Return all curves, one after the other."""
        parts = []
        for (lane, metric), curve in self._curves.items():
            count = len(curve.points) // _A_POINT
            parts += [array("f", (lane, metric, curve.width, count)).tobytes(), curve.points.tobytes()]
        return b"".join(parts)


def _bounded(value: float) -> float:
    """Return a number that float32 can hold: a larger one becomes infinite."""
    if -_MOST <= value <= _MOST:
        return value
    return math.nan if math.isnan(value) else math.copysign(math.inf, value)


_MOST = (2 - 2**-23) * 2.0**127  # the largest float of 32 bits


class _Kept:
    """One curve: a point for each stretch of `width` batches in which anything was logged.

    Without numpy: this runs on a watch's thread, and a notebook's main thread may import numpy at that very moment.
    """

    __slots__ = ("points", "width")

    def __init__(self) -> None:
        self.width = 1
        self.points = array("f")

    def add(self, at: At, told: tuple[float, ...]) -> None:
        """Take in what was logged; of several at one batch the last counts, until stretches are joined."""
        points = self.points
        before = points[-_A_POINT + 1] // self.width if points else -1.0
        points.extend((*at, *told))
        if points[-_A_POINT + 1] // self.width <= before:
            if self.width == 1:
                del points[-2 * _A_POINT : -_A_POINT]
            else:
                _join(points)

    def fit(self, most: int) -> None:
        """Join stretches in pairs until there are no more than `most` points."""
        while len(self.points) > _A_POINT * most:
            self.width *= 2
            points, self.points = self.points, array("f")
            before = -1.0
            for at in range(0, len(points), _A_POINT):
                self.points.extend(points[at : at + _A_POINT])
                place = points[at + 1] // self.width
                if place <= before:
                    _join(self.points)
                before = place


def _join(points: array[float]) -> None:
    """Make one of the last two points."""
    low, high, mean, count = points[-_A_POINT - 4 : -_A_POINT]
    new_low, new_high, new_mean, new_count = points[-4:]
    if count and new_count:
        points[-4] = min(low, new_low)
        points[-3] = max(high, new_high)
        points[-2] = (mean * count + new_mean * new_count) / (count + new_count)
        points[-1] = count + new_count
    elif count:
        points[-4:] = points[-_A_POINT - 4 : -_A_POINT]
    del points[-2 * _A_POINT : -_A_POINT]


SMOOTH = 22
"""Batches over which panels smooth curves where nobody has chosen otherwise."""


class Curve(NamedTuple):
    """What one trial has logged under one name."""

    points: Sequence[tuple[float, ...]]
    """As `POINT` says, oldest first."""
    sparse: bool = False
    """Whether it was logged about once an epoch, or less often: each value is a mean already, and is never smoothed."""

    def smoothed(self, constant: float = SMOOTH) -> list[float]:
        """Return its values as pages draw them, smoothed over so many batches."""
        return smoothed(self.points, 0 if self.sparse else constant)


def smoothed(points: Sequence[tuple[float, ...]], constant: float = SMOOTH) -> list[float]:
    """Return a curve's smoothed values, as pages draw them (`learning.js` has the same function).

    Each is the mean of the points before it, weighing less by the batches that lie between: after `constant` of them
    by e.

    Args:
        points: As `POINT` says, oldest first.
        constant: Batches; 0: the values as they are.
    """
    if not constant > 0:
        return [point[6] for point in points]
    total = part = 0.0
    found, before = [], points[0][1] if points else 0.0
    for _, batches, *_, mean, values in points:
        if not math.isfinite(mean):
            found.append(mean)
            continue
        kept = math.exp((before - batches) / constant)
        before, count = batches, values or 1.0
        total, part = kept * total + count * mean, kept * part + count
        found.append(total / part)
    return found
