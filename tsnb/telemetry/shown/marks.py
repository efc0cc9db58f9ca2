"""Marks: the moments at which something changed, for the time axes of charts, reports and recordings.

`marks` compares two readings; `Marker` goes along a stream and hands it the right two.

| kind | when | text, for example |
|---|---|---|
| joined | a trial attached, or attached anew | `resnet10 joined` |
| left | it detached, ended or was killed | `resnet10 left` |
| timed out | it stalled past the stream's stall timeout | `resnet10 timed out` |
| back | it had timed out and takes part again | `resnet10 back` |
| paused | it was asked to pause | `resnet10 paused` |
| resumed | it was paused and goes on | `resnet10 resumed` |
| set | a live value of it has changed (`tsnb.live`) | `resnet10: lr 0.1 → 0.03` |
| not finite | a number that it logs is none any more | `resnet10: loss became nan at batch 312` |
| skipped | it gave up batches (`on_lag="skip"`) | `resnet10 skipped 7` |
| pacing | compute is divided in another way (docs/balance.md) | `pacing: free` |
| workers | the loader has another number of worker processes | `workers: 3, 2 before` |
| | or a number was measured (docs/speed-up-loading.md) | `tried 3 workers, 2 ahead each: 41.5 batches/s, kept` |
| cores | cores or threads were moved, by the stream's balancer | `2 threads for resnet10: it sets the pace ...` |
| | or else it may use another number of cores than before | `1 core to resnet10` |
| round | a round of selected samples began (docs/rounds.md) | `round 3: 75 samples (hard:0.3), 50 new samples` |
| entered | new samples came into a pass | `12 new samples in pass 4` |
| restarted | another process serves the stream | `producer restarted` |

`Taken` goes along a stream's readings too: how far each trial has come. Panel, `tsnb top` and reports all use it, so
that they say the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tsnb.telemetry.readings import ConsumerReading, EndReading, GrowthReading, HostReading, StreamReading
from tsnb.telemetry.shown.rows import not_finite

__all__ = [
    "MARK_KINDS",
    "Mark",
    "Marker",
    "Taken",
    "all_marks",
    "in_order",
    "marks",
    "pacing_text",
]

MARK_KINDS = (
    "joined", "left", "timed out", "back", "paused", "resumed", "set", "not finite", "skipped", "cores", "pacing",
    "workers", "round", "entered", "restarted",
)  # fmt: skip
"""What a mark can say; the table above explains."""

_SKIPPING_S = 10.0
"""A consumer that skips does so several times a second: one mark for all that follow each other this closely."""


_SHOWS_S = 60.0
"""The machine is looked at every 2 to 30 s."""


@dataclass(frozen=True)
class Mark:
    """Something that changed."""

    time_s: float
    """When it was first seen: wall clock, seconds since 1970."""
    kind: str
    """One of `MARK_KINDS`."""
    consumer: str
    """The consumer it happened to; empty where it happened to the whole stream."""
    text: str
    """A few words, short enough for a chart."""


def marks(earlier: StreamReading, later: StreamReading, host: HostReading | None = None) -> list[Mark]:
    """Return what changed between two consecutive readings of a stream, the stream's own marks first.

    Args:
        earlier: A reading.
        later: The next one.
        host: The last host reading before `later`, which not every reading carries; left out: that of `earlier`.
    """
    now_s = later.time_s
    again = earlier.pid != later.pid
    found = [Mark(now_s, "restarted", "", "producer restarted")] if again else []
    if (earlier.pacing, earlier.weights) != (later.pacing, later.weights):
        found.append(Mark(now_s, "pacing", "", f"pacing: {pacing_text(later)}"))
    if earlier.workers != later.workers and earlier.workers and not again:
        found.append(Mark(now_s, "workers", "", f"workers: {later.workers}, {earlier.workers} before"))
    found += _probed(earlier, later)
    found += _grown(earlier, later, again)
    before, after = _here(earlier), _here(later)
    for name, consumer in after.items():
        told = [] if _as_before(was := before.get(name), consumer) else [*_changes(was, consumer, again)]
        for value in consumer.metrics.values():
            if (
                value - value != 0
            ):  # not finite, found without a call: a tick of fifty trials has a hundred numbers
                told += not_finite(was, consumer)
                break
        if told:
            found += [Mark(now_s, kind, name, text) for kind, text in told]
    # while a producer is started again its consumers come back one by one: they have not left
    found += [Mark(now_s, "left", name, f"{name} left") for name in before if name not in after and not again]
    known = host or earlier.host
    if new := _balanced(earlier, later, again):
        found += new
    # the balancer's moves show in the machine's next readings: those are told already
    elif known and later.host and not (later.moves and now_s - later.moves[-1].time_s < _SHOWS_S):
        found += [Mark(now_s, "cores", name, text) for name, text in _moved(known, later.host)]
    return found


class Marker:
    """Goes along a stream, reading by reading."""

    def __init__(self) -> None:
        self._last: StreamReading | None = None
        self._host: HostReading | None = None
        self._skipped_s: dict[str, float] = {}
        self._awaited: set[str] = set()
        self._not_finite: dict[str, set[str]] = {}

    def feed(self, reading: StreamReading) -> list[Mark]:
        """Take in the next reading; return what changed since the one before. The first one has no marks."""
        last, host = self._last, self._host
        self._last, self._host = reading, reading.host or host
        if last is None:
            return []
        if last.pid != reading.pid:
            self._awaited = set(_here(last)) - set(_here(reading))
        return [mark for mark in marks(last, reading, host) if self._new(mark)]

    def _new(self, mark: Mark) -> bool:
        """Whether it says something that the marks before it do not."""
        if mark.kind == "joined":
            if mark.consumer in self._awaited:
                self._awaited.discard(mark.consumer)  # it has only found its producer again
                return False
            self._not_finite.pop(mark.consumer, None)
        if mark.kind == "not finite":  # the norm of a gradient may be infinite now and then
            told, what = (
                self._not_finite.setdefault(mark.consumer, set()),
                mark.text.rpartition(" became ")[0],
            )
            new = what not in told
            told.add(what)
            return new
        if mark.kind != "skipped":
            return True
        since_s = mark.time_s - self._skipped_s.get(mark.consumer, float("-inf"))
        self._skipped_s[mark.consumer] = mark.time_s
        return since_s > _SKIPPING_S


def all_marks(readings: Iterable[StreamReading]) -> list[Mark]:
    """Return all that changed, in the order of time: what has a time of its own is heard of a moment later.

    Args:
        readings: A stream's, oldest first.
    """
    marker = Marker()
    return in_order(mark for reading in readings for mark in marker.feed(reading))


def in_order(its: Iterable[Mark]) -> list[Mark]:
    """Return marks in the order of time; those of one moment as they came."""
    return sorted(its, key=lambda mark: mark.time_s)


def pacing_text(reading: StreamReading) -> str:
    """Return a stream's pacing in a few words: "free", or "weights (resnet50 2, others 1)"."""
    if reading.pacing != "weights":
        return reading.pacing
    given = "".join(f"{name} {weight:g}, " for name, weight in reading.weights.items())
    return f"weights ({given}others 1)" if given else "weights (all 1)"


