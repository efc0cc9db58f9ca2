"""Readings: what a producer says about its stream, a few times a second.

A reading is plain numbers and names, so a panel, a terminal or a recorded log can be drawn from it without
the stream itself. Counters only ever grow within one producer's life; rates are differences of two readings.

Where a consumer's time goes (`computing_s + waiting_s + held_s` = time spent inside its epochs):

- computing: between two batches, in the user's own code (model-bound);
- waiting: it asked for a batch and the loader had none ready (loader-bound);
- held: it asked for a batch and the window was full, because a slower consumer holds it (window-bound); or, by
  weight, it had had more than its share.

What the machine does meanwhile, seen from outside the processes, is a `HostReading`. CPU is counted in cores busy (1.5:
one and a half), children included.

Readings may be made of JSON that came from elsewhere: a producer, a recording, a relay. Every field is checked as it
enters, by the types that are written here (`tsnb.text.foreign`).
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from dataclasses import dataclass, field
from typing import Annotated, Any

from tsnb.machine.inventory import GpuReading
from tsnb.telemetry.sample_readings import (
    CACHE_STATES,
    GROWTH_KINDS,
    CacheReading,
    FrozenReading,
    GrowthReading,
)
from tsnb.telemetry.trial_readings import (
    END_STATES,
    BesideReading,
    EndReading,
    LoggedReading,
    OutcomeReading,
    PlannedReading,
    PlanReading,
)
from tsnb.text.foreign import FEW, Logged, Number, Text, Whole, read_json

__all__ = [
    "ABSENT",
    "CACHE_STATES",
    "CONSUMER_STATES",
    "END_STATES",
    "GROWTH_KINDS",
    "PRODUCER_STATES",
    "BesideReading",
    "CacheReading",
    "ConsumerReading",
    "EndReading",
    "FrozenReading",
    "GpuReading",
    "GrowthReading",
    "HostReading",
    "MoveReading",
    "OutcomeReading",
    "PlanReading",
    "PlannedReading",
    "ProbeReading",
    "ProcessReading",
    "StreamReading",
    "TuningReading",
]


@dataclass(frozen=True)
class ProcessReading:
    """One process with its children: a trial, or the producer with its loader's workers.

    Consumers of one process share its numbers, so sums go over `ConsumerReading.pid`.
    """

    cpu: Number
    """Cores busy since the last host reading."""
    memory_bytes: Whole
    """Memory of its own, and its part of what forks share; the arena (`touched_bytes`) and files count nowhere here."""
    cores: Whole
    """Cores it may use."""
    gpu_bytes: Whole = 0
    """GPU memory, all devices; 0 where it is not told, as inside most containers."""
    gpus: Annotated[tuple[Whole, ...], FEW] = ()
    """The GPUs (`GpuReading.index`) that it computes on; empty where that is not told."""
    workers: Number = 0.0
    """Of `cpu`, those that the stream's workers kept busy; 0 for a trial, and where their processes are not known."""
    kept_waiting: Number = 0.0
    """Seconds a second for which it was ready to run and had no core: its main thread; the producer: its workers."""


@dataclass(frozen=True)
class HostReading:
    """The machine at one moment."""

    cores: Whole
    """Cores that the notebook's user may use."""
    cpu: Number
    """How many of them are busy, with all that runs on the machine, or in this container where it has a quota."""
    memory_used_bytes: Whole
    """Memory in use, of this container where there is a limit."""
    memory_total_bytes: Whole
    """Memory in all, or the container's limit."""
    producer: ProcessReading | None = None
    """The producer's process and its loader's workers; None: not to be seen from here."""
    consumers: Annotated[dict[Text, ProcessReading], FEW] = field(default_factory=dict)
    """By the consumer's name; who cannot be seen (another machine or container) is not there."""
    gpus: Annotated[tuple[GpuReading, ...], FEW] = ()
    """Empty where there is none."""
    energy_j: Annotated[dict[Text, Number], FEW] = field(default_factory=dict)
    """Joules since the follower began to look, by what has a counter: "cuda:0", "package-0"; empty: not measurable."""

    def loader_cpu(self, workers: int) -> float:
        """Return the cores that the loader keeps busy: its workers, else the producer's own process.

        Args:
            workers: How many it has (`StreamReading.workers`).
        """
        if self.producer is None:
            return 0.0
        return self.producer.workers if workers else self.producer.cpu


