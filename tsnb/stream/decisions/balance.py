"""How a stream's compute is divided between its consumers: by need, by weight, or not at all.

Pure, a part of `dispatch`.

| pacing | window | granted its next batch later |
|---|---|---|
| `together` | the stream's own | none: a consumer at the window's edge waits for the slowest |
| `free` | the wide one | none |
| `weights` | the wide one | one that has computed more than its weighted share, while one that has had less computes |

Weights are kept by start-time fair queueing (Goyal, Vin and Cheng, 1996), with grants for packets. Each consumer
has a *use*: the seconds that it computed, over its weight. It is *withheld* its next batch while

    its use - the use of another that computes now  >  SLACK_S / that one's weight

A use is compared with those of the consumers that compute at this very moment, and theirs grow with time, so

- no batch is withheld while no other consumer computes (the rest wait at the window's edge, for the loader, or have
  gone);
- every withholding ends, at `due_s` at the latest, whatever the others do;
- time in which a consumer neither computed nor was withheld counts as used, as far as the others have got
  meanwhile: a long validation saves up no claim, nor does a newcomer begin with one. How far they have got is the
  least use of those that compute, or its value when one last did: the paper's virtual time.

Where the machine has a whole core to spare the consumers do not compete, and no batch is withheld (`contended`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tsnb.stream.decisions.members import Member

__all__ = ["SLACK_S", "FairShares"]

SLACK_S = 0.02
"""How far a consumer may be ahead: less would wake the producer for steps of milliseconds. It does not add up."""

_SOON_S = 1e-3
"""No timer is finer; and added to a large clock, much less would be nothing."""


@dataclass
class _Account:
    """What one consumer has used."""

    used: float
    """Seconds over weight, up to the last settling."""
    at_s: float
    """When that was."""
    computing_s: float
    """Its computing, up to then."""
    withheld_s: float
    """How long it had been withheld, up to then."""


class FairShares:
    """How much each consumer has had, and which ones have to let others go first.

    Args:
        members: The stream's consumers.

    Attributes:
        pacing: "together", "weights" or "free".
        weights: By consumer name; one that is not named has weight 1.
        contended: Whether the consumers compete for the machine.
        due_s: When to look again (monotonic seconds); None: no batch is withheld.
    """

    def __init__(self, members: Mapping[int, Member]) -> None:
        self.pacing = "together"
        self.weights: dict[str, float] = {}
        self.contended = True
        self.due_s: float | None = None
        self._members = members
        self._accounts: dict[int, _Account] = {}
        self._reached = 0.0  # how far the computing consumers had got when a batch was last taken

    def weight(self, name: str) -> float:
        """Return a consumer's weight; that of a rank (`bert[0]`) is its group's."""
        return self.weights.get(name.partition("[")[0], 1.0)

    def change(self, pacing: str, weights: Mapping[str, float]) -> None:
        """Divide in another way from now on: everybody begins with nothing used."""
        self.pacing, self.weights = pacing, dict(weights)
        self._forget()

    def note_contended(self, contended: bool) -> None:
        """Say whether the consumers compete; what they used while they did not counts for nothing."""
        self.contended = contended
        if not contended:
            self._forget()

    def _forget(self) -> None:
        self._accounts.clear()
        self._reached = 0.0

    def withholds(self, member: Member, now: float) -> bool:
        """Return whether a consumer has to wait for its next batch, though it is there; note when to look again."""
        if self.pacing != "weights" or not self.contended:
            return False
        mine = self._used(member, now)
        ahead_s = [
            (mine - self._used(other, now)) * self.weight(other.name) for other in self._rivals(member)
        ]
        late_s = max(ahead_s, default=0.0) - SLACK_S
        if late_s < _SOON_S:
            return False
        self.due_s = min(now + late_s, self.due_s or now + late_s)
        return True

    def took(self, member: Member, now: float) -> None:
        """A consumer took a batch: settle what went before it. Called after `Times.took`."""
        if self.pacing != "weights" or not self.contended:
            return
        account = self._account(member, now)
        weight = self.weight(member.name)
        computed_s = member.times.computing_s - account.computing_s
        withheld_s = member.times.withheld_s - account.withheld_s
        idle_s = max(0.0, now - account.at_s - computed_s - withheld_s)
        used = account.used + computed_s / weight
        others = [self.weight(other.name) for other in self._members.values() if other is not member]
        if others:  # they got no further meanwhile than the lightest of them could
            used = max(used, min(used + idle_s / min(others), self._level(now, member)))
        self._accounts[member.key] = _Account(used, now, member.times.computing_s, member.times.withheld_s)
        self._reached = self._level(now)

    def left(self, key: int) -> None:
        """Forget a consumer."""
        self._accounts.pop(key, None)

    def check(self, due_s: float | None) -> None:
        """Verify that no batch is withheld without reason (tests only).

        Args:
            due_s: When the dispatch looks again.

        Raises:
            AssertionError: A batch is withheld in another pacing, or while no other consumer computes, or for good.
        """
        withheld = [m for m in self._members.values() if m.times.withheld_since_s is not None]
        assert not withheld or (self.pacing == "weights" and self.contended), withheld
        for member in withheld:
            assert list(self._rivals(member)), member
        assert bool(withheld) == (due_s is not None), due_s

    def _rivals(self, member: Member) -> Iterable[Member]:
        own = (member, *member.mates)  # ranks wait for each other in every step anyway
        return (other for other in self._members.values() if other not in own and other.computes)

    def _used(self, member: Member, now: float) -> float:
        account = self._account(member, now)
        computing_s = member.read(now, 0.0)[0] - account.computing_s
        return account.used + computing_s / self.weight(member.name)

    def _level(self, now: float, besides: Member | None = None) -> float:
        """Return how far the computing consumers have got; without any, how far they had got when one last computed.

        Args:
            now: Monotonic seconds.
            besides: Leave this one out.
        """
        computing = [m for m in self._members.values() if m.key in self._accounts and m.computes]
        return max(
            self._reached, min((self._used(m, now) for m in computing if m is not besides), default=0.0)
        )

    def _account(self, member: Member, now: float) -> _Account:
        """Return a consumer's account; a newcomer's begins where the others are."""
        found = self._accounts.get(member.key)
        if found is None:
            computing_s = member.read(now, 0.0)[0]
            found = _Account(self._level(now), now, computing_s, member.times.withheld_s)
            self._accounts[member.key] = found
        return found
