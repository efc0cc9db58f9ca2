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

import heapq
from bisect import insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tsnb.stream.decisions.members import Member
from tsnb.stream.decisions.pacing.contract import Policy

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


class FairShares(Policy):
    """How much each consumer has had, and which ones have to let others go first.

    Args:
        members: The stream's consumers.

    Attributes:
        pacing: "together", "weights" or "free".
        weights: By consumer name; one that is not named has weight 1.
        contended: Whether the consumers compete for the machine.
    """

    rounds = 2  # one whose epoch ends in the first round computes no more

    def __init__(self, members: Mapping[int, Member]) -> None:
        self.pacing = "together"
        self.weights: dict[str, float] = {}
        self.contended = True
        self._members = members
        self._accounts: dict[int, _Account] = {}
        self._computing: dict[float, list[tuple[float, int]]] = {}
        """By weight, those that compute: what each has used times its weight, less the time now, a constant."""
        self._lightest: list[tuple[float, int]] = []
        """The two consumers of least weight."""
        self._withheld: dict[int, tuple[float, int]] = {}
        """When to look again at each, and for which rival it waits."""
        self._due: list[tuple[float, int]] = []
        """A heap of these times; some are over."""
        self._reached = 0.0  # how far the computing consumers had got when a batch was last taken

    def weight(self, name: str) -> float:
        """Return a consumer's weight; that of a rank (`bert[0]`) is its group's."""
        return self.weights.get(name.partition("[")[0], 1.0)

    def change(self, pacing: str, weights: Mapping[str, float], now: float) -> None:
        """Divide in another way from now on: everybody begins with nothing used."""
        self.pacing, self.weights = pacing, dict(weights)
        self.followed = pacing == "weights"
        self._forget()
        if not self.followed:
            for member in self._members.values():
                member.times.let_go(now)
            self.settle(now)

    def note_contended(self, contended: bool) -> None:
        """Say whether the consumers compete; what they used while they did not counts for nothing."""
        self.contended = contended
        if not contended:
            self._forget()

    def _forget(self) -> None:
        self._accounts.clear()
        self._reached = 0.0

    @property
    def weighs(self) -> bool:
        """Whether a batch may be withheld."""
        return self.pacing == "weights" and self.contended

    @property
    def due_s(self) -> float | None:
        """When to look again (monotonic seconds); None: no batch is withheld."""
        while self._due and self._withheld.get(self._due[0][1], (None,))[0] != self._due[0][0]:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def settle(self, now: float) -> None:
        """Look at all consumers anew: until the next time, only `took` and `waits` change who computes."""
        self._withheld.clear()
        self._due.clear()
        self._computing.clear()
        if not self.weighs:
            return
        there = self._members.values()
        self._lightest = heapq.nsmallest(2, ((self.weight(m.name), m.key) for m in there))
        computing = [m for m in there if m.computes]
        for member in sorted(computing, key=lambda m: m.key not in self._accounts):
            self._enlist(member, now)

    def _enlist(self, member: Member, now: float) -> None:
        """Note that a consumer computes."""
        weight = self.weight(member.name)
        insort(self._computing.setdefault(weight, []), (self._used(member, now) * weight - now, member.key))

    def waits(self, member: Member) -> bool:
        """Note that a consumer computes no more; `to_look_at` knows who may have a batch since."""
        there = self._computing.get(self.weight(member.name), [])
        there[:] = [one for one in there if one[1] != member.key]
        return False

    def to_look_at(self, actor: int, now: float) -> list[int]:
        """Return the consumers whose next batch may no longer be withheld, since one took a batch or waits.

        Args:
            actor: That one.
            now: Monotonic seconds.
        """
        found = {key for key, (_, rival) in self._withheld.items() if rival == actor}
        while (due_s := self.due_s) is not None and due_s <= now:
            found.add(heapq.heappop(self._due)[1])
        return sorted(found)

    def withholds(self, member: Member, now: float) -> bool:
        """Return whether a consumer has to wait for its next batch, though it is there; note when to look again."""
        if not self.weighs:
            return False
        mine = self._used(member, now)
        ahead_s = [(mine * weight - least - now, key) for weight, least, key in self._rivals(member)]
        late_s, rival = max(ahead_s, default=(0.0, 0))
        late_s -= SLACK_S
        if late_s < _SOON_S:
            return False
        self._withheld[member.key] = now + late_s, rival
        heapq.heappush(self._due, (now + late_s, member.key))
        return True

    def limit(self, member: Member, end: int, now: float) -> int:
        """Grant one by one: a batch granted ahead is granted before its share is known."""
        end = min(end, member.taken + 1)
        if member.cursor < end and self.withholds(member, now):
            member.times.withhold(now)
            return member.cursor
        if member.times.withheld_since_s is not None:
            member.times.let_go(now)
            self._withheld.pop(member.key, None)
        return end

    def took(self, member: Member, now: float) -> None:
        """A consumer took a batch: settle what went before it. Called after `Times.took`."""
        if not self.weighs:
            return
        self.waits(member)
        account = self._account(member, now)
        weight = self.weight(member.name)
        computed_s = member.times.computing_s - account.computing_s
        withheld_s = member.times.withheld_s - account.withheld_s
        idle_s = max(0.0, now - account.at_s - computed_s - withheld_s)
        used = account.used + computed_s / weight
        lightest = next((weight for weight, key in self._lightest if key != member.key), None)
        if lightest is not None:  # the others got no further meanwhile than the lightest of them could
            used = max(used, min(used + idle_s / lightest, self._level(now)))
        self._accounts[member.key] = _Account(used, now, member.times.computing_s, member.times.withheld_s)
        self._enlist(member, now)
        self._reached = self._level(now)

    def left(self, key: int) -> None:
        """Forget a consumer."""
        self._accounts.pop(key, None)

    def check(self) -> None:
        """Verify that no batch is withheld without reason (tests only).

        Raises:
            AssertionError: A batch is withheld in another pacing, or while no other consumer computes, or for good.
        """
        withheld = [m for m in self._members.values() if m.times.withheld_since_s is not None]
        assert not withheld or (self.pacing == "weights" and self.contended), withheld
        for member in withheld:
            assert list(self._rivals(member)), member
        assert {m.key for m in withheld} == self._withheld.keys()
        if self.weighs:
            there = {m.key for m in self._members.values() if m.computes}
            assert there == {key for some in self._computing.values() for _, key in some}
        assert bool(withheld) == (self.due_s is not None), self.due_s

    def _rivals(self, member: Member) -> Iterator[tuple[float, float, int]]:
        """Yield, by weight, the one that computes and has used least, as `_computing` has it."""
        own = {m.key for m in (member, *member.mates)}  # ranks wait for each other in every step anyway
        for weight, those in self._computing.items():
            for least, key in those:
                if key not in own:
                    yield weight, least, key
                    break

    def _used(self, member: Member, now: float) -> float:
        account = self._account(member, now)
        computing_s = member.read(now, 0.0)[0] - account.computing_s
        return account.used + computing_s / self.weight(member.name)

    def _level(self, now: float) -> float:
        """Return how far the computing consumers have got; without any, how far they had got when one last computed."""
        those = ((some[0][0] + now) / weight for weight, some in self._computing.items() if some)
        return max(self._reached, min(those, default=0.0))

    def _account(self, member: Member, now: float) -> _Account:
        """Return a consumer's account; a newcomer's begins where the others are."""
        found = self._accounts.get(member.key)
        if found is None:
            computing_s = member.read(now, 0.0)[0]
            found = _Account(self._level(now), now, computing_s, member.times.withheld_s)
            self._accounts[member.key] = found
        return found
