"""Which trial waits for which: one plain sentence from two readings.

Between the two readings each consumer spent its time computing, waiting for the loader, or held back by the
window. If most time goes into waiting, the loader is the limit; if into being held, the consumer with the
largest fill is; otherwise the models are busy and nothing is wasted.

The sentence begins with its *lead*, which says it all (a panel shows it bold); numbers and what to change follow.
Advice that costs cores is given only where the machine was looked at (`HostReading`) and has them to spare.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from tsnb.telemetry.readings import STANDING, ConsumerReading, HostReading, StreamReading
from tsnb.telemetry.shown.rates import Pace, loader_faster
from tsnb.text.numbers import pace as rate
from tsnb.text.numbers import percent
from tsnb.text.words import FEATURES_KEPT, FROZEN_LIMITS, frozen_takes

__all__ = ["AT_ONCE", "AT_TIMES", "NOBODY", "Diagnosis", "MeanHost", "Shares", "diagnose", "shares"]

NOBODY, _ALONE = "No trial is attached.", "No other trial is reading."
AT_ONCE = {NOBODY, _ALONE}  # leads that are false as soon as another trial reads
"""The lead while no trial is attached: out of date for a moment after one has come."""

AT_TIMES = frozenset({"window-bound", "weighed"})
"""Kinds of sentences that say, where they name no trial as setting the pace, that each does at times."""

SMALL = 0.10
"""Below a tenth of its time, waiting is not worth a sentence."""

_SPEED_UP = (1.2, 10.0)
"""How much faster a loader could be: below, not worth saying; above, no longer a measurement."""

_IDLER = 0.5
"""A worker that keeps less of a core busy than this spends most of its time waiting."""

_READING = frozenset({"streaming", "waiting", "held back", "sets the pace", "skipping"})

_AWAY = STANDING | {"gone"}
"""States of those that no trial waits for."""

_NAMED = 3
"""More trials than this are counted, not named: the sentence has one line."""


@dataclass(frozen=True)
class Shares:
    """Where one consumer's time went between two readings, each 0 to 1."""

    computing: float
    waiting: float
    held: float


@dataclass(frozen=True)
class Diagnosis:
    """What limits the stream now."""

    kind: str
    """starting, idle, loader-bound, window-bound, weighed, by turns, model-bound, failed, or gone."""
    text: str
    """The whole sentence, the lead included."""
    pace: str | None = None
    """The consumer that sets the pace, where one does."""
    lead: str = ""
    """What matters: the words that `text` begins with, up to and with their full stop or colon."""

    def tells_of(self, name: str) -> bool:
        """Return whether it names a trial."""
        return name in {word.rstrip(",.:;") for word in self.text.split()}


def shares(earlier: ConsumerReading, later: ConsumerReading) -> Shares | None:
    """Return where the consumer's time went between two readings; None if it took no part."""
    computing = later.computing_s - earlier.computing_s
    waiting = later.waiting_s - earlier.waiting_s
    held = later.held_s - earlier.held_s
    total = computing + waiting + held
    if total <= 0:
        return None
    return Shares(computing / total, waiting / total, held / total)


