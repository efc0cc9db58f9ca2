"""The readings of a stream: what its producer tells observers about itself and its consumers."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

from tsnb.config import is_profiled
from tsnb.stream.decisions.groups import awaited
from tsnb.stream.decisions.members import Member
from tsnb.stream.decisions.phases import Phase
from tsnb.stream.producer.core import Core
from tsnb.stream.producer.session import Session
from tsnb.telemetry.readings import ConsumerReading, StreamReading

__all__ = ["consumers", "reading", "reading_in_letters"]

READING_LETTERS = 96 << 10
"""Letters of a reading: in its packet each quotation mark is two."""


def reading(core: Core, since: int = 0) -> StreamReading:
    """Read the stream's numbers now. Called under the lock.

    Args:
        core: The producer's.
        since: How many news the observer knows (`Core.news`); it is told of those since.
    """
    now = time.monotonic()
    dispatch, source = core.dispatch, core.source
    workers = source.workers if source else None
    newest = dispatch.epochs.newest
    blocked_s = dispatch.drift.blocked_s(now)
    built_on: dict[str, Any] = {}
    for extension in core.extensions.values():
        built_on |= extension.reading(since)
    here = tuple(reading for reading, _ in consumers(core, now, blocked_s, since))
    return StreamReading(
        time_s=time.time(),
        name=core.settings.name,
        pid=os.getpid(),
        state=_producer_state(core),
        epoch=newest.number,
        published=newest.seq(newest.end),
        epoch_batches=source.batches if source else None,
        window=dispatch.drift.window,
        window_fill=dispatch.drift.fill,
        batches=dispatch.epochs.end,
        loading_s=core.loading_s,
        blocked_s=blocked_s,
        workers=workers.number if workers else 0,
        worker_pids=workers.pids() if workers else (),
        slots_used=dispatch.epochs.kept,
        slots=core.arena.slots,
        slot_bytes=core.arena.slot_bytes,
        touched_bytes=core.arena.touched_bytes(),
        in_place=core.in_place,
        copied=core.copied,
        ordinary=source.ordinary if source else "",
        unrepeatable=core.unordered if source and not source.order else "",
        consumers=here,
        profiled=sum(is_profiled(each.name) for each in here),
        failure=core.failure[0][:500] if core.failure else "",
        refused=core.refused,
        pacing=dispatch.balance.pacing,
        weights=dict(dispatch.balance.weights),
        **built_on,
    )


def reading_in_letters(found: StreamReading) -> str:
    """Return a reading as JSON that fits into a packet: of very many consumers, without some of their own numbers.

    Args:
        found: The reading.
    """
    text = found.to_json(brief=True)
    if len(text) > READING_LETTERS:
        those = tuple(replace(c, logged={}) for c in found.consumers)
        found = replace(found, consumers=those, ends=tuple(replace(end, logged={}) for end in found.ends))
        text = found.to_json(brief=True)
    for most in (4, 1, 0):
        if len(text) <= READING_LETTERS:
            break
        shorter = [replace(c, live={}, metrics=dict([*c.metrics.items()][:most])) for c in found.consumers]
        rest = found.pending if most else {}
        plans = found.plans if most else ()
        text = replace(found, consumers=tuple(shorter), pending=rest, plans=plans).to_json(brief=True)
    return text


def consumers(
    core: Core, now: float, blocked_s: float, since: int = 0
) -> list[tuple[ConsumerReading, Session]]:
    """Read every attached consumer's numbers now. Called under the lock.

    Args:
        core: The producer's.
        now: Monotonic seconds.
        blocked_s: The stream's blocked clock then.
        since: As `reading`.
    """
    members = core.dispatch.members.values()
    there = (m for m in members if m.phase in (Phase.STREAMING, Phase.BETWEEN))
    places = {m.key: core.dispatch.drift.position(m) for m in there}
    front = max(places.values(), default=0)
    attached = [(m, core.sessions[m.key]) for m in members]
    # one that is alone sets no pace: no other trial waits for it
    several = sum(m.phase is not Phase.JOINING and not m.paused and not m.parked for m in members) > 1
    found = _pace_setters(core)  # once: each look goes over all consumers
    setters = frozenset(found if several else ())
    return [
        (_consumer(core, session, m, (now, blocked_s, since), (places.get(m.key), front), setters), session)
        for m, session in attached
        if session.role == "consumer"
    ]


def _producer_state(core: Core) -> str:
    dispatch = core.dispatch
    if core.stopping:
        return "stopping"
    if core.failure is not None:
        return "failed"
    if not core.arena.slots:
        return "starting"
    if _pace_setters(core):
        return "blocked"
    active = any(m.phase in (Phase.STREAMING, Phase.ASKED) for m in dispatch.members.values())
    return "serving" if active else "idle"


def _consumer(
    core: Core,
    session: Session,
    member: Member,
    when: tuple[float, float, int],
    at: tuple[int | None, int],
    setters: frozenset[Member],
) -> ConsumerReading:
    now, blocked_s, since = when
    built_on: dict[str, Any] = {}
    for extension in core.extensions.values():
        built_on |= extension.reading_of(session, since)
    place, front = at
    return ConsumerReading(
        name=member.name,
        pid=session.channel.peer.pid,
        state=_consumer_state(member, setters),
        epoch=member.epoch,
        epochs=member.begun,
        position=member.position,
        # of the next passes, too: it takes those when it comes to them
        fill=0 if place is None else max(0, core.dispatch.epochs.end - place),
        lag=0 if place is None else front - place,
        batches=member.share.batches,
        samples=member.share.passed - member.share.left_out,
        skipped=member.share.skipped,
        **member.read(now, blocked_s)._asdict(),
        weight=core.dispatch.balance.weight(member.name),
        awaits="its turn" if member.times.queued_since_s is not None else awaited(member),
        part=session.part,
        planned=session.planned,
        epochs_before=session.before[0],
        batches_before=session.before[1],
        passed=member.share.passed,
        run=session.run,
        pause_s=now - member.times.outside_since_s if member.paused else 0.0,
        **built_on,
    )


def _consumer_state(member: Member, setters: frozenset[Member]) -> str:
    if member.paused:
        return "paused"
    if member.phase is Phase.JOINING:
        return "joining"
    if member.phase is Phase.ASKED:
        return "awaits ranks" if awaited(member) else "waiting"
    if member.phase is Phase.STREAMING:
        return _streaming_state(member, setters)
    return "timed out" if member.parked and not member.resumed else "between epochs"


def _streaming_state(member: Member, setters: frozenset[Member]) -> str:
    if member.times.queued_since_s is not None:
        return "awaits turn"
    if member.times.withheld_since_s is not None and member.times.waiting_since_s is not None:
        return "held back"
    if member in setters:
        return "sets the pace"
    if member.times.waiting_since_s is not None:
        return "held back" if setters else "waiting"
    return "skipping" if member.skipping else "streaming"


def _pace_setters(core: Core) -> list[Member]:
    """Return the consumers that fill the window, but those that take turns: theirs is full as a rule."""
    return [m for m in core.dispatch.drift.pace_setters() if m.turn is None or not m.turn.on]
