"""Groups: the ranks of one training job (DDP, FSDP, a pipeline), which take a stream as one.

Pure, a part of `dispatch`. Each rank is a consumer of its own, and takes every loader batch; which rows it
keeps is decided in its process. What must not happen is that one rank gets a batch which another never does: that
one would wait for it in a collective, for half an hour by default. So

- a group is let into an epoch when all its ranks have asked, all in the same step (`lets_in`); ranks that would begin
  at different places, since not all have loaded the saved state, are turned away (`disagreement`);
- a rank that asks for the rest of an epoch while the others take it is let in alone: it lost what it had received (an
  interrupt), or comes back from a producer that has gone. It must not wait for the others to ask: they may have a
  batch more, and wait for this rank in that step;
- when one stands still, all are parked, after the same batch (`Granting.park`); then they are let in together again;
- when one dies, or leaves the epoch before the others do, they may go as far as it went (`leave`), and no further.
  The next rank of that name begins another group.
"""

from __future__ import annotations

from msgspec import structs

from tsnb.stream.decisions import events as ev
from tsnb.stream.decisions.members import Group, Member
from tsnb.stream.decisions.phases import Cause, Phase
from tsnb.stream.protocol.messages import WHOLE_EPOCH, Hello, RankGone

__all__ = ["Groups", "awaited", "disagreement", "enumerated", "lets_in", "waits_for_own"]


_NAMED = 4
"""More ranks than this are counted, not named."""


class Groups:
    """The groups of one stream."""

    def __init__(self) -> None:
        self._newest: dict[str, Group] = {}

    def open(self, name: str) -> Group | None:
        """Return the group that a newcomer of that name would belong to; None if it begins one."""
        group = self._newest.get(name)
        return None if group is None or group.closed or not group.ranks else group

    def misfit(self, name: str, world_size: int, cut: str) -> str:
        """Return why a newcomer does not fit to the ranks that are attached; empty where it does."""
        group = self.open(name)
        if group is None:
            return ""
        there = ", ".join(map(str, sorted(group.ranks)))
        for option, theirs, own in (
            ("world_size", group.world_size, world_size),
            ("its options", group.cut, cut),
        ):
            if theirs != own:
                return (
                    f"The ranks of group {name!r} differ in {option}: {theirs} in rank {there}, {own} "
                    "in this rank. Pass the same to all ranks, or another name to another job"
                )
        return ""

    def join(self, member: Member, hello: Hello) -> None:
        """A rank attached; it fits (`misfit`)."""
        group = self.open(hello.name)
        if group is None:
            group = self._newest[hello.name] = Group(hello.name, hello.world_size, hello.cut)
        group.together = group.together and not hello.back
        group.ranks[hello.rank] = member
        member.group = group

    def leave(self, member: Member, out: list[ev.Instruction], *, died: bool) -> list[Member]:
        """A rank detached or died: tell the others.

        Args:
            member: The rank. It belongs to no group any more.
            out: Where the instructions go.
            died: It did not say that it would go.

        Returns:
            The ranks that have to stop at once.
        """
        group, mates = member.group, member.mates
        assert group is not None
        del group.ranks[member.rank]
        member.group = None
        if not mates and self._newest.get(group.name) is group:
            del self._newest[group.name]
        if member.phase is Phase.JOINING and not died and not member.back:
            return []  # it has never asked for an epoch: another may come in its place
        # in an epoch's last step it may have died in a collective, where the others wait for it
        between = member.phase in (Phase.BETWEEN, Phase.AWAY) and not member.parked and not member.last_step
        done = between or not died
        whole = member.end is not None and not member.granted
        seq = (WHOLE_EPOCH if whole else member.position) if done else 0
        group.closed = True
        for mate in mates:
            if mate.phase is Phase.BETWEEN:
                mate.enter(Cause.RANK_GONE)  # it is not expected back for another epoch
        gone = RankGone(member.rank, max(0, member.epoch), seq)
        out += [ev.Tell(mate.key, gone) for mate in mates]
        return [] if done else mates


def lets_in(member: Member) -> bool:
    """Return whether a consumer that asked may be let in as far as its group goes.

    On the way its ask is made to fit those of the others: all ranks take the same epoch.
    """
    group, ask = member.group, member.asked
    if group is None:
        return True
    mates = member.mates
    all_asked = not _missing(group)
    if group.together and not all_asked:
        return False
    if ask.exact:
        return True
    if group.closed:
        return False
    begun = max((_begun(m) for m in mates), default=-1)
    if begun >= ask.epoch and (begun == member.epoch or (member.back and begun > member.epoch)):
        # it was let in with the others and has not heard of it: from the producer before, or it lost the word
        member.asked = structs.replace(ask, epoch=begun, seq=0, exact=True)
        return True
    if begun >= 0 or not all_asked:
        return False
    first = max(m.asked.epoch for m in group.ranks.values())
    member.asked = structs.replace(ask, epoch=first)
    return True


def waits_for_own(member: Member) -> bool:
    """Return whether a consumer that asked waits for ranks of its own group, whatever the others do."""
    group = member.group
    if group is None or (member.asked.exact and not group.together):
        return False
    return group.closed or bool(_missing(group))


def enumerated(names: list[str]) -> str:
    """Return some names in words: "a, b and c"; of many, the first ones and how many more."""
    if len(names) > _NAMED:
        names = [*names[: _NAMED - 1], f"{len(names) - _NAMED + 1} more"]
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def awaited(member: Member) -> str:
    """Return which ranks of its group a consumer that asked waits for, in words: "ranks 2 and 3 of 4"; empty: none."""
    group = member.group
    ranks = [] if group is None or member.phase is not Phase.ASKED else _missing(group)
    if group is None or not ranks:
        return ""
    size = group.world_size
    if len(ranks) > _NAMED:
        return f"{len(ranks)} of {size} ranks"
    return f"rank{'s' * (len(ranks) > 1)} {enumerated(list(map(str, ranks)))} of {size}"


def disagreement(member: Member) -> str:
    """Return why the ranks of a group that is about to begin cannot do so together; empty where they can."""
    group = member.group
    fresh = group is not None and group.together and all(m.epoch < 0 for m in group.ranks.values())
    if group is None or not fresh or _missing(group):
        return ""
    by_place: dict[str, int] = {}
    for rank, one in sorted(group.ranks.items()):
        by_place.setdefault(_wanted(one), rank)
    if len(by_place) < 2:
        return ""
    there = ", ".join(f"{place} in rank {rank}" for place, rank in list(by_place.items())[:2])
    return (
        f"The ranks of group {group.name!r} would start at different places: {there}. Load the same "
        "state in all ranks (`load_state_dict` with the state of rank 0), or in none"
    )


def _missing(group: Group) -> list[int]:
    """Return the ranks that have not asked for an epoch, those that have not attached included."""
    ranks = (group.ranks.get(rank) for rank in range(group.world_size))
    return [rank for rank, m in enumerate(ranks) if m is None or m.phase is not Phase.ASKED]


def _wanted(member: Member) -> str:
    ask = member.asked
    return f"batch {ask.seq} of pass {ask.epoch + 1}" if ask.exact else "a whole epoch"


def _begun(member: Member) -> int:
    """Return the number of the epoch that a rank is in the middle of; -1: of none."""
    if member.phase is Phase.STREAMING:
        return member.epoch
    return member.asked.epoch if member.phase is Phase.ASKED and member.asked.exact else -1
