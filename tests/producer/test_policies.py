"""Pacing is one contract: the decisions ask the policies that are followed, whatever they are, and no other."""

from __future__ import annotations

from typing import Any

from tests.producer.simulation import asked, joined, took, waits
from tsnb.stream.decisions import events as ev
from tsnb.stream.decisions.dispatch import Dispatch
from tsnb.stream.decisions.members import Member
from tsnb.stream.decisions.pacing.contract import Policy


class Curfew(Policy):
    """Nobody gets a batch at or past an index before an hour has come."""

    followed = True
    due_s = 100.0

    def __init__(self, index: int) -> None:
        self.index = index

    def limit(self, _member: Member, end: int, now: float) -> int:
        """Return the index, as long as it holds."""
        return end if now >= self.due_s else min(end, self.index)


class Asked(Policy):
    """Counts what it is asked."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __getattribute__(self, name: str) -> Any:
        """Note the name of what is called."""
        if not name.startswith("_") and name not in ("names", "followed", "check"):
            self.names.add(name)
        return super().__getattribute__(name)


def stream(*policies: Policy) -> Dispatch:
    """Return decisions with policies of a test's own, one consumer and three batches."""
    dispatch = Dispatch(4, 0, 30.0)
    dispatch.policies.all = policies
    for event in (joined(0, "a"), asked(0, 1)):
        dispatch.step(event, 0.0)
    for slot in range(3):
        dispatch.step(ev.BatchLoaded(0, ev.Placed(slot, b"", 1, 0, 0)), 0.0)
    return dispatch


def given(made: list[ev.Instruction]) -> list[int]:
    """Return the numbers of the batches that are granted."""
    return [one.seq for one in made if isinstance(one, ev.Granted)]


def test_a_policy_limits_what_is_granted_and_says_when_to_look_again() -> None:
    dispatch = stream(Curfew(1))
    assert given(dispatch.step(took(0), 1.0)) == []
    assert given(dispatch.step(waits(0), 1.0)) == []
    assert dispatch.due_s == 100.0
    assert given(dispatch.step(ev.Tick(), 100.0)) == [1, 2]
    dispatch.check()


def test_a_policy_that_nobody_follows_costs_a_batch_nothing() -> None:
    watched = Asked()
    dispatch = stream(watched)
    dispatch.step(took(0), 1.0)
    dispatch.step(ev.Tick(), 2.0)
    assert watched.names == {"joined"}
