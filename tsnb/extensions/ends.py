"""How consumers and trials ended, and what notebooks tell of their trials: which are to come, and what a plan says.

The producer's half alone: observers tell (`telemetry.trial_readings.TrialsTold`), and the stream's readings say it on.
A stream knows of a consumer only that it left. How a trial ended its notebook tells.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tsnb.config import check_name
from tsnb.errors import RemoteProtocolError
from tsnb.extensions.metrics import logged_at_last, logged_by, taken_in
from tsnb.records.scores import MODES
from tsnb.stream.protocol.extension import Extension, Remote
from tsnb.telemetry.trial_readings import (
    END_STATES,
    BesideReading,
    EndReading,
    OutcomeReading,
    OutcomeTold,
    PlanReading,
    StreamsBeside,
    TrialEnded,
    TrialsPending,
    TrialsPlanned,
    TrialsTold,
)
from tsnb.text.foreign import unpack
from tsnb.text.printable import one_line

if TYPE_CHECKING:
    from tsnb.stream.producer.core import Core

__all__ = ["TrialEnds"]

MAX_ENDS = 32
"""TrialEnds that a new observer is told of: as many as one reading has room for."""
MAX_ERROR = 600
"""Letters of the line that says what a trial failed of: tsnb's own errors end with what to do."""
MAX_REASON = 300
"""The same of the line that says what it waits for, and of a metric's name."""
MAX_PENDING = 128
"""Trials that are not attached yet, of one notebook: readings stay within a packet."""
MAX_PLANNED = 32
"""The same for trials that a plan has started."""
MAX_BESIDE = 16
"""The same for other streams of one notebook."""
MAX_COMPARED = 32
"""The same for metrics of which a notebook tells how they compare trials."""
MAX_LIMITED = 500
"""Letters of what limited a stream, and of what its duels have found."""
MAX_TO_COME = 10_000
"""Trials of sweeps that are still to attach: only whether there are any is shown."""


@dataclass
class _Notebook:
    """What one observer has told last."""

    pending: dict[str, str] = field(default_factory=dict)
    to_come: int = 0
    plan: PlanReading | None = None
    beside: tuple[BesideReading, ...] = ()
    outcome: OutcomeReading | None = None


class TrialEnds(Extension):
    """What a producer knows of trials beside their batches.

    Args:
        core: The producer's.
    """

    name = "ends"

    def __init__(self, core: Core) -> None:
        self._core = core
        self._ends: deque[tuple[int, EndReading]] = deque(maxlen=MAX_ENDS)

    def hear(self, peer: Remote, payload: bytes) -> None:
        """Take what a notebook tells of trials.

        Raises:
            RemoteProtocolError: It is invalid, or its sender is not an observer.
        """
        if peer.role != "observer":
            raise RemoteProtocolError(f"ends from a {peer.role}")
        try:
            told: TrialsTold = unpack(TrialsTold, payload)  # type: ignore[arg-type]  # a union is what it makes
            if isinstance(told, TrialEnded):
                self._note(_shown(told.end))
                return
            kept: dict[str, Any] = _kept(told)
        except ValueError as error:
            raise RemoteProtocolError(str(error)[:200]) from None
        with self._core.lock:
            peer.notes[self.name] = replace(peer.notes.get(self.name, _Notebook()), **kept)

    def left(self, peer: Remote) -> None:
        """Note that a consumer has detached, with the last that it logged."""
        with self._core.lock:
            epochs, batches = self._core.sessions[peer.key].before
            member = self._core.dispatch.members[peer.key]
            logged = logged_at_last(peer)
            now = time.monotonic()
            taken = member.read(now, self._core.dispatch.drift.blocked_s(now))
        left = EndReading(
            peer.name,
            "left",
            time.time(),
            peer.pid,
            **logged_by(peer),
            logged=logged,
            epochs=epochs + member.begun,
            batches=batches + member.share.batches,
            samples=member.share.passed - member.share.left_out,
            **taken._asdict(),
        )
        self._note(left)

    def _note(self, end: EndReading) -> None:
        with self._core.lock:
            self._core.news += 1
            self._ends.append((self._core.news, end))

    def reading(self, since: int) -> dict[str, Any]:
        """Return the ends since then, and what the notebooks tell now."""
        told = [s.notes[self.name] for s in self._core.sessions.values() if self.name in s.notes]
        beside = {one.name: one for each in told for one in each.beside}
        return {
            "ends": tuple(end for number, end in self._ends if number > since),
            "pending": {name: said for each in told for name, said in each.pending.items()},
            "to_come": sum(each.to_come for each in told),
            "plans": tuple(each.plan for each in told if each.plan is not None),
            "beside": tuple(beside.values()),
            "outcome": _joined([each.outcome for each in told if each.outcome is not None]),
        }


def _shown(end: EndReading) -> EndReading:
    """Return how a trial ended, as an observer tells it, made fit to be shown to others.

    Raises:
        ValueError: It is invalid; our observer checks it before it sends it.
    """
    check_name(end.name, "trial")
    if end.state not in END_STATES:
        raise ValueError(f"an end {end.state!r:.80}")
    return replace(end, error=one_line(end.error, MAX_ERROR), metrics=taken_in({}, end.metrics))


def _joined(told: Sequence[OutcomeReading]) -> OutcomeReading | None:
    """Return what several notebooks tell of the outcome; what limited the stream tells who has followed it longest."""
    if len(told) < 2:
        return told[0] if told else None
    decides = dict.fromkeys(metric for each in told for metric in each.decides)
    directions = {metric: mode for each in reversed(told) for metric, mode in each.directions.items()}
    limited = next((one.limited for one in told if one.limited), "")
    duels = " ".join(one.duels for one in told if one.duels)
    return OutcomeReading(tuple(decides), directions, limited, duels)


def _kept(told: TrialsPending | TrialsPlanned | StreamsBeside | OutcomeTold) -> dict[str, Any]:
    """Return what is kept of what an observer tells, as much as readings have room for.

    Raises:
        ValueError: A name is invalid.
    """
    if isinstance(told, TrialsPending):
        _check(told.states, "trial")
        states = {n: one_line(said, MAX_REASON) for n, said in [*told.states.items()][:MAX_PENDING]}
        return {"pending": states, "to_come": min(MAX_TO_COME, max(0, told.to_come))}
    if isinstance(told, StreamsBeside):
        _check((one.name for one in told.streams), "stream")
        return {"beside": told.streams[:MAX_BESIDE]}
    if isinstance(told, OutcomeTold):
        return {"outcome": _compared(told.outcome)}
    plan = told.plan
    if plan is None or not (plan.trials or plan.waiting):
        return {"plan": None}
    _check((one.name for one in plan.trials), "trial")
    return {"plan": replace(plan, trials=plan.trials[:MAX_PLANNED])}


def _compared(told: OutcomeReading) -> OutcomeReading | None:
    """Return how a notebook compares trials, made fit to be shown to others; None: it tells nothing."""
    decides = tuple(one_line(metric, MAX_REASON) for metric in told.decides[:MAX_COMPARED])
    directions = {
        one_line(metric, MAX_REASON): mode
        for metric, mode in [*told.directions.items()][:MAX_COMPARED]
        if mode in MODES
    }
    limited, duels = one_line(told.limited, MAX_LIMITED), one_line(told.duels, MAX_LIMITED)
    anything = decides or directions or limited or duels
    return OutcomeReading(decides, directions, limited, duels) if anything else None


def _check(names: Iterable[str], kind: str) -> None:
    for name in names:
        check_name(name, kind)
