"""Skipping: consumers that would rather give up batches than hold the others up (`on_lag="skip"`).

Pure, a part of `dispatch`. No consumer waits for one of them. It gives up the batches that have gone by the time it
comes. Where all of them skip, the one in front drives the loader.
"""

from __future__ import annotations

from tsnb.stream.decisions.epochs import Epoch, Epochs
from tsnb.stream.decisions.members import Member
from tsnb.stream.decisions.pacing.contract import LOOKAHEAD, Policy
from tsnb.stream.decisions.pacing.drift import Drift
from tsnb.stream.decisions.phases import Phase
from tsnb.stream.protocol.messages import Hello

__all__ = ["Skipping"]


class Skipping(Policy):
    """Consumers that skip.

    Args:
        epochs: The stream's.
        drift: How far apart its consumers are.
    """

    def __init__(self, epochs: Epochs, drift: Drift) -> None:
        self._epochs = epochs
        self._drift = drift
        self._driver: Member | None = None

    def joined(self, member: Member, _hello: Hello) -> None:
        """A consumer has attached that may skip."""
        self.followed = self.followed or member.skips

    def waited_for(self, there: list[Member]) -> list[Member]:
        """Return those that do not skip; where all do, the one in front."""
        driver, self._driver = self._driver, None
        waited_for = [m for m in there if not m.skips]
        # one in an older pass drives nothing: what is loaded now is not for it
        newest = self._epochs.newest.run
        skipping = [m for m in there if m.phase is Phase.STREAMING and m.end is None and m.run == newest]
        if waited_for or not skipping:
            return waited_for
        # the same one as long as none is further: then another drives once a batch, however many there are
        self._driver = max(skipping, key=lambda m: (m.taken, m is driver))
        return [self._driver]

    def give_up(self, member: Member, epoch: Epoch) -> None:
        """Have it give up what has gone: it goes on where nothing is missing any more."""
        if not member.skips:
            return
        onwards = epoch.end
        too_old = self._epochs.end - max(self._drift.window, self._epochs.band)
        while onwards > max(member.cursor, too_old) and self._epochs.has(onwards - 1):
            onwards -= 1
        onwards = max(onwards, member.cursor)
        # there may be more of them, granted to others, in what it is given anyway
        before = [i for i in member.first if self._epochs.having(i).seq(i) < epoch.seq(onwards)]
        member.skip_to(onwards, before[: LOOKAHEAD - len(member.granted)])
