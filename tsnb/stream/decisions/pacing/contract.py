"""What a policy of pacing answers, and the policies that a stream follows. Pure; the table is in the package."""

from __future__ import annotations

from tsnb.stream.decisions.epochs import Epoch
from tsnb.stream.decisions.members import Member
from tsnb.stream.protocol.messages import Hello

__all__ = ["LOOKAHEAD", "Policies", "Policy"]

LOOKAHEAD = 2
"""Batches granted beyond what is taken: two hide the round trip of a grant; each costs one slot a consumer."""


class Policy:
    """One policy. Whatever it does not say here, it leaves to the window.

    Attributes:
        followed: Whether any consumer goes by it now; else it is asked nothing but `joined`.
        rounds: How often all are granted what they may have, where more than the event's own consumer may have changed.
    """

    followed = False
    rounds = 1

    @property
    def reach(self) -> int:
        """Batches that the window has to hold at least."""
        return 0

    @property
    def due_s(self) -> float | None:
        """When to step at the latest (monotonic seconds); None: nothing is due."""
        return None

    def joined(self, member: Member, hello: Hello) -> None:
        """A consumer has attached."""

    def left(self, key: int) -> None:
        """A consumer has gone."""

    def asked(self, member: Member) -> None:
        """A consumer asks for an epoch."""

    def took(self, member: Member, now: float) -> None:
        """A consumer takes a batch. Its times know of it, and its place does not yet."""

    def waits(self, member: Member) -> bool:
        """A consumer waits for a batch, or has left its epoch; return whether others may have theirs now."""
        return False

    def to_look_at(self, actor: int, now: float) -> list[int]:
        """Return the consumers that may be granted more now, since one took a batch or waits for one.

        Args:
            actor: That one.
            now: Monotonic seconds.
        """
        return []

    def waited_for(self, there: list[Member]) -> list[Member]:
        """Return those of some consumers for which the loader waits."""
        return there

    def give_up(self, member: Member, epoch: Epoch) -> None:
        """Have a consumer give up batches of its epoch that it is not to have any more."""

    def limit(self, member: Member, end: int, now: float) -> int:
        """Return the index up to which a consumer is granted batches now.

        Args:
            member: One that takes an epoch.
            end: What the epoch, and other policies, let it have.
            now: Monotonic seconds.
        """
        return end

    def settle(self, now: float) -> None:
        """Any consumer may have changed: look at all of them. Then each is granted what it may have."""

    def tick(self, now: float) -> None:
        """Time has passed."""

    def check(self) -> None:
        """Verify what must hold after every step (tests only).

        Raises:
            AssertionError: It does not hold.
        """


class Policies:
    """The policies of one stream.

    Attributes:
        all: In the order in which they limit what is granted.
        followed: Those by which a consumer goes now.
    """

    def __init__(self) -> None:
        self.all: tuple[Policy, ...] = ()
        self.followed: tuple[Policy, ...] = ()

    def note(self) -> None:
        """Note by which of them consumers go now."""
        self.followed = tuple(policy for policy in self.all if policy.followed)

    @property
    def reach(self) -> int:
        """Batches that the window has to hold at least."""
        return max((policy.reach for policy in self.followed), default=0)
