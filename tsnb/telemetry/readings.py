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

Readings may be made of JSON that came from elsewhere: a producer, a recording, a relay. Every field is checked here,
once (`decoded`). A field has the type that its dataclass says, numbers are finite and within bounds that arithmetic and
drawing bear, texts are one printable line, lists and tables are not endless. What a trial has logged may be nan or
infinite: in JSON that is the text "nan", "inf" or "-inf". Unknown fields are left out.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import sys
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tsnb.machine.inventory import GpuReading
from tsnb.printable import one_line

__all__ = [
    "ABSENT",
    "CACHE_STATES",
    "CONSUMER_STATES",
    "END_STATES",
    "PRODUCER_STATES",
    "CacheReading",
    "ConsumerReading",
    "EndReading",
    "GpuReading",
    "HostReading",
    "MoveReading",
    "ProbeReading",
    "ProcessReading",
    "StreamReading",
    "TuningReading",
    "decoded",
]

MOST_ENTRIES = 4096
"""In one list or table: a stream has 128 consumers, a machine a few hundred counters."""
MOST_INT = 1 << 62
MOST_FLOAT = 1e15
"""Seconds and bytes stay far below; a number of the user's own may be larger (`_number_of_users`)."""
_WORD = 2000
"""Characters of one text."""

_Made = TypeVar("_Made")


def decoded(cls: Callable[..., _Made], fields: Any) -> _Made:
    """Return one reading, or a part of one.

    Args:
        cls: Its dataclass.
        fields: What JSON gave.

    Raises:
        ValueError: It is not one.
    """
    if not isinstance(fields, dict):
        raise ValueError(f"{_shown(fields)} in place of a {getattr(cls, '__name__', cls)}")
    readers, name = _readers(cls), ""
    made: dict[str, Any] = {}
    try:  # around all of them: readings are read four times a second, and each trial has some thirty fields
        for name, value in fields.items():
            if (read := readers.get(name)) is not None:
                made[name] = read(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    try:
        return cls(**made)
    except TypeError as error:  # one is missing
        raise ValueError(str(error)) from None


@functools.cache
def _readers(cls: Any) -> dict[str, Callable[[Any], Any]]:
    hints = typing.get_type_hints(cls)
    return {field.name: _reader(hints[field.name]) for field in dataclasses.fields(cls)}


def _reader(hint: Any) -> Callable[[Any], Any]:
    """Return what reads a value of a type."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        inner = _reader(next(part for part in parts if part is not type(None)))
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        inner = _reader(parts[0])
        return lambda value: tuple(inner(part) for part in _some(value, list))
    if origin is dict:
        inner = _number_of_users if parts[1] is float else _reader(parts[1])
        return lambda value: {_text(key): inner(part) for key, part in _some(value, dict).items()}
    if dataclasses.is_dataclass(hint):
        return functools.partial(decoded, typing.cast("type[Any]", hint))
    return {str: _text, int: _whole, float: _number, bool: _flag}[hint]


def _some(value: Any, kind: type[Any]) -> Any:
    if not isinstance(value, kind) or len(value) > MOST_ENTRIES:
        raise ValueError(f"{_shown(value)} in place of a {kind.__name__}")
    return value


def _text(value: Any) -> str:
    if type(value) is str and len(value) <= _WORD and value.isprintable():
        return value  # nearly all of them
    if not isinstance(value, str):
        raise ValueError(f"{_shown(value)} in place of a text")
    return one_line(value, _WORD)


def _whole(value: Any) -> int:
    if type(value) is not int or abs(value) > MOST_INT:
        raise ValueError(f"{_shown(value)} in place of a whole number")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"{_shown(value)} in place of true or false")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) <= MOST_FLOAT:  # so that nan is refused too
        raise ValueError(f"{_shown(value)} in place of a number")
    return value  # type: ignore[no-any-return]  # an int or a float


_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
"""Numbers of the user's own that JSON has no words for."""


def _number_of_users(value: Any) -> float:
    if isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:
        raise ValueError(f"{_shown(value)} in place of a number")
    return float(value)


def _shown(value: Any) -> str:
    try:
        return one_line(repr(value), 80)
    except ValueError:  # a whole number of thousands of digits
        return "a number of thousands of digits"


@dataclass(frozen=True)
class ProcessReading:
    """One process with its children: a trial, or the producer with its loader's workers.

    Consumers of one process share its numbers, so sums go over `ConsumerReading.pid`.
    """

    cpu: float
    """Cores busy since the last host reading."""
    memory_bytes: int
    """Memory of its own, and its part of what forks share; the arena (`touched_bytes`) and files count nowhere here."""
    cores: int
    """Cores it may use."""
    gpu_bytes: int = 0
    """GPU memory, all devices; 0 where it is not told, as inside most containers."""
    gpus: tuple[int, ...] = ()
    """The GPUs (`GpuReading.index`) that it computes on; empty where that is not told."""


@dataclass(frozen=True)
class HostReading:
    """The machine at one moment."""

    cores: int
    """Cores that the notebook's user may use."""
    cpu: float
    """How many of them are busy, with all that runs on the machine, or in this container where it has a quota."""
    memory_used_bytes: int
    """Memory in use, of this container where there is a limit."""
    memory_total_bytes: int
    """Memory in all, or the container's limit."""
    producer: ProcessReading | None = None
    """The producer's process and its loader's workers; None: not to be seen from here."""
    consumers: dict[str, ProcessReading] = field(default_factory=dict)
    """By the consumer's name; who cannot be seen (another machine or container) is not there."""
    gpus: tuple[GpuReading, ...] = ()
    """Empty where there is none."""
    energy_j: dict[str, float] = field(default_factory=dict)
    """Joules since the follower began to look, by what has a counter: "cuda:0", "package-0"; empty: not measurable."""

    @classmethod
    def of(cls, fields: Any) -> HostReading:
        """Make one of what JSON gave. Unknown fields are ignored.

        Raises:
            ValueError: It is not one.
        """
        return decoded(cls, fields)


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
    "parked",
    "paused",
    "skipping",
    "awaits ranks",
    "awaits turn",
    "gone",
)
"""joining: attached, no epoch taken yet; waiting: for the loader; held back: by the window's slowest;
sets the pace: it is the one whose lag fills the window; parked: it stood still past the stream's patience;
paused: it was asked to pause, and nobody waits for it; skipping: it has just given up batches that had gone;
awaits ranks: others of its group have yet to ask for the epoch; awaits turn: others of its sweep train (`rotate=`)."""