def _here(reading: StreamReading) -> dict[str, ConsumerReading]:
    return {consumer.name: consumer for consumer in reading.consumers if consumer.state != "gone"}


def _as_before(before: ConsumerReading | None, after: ConsumerReading) -> bool:
    """Whether there is nothing to tell of a consumer, as of most of them at most times."""
    return (
        before is not None
        and before.pid == after.pid
        and before.batches <= after.batches
        and before.state == after.state
        and before.skipped == after.skipped
        and before.live == after.live
    )


def _changes(
    before: ConsumerReading | None, after: ConsumerReading, again: bool
) -> Iterator[tuple[str, str]]:
    """Give kind and text of what happened to one consumer; `again`: its producer was started again."""
    name = after.name
    if before is None or before.pid != after.pid:
        yield "joined", f"{name} joined"
        return
    if after.batches < before.batches and not again:  # a producer that was started again counts from 0
        yield "joined", f"{name} joined again"
        return
    if after.state == "timed out" and before.state != "timed out":
        yield "timed out", f"{name} timed out"
    if before.state == "timed out" and after.state != "timed out":
        yield "back", f"{name} back"
    if (after.state == "paused") != (before.state == "paused"):
        word = "paused" if after.state == "paused" else "resumed"
        yield word, f"{name} {word}"
    for value, now in after.live.items():
        if (was := before.live.get(value, now)) != now:
            yield "set", f"{name}: {value} {was} → {now}"
    if after.skipped > before.skipped:
        yield "skipped", f"{name} skipped {after.skipped - before.skipped}"


def _balanced(earlier: StreamReading, later: StreamReading, again: bool) -> list[Mark]:
    """Return a mark for each move of the balancer's since the reading before."""
    last_s = earlier.moves[-1].time_s if earlier.moves and not again else -math.inf
    return [
        Mark(move.time_s, "cores", move.consumer, f"{move.text}: {move.reason.partition(',')[0]}")
        for move in later.moves
        if move.time_s > last_s
    ]


def _probed(earlier: StreamReading, later: StreamReading) -> list[Mark]:
    """Return a mark for each choice of the loader's workers that was measured since the reading before."""
    last_s = earlier.tuning.probes[-1].time_s if earlier.tuning and earlier.tuning.probes else -math.inf
    return [
        Mark(
            probe.time_s,
            "workers",
            "",
            f"tried {probe.workers} worker{'s' * (probe.workers != 1)}, {probe.prefetch} ahead each: "
            f"{probe.pace:.1f} batches/s, {'kept' if probe.kept else 'not kept'}",
        )
        for probe in (later.tuning.probes if later.tuning else ())
        if probe.time_s > last_s
    ]