def diagnose(
    earlier: StreamReading,
    later: StreamReading,
    host: HostReading | None = None,
    *,
    in_seconds: bool = False,
    paces: Mapping[str, Pace] | None = None,
) -> Diagnosis:
    """Say in one sentence what limits the stream.

    Args:
        earlier: A reading of about two seconds before.
        later: The newest reading.
        host: The last reading of the machine; left out: that of `later`, which not every reading carries.
        in_seconds: Whether the limit is what cost most seconds of all trials together, as over a stream's life, in
            which they have lived for different times; else what cost one of them the largest share.
        paces: The pace of each consumer as its row shows it: the sentence then says the row's own shares, and nothing
            of a trial whose shares are not known yet. Without: shares of the time inside epochs between both.
    """
    if later.state == "failed":
        return _say("failed", "The loader failed:", later.failure)
    if later.state in ("stopping", "gone"):
        return _say("gone", "The stream has ended.")
    if later.look_failure:
        return _say("failed", "Looking for new samples failed:", later.look_failure)
    parts = _parts(earlier, later, paces or {})
    if not parts:
        return _resting(later)
    host = host or later.host
    held = {name: s.held for name, s in parts.items() if s.held >= SMALL}
    waiting = {name: s.waiting for name, s in parts.items() if s.waiting >= SMALL}
    if in_line := sum(c.state == "awaits turn" for c in later.consumers):
        return _by_turns(earlier, later, parts, host, in_line)
    costs = [_cost(of, had, earlier, later, in_seconds) for of, had in (("held", held), ("waiting", waiting))]
    if held and costs[0] >= costs[1]:
        return _window_bound(earlier, later, parts, host)
    if waiting:
        return _loader_bound(earlier, later, parts, host)
    busy = _spend({name: s.computing for name, s in parts.items()}, "computes", "compute")
    return _say("model-bound", "No trial is waiting.", busy + _headroom(earlier, later, host) + ".")


def _cost(
    kind: str, parts: dict[str, float], earlier: StreamReading, later: StreamReading, in_seconds: bool
) -> float:
    """Return the cost of a kind of waiting, from the shares of the trials that had any: the largest, or seconds."""
    if not in_seconds:
        return max(parts.values(), default=0.0)
    before: dict[str, float] = {c.name: getattr(c, f"{kind}_s") for c in earlier.consumers}
    now: dict[str, float] = {c.name: getattr(c, f"{kind}_s") for c in later.consumers if c.name in parts}
    return sum(seconds - before.get(name, 0.0) for name, seconds in now.items())


def _inside_s(consumer: ConsumerReading) -> float:
    return consumer.computing_s + consumer.waiting_s + consumer.held_s


def _parts(earlier: StreamReading, later: StreamReading, paces: Mapping[str, Pace]) -> dict[str, Shares]:
    """Return where the time of each consumer that takes part went; a newcomer's counts from its attachment."""
    before = {c.name: c for c in earlier.consumers}
    parts = {}
    for now in (c for c in later.consumers if c.state not in _AWAY):
        was = before.get(now.name)
        if was is None or was.pid != now.pid or was.batches > now.batches:
            was = replace(now, computing_s=0.0, waiting_s=0.0, held_s=0.0)
        pace = paces.get(now.name)
        if pace is None:
            if (found := shares(was, now)) is not None:
                parts[now.name] = found
        elif _inside_s(now) > _inside_s(was) and not math.isnan(pace.computing):
            parts[now.name] = Shares(pace.computing, pace.waiting, pace.held)
    return parts


def _say(kind: str, lead: str, rest: str = "", pace: str | None = None) -> Diagnosis:
    return Diagnosis(kind, f"{lead} {rest}".rstrip(), pace, lead)


def _resting(later: StreamReading) -> Diagnosis:
    here = [c for c in later.consumers if c.state != "gone"]
    if not here and later.profiled:
        one = later.profiled == 1
        trials = "1 trial is" if one else f"{later.profiled} trials are"
        what = "its costs are" if one else "their costs are"
        return _say(
            "idle",
            f"{trials} profiled for a plan.",
            f"{'It stops' if one else 'They stop'} when {what} known.",
        )
    if not here:
        ready = later.state != "starting"
        rest = "The first batches are ready." if ready else "The loader is preparing its first batches."
        if ready and later.batches > later.window:  # the first ones have long been taken
            rest = "All trials have left. Batches are ready for the next trial."
        return _say("idle" if ready else "starting", NOBODY, _to_come(later) or rest)
    if incomplete := next((c for c in here if c.state == "awaits ranks"), None):
        group = incomplete.name.partition("[")[0]
        return _say(
            "idle", f"{group} waits for {incomplete.awaits}.", "An epoch begins when all ranks request it."
        )
    who = _list([c.name for c in here]) if len(here) <= _NAMED else f"All {len(here)} trials"
    are = "are" if len(here) > 1 else "is"
    if (states := {c.state for c in here}) in ({"timed out"}, {"paused"}):
        return _say(
            "idle",
            f"{who} {are} {states.pop()}.",
            f"The stream does not wait for {'them' if len(here) > 1 else 'it'}.",
        )
    if all(c.state in (*STANDING, "between epochs") for c in here):
        return _say("idle", f"{who} {are} between epochs.", "No trial is reading.")
    if any(c.batches for c in here):  # a single reading: nothing to compare with
        return _say("starting", f"{who} {are} reading.", "Their time shares appear in a moment.")
    return _say("starting", f"{who} {are} attached.", "No batch has been read yet.")


