"""The phases of a consumer, and the table of all changes from one to another. Pure, a part of `dispatch`."""

from __future__ import annotations

from enum import Enum

__all__ = ["Cause", "Phase"]


class Phase(Enum):
    """The state of a consumer; `Cause` has the changes."""

    JOINING = "joining"
    """Attached, has never asked for an epoch. Does not hold the others."""
    ASKED = "asked"
    """Waits for an epoch that it can take from the start. Does not hold the others; those in another epoch hold it."""
    STREAMING = "streaming"
    """Takes an epoch. Holds the others at the window's edge."""
    BETWEEN = "between"
    """Has taken an epoch and is expected back for the next one: its first batches are kept for it."""
    AWAY = "away"
    """The others do not wait for it."""


class Cause(Enum):
    """Why a consumer's phase changes: the words, the phase that follows, and those in which it can happen.

    `Member.enter` refuses every other change. docs/architecture.md has this as a table, made by docs/make_reference.py.
    """

    ASKS = "it asks for an epoch", Phase.ASKED, *Phase
    ASKS_PAUSED = "it asks for an epoch while it is paused", Phase.AWAY, Phase.JOINING, Phase.AWAY
    GOES_ON = "it asked while it was paused, and its group goes on", Phase.ASKED, Phase.AWAY
    LET_IN = "it is let into an epoch", Phase.STREAMING, Phase.ASKED
    MOVED_OVER = "another consumer came back to an earlier place", Phase.ASKED, Phase.STREAMING
    ENDED = "it took the last batch", Phase.BETWEEN, Phase.STREAMING
    FAILED = "it took the last batch before the loader failed", Phase.AWAY, Phase.STREAMING
    LEFT = "it left the epoch", Phase.BETWEEN, Phase.STREAMING
    GAVE_UP = "it no longer waits for an epoch", Phase.AWAY, Phase.ASKED
    REFUSED = "it is refused, or a rank of its group is", Phase.AWAY, Phase.ASKED, Phase.STREAMING
    STOOD_STILL = "it stood still, or a rank of its group did", Phase.AWAY, Phase.STREAMING
    PAUSED = "it is paused", Phase.AWAY, Phase.ASKED, Phase.STREAMING, Phase.BETWEEN
    RANK_GONE = "a rank of its group has gone", Phase.AWAY, Phase.ASKED, Phase.STREAMING, Phase.BETWEEN
    RESTS = "it does not come back for the next epoch", Phase.AWAY, Phase.BETWEEN
    OVERDUE = "the stall timeout is over", Phase.AWAY, Phase.BETWEEN

    def __init__(self, words: str, after: Phase, *before: Phase) -> None:
        self.words = words
        self.after = after
        self.before = before
