"""The states of a trial, played through by Hypothesis and by hand: what no order of events may break."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tsnb.experiments.running.states import (
    ALIVE,
    ENDED,
    RESTARTS_AT_MOST,
    TRIAL_STATES,
    Outcome,
    TrialStates,
)


class _Trial(RuleBasedStateMachine):
    """Events in any order, as the threads of a notebook bring them."""

    def __init__(self) -> None:
        super().__init__()
        self.states = TrialStates()
        self.interrupts = 0
        """By those who wanted this run of its code to end."""
        self.ended_as = ""

    @rule(state=st.sampled_from([*TRIAL_STATES, "unheard of"]))
    def enter(self, state: str) -> None:
        if state in ALIVE and not self.states.has_ended:
            self.states.enter(state)
            assert self.states.state == state
        else:
            with pytest.raises(ValueError, match="cannot become"):
                self.states.enter(state)

    @rule(kind=st.sampled_from(["stopped", "pruned"]), by=st.sampled_from(["", "in the panel"]))
    def ask_to_end(self, kind: str, by: str) -> None:
        self.interrupts += self.states.ask_to_end(kind, by)

    @rule()
    def interrupt(self) -> None:
        self.states.interrupt()

    @rule(on=st.booleans())
    def pause(self, on: bool) -> None:
        self.states.paused = on

    @precondition(lambda self: not self.states.has_ended)
    @rule(code=st.sampled_from(["done", "failed", "crashed", "stopped"]), abandoned=st.booleans())
    def end(self, code: str, abandoned: bool) -> None:
        told = self.states.conclude(
            Outcome(code, "an error" if code == "failed" else ""), abandoned=abandoned
        )
        if code in {"done", "failed"}:
            assert told.state == code, "the code's own end counts, whoever wanted another"
        elif code == "crashed" and not (self.states.asked or abandoned):
            assert told.state == "crashed"
        else:
            assert told.state in {"stopped", "interrupted", "pruned"}
        self.states.end(told.state)
        self.ended_as = told.state

    @rule()
    def extend(self) -> None:
        if self.states.has_ended:
            self.states.extend()
            self.interrupts, self.ended_as = 0, ""
            assert self.states.state == "queued" and not self.states.asked
        else:
            with pytest.raises(ValueError, match="cannot be extended"):
                self.states.extend()

    @invariant()
    def holds(self) -> None:
        assert self.states.shown in TRIAL_STATES
        assert (self.states.shown == "paused") == (self.states.paused and self.states.state == "running")
        assert self.interrupts <= 1, "a second interrupt breaks what the first has it put in order"
        assert self.states.has_ended == bool(self.ended_as) and self.states.state == (
            self.ended_as or self.states.state
        )


TestTrialStates = _Trial.TestCase
TestTrialStates.settings = settings(max_examples=200, deadline=None)


@pytest.mark.parametrize(
    ("asked", "interrupted", "code", "ends"),
    [
        (("pruned", "rank 3 of 4"), False, "stopped", ("pruned", "rank 3 of 4")),
        (("pruned", "rank 3 of 4"), True, "stopped", ("pruned", "rank 3 of 4")),
        (("stopped", "in the panel"), False, "crashed", ("stopped", "in the panel")),
        (None, True, "stopped", ("interrupted", "")),
        (None, True, "done", ("done", "")),
        (None, False, "crashed", ("crashed", "killed by SIGKILL")),
    ],
    ids=["pruned", "pruned, then Ctrl-C", "killed after its grace", "Ctrl-C", "caught Ctrl-C", "killed"],
)
def test_as_what_it_ends(
    asked: tuple[str, str] | None, interrupted: bool, code: str, ends: tuple[str, str]
) -> None:
    """A death that somebody wanted is a stop of the kind that was wanted first, with its reason."""
    states = TrialStates("running")
    if asked is not None:
        assert states.ask_to_end(*asked) and not states.ask_to_end("stopped", "by somebody later")
    if interrupted:
        states.interrupt()
    told = states.conclude(Outcome(code, "killed by SIGKILL" if code == "crashed" else ""))
    assert (told.state, told.failure) == ends


def test_an_interrupt_that_was_caught_says_nothing_of_a_later_stop() -> None:
    """The code went on, and was stopped: by whom counts."""
    states = TrialStates("running")
    states.interrupt()
    assert states.ask_to_end("stopped", "in the panel")
    assert states.conclude(Outcome("stopped"))[:2] == ("stopped", "in the panel")


def test_deaths_in_a_row_are_counted_from_the_last_state_that_it_kept() -> None:
    """Three without progress; a later state begins a new row, the same one does not."""
    states = TrialStates("running")
    assert [states.may_restart((0, 0)) for _ in range(RESTARTS_AT_MOST + 1)] == [True] * 3 + [False]
    assert states.restarts == RESTARTS_AT_MOST
    assert states.may_restart((1, 0)) and states.in_a_row == 1
    assert states.may_restart((1, 0)) and states.in_a_row == 2
    assert states.may_restart((0, 5)) and states.in_a_row == 3, "an earlier state is no progress"


def test_the_first_end_counts() -> None:
    """A trial that was found ended stays what it was; nothing but an end ends."""
    states = TrialStates("done")
    states.end("crashed")
    assert states.state == "done" and not states.ask_to_end()
    with pytest.raises(ValueError, match="cannot end as running"):
        TrialStates().end("running")
    assert set(ALIVE) | {"paused"} | ENDED == set(TRIAL_STATES)