def _grown(earlier: StreamReading, later: StreamReading, again: bool) -> list[Mark]:
    """Return a mark for each round that began, and for samples that entered, since the reading before."""
    last_s = earlier.growth[-1].time_s if earlier.growth and not again else -math.inf
    return [Mark(one.time_s, one.kind, "", _grown_text(one)) for one in later.growth if one.time_s > last_s]


def _grown_text(one: GrowthReading) -> str:
    samples = "1 new sample" if one.samples == 1 else f"{one.samples:,} new samples"
    if one.kind == "entered":
        return f"{samples} in pass {one.epoch + 1}"
    because = f", {one.reason}" if one.reason else ""
    return f"round {one.epoch + 1}: {samples.replace('new ', '')} ({one.select}){because}"


def _moved(before: HostReading, after: HostReading) -> Iterator[tuple[str, str]]:
    """Give consumer and text for cores that changed hands: the gainers; the losers only where none gained."""
    both = [name for name in after.consumers if name in before.consumers]
    change = {name: after.consumers[name].cores - before.consumers[name].cores for name in both}
    gained = {name: more for name, more in change.items() if more > 0}
    for name, more in gained.items():
        yield name, f"{_cores(more)} to {name}"
    if not gained:
        for name, more in change.items():
            if more < 0:
                yield name, f"{_cores(-more)} from {name}"


def _cores(number: int) -> str:
    return f"{number} core" if number == 1 else f"{number} cores"


@dataclass
class _Life:
    last: ConsumerReading
    before: ConsumerReading
    """The reading that knows what lay behind it when it came."""
    batches: int = 0
    """Those of attachments before this one."""
    epochs: int = 0

    @property
    def taken(self) -> int:
        """Loader batches that lie behind it."""
        return self.batches + self.before.batches_before + self.last.batches


class Taken:
    """How many epochs each trial has taken: over attachments of one process, and restarts of its producer."""

    def __init__(self) -> None:
        self._lives: dict[str, _Life] = {}
        self._unseen: dict[str, EndReading] = {}  # of consumers that had left before the first reading
        self._whole: int | None = None
        self._pid = 0

    def feed(self, reading: StreamReading) -> None:
        """Take in the next reading."""
        self._whole = reading.epoch_batches
        for consumer in reading.consumers:
            life = self._lives.get(consumer.name)
            if life is None or life.last.pid != consumer.pid:
                self._lives[consumer.name] = _Life(consumer, consumer)
                continue
            if reading.pid != self._pid or consumer.batches < life.last.batches:
                life.batches += life.last.batches
                life.epochs += life.last.epochs
            life.last = consumer
            if consumer.batches_before:  # a producer that was started again does not know it
                life.before = consumer
        self._pid = reading.pid
        for end in reading.ends:
            if end.state == "left" and end.name not in self._lives:
                self._unseen[end.name] = _summed(self._unseen.get(end.name), end)

    def batches(self, name: str) -> int:
        """Return the loader batches that a trial has taken."""
        return self.of(name)[1]

    def at(self, name: str, batch: int) -> int:
        """Return how many loader batches a trial had taken at a batch as its last reading counts them."""
        life = self._lives.get(name)
        return max(0, batch if life is None else life.taken - life.last.batches + batch)

    def of(self, name: str) -> tuple[float, int]:
        """Return `epochs` and `batches` of a trial: both are asked for at each tick."""
        if (life := self._lives.get(name)) is None:
            end = self._unseen.get(name)
            if end is None or not end.batches:
                return math.nan, 0
            return (end.batches / self._whole if self._whole else float(end.epochs)), end.batches
        taken = life.batches + life.before.batches_before + life.last.batches  # `taken`, without a call
        if life.last.epoch < 0 and not taken:
            return math.nan, taken
        if self._whole:
            return taken / self._whole, taken
        return float(life.epochs + life.before.epochs_before + life.last.epochs), taken

    def epochs(self, name: str) -> float:
        """Return the epochs that a trial has taken, the one under way as a share; nan before its first.

        Where the loader has no length, those that it has begun.
        """
        return self.of(name)[0]


def _summed(before: EndReading | None, end: EndReading) -> EndReading:
    """Return an end with what the same process had taken by earlier attachments, too; one may be told again."""
    if before is not None and before.time_s >= end.time_s:
        return before
    if before is None or before.pid != end.pid:
        return end
    return replace(end, epochs=before.epochs + end.epochs, batches=before.batches + end.batches)