PRODUCER_STATES = ("starting", "serving", "idle", "blocked", "failed", "stopping", "gone")
"""serving: a batch was published lately; idle: no consumer wants one; blocked: the window is full."""

ABSENT = "absent"
"""The stream's state while it is not served: the one that no reading carries."""

CONSUMER_STATES = (
    "joining",
    "streaming",
    "waiting",
    "held back",
    "sets the pace",
    "between epochs",
    "timed out",
    "paused",
    "skipping",
    "awaits ranks",
    "awaits turn",
    "gone",
)
"""joining: attached, no epoch taken yet; waiting: for the loader; held back: by the window's slowest;
sets the pace: it is the one whose lag fills the window; timed out: it stalled past the stream's stall timeout;
paused: it was asked to pause, and nobody waits for it; skipping: it has just given up batches that had gone;
awaits ranks: others of its group have yet to ask for the epoch; awaits turn: others of its sweep train (`rotate=`)."""

STANDING = frozenset({"paused", "timed out"})
"""States of those that hold nobody and are held by nobody."""


@dataclass(frozen=True)
class ConsumerReading:
    """One consumer at one moment."""

    name: Text
    """The consumer's name, unique on its stream."""
    pid: Whole
    """Its process."""
    state: Text
    """One of `CONSUMER_STATES`."""
    epoch: Whole
    """The epoch it takes now or took last, from 0; -1 before its first."""
    position: Whole
    """Loader batches taken in that epoch."""
    fill: Whole
    """Batches published that it has not taken yet (0 to window, more while it lags: also those of the next epochs)."""
    lag: Whole
    """Loader batches behind the consumer that is furthest ahead."""
    batches: Whole
    """Loader batches taken so far, all epochs."""
    samples: Whole
    """Samples that its loop has got, all epochs; the same in results, logs and reports."""
    computing_s: Number
    """Seconds inside epochs spent in the user's own code."""
    waiting_s: Number
    """Seconds inside epochs spent waiting for the loader."""
    held_s: Number
    """Seconds inside epochs spent held back by the window."""
    metrics: Logged = field(default_factory=dict)
    """Last numbers given to `tsnb.log`."""
    skipped: Whole = 0
    """Loader batches it gave up so far (`on_lag="skip"`)."""
    weight: Number = 1.0
    """Its weight; it counts in the pacing `weights` only."""
    epochs: Whole = 0
    """Epochs that it has begun, by its own count: `epoch` is the stream's number."""
    awaits: Text = ""
    """What it waits for, in words: the ranks of its group, "ranks 2 and 3 of 4"; or "its turn"."""
    part: Text = ""
    """Which samples it takes, in words: "fold 1 of 5"; empty: all."""
    planned: Whole = 0
    """Epochs that its loop takes in all, as its code or its parameter `epochs` says; 0: not known."""
    live: Annotated[dict[Text, Text], FEW] = field(default_factory=dict)
    """The live values of its process (`tsnb.live`), each as text; sixteen at most."""
    epochs_before: Whole = 0
    """Whole epochs behind it when it came: those of the trial that it is a clone of, or of a process before its own."""
    batches_before: Whole = 0
    """Loader batches behind it when it came, counted in the same way."""
    passed: Whole = 0
    """Samples of its loader batches, all epochs: what went by on the stream. Beside `samples` those of other trials
    where it takes a part, of other ranks, and what `drop_last` leaves out."""
    run: Whole = 0
    """Which run of its trial's name it belongs to, from 1, as `tsnb.results` counts them; 0: not a trial's."""
    logged_at: Annotated[dict[Text, Whole], FEW] = field(default_factory=dict)
    """The batch of its own at which each of `metrics` was logged, as `batches` counts; not in it: not known."""
    sparse: Annotated[tuple[Text, ...], FEW] = ()
    """Names of those of `metrics` that are logged about once an epoch, or less often."""
    pause_s: Number = 0.0
    """Seconds that its present pause has lasted; 0: it is not paused."""
    logged: Annotated[dict[Text, Annotated[tuple[LoggedReading, ...], FEW]], FEW] = field(
        default_factory=dict
    )
    """What it has logged since the last reading to this observer, by name, oldest first: all values of those that are
    `sparse`, of the others those of a moment as one."""
    joining_s: Number = 0.0
    """Seconds for which it had asked for an epoch, and waited for a pass that it could join."""
    paused_s: Number = 0.0
    """Seconds for which it was paused, in all its pauses."""
    timed_out_s: Number = 0.0
    """Seconds for which it was timed out."""
    attached_s: Number = 0.0
    """Seconds since it attached: those above, those inside epochs, and the rest between epochs; 0: not known."""


