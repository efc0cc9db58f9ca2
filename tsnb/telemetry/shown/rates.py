"""Rates: what two readings some seconds apart say about the time between them.

Counters come a few times a second; a step of a large model takes longer than that. So rates are taken over
`SPAN_S`, and over up to `PATIENCE_S` for a consumer that took nothing in that time: its numbers then fade
instead of flickering between zero and twice the truth.

Joules for 1,000 samples go by the counters from the first look at the machine to the last. Of a stream: all that was
counted (GPUs, processor packages), whatever used it, over the samples of all its trials. Of a trial: the count of the
GPUs that it had to itself among the trials. Two trials on one GPU have no number each: their joules cannot be told
apart.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tsnb.machine.energy import NOT_MEASURABLE
from tsnb.telemetry.readings import ConsumerReading, HostReading, StreamReading
from tsnb.text.words import short_number

__all__ = [
    "PATIENCE_S",
    "SPAN_S",
    "UNKNOWN",
    "EnergyUse",
    "Pace",
    "RateWindow",
    "alone",
    "energy_use",
    "loader_faster",
    "per_1000",
]

SPAN_S = 2.0
"""Rates look back this far: long enough to be steady, short enough to be now."""

_LEAST_S = 0.25
"""A rate is of this long at least: right after a pause there is next to no time to divide by."""

PATIENCE_S = 8.0
"""And up to this far for consumers that took no batch within `SPAN_S`."""


class Pace(NamedTuple):
    """How fast a consumer is, and where its time goes.

    Speed and shares are of the time in which it was neither paused nor timed out: a pause makes no trial slow. The rest
    up to 1 was spent between epochs.
    """

    samples_per_s: float
    """Samples taken a second."""
    computing: float
    """Share of time in the user's own code, 0 to 1."""
    waiting: float
    """Share of time waiting for the loader, 0 to 1."""
    held: float
    """Share of time held back by the others, 0 to 1."""
    step_s: float = math.nan
    """Seconds that it computes on one loader batch: the user's own code; NaN where it took none."""
    alone_per_s: float = math.nan
    """Samples a second that it would take with a batch always ready and no other trial to wait for: as fast as it
    computes now, beside the others. On cores of its own it may be faster."""
    joining: float = 0.0
    """Share of time waiting for a pass that it can join, 0 to 1."""
    paused: float = 0.0
    """Share of all its time for which it was paused, 0 to 1."""
    timed_out: float = 0.0
    """Share of all its time for which it was timed out, 0 to 1."""


UNKNOWN = Pace(math.nan, math.nan, math.nan, math.nan)
"""The pace of a consumer that was seen only once."""

PAUSED = Pace(0.0, 0.0, 0.0, 0.0, paused=1.0)
TIMED_OUT = Pace(0.0, 0.0, 0.0, 0.0, timed_out=1.0)
"""The paces of those that stand still."""


