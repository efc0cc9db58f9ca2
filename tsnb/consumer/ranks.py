"""One rank of a group: what follows when another rank has gone, and what to tell a rank that waits for others.

Pure. Every rank takes every batch of the stream and keeps a slice of it (`rebatching.part`), so all see the same
batches in the same order, and make the same number of steps.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tsnb.errors import GroupBroken
from tsnb.wire.messages import RankGone

if TYPE_CHECKING:
    from tsnb.consumer.options import Options
    from tsnb.consumer.session import Place

__all__ = ["broken", "hint", "incomplete", "stricter"]


def stricter(one: RankGone | None, other: RankGone) -> RankGone:
    """Return which of two ranks that have gone lets the others go less far."""
    return other if one is None or _reach(other) < _reach(one) else one


def _reach(gone: RankGone) -> tuple[int, int]:
    return (gone.epoch, gone.seq) if gone.seq else (0, 0)


def broken(group: str, gone: RankGone | None, place: Place) -> GroupBroken | None:
    """Return what to raise instead of a rank's next loader batch; None while it may go on.

    Args:
        group: The group's name.
        gone: The rank that has gone, if one has.
        place: Where this rank stands.
    """
    if gone is None:
        return None
    behind = place.epoch < gone.epoch or (place.epoch == gone.epoch and place.batch < gone.seq)
    if gone.seq and behind:
        return None
    where = (
        f"left after it had taken part in epoch {gone.epoch}"
        if gone.seq
        else f"died or left in the middle of epoch {gone.epoch}"
    )
    error = GroupBroken(
        f"rank {gone.rank} of the group {group!r} {where}, so this rank gets no more batches: in a collective it would "
        "wait for the one that is gone. The output of that rank says why it ended. Start all ranks again, from a "
        "checkpoint (torchrun does with --max-restarts): they attach as a new group."
    )
    error.at_once = not gone.seq
    return error


def incomplete(options: Options, group: str, stream: str, waited_s: float) -> str:
    """Return what to tell a rank that has waited long for an epoch.

    Args:
        options: The rank's.
        group: The group's name.
        stream: The producer's name.
        waited_s: For how long.
    """
    return (
        f"rank {options.rank} of the group {group!r} has waited {waited_s:.0f} s for an epoch. One begins when all "
        f"{options.world_size} ranks have attached by that name and iterate, and none is still in the epoch before: "
        f"`tsnb status {stream}` shows what each does. After the rubber band of an epoch that others take, it is the "
        "next one."
    )


def hint() -> str:
    """Return how the ranks of a distributed job attach, if this process was started as one; else nothing."""
    ranks = os.environ.get("WORLD_SIZE", "")
    if not (ranks.isdecimal() and int(ranks) > 1):
        return ""
    return (
        f"This process was started as one of {ranks} ranks (WORLD_SIZE). To have them share the batches, attach each "
        'with the same name, rank=int(os.environ["RANK"]) and world_size=int(os.environ["WORLD_SIZE"]).'
    )