@dataclass(frozen=True)
class MoveReading:
    """Cores or threads that were moved by the stream's balancer."""

    time_s: Number
    """When: wall clock, seconds since 1970."""
    consumer: Text
    """The trial that gained; empty for the loader, and where all was given back."""
    text: Text
    """What, in a few words."""
    reason: Text
    """Why, with numbers."""
    effect: Text = ""
    """What it did to the pace, in words; empty until that has been measured."""


@dataclass(frozen=True)
class ProbeReading:
    """One choice of the loader's workers, measured (docs/speed-up-loading.md)."""

    time_s: Number
    """When: wall clock, seconds since 1970."""
    workers: Whole
    """Worker processes."""
    pace: Number
    """Loader batches a second with them."""
    waited: Number
    """Share of the time in which the producer waited for them, 0 to 1."""
    kept: bool
    """Whether that choice stayed."""
    prefetch: Whole
    """Batches that each prepared ahead."""


@dataclass(frozen=True)
class TuningReading:
    """What was asked of the loader's workers, and what became of it."""

    asked: Text
    """Their number, or "auto"."""
    workers: Whole
    """Worker processes that it has, or will have from the next batch on that none has been told to prepare."""
    prefetch: Whole
    """Batches that each prepares ahead."""
    memory_bytes: Whole | None
    """What all of them together may use; None: what is free."""
    resting: bool
    """Whether nothing is left to try, until something changes."""
    probes: Annotated[tuple[ProbeReading, ...], FEW] = ()
    """What "auto" has measured, oldest first; the last 32."""
    worker_bytes: Whole = 0
    """What one worker needs, as "auto" has measured it; 0: not yet, or a number was asked for."""


