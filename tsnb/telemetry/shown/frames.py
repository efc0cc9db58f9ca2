"""Frames: a stream's past, kept for screens that open later, as rows of float32 numbers.

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
can be thinned as they like (`history`): the learning curves are kept apart, in `curves`.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tsnb.telemetry.forecast.eta import NO_ETA, Eta
from tsnb.telemetry.readings import (
    CONSUMER_STATES,
    ConsumerReading,
    HostReading,
    ProcessReading,
    StreamReading,
)
from tsnb.telemetry.shown.curves import bounded
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
    "PROCESS",
    "ROW",
    "Logged",
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

Logged = tuple[int, int, float, "int | None", "LoggedReading | None"]
"""Lane, metric, value, batches taken by then (None: those of its row), and the values of which it is the last."""

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
                body += (-1.5 - place, value, at, *map(bounded, part.spread), part.values)
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
