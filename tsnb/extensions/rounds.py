"""Rounds of a data set that grows: observers choose them, and consumers report losses that they are chosen by.

    observer --RoundsAsked--> producer's half        consumer --Losses--> producer's half

`growth` lets samples in. This module is its side towards the stream's connections and readings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tsnb.errors import RemoteProtocolError, TsnbError
from tsnb.extensions.metrics import logged_by
from tsnb.growing.selection import RoundsAsked, Trigger, check_select
from tsnb.stream.consumer.losses import LOSSES_A_POINT, Losses
from tsnb.stream.decisions import events as ev
from tsnb.stream.protocol.extension import Extension, Remote, Undoable
from tsnb.text.foreign import unpack

if TYPE_CHECKING:
    from tsnb.extensions.growth import Growth
    from tsnb.stream.producer.core import Core

__all__ = ["Rounds"]


class Rounds(Extension):
    """The producer's half.

    Args:
        core: The producer's.
        growth: Lets new samples in; None: the data set does not grow.
    """

    name = "rounds"
    bytes_a_point = LOSSES_A_POINT

    def __init__(self, core: Core, growth: Growth | None) -> None:
        self._core = core
        self.growth = growth

    def hear(self, peer: Remote, payload: bytes) -> None:
        """Choose rounds as an observer asks, or keep the losses that a consumer reports.

        Raises:
            RemoteProtocolError: It is neither.
            Undoable: The stream cannot have such rounds.
        """
        try:
            if peer.role != "observer":
                self._note(peer.name, unpack(Losses, payload))
                return
            asked = unpack(RoundsAsked, payload)
            trigger, select = Trigger.from_text(asked.trigger), check_select(asked.select)
        except ValueError as error:
            raise RemoteProtocolError(str(error)[:200]) from None
        if why := self.set_rounds(trigger, select):
            raise Undoable(why)

    def set_rounds(self, trigger: Trigger, select: str) -> str:
        """Give epochs as rounds from the next one on, or no longer; return why that cannot be, else "".

        Args:
            trigger: When one begins; one that never fires ends the rounds.
            select: Which samples it has.
        """
        core, growth = self._core, self.growth
        with core.lock:
            if growth is None:
                return (
                    f"The dataset of {core.settings.name!r} does not grow, so it has no rounds. Serve "
                    "a DataLoader over tsnb.data.grow(...)"
                )
            if why := growth.why_not(select):
                return why
            try:
                growth.set_rounds(trigger, select)
            except TsnbError as error:
                return f"The rounds of {core.settings.name!r} cannot be saved next to its log: {error}"
            core.step(ev.RoundDue(0 if growth.in_words else None))
            return ""

    def _note(self, consumer: str, told: Losses) -> None:
        """Keep what a consumer reports of the samples that it was given; the ranks of a group train one model.

        Raises:
            RemoteProtocolError: Ours would not have sent such losses.
        """
        if len(told.samples) != len(told.losses) or len(told.samples) % 4:
            raise RemoteProtocolError(f"{len(told.losses)} bytes of losses of {len(told.samples)} of samples")
        if self.growth is None:
            return  # for the one that served another data set before
        losses = np.frombuffer(told.losses, "<f4")
        if not np.isfinite(losses).all():
            raise RemoteProtocolError("a loss that is not a number")
        self.growth.losses.note(consumer.partition("[")[0], np.frombuffer(told.samples, "<u4"), losses)

    def look(self) -> None:
        """Let a round begin if its trigger says so. Called by the growing data set's own thread."""
        core, growth = self._core, self.growth
        with core.lock:
            loading = core.dispatch.epochs.loading
            begins = loading is not None and growth is not None and loading.number >= growth.first_epoch
            if growth is None or core.stopping or begins or core.dispatch.admission.rounds != 0:
                return
            there = [session for session in core.sessions.values() if session.role == "consumer"]
            logged = {(s.name, name): value for s in there for name, value in logged_by(s)["metrics"].items()}
            if growth.round_due(logged, {s.name.partition("[")[0] for s in there}):
                core.step(ev.RoundDue(1))

    def reading(self, since: int) -> dict[str, Any]:
        """Return what has been found, what rounds are, and the last times that samples entered."""
        growth = self.growth
        if growth is None:
            return {}
        return {
            "found": growth.found,
            "look_failure": growth.look_failure,
            "rounds": growth.in_words,
            "growth": growth.news.readings,
        }
