"""The phases of consumers: each change of the table occurs in simulated streams, no other does, one place writes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.producer.simulation import Simulation, asked, joined, left_epoch
from tsnb.stream.decisions import events as ev
from tsnb.stream.decisions.dispatch import Dispatch
from tsnb.stream.decisions.members import Member
from tsnb.stream.decisions.phases import Cause, Phase

STREAM = Path(__file__).parents[2] / "tsnb" / "stream"


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> set[tuple[Phase, Cause]]:
    """Every change of a phase from now on: the phase before, and the cause."""
    found: set[tuple[Phase, Cause]] = set()
    enter = Member.enter

    def noted(member: Member, cause: Cause) -> None:
        found.add((member.phase, cause))
        enter(member, cause)

    monkeypatch.setattr(Member, "enter", noted)
    return found


def rare_changes() -> None:
    """One gives up waiting for an epoch; the pass of one that came back turns out to be of another epoch."""
    dispatch = Dispatch(2, 2, 1.0)
    dispatch.note_repeatable(True)
    dispatch.step(ev.Withdrawn(0), 0.0)
    dispatch.step(joined(1, "c1"), 0.0)
    dispatch.step(asked(1, 1, 0, 1, exact=True), 0.0)
    wanted = dispatch.wanted
    assert wanted is not None
    dispatch.step(joined(2, "c2"), 0.0)
    dispatch.step(asked(2, 1, 1), 0.0)
    dispatch.step(left_epoch(2), 0.0)
    dispatch.step(ev.Renumbered(wanted.run, 7), 0.0)
    dispatch.check()


def test_every_change_of_a_phase_in_the_table_occurs_and_no_other(seen: set[tuple[Phase, Cause]]) -> None:
    """A row that nothing needs would hide a fault; a change without a row raises, in any simulated stream."""
    for seed in range(72):
        simulation = Simulation(
            seed,
            kills=seed % 2 == 0,
            restarts=seed % 5 == 0,
            clones=seed % 3 == 0,
            failures=bool(seed & 1),
            skips=bool(seed & 2),
            modes=bool(seed & 4),
            pauses=bool(seed & 8),
            rounds=bool(seed & 16),
            rotates=bool(seed & 32),
        )
        if seed % 3 == 1:
            simulation.join_group("bert", 3)
        simulation.run(300)
    rare_changes()
    assert seen == {(before, cause) for cause in Cause for before in cause.before}


def test_a_change_that_the_table_does_not_have_is_refused() -> None:
    """It is a fault of tsnb: the phase stays, and the producer ends the stream as after any failed decision."""
    member = Member(1, "c1")
    with pytest.raises(RuntimeError, match="c1 is joining, where this cannot be: it took the last batch"):
        member.enter(Cause.ENDED)
    assert member.phase is Phase.JOINING


def test_only_one_place_writes_a_phase() -> None:
    """So no change goes past the table."""
    writers = []
    for path in STREAM.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                stored = (n for n in ast.walk(node) if isinstance(n, ast.Attribute) and n.attr == "phase")
                writers += [node.name for n in stored if isinstance(n.ctx, ast.Store)]
    assert writers == ["enter"]