class RateWindow:
    """The readings of the last seconds."""

    def __init__(self) -> None:
        self._readings: list[StreamReading] = []
        # the consumers of each reading: looked up many times a tick
        self._by_name: list[dict[str, ConsumerReading]] = []
        # since when each consumer of the last reading is attached without a break, as far back as readings go
        self._since_s: dict[str, float] = {}
        self._back = 0  # the place of the newest reading that is `SPAN_S` old; 0: or the oldest

    def add(self, reading: StreamReading) -> None:
        """Take in the next reading; one of another producer, or from the past, starts anew."""
        if self._readings:
            last = self._readings[-1]
            if last.pid != reading.pid or last.batches > reading.batches or last.time_s >= reading.time_s:
                self._readings.clear()
                self._by_name.clear()
                self._since_s.clear()
        before = self._by_name[-1] if self._by_name else {}
        since_s = {}
        for now in reading.consumers:
            was = before.get(now.name)
            # fewer batches than before, or another process: the name was attached anew
            same = was is not None and was.pid == now.pid and was.batches <= now.batches
            since_s[now.name] = self._since_s[now.name] if same else reading.time_s
        self._since_s = since_s
        self._readings.append(reading)
        self._by_name.append({consumer.name: consumer for consumer in reading.consumers})
        old = sum(1 for one in self._readings if reading.time_s - one.time_s > PATIENCE_S)
        del self._readings[:old], self._by_name[:old]
        back = len(self._readings) - 1
        while back > 0 and reading.time_s - self._readings[back].time_s < SPAN_S:
            back -= 1
        self._back = back

    @property
    def span(self) -> tuple[StreamReading, StreamReading]:
        """The reading about `SPAN_S` ago (or the oldest there is) and the last one.

        Raises:
            IndexError: Nothing was added yet.
        """
        return self._readings[self._back], self._readings[-1]

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

    def loader_alone_per_s(self) -> float:
        """Return how many batches a second the loader could give if no trial held it back; NaN where unknown.

        It is unknown while nobody wants a batch: what a loader that rests could do, nothing tells.
        """
        faster, _ = loader_faster(*self.span, self.host)
        published_per_s = self.batches_per_s()
        rests = self.span[1].state == "idle" or not published_per_s > 0
        return faster * published_per_s if math.isfinite(faster) and not rests else math.nan

    @property
    def host(self) -> HostReading | None:
        """The last reading of the machine, which not every reading carries; None: none in the last seconds."""
        return next((r.host for r in reversed(self._readings) if r.host), None)

    def pace(self, consumer: ConsumerReading) -> Pace:
        """Return the pace of a consumer of the last reading; one that is paused or timed out has none."""
        if consumer.state in _STANDING:
            return _STANDING[consumer.state]
        readings, name = self._readings, consumer.name
        since_s, k, last = self._since_s.get(name, math.inf), self._back, len(readings) - 1
        while k < last and readings[k].time_s < since_s:
            k += 1
        if k >= last:
            return UNKNOWN
        # further back for consumers that took nothing since then
        while (
            k > 0 and readings[k - 1].time_s >= since_s and self._by_name[k][name].batches >= consumer.batches
        ):
            k -= 1
        return _between(self._by_name[k][name], consumer, readings[last].time_s - readings[k].time_s)


_STANDING = {"paused": PAUSED, "timed out": TIMED_OUT}


def _between(before: ConsumerReading, after: ConsumerReading, seconds: float) -> Pace:
    # comparisons instead of max(): this runs for each trial of each tick
    computing_s, waiting_s = after.computing_s - before.computing_s, after.waiting_s - before.waiting_s
    computing_s, waiting_s = computing_s if computing_s > 0 else 0.0, waiting_s if waiting_s > 0 else 0.0
    held_s = after.held_s - before.held_s if after.held_s > before.held_s else 0.0
    joining_s = after.joining_s - before.joining_s
    paused_s, timed_out_s = after.paused_s - before.paused_s, after.timed_out_s - before.timed_out_s
    # time is booked when a step ends, so a long step can bring more seconds than have passed
    passed_s = seconds - paused_s - timed_out_s
    booked_s = computing_s + waiting_s + held_s + joining_s
    whole = passed_s if passed_s > booked_s else booked_s  # noqa: FURB136
    if whole <= 0:
        whole = 1e-6
    batches, samples = after.batches - before.batches, after.samples - before.samples
    step_s = computing_s / batches if batches else math.nan
    return Pace(
        samples / (passed_s if passed_s > _LEAST_S else _LEAST_S),  # noqa: FURB136
        computing_s / whole,
        waiting_s / whole,
        held_s / whole,
        step_s,
        alone(samples, computing_s),
        joining_s / whole,
        paused_s / seconds,
        timed_out_s / seconds,
    )


def alone(count: float, computing_s: float) -> float:
    """Return a consumer's pace with a batch always ready and no other to wait for: what it did a second of computing.

    Args:
        count: Samples or batches that it took.
        computing_s: Seconds that it computed meanwhile.

    Returns:
        As many a second; NaN where it took none.
    """
    return count / computing_s if count > 0 and computing_s > 0 else math.nan