@dataclass(frozen=True)
class StreamReading:
    """One stream at one moment."""

    time_s: Number
    """Wall clock, seconds since 1970."""
    name: Text
    """The stream's name."""
    pid: Whole
    """The producer's process."""
    state: Text
    """One of `PRODUCER_STATES`."""
    epoch: Whole
    """The epoch being loaded, from 0."""
    published: Whole
    """Loader batches published in that epoch."""
    epoch_batches: Whole | None
    """Loader batches in an epoch, where the loader has a length."""
    window: Whole
    """How many batches the fastest consumer may be ahead of the slowest."""
    window_fill: Whole
    """Batches between the fastest and the slowest consumer now (0 to window)."""
    batches: Whole
    """Loader batches published so far, all epochs."""
    loading_s: Number
    """Seconds the producer waited for the loader's next batch."""
    blocked_s: Number
    """Seconds the producer could not go on because the window was full."""
    workers: Whole
    """DataLoader workers (0: the loader runs in the producer's own process)."""
    slots_used: Whole
    """Arena slots that hold a batch which may still be read."""
    slots: Whole
    """Arena slots in all."""
    slot_bytes: Whole
    """Bytes of one slot (address space: memory is used only where a batch was written)."""
    touched_bytes: Whole
    """Bytes of shared memory in use by the arena."""
    in_place: Whole
    """Batches that the loader's workers wrote straight into the arena."""
    copied: Whole
    """Batches that the producer had to copy into the arena."""
    ordinary: Text = ""
    """Why the loader's workers use the queues of `multiprocessing`; empty where they use tsnb's, or there are none."""
    unrepeatable: Text = ""
    """Why an epoch cannot be given again, so that a trial which is paused for long fails when it resumes; empty: it
    can."""
    consumers: Annotated[tuple[ConsumerReading, ...], FEW] = ()
    """Every attached consumer, in the order of joining."""
    profiled: Whole = 0
    """Of the consumers, those that are only profiled for a plan: screens, reports and recordings leave them out."""
    failure: Text = ""
    """The loader's last error, one line; empty while it is well."""
    worker_pids: Annotated[tuple[Whole, ...], FEW] = ()
    """Processes of the DataLoader's workers, as far as they are known."""
    refused: Whole = 0
    """Connections that were dropped because they did not keep to the protocol, or flooded."""
    pacing: Text = "together"
    """How compute is divided: `together`, `weights` or `free`."""
    weights: Annotated[dict[Text, Number], FEW] = field(default_factory=dict)
    """The weights that were given, by consumer name; some may not be attached."""
    rebalancing: Text = "off"
    """Whether cores are moved: "off", "on", or "stands back: " and why."""
    moves: Annotated[tuple[MoveReading, ...], FEW] = ()
    """The last times that cores or threads were moved, oldest first."""
    pending: Annotated[dict[Text, Text], FEW] = field(default_factory=dict)
    """Trials that are not attached yet, as their notebooks tell: state and reason by name, "queued: it needs ..."."""
    to_come: Whole = 0
    """Trials of sweeps that are still to attach, as their notebooks tell: they wait for a place, or are starting."""
    plans: Annotated[tuple[PlanReading, ...], FEW] = ()
    """What plans say of its trials, as their notebooks tell."""
    beside: Annotated[tuple[BesideReading, ...], FEW] = ()
    """Other streams with trials on this machine, as the notebooks of this one tell."""
    ends: Annotated[tuple[EndReading, ...], FEW] = ()
    """How consumers and trials ended since the last reading to this observer, oldest first; 32 of them at most."""
    outcome: OutcomeReading | None = None
    """How its trials compare and what limited them, as their notebooks tell; None: they tell nothing."""
    found: Whole | None = None
    """Samples that its growing data set has so far; None: it does not grow."""
    look_failure: Text = ""
    """Why the last look for new samples failed, one line; empty where it did not."""
    rounds: Text = ""
    """Which samples its rounds have, and when one begins, in words; empty: epochs follow each other."""
    growth: Annotated[tuple[GrowthReading, ...], FEW] = ()
    """The last times that a round began or new samples entered, oldest first."""
    cache: CacheReading | None = None
    """The cache of its samples; None: served without `cache=`."""
    frozen: FrozenReading | None = None
    """The frozen part of a network that it computes; None: served without `then=`."""
    tuning: TuningReading | None = None
    """How many workers were asked for while it runs; None: it has those that it was served with."""
    host: HostReading | None = None
    """The machine; added now and then by the process that follows the stream (`tsnb.telemetry.host`), else None."""

    @property
    def attached(self) -> dict[str, ConsumerReading]:
        """The consumers that have not left, by name."""
        return {consumer.name: consumer for consumer in self.consumers if consumer.state != "gone"}

    def to_json(self, *, brief: bool = False) -> str:
        """Return the reading as one line of JSON.

        Args:
            brief: Leave out what each field has where nothing else is said: `from_json` reads the same of it, faster.
        """
        return json.dumps(_fields(self, brief=brief), separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> StreamReading:
        """Read what `to_json` wrote. Unknown fields are ignored, so a newer producer can be watched.

        Texts are printable lines, numbers finite but for those that users have logged: code that shows a reading need
        not check again.

        Raises:
            ValueError: The text is not a reading.
        """
        try:
            return read_json(cls, text, logged=_LOGGED)
        except ValueError as error:
            raise ValueError(f"not a stream reading: {error}"[:300]) from None


_LOGGED = frozenset({"metrics"})


def _fields(value: Any, *, brief: bool) -> Any:
    """Return a reading, or a part of one, as JSON has it; `brief`: without the fields that have their default."""
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)  # `as_json`, without a call for each number
    if isinstance(value, tuple):
        return [_fields(part, brief=brief) for part in value]
    if isinstance(value, dict):
        return {key: _fields(part, brief=brief) for key, part in value.items()}
    if not dataclasses.is_dataclass(value):
        return value
    cls: Any = type(value)
    plain = _plain(cls) if brief else {}
    parts = ((one.name, getattr(value, one.name)) for one in dataclasses.fields(cls))
    return {
        name: _fields(part, brief=brief) for name, part in parts if name not in plain or part != plain[name]
    }


@functools.cache
def _plain(cls: Any) -> dict[str, Any]:
    """Return the defaults of a dataclass, by field."""
    found = {one.name: one.default for one in dataclasses.fields(cls)}
    made = {one.name: one.default_factory for one in dataclasses.fields(cls)}
    found |= {name: make() for name, make in made.items() if callable(make)}
    return {name: value for name, value in found.items() if value is not dataclasses.MISSING}