@dataclass(frozen=True)
class ConsumerReading:
    """One consumer at one moment."""

    name: str
    """The consumer's name, unique on its stream."""
    pid: int
    """Its process."""
    state: str
    """One of `CONSUMER_STATES`."""
    epoch: int
    """The epoch it takes now or took last, from 0; -1 before its first."""
    position: int
    """Loader batches taken in that epoch."""
    fill: int
    """Batches published in its epoch that it has not taken yet (0 to window, more while it catches up)."""
    lag: int
    """Loader batches behind the consumer that is furthest ahead."""
    batches: int
    """Loader batches taken so far, all epochs."""
    samples: int
    """Samples taken so far, all epochs."""
    computing_s: float
    """Seconds inside epochs spent in the user's own code."""
    waiting_s: float
    """Seconds inside epochs spent waiting for the loader."""
    held_s: float
    """Seconds inside epochs spent held back by the window."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Last numbers given to `tsnb.log`."""
    skipped: int = 0
    """Loader batches it gave up so far (`on_lag="skip"`)."""
    weight: float = 1.0
    """Its weight; it counts in the mode `weights` only."""
    epochs: int = 0
    """Epochs that it has begun, by its own count: `epoch` is the stream's number."""
    awaits: str = ""
    """What it waits for, in words: the ranks of its group, "ranks 2 and 3 of 4"; or "its turn"."""
    part: str = ""
    """Which samples it takes, in words: "fold 1 of 5"; empty: all."""
    planned: int = 0
    """Epochs that its loop takes in all, as its code or its parameter `epochs` says; 0: not known."""
    live: dict[str, str] = field(default_factory=dict)
    """The live values of its process (`tsnb.live`), each as text; sixteen at most."""
    epochs_before: int = 0
    """Whole epochs behind it when it came: those of the trial that it is a clone of, or of a process before its own."""
    batches_before: int = 0
    """Loader batches, likewise."""


END_STATES = ("left", "done", "failed", "stopped", "interrupted", "pruned", "lost")
"""left: a consumer detached, which is all that a stream knows; the others are a trial's ends, told by its notebook.
stopped: it was ended by hand; interrupted: its cell was interrupted; pruned: others of its sweep were better; lost:
its process died."""


@dataclass(frozen=True)
class EndReading:
    """How one consumer or trial ended, and the last that it logged: what its own readings cannot say any more."""

    name: str
    """The consumer's name; a trial's, where it never attached."""
    state: str
    """One of `END_STATES`."""
    time_s: float
    """When: wall clock, seconds since 1970. With the name it tells this end from any other."""
    pid: int = 0
    """Its process; 0 where it never had one."""
    error: str = ""
    """What it failed of, one line."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Last numbers given to `tsnb.log`, those of its last lines too."""


@dataclass(frozen=True)
class MoveReading:
    """Cores or threads that were moved by the stream's balancer."""

    time_s: float
    """When: wall clock, seconds since 1970."""
    consumer: str
    """The trial that gained; empty for the loader, and where all was given back."""
    text: str
    """What, in a few words."""
    reason: str
    """Why, with numbers."""
    effect: str = ""
    """What it did to the pace, in words; empty until that has been measured."""


@dataclass(frozen=True)
class ProbeReading:
    """One choice of the loader's workers, measured (docs/before.md)."""

    time_s: float
    """When: wall clock, seconds since 1970."""
    workers: int
    """Worker processes."""
    pace: float
    """Loader batches a second with them."""
    waited: float
    """Share of the time in which the producer waited for them, 0 to 1."""
    kept: bool
    """Whether that choice stayed."""
    prefetch: int
    """Batches that each prepared ahead."""