def loader_faster(
    earlier: StreamReading, later: StreamReading, host: HostReading | None
) -> tuple[float, bool]:
    """Return how many times as fast the loader could be if no trial held it back.

    The producer stands still while the window is full. Without a worker nothing is prepared meanwhile, so it could
    be faster by what it stood still. Workers go on until all that they may prefetch is ready: then that is only the
    most it could be, and what their cores have left (from the host reading) bounds it too.

    Args:
        earlier: A reading of about two seconds before.
        later: The newest reading.
        host: The machine, as far as it is known.

    Returns:
        How many times (infinite: it stood still all the time), and whether it is that rather than at most that.
    """
    seconds = later.time_s - earlier.time_s
    idle = (later.blocked_s - earlier.blocked_s) / seconds if seconds > 0 else 0.0
    faster = 1 / (1 - idle) if idle < 1 else math.inf
    sure = later.workers == 0
    if not sure and host and host.producer and host.producer.cpu > 0:
        faster = min(faster, min(later.workers, host.cores) / host.producer.cpu)
        sure = True
    return faster, sure


@dataclass
class EnergyUse:
    """Energy between the first look at the machine and the last."""

    joules: dict[str, float] = field(default_factory=dict)
    """By what has a counter: "cuda:0", "package-0"."""
    samples: int = 0
    """That all trials took meanwhile."""
    trial_joules: dict[str, float] = field(default_factory=dict)
    """Of the GPUs that a trial had to itself, by its name."""
    trial_samples: dict[str, int] = field(default_factory=dict)
    """That it took meanwhile."""

    @property
    def text(self) -> str:
        """What to show: "12.5 J for 1,000 samples (cuda:0, package-0); small-cnn 4.2 J"."""
        whole = per_1000(sum(self.joules.values()) if self.joules else None, self.samples)
        if whole is None:
            return NOT_MEASURABLE
        own = {name: per_1000(j, self.trial_samples.get(name, 0)) for name, j in self.trial_joules.items()}
        parts = "".join(
            f"; {name} {short_number(joules)} J" for name, joules in own.items() if joules is not None
        )
        return f"{short_number(whole)} J for 1,000 samples ({', '.join(self.joules)}){parts}"


def per_1000(joules: float | None, samples: int) -> float | None:
    """Return the joules for 1,000 samples; None where nothing was measured, or no sample taken."""
    return None if joules is None or samples <= 0 else joules * 1000 / samples


def energy_use(readings: Iterable[StreamReading]) -> EnergyUse:
    """Add up what was counted.

    Args:
        readings: Oldest first; those with a look at the machine count.
    """
    use = EnergyUse()
    looks = [(r, r.host) for r in readings if r.host is not None and r.host.energy_j]
    for (before, was), (after, now) in itertools.pairwise(looks):
        spent = _spent(was, now)
        taken = _taken(before, after)
        if spent is None or before.pid != after.pid:
            continue  # another follower, or another producer: its counters begin anew
        for source, joules in spent.items():
            use.joules[source] = use.joules.get(source, 0.0) + joules
        use.samples += sum(taken.values())
        for name, joules in _own(now, spent).items():
            use.trial_joules[name] = use.trial_joules.get(name, 0.0) + joules
            use.trial_samples[name] = use.trial_samples.get(name, 0) + taken.get(name, 0)
    return use


def _spent(before: HostReading, after: HostReading) -> dict[str, float] | None:
    grown = {s: joules - before.energy_j[s] for s, joules in after.energy_j.items() if s in before.energy_j}
    return None if any(joules < 0 for joules in grown.values()) else grown


def _taken(before: StreamReading, after: StreamReading) -> dict[str, int]:
    had = {c.name: c.samples for c in before.consumers}
    # one that came anew under its old name counts from 0
    return {
        c.name: c.samples - had[c.name] if c.samples >= had.get(c.name, 0) and c.name in had else c.samples
        for c in after.consumers
    }


def _own(host: HostReading, spent: dict[str, float]) -> dict[str, float]:
    """Return the joules of the GPUs that one trial alone computes on, by trial."""
    found: dict[str, float] = {}
    on: dict[int, list[str]] = {}
    for name, process in host.consumers.items():
        for index in process.gpus:
            on.setdefault(index, []).append(name)
    for index, names in on.items():
        joules = spent.get(f"cuda:{index}")
        if len(names) == 1 and joules is not None:
            found[names[0]] = found.get(names[0], 0.0) + joules
    return found