def _to_come(later: StreamReading) -> str:
    """Say which trials are about to attach; empty: none is known."""
    queued = sum(said.startswith("queued") for said in later.pending.values())
    counts = [(len(later.pending) - queued, "starting"), (queued, "queued")]
    if parts := [f"{number} {'is' if number == 1 else 'are'} {what}" for number, what in counts if number]:
        return f"Of the next trials, {_list(parts)}."
    return f"More trials are to start: {later.to_come}." if later.to_come else ""


def _by_turns(
    earlier: StreamReading,
    later: StreamReading,
    parts: dict[str, Shares],
    host: HostReading | None,
    in_line: int,
) -> Diagnosis:
    """Say what limits the trials that have their turn; how many wait for theirs.

    Args:
        earlier: As `diagnose`.
        later: As `diagnose`.
        parts: Where the time of each went, its wait for its turn as time that it was held.
        host: The machine, as far as it is known.
        in_line: How many wait for their turn now.
    """
    training = {  # of the time in which it was not held
        name: Shares(s.computing / busy, s.waiting / busy, 0.0)
        for name, s in parts.items()
        if (busy := s.computing + s.waiting) >= SMALL
    }
    if training and min(s.waiting for s in training.values()) >= SMALL:
        return _loader_bound(earlier, later, training, host, by_turns=True)
    wait = "wait for their turns" if in_line > 1 else "waits for its turn"
    return _say("by turns", "The trials take turns.", f"{in_line} of {len(later.consumers)} {wait}.")


def _window_bound(
    earlier: StreamReading, later: StreamReading, parts: dict[str, Shares], host: HostReading | None
) -> Diagnosis:
    held = {name: s.held for name, s in parts.items() if s.held >= SMALL}
    if sum(c.state not in _AWAY for c in later.consumers) < 2:  # the others have left, or are to come
        others = _spend(held, "waited for other trials", "waited for other trials")
        return _say("window-bound", _ALONE, f"{others}.")
    others = _spend(held, "waits for slower trials", "wait for slower trials")
    if later.pacing == "weights" and later.state != "blocked":
        return _say("weighed", "Compute is shared by weight.", f"{others}.")
    free = [c for c in later.consumers if c.name in parts and c.name not in held]
    slowest = max(free, key=lambda c: (c.state == "sets the pace", c.state in _READING, c.lag), default=None)
    if slowest is None and (left := _left(earlier, later)):
        others = _spend(held, "waited for slower trials", "waited for slower trials")
        return _say(
            "window-bound", f"{_list(left)} no longer {'reads' if len(left) == 1 else 'read'}.", f"{others}."
        )
    if slowest is None and max(s.computing for s in parts.values()) < SMALL:
        others = _spend(held, "waits for other trials", "wait for other trials")
        return _say("window-bound", "No trial is training yet.", f"{others}.")
    if slowest is None:
        wider = f"{others}; a window larger than {later.window} would balance that."
        return _say("window-bound", "Each trial sets the pace at times.", wider)
    rest = f"{others}{_headroom(earlier, later, host)}."
    if later.pacing == "free" and later.window_fill >= later.window:
        whom = _list(list(held)) if len(held) <= _NAMED else f"{len(held)} trials"
        lead = f"All {later.window} buffered batches are in use: {whom} must wait for {slowest.name}."
        return _say("window-bound", lead, rest, slowest.name)
    return _say("window-bound", f"{slowest.name} sets the pace.", rest, slowest.name)


