"""A stream that exists only in numbers: readings as a producer would give them, computed in steps of 10 ms.

Not a model of the dispatch (that is `tests/producer`), only what a panel needs to be drawn: a loader with a
pace, consumers with a step time each, a window that binds them, epochs that end together.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tsnb.telemetry.readings import ConsumerReading, GpuReading, HostReading, ProcessReading, StreamReading
from tsnb.telemetry.trial_readings import LoggedReading

STEP_S = 0.01
START_S = 1_790_000_000.0
BATCH = 64


@dataclass
class Trial:
    """One imagined consumer."""

    name: str
    step_s: float
    """Seconds that it computes on a batch."""
    joins_s: float = 0.0
    leaves_s: float = math.inf
    parks_s: float = math.inf
    cores: int = 1
    taken: int = 0
    busy_s: float = 0.0
    state: str = "joining"
    spent_s: dict[str, float] = field(default_factory=lambda: {"computing": 0.0, "waiting": 0.0, "held": 0.0})

    def here(self, now_s: float) -> bool:
        return self.joins_s <= now_s < self.leaves_s

    def parked(self, now_s: float) -> bool:
        return now_s >= self.parks_s


@dataclass
class Stream:
    """An imagined stream of one endless epoch after another."""

    trials: list[Trial]
    name: str = "mnist"
    batch_s: float = 0.05
    """Seconds that the loader needs for a batch."""
    window: int = 8
    epoch_batches: int = 63
    now_s: float = 0.0
    published: float = 0.0
    blocked_s: float = 0.0
    gpus: int | None = None
    """GPUs of the imagined machine; None: nobody looks at the machine."""
    ticks: int = 0

    def run(self, seconds: float, every_s: float = 0.25) -> Iterator[StreamReading]:
        """Let time pass; yield a reading every `every_s`."""
        for k in range(round(seconds / STEP_S)):
            self.step()
            if k % round(every_s / STEP_S) == 0:
                yield self.reading()

    def step(self) -> None:
        self.now_s += STEP_S
        active = [t for t in self.trials if t.here(self.now_s) and not t.parked(self.now_s)]
        slowest = min((t.taken for t in active), default=int(self.published))
        if self.published < slowest + self.window:
            self.published += STEP_S / (self.batch_s * random.uniform(0.9, 1.1)) if active else 0.0
        else:
            self.blocked_s += STEP_S
        for trial in active:
            self.advance(trial, slowest)

    def advance(self, trial: Trial, slowest: int) -> None:
        if trial.state == "joining":  # takes part from where the others are
            trial.taken = max(slowest, max(t.taken for t in self.trials) - 2)
        if trial.busy_s > 0:
            trial.busy_s -= STEP_S
            trial.spent_s["computing"] += STEP_S
            trial.state = "sets the pace" if trial.taken == slowest and self.lag(trial) >= 6 else "streaming"
        elif trial.taken < int(self.published):
            trial.taken += 1
            trial.busy_s = trial.step_s * random.uniform(0.85, 1.15)
            trial.state = "streaming" if trial.state in ("joining", "waiting", "held back") else trial.state
        else:
            held = self.published >= slowest + self.window
            trial.spent_s["held" if held else "waiting"] += STEP_S
            trial.state = "held back" if held else "waiting"

    def lag(self, trial: Trial) -> int:
        here = [t.taken for t in self.trials if t.here(self.now_s) and not t.parked(self.now_s)]
        return max(0, max(here, default=trial.taken) - trial.taken)

    def reading(self) -> StreamReading:
        here = [t for t in self.trials if t.here(self.now_s)]
        active = [t for t in here if not t.parked(self.now_s)]
        lags = [self.lag(t) for t in active]
        batches = int(self.published)
        self.ticks += 1
        return StreamReading(
            host=self.host() if self.gpus is not None and self.ticks % 8 == 1 else None,
            time_s=START_S + self.now_s,
            name=self.name,
            pid=100,
            state="idle" if not active else "blocked" if max(lags) >= self.window else "serving",
            epoch=batches // self.epoch_batches,
            published=batches % self.epoch_batches,
            epoch_batches=self.epoch_batches,
            window=self.window,
            window_fill=min(self.window, max(lags, default=0)),
            batches=batches,
            loading_s=batches * self.batch_s,
            blocked_s=self.blocked_s,
            workers=2,
            slots_used=min(16, 4 + max(lags, default=0)),
            slots=16,
            slot_bytes=16 << 20,
            touched_bytes=212 << 20,
            in_place=batches,
            copied=0,
            consumers=tuple(self.consumer(t) for t in here),
        )

    def host(self) -> HostReading:
        trials = {t.name: self.process(t, k) for k, t in enumerate(self.trials) if t.here(self.now_s)}
        loader = ProcessReading(random.uniform(0.5, 0.7), 310 << 20, 2)
        device = "NVIDIA A100-SXM4-80GB"
        return HostReading(
            cores=4,
            cpu=min(4.0, loader.cpu + sum(p.cpu for p in trials.values()) + 0.05),
            memory_used_bytes=3170 << 20,
            memory_total_bytes=16 << 30,
            producer=loader,
            consumers=trials,
            gpus=tuple(
                GpuReading(k, device, random.uniform(0.5, 0.9), (9 + k) << 30, 80 << 30)
                for k in range(self.gpus or 0)
            ),
        )

    def process(self, trial: Trial, number: int) -> ProcessReading:
        busy = 0.01 if trial.parked(self.now_s) else min(0.9, trial.step_s * 7) * random.uniform(0.9, 1.1)
        return ProcessReading(busy, (180 + 90 * number) << 20, trial.cores, (1 << 30) * bool(self.gpus))

    def consumer(self, trial: Trial) -> ConsumerReading:
        parked = trial.parked(self.now_s)
        learned = trial.taken / 60 * (0.5 + trial.step_s)
        loss = 2.2 * math.exp(-learned) + 0.12 + random.uniform(-0.04, 0.04)
        return ConsumerReading(
            name=trial.name,
            pid=1000 + self.trials.index(trial),
            state="timed out" if parked else trial.state,
            epoch=trial.taken // self.epoch_batches,
            position=trial.taken % self.epoch_batches,
            fill=0 if parked else int(self.published) - trial.taken,
            lag=0 if parked else self.lag(trial),
            batches=trial.taken,
            samples=trial.taken * BATCH,
            computing_s=trial.spent_s["computing"],
            waiting_s=trial.spent_s["waiting"],
            held_s=trial.spent_s["held"],
            timed_out_s=max(0.0, self.now_s - trial.parks_s),
            attached_s=self.now_s - trial.joins_s,
            metrics={"loss": loss, "accuracy": 0.98 - 0.3 * math.exp(-learned)} if trial.taken else {},
        )


def logging_each_batch(readings: Iterator[StreamReading]) -> Iterator[StreamReading]:
    """Give readings in which each trial has logged both numbers after every batch, as a producer tells them."""
    from tsnb.extensions.metrics import KeptNumbers  # a panel has no need of it

    kept: dict[str, KeptNumbers] = {}
    for number, reading in enumerate(readings):
        told = []
        for one in reading.consumers:
            its = kept.setdefault(one.name, KeptNumbers())
            for name, value in one.metrics.items():
                its.numbers[name] = value
                for batch in range(its.at.get(name, one.batches - 1) + 1, one.batches + 1):
                    part = LoggedReading(batch, value + 0.01 * (one.batches - batch))
                    its.waiting.setdefault(name, []).append(part)
                its.at[name] = one.batches
            its.show(number, len(reading.consumers), reading.time_s)
            shown = replace(one, metrics=dict(its.shown), logged_at=dict(its.shown_at))
            told.append(replace(shown, logged=its.since(number - 1)))
        yield replace(reading, consumers=tuple(told))


def three_models(seed: int = 7) -> Stream:
    """Three models of different size, the largest of which sets the pace; a fourth that is parked later."""
    random.seed(seed)
    trials = [
        Trial("cnn-small", 0.02),
        Trial("resnet10", 0.045, joins_s=4.0),
        Trial("resnet18-wide", 0.1, joins_s=8.0),
        Trial("resnet18-wide-sgd", 0.09, joins_s=20.0, parks_s=70.0),
    ]
    return Stream(trials)


def rebalanced(seed: int = 7, gpus: int = 0) -> Stream:
    """Four models on a machine that is looked at; the last is parked, and another gets its core soon after."""
    stream = three_models(seed)
    stream.gpus, stream.batch_s = gpus, 0.02
    for trial, joins_s in zip(stream.trials, (0.0, 1.0, 2.0, 3.0), strict=True):
        trial.joins_s, trial.parks_s = joins_s, math.inf
    stream.trials[3].parks_s = 120.0
    return stream


def rebalance(stream: Stream) -> Iterator[StreamReading]:
    """Three minutes of `rebalanced`."""
    yield from stream.run(124)
    stream.trials[2].cores = 2
    yield from stream.run(56)