@dataclass(frozen=True)
class TuningReading:
    """What was asked of the loader's workers, and what became of it."""

    asked: str
    """Their number, or "auto"."""
    workers: int
    """Worker processes that it has, or will have from the next batch on that none has been told to prepare."""
    prefetch: int
    """Batches that each prepares ahead."""
    memory_bytes: int | None
    """What all of them together may use; None: what is free."""
    resting: bool
    """Whether nothing is left to try, until something changes."""
    probes: tuple[ProbeReading, ...] = ()
    """What "auto" has measured, oldest first; the last 32."""


CACHE_STATES = ("learning", "proving", "serving", "off")
"""learning: what each sample costs is measured, in the first epoch; proving: each is prepared a second time and
compared, and chosen ones are kept; serving: kept ones are taken; off: samples cannot be kept, `why` says the reason."""


@dataclass(frozen=True)
class CacheReading:
    """The cache of a stream's samples at one moment (docs/caching.md)."""

    state: str
    """One of `CACHE_STATES`."""
    why: str
    """Why samples are kept as they are before `transform`, or not at all; empty where neither is so."""
    samples: int
    """In the data set."""
    kept: int
    """Of them in memory."""
    kept_bytes: int
    """Memory in use, with the notes on each sample."""
    limit_bytes: int
    """What it may use."""
    given_bytes: int
    """Given back so far because memory was short."""
    hits: int
    """Samples taken from it so far."""
    misses: int
    """Samples prepared so far."""
    saved_s: float
    """What preparing the taken ones would have cost, in seconds of one core."""


@dataclass(frozen=True)
class StreamReading:
    """One stream at one moment."""

    time_s: float
    """Wall clock, seconds since 1970."""
    name: str
    """The stream's name."""
    pid: int
    """The producer's process."""
    state: str
    """One of `PRODUCER_STATES`."""
    epoch: int
    """The epoch being loaded, from 0."""
    published: int
    """Loader batches published in that epoch."""
    epoch_batches: int | None
    """Loader batches in an epoch, where the loader has a length."""
    window: int
    """How many batches the fastest consumer may be ahead of the slowest."""
    window_fill: int
    """Batches between the fastest and the slowest consumer now (0 to window)."""
    batches: int
    """Loader batches published so far, all epochs."""
    loading_s: float
    """Seconds the producer waited for the loader's next batch."""
    blocked_s: float
    """Seconds the producer could not go on because the window was full."""
    workers: int
    """DataLoader workers (0: the loader runs in the producer's own process)."""
    slots_used: int
    """Arena slots that hold a batch which may still be read."""
    slots: int
    """Arena slots in all."""
    slot_bytes: int
    """Bytes of one slot (address space: memory is used only where a batch was written)."""
    touched_bytes: int
    """Bytes of shared memory in use by the arena."""
    in_place: int
    """Batches that the loader's workers wrote straight into the arena."""
    copied: int
    """Batches that the producer had to copy into the arena."""
    consumers: tuple[ConsumerReading, ...] = ()
    """Every attached consumer, in the order of joining."""
    failure: str = ""
    """The loader's last error, one line; empty while it is well."""
    refused: int = 0
    """Connections that were dropped because they did not keep to the protocol, or flooded."""
    mode: str = "pace"
    """How compute is divided: `pace`, `weights` or `free`."""
    weights: dict[str, float] = field(default_factory=dict)
    """The weights that were given, by consumer name; some may not be attached."""
    rebalancing: str = "off"
    """Whether cores are moved: "off", "on", or "stands back: " and why."""
    moves: tuple[MoveReading, ...] = ()
    """The last times that cores or threads were moved, oldest first."""
    ends: tuple[EndReading, ...] = ()
    """How consumers and trials ended since the last reading to this observer, oldest first; 32 of them at most."""
    found: int | None = None
    """Samples that its growing data set has so far; None: it does not grow."""
    rounds: str = ""
    """Which samples its rounds have, and when one begins, in words; empty: epochs follow each other."""
    cache: CacheReading | None = None
    """The cache of its samples; None: served without `cache=`."""
    tuning: TuningReading | None = None
    """How many workers were asked for while it runs; None: it has those that it was served with."""
    host: HostReading | None = None
    """The machine; added now and then by the process that follows the stream (`tsnb.telemetry.host`), else None."""

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
            return decoded(cls, json.loads(text))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not a stream reading: {error}"[:300]) from None


def _fields(value: Any, *, brief: bool) -> Any:
    """Return a reading, or a part of one, as JSON has it; `brief`: without the fields that have their default."""
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, tuple):
        return [_fields(part, brief=brief) for part in value]
    if isinstance(value, dict):
        return {key: _fields(part, brief=brief) for key, part in value.items()}
    if not dataclasses.is_dataclass(value):
        return value
    cls: Any = type(value)
    plain = _plain(cls) if brief else {}
    parts = ((name, getattr(value, name)) for name in _readers(cls))
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