def _left(earlier: StreamReading, later: StreamReading) -> list[str]:
    """Return which trials read then and do no more: others have waited for them."""
    stay = {c.name for c in later.consumers if c.state not in _AWAY}
    return [c.name for c in earlier.consumers if c.state not in _AWAY and c.name not in stay][:_NAMED]


def _loader_bound(
    earlier: StreamReading,
    later: StreamReading,
    parts: dict[str, Shares],
    host: HostReading | None,
    by_turns: bool = False,
) -> Diagnosis:
    waiting = {name: s.waiting for name, s in parts.items() if s.waiting >= SMALL}
    seconds = later.time_s - earlier.time_s
    batches_per_s = (later.batches - earlier.batches) / seconds if seconds > 0 else 0.0
    pace = (
        f" at {rate(batches_per_s)} batches/s" if batches_per_s >= 0.05 else ""
    )  # between two epochs there are none
    who = _spend(waiting, "waits for data", "wait for data")
    # when the one that waits least waits no more, the loader keeps up with the slowest, and cannot be of more use
    least = _least_wait(later, parts, by_turns)
    share = frozen_share(earlier, later)
    if later.frozen is not None and share > FROZEN_LIMITS:
        rest = f"{frozen_takes(later.frozen.name, percent(share))}, {_frozen_advice(later, least, host)}"
        return _say("loader-bound", f"The frozen part is the limit{pace}.", f"{who}; {rest}.")
    return _say("loader-bound", f"The loader is the limit{pace}.", f"{who}; {_advice(later, least, host)}.")


def frozen_share(earlier: StreamReading, later: StreamReading) -> float:
    """Return the share of the loader's time that the frozen part computed, 0 to 1, between two readings.

    Args:
        earlier: The earlier reading; of another producer, or without a frozen part: as if there had been nothing.
        later: The newest reading.
    """
    if later.frozen is None:
        return 0.0
    before = earlier.frozen if earlier.frozen is not None and earlier.pid == later.pid else None
    computing_s = later.frozen.computing_s - (0.0 if before is None else before.computing_s)
    waited_s = later.loading_s - (0.0 if before is None else earlier.loading_s)
    # without workers it is a part of the time for which the producer waits; with them, each has the whole time
    whole_s = (
        (later.time_s - earlier.time_s) * later.workers if later.workers and before is not None else waited_s
    )
    return min(1.0, max(0.0, computing_s / whole_s)) if whole_s > 0 else 0.0


def _frozen_advice(later: StreamReading, waiting: float, host: HostReading | None) -> str:
    if later.cache is None:
        return FEATURES_KEPT
    if later.cache.state == "learning":
        return "which the cache spares from the second pass on"
    return f"and {_advice(later, waiting, host)}"


class MeanHost:
    """The machine as it was on average while trials read: advice goes by it, live and in a report, and does not flip.

    It begins anew where the loader has another number of workers.
    """

    def __init__(self) -> None:
        self._last: HostReading | None = None
        self._of: tuple[int, int] | None = None
        self._seen_s = 0.0
        self._begin()

    def _begin(self) -> None:
        self._weight = self._cpu = self._producer_weight = self._producer_cpu = 0.0

    def feed(self, reading: StreamReading) -> None:
        """Take in the next reading."""
        host = reading.host
        if host is None:
            return
        of = reading.pid, reading.workers
        if of != self._of:
            self._of = of
            self._begin()
        passed_s = reading.time_s - self._seen_s if self._seen_s else 0.0
        weight, self._seen_s = min(60.0, max(1e-3, passed_s)), reading.time_s
        self._last = host
        if reading.state not in ("serving", "blocked") or not any(
            c.state in _READING for c in reading.consumers
        ):
            return
        self._weight += weight
        self._cpu += weight * host.cpu
        if host.producer is not None:
            self._producer_weight += weight
            self._producer_cpu += weight * host.producer.cpu

    @property
    def host(self) -> HostReading | None:
        """The last look, with the mean load of the loader and of all; None: nobody looked."""
        last = self._last
        if last is None or not self._weight:
            return last
        producer = last.producer
        if producer is not None and self._producer_weight:
            producer = replace(producer, cpu=self._producer_cpu / self._producer_weight)
        return replace(last, cpu=self._cpu / self._weight, producer=producer)


def _least_wait(later: StreamReading, those: Collection[str], by_turns: bool) -> float:
    """Return the share of its whole time that the one that waits least has waited for data, of these consumers.

    Of its whole time, as a report tells it: what a trial needs does not change from one second to the next. Of
    trials that take turns, of the time in which they had theirs.
    """
    found = []
    for c in later.consumers:
        whole_s = c.computing_s + c.waiting_s + (0.0 if by_turns else c.held_s)
        if c.name in those and whole_s > 0:
            found.append(c.waiting_s / whole_s)
    return min(found, default=0.0)


def _advice(later: StreamReading, waiting: float, host: HostReading | None) -> str:
    """Say what would make the loader faster.

    Args:
        later: The stream now.
        waiting: Share of its time that the consumer that waits least waits for data.
        host: The machine, as far as it is known.
    """
    if host is None:
        more = "more workers" if later.workers else "num_workers=2 or more"
        return f"{more} would help if cores are free"
    wanted = max(1, math.ceil(max(1, later.workers) * waiting / max(SMALL, 1 - waiting) - SMALL))
    spare = host.cores - host.cpu
    each = min(1.0, host.producer.cpu / max(1, later.workers)) if host.producer else 1.0
    # a worker that mostly waits for a disk costs little; half a core left is enough for one to be of use
    room = int((spare + 0.5) / max(each, 0.25)) if spare > SMALL * host.cores else 0
    more_workers = min(wanted, room, host.cores)  # beyond, it would have to be tried
    if more_workers >= 1:
        plural = "s" if more_workers > 1 else ""
        more = f"{more_workers} more worker{plural}" if later.workers else f"num_workers={more_workers}"
        return f"{more} would help"
    busy = f"all {host.cores} cores are busy" if host.cores > 1 else "the only core is busy"
    if each < _IDLER:  # they wait for something, or for a core: from here both look the same
        return f"{busy}, so more workers would help only if they wait for a disk or a network"
    return f"{busy}, so cheaper transforms would help, but more workers would not"


def _headroom(earlier: StreamReading, later: StreamReading, host: HostReading | None) -> str:
    """Say how much faster the loader could feed; nothing where that is little or unknown."""
    faster, sure = loader_faster(earlier, later, host)
    least, most = _SPEED_UP
    if faster < least or (faster > most and not sure):
        return ""
    if faster > most:
        return f"; the loader could deliver more than {most:.0f}x faster"
    return f"; the loader could deliver {'' if sure else 'up to '}{faster:.1f}x faster"


def _spend(parts: dict[str, float], one: str, many: str) -> str:
    """Say how much each trial spends: "a and b are held back 74 % and 54 % of their time"."""
    percents = [percent(share) for share in parts.values()]
    if len(parts) == 1:
        return f"{next(iter(parts))} {one} {percents[0]} of its time"
    if len(parts) <= _NAMED:
        return f"{_list(list(parts))} {many} {_list(percents)} of their time"
    low, high = (percent(share) for share in (min(parts.values()), max(parts.values())))
    return f"{len(parts)} trials {many} {low if low == high else f'{low[:-2]} to {high}'} of their time"


def _list(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
