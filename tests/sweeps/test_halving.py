"""Successive halving: who is stopped, in any order of arrival, with ties, nan, ends, and cohorts one after another."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsnb.conducting.rule import Cut
from tsnb.records.scores import UnknownDirection
from tsnb.records.writes import LoggedRow
from tsnb.sweeps.pruning.rungs import Halving, Ladder, halving


def ladder(names: str, **options: Any) -> Ladder:
    """A ladder with one cohort, a letter a trial."""
    made = Ladder(halving(**{"every": 10, **options}))
    made.start(names)
    return made


def log(rungs: Ladder, values: dict[str, float], step: int = 10) -> list[Cut]:
    """One value of each trial at a step; an invariant that breaks fails the test."""
    cuts = []
    for name, value in values.items():
        cuts += rungs.log(name, step, value)
        rungs.check()
    return cuts


def names(cuts: list[Cut]) -> set[str]:
    return {cut.name for cut in cuts}


def test_the_worse_half_is_stopped_when_all_have_come() -> None:
    """Not before the last one, and each is told where it stood."""
    rungs = ladder("abcd")
    assert log(rungs, {"a": 4.0, "b": 1.0, "c": 3.0}) == []
    assert rungs.log("d", 10, 2.0) == [Cut("a", 10, 4.0, 4, 4), Cut("c", 10, 3.0, 3, 4)]
    assert log(rungs, {"b": 1.0, "d": 0.5}, 19) == [], "the next rung lies at 20"
    assert names(log(rungs, {"b": 1.0, "d": 0.5}, 20)) == {"b"}
    assert log(rungs, {"d": 9.0}, 1000) == [], "the last one goes on"


def test_each_rung_takes_as_many_steps_as_all_before() -> None:
    """With the half kept, rungs lie at 1, 2, 4, 8 times the first; no two at one step, whatever is kept."""
    assert [halving(every=100).step_of(rung) for rung in range(4)] == [100, 200, 400, 800]
    assert [halving(every=90, keep=1 / 3).step_of(rung) for rung in range(3)] == [90, 270, 810]
    steps = [halving(every=1, keep=0.99).step_of(rung) for rung in range(200)]
    assert steps == sorted(set(steps))


@pytest.mark.parametrize(
    ("keep", "seen", "kept"),
    [(0.5, 12, 6), (0.5, 3, 2), (0.5, 1, 1), (0.1, 30, 3), (0.3, 10, 3), (0.25, 5, 2)],
)
def test_a_part_of_a_trial_is_a_trial(keep: float, seen: int, kept: int) -> None:
    """The number kept is rounded up, and floating point does not add one."""
    assert halving(keep=keep).kept(seen) == kept


def test_at_least_so_many_go_on() -> None:
    """Also where the share would be fewer."""
    assert len(log(ladder("abcdef", keep=0.1), dict(zip("abcdef", range(6), strict=True)))) == 5
    assert len(log(ladder("abcdef", keep=0.1, at_least=4), dict(zip("abcdef", range(6), strict=True)))) == 2


def test_larger_is_better_where_it_is_said() -> None:
    """An accuracy is kept where it is high, said or not."""
    assert names(log(ladder("ab", metric="accuracy", mode="max"), {"a": 0.9, "b": 0.8})) == {"b"}
    assert names(log(ladder("ab", metric="accuracy"), {"a": 0.9, "b": 0.8})) == {"b"}


def test_nan_is_worse_than_any_number() -> None:
    """In both directions, and than infinity too."""
    for mode in ("min", "max"):
        assert names(log(ladder("abcd", mode=mode), {"a": math.nan, "b": 1, "c": math.nan, "d": 2})) == {
            "a",
            "c",
        }
    assert names(log(ladder("ab"), {"a": math.nan, "b": math.inf})) == {"a"}


def test_of_equal_values_the_first_started_stay() -> None:
    """Exactly so many go on as are to be kept, whoever came first to the rung."""
    assert names(log(ladder("abcd"), {"d": 1.0, "c": 1.0, "b": 1.0, "a": 1.0})) == {"c", "d"}


@given(
    st.lists(
        st.lists(st.floats(0, 9, width=16) | st.just(math.nan), min_size=5, max_size=5),
        min_size=1,
        max_size=9,
    ),
    st.sampled_from([0.25, 0.5, 0.75]),
    st.randoms(use_true_random=False),
)
def test_who_is_stopped_depends_on_no_order_of_arrival(
    curves: list[list[float]], keep: float, random: Any
) -> None:
    """A trial may be far ahead of the others: the same ones are stopped at the same rungs as in lockstep."""
    rule = halving(every=1, keep=keep)
    everyone = [str(number) for number in range(len(curves))]

    def run(order: list[str]) -> set[tuple[str, int]]:
        rungs, at, cuts = Ladder(rule), dict.fromkeys(everyone, 0), []
        rungs.start(everyone)
        for name in order:
            cuts += rungs.log(name, rule.step_of(at[name]), curves[int(name)][at[name]])
            at[name] += 1
            rungs.check()
        return {(cut.name, cut.step) for cut in cuts}

    in_lockstep = everyone * 5
    shuffled = list(in_lockstep)
    random.shuffle(shuffled)
    assert run(shuffled) == run(in_lockstep) == run(sorted(in_lockstep))


def test_nobody_waits_for_a_trial_that_has_ended() -> None:
    """The end of the last one that was waited for decides the rung."""
    for withdrawn in (True, False):
        rungs = ladder("abc")
        assert log(rungs, {"a": 1.0, "b": 2.0}) == []
        assert names(rungs.end("c", withdrawn=withdrawn)) == {"b"}
        rungs.check()
        assert rungs.log("c", 10, 0.0) == [], "what a dead one had still on its way changes nothing"


def test_a_failed_trial_takes_nobodys_place() -> None:
    """Its values count no more, while those of one that is done do."""
    rungs = ladder("abcd")
    log(rungs, {"a": 0.1, "b": 2.0, "c": 3.0})
    rungs.end("a", withdrawn=True)
    assert names(rungs.log("d", 10, 4.0)) == {"d"}, "the best two of three"
    rungs = ladder("abcd")
    log(rungs, {"a": 0.1, "b": 2.0, "c": 3.0})
    rungs.end("a", withdrawn=False)
    assert names(rungs.log("d", 10, 4.0)) == {"c", "d"}, "the best two of four"


def test_a_trial_that_is_to_be_stopped_is_told_once() -> None:
    """It may log, and end, while it is being stopped; its value at that rung stays."""
    rungs = ladder("ab")
    assert names(log(rungs, {"a": 1.0, "b": 2.0})) == {"b"}
    assert rungs.log("b", 20, 0.0) == []
    assert rungs.end("b", withdrawn=True) == []
    rungs.start("c")
    assert names(rungs.log("c", 10, 1.5)) == set(), "second of three"


def test_later_cohorts_are_measured_by_earlier_ones() -> None:
    """A trial that starts alone, when a place has come free, is compared with all that were ever at the rung."""
    rungs = ladder("abcd")
    log(rungs, {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0})
    rungs.start("ef")
    assert rungs.log("e", 10, 1.5) == [], "not before the other of its cohort"
    assert names(rungs.log("f", 10, 2.5)) == {"f"}, "fourth of six"
    rungs.start("g")
    assert names(rungs.log("g", 10, 9.0)) == {"g"}
    rungs.check()


def test_rungs_that_one_value_passes_count_as_one() -> None:
    """A metric that is logged now and then stops one half each time, not all but one at its first value."""
    rungs = ladder("abcd")
    cuts = log(rungs, {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}, 85)
    assert [(cut.name, cut.step, cut.place, cut.of) for cut in cuts] == [("c", 80, 3, 4), ("d", 80, 4, 4)]
    assert log(rungs, {"a": 1.0, "b": 2.0}, 159) == []
    assert names(log(rungs, {"a": 2.0, "b": 1.0}, 160)) == {"a"}
    rungs.start("ef")
    assert log(rungs, {"e": 9.0, "f": 10.0}, 10) == [Cut("f", 10, 10.0, 2, 2)], "no other has logged at 10"
    rungs.check()


@pytest.mark.parametrize("batches", [8, 80, 800])
def test_losses_of_batches_and_a_validation_an_epoch(batches: int) -> None:
    """Steps are counted by the calls of `tsnb.log`: one for each batch's loss, one for each epoch's validation."""
    rungs = Ladder(halving("val_loss", every=10))
    alive = [str(trial) for trial in range(16)]
    rungs.start(alive)
    left = []
    for epoch in range(1, 9):
        step = epoch * (batches + 1) - 1
        cut = names(log(rungs, {name: float(name) + 1 / epoch for name in alive}, step))
        alive = [name for name in alive if name not in cut]
        left.append(len(alive))
    halves = {8: [16, 8, 4, 4, 2, 2, 2, 2], 80: [8, 4, 4, 2, 2, 2, 2, 1], 800: [8, 4, 4, 2, 2, 2, 1, 1]}
    assert left == halves[batches]
    assert alive[0] == "0"


def test_trials_that_log_more_seldom_are_compared_where_all_have_logged() -> None:
    """Not the first value of the one at step 800 with that of the other at step 100; whoever comes first."""
    rungs = ladder("ab")
    assert log(rungs, {"a": 5.0}, 10) == log(rungs, {"a": 4.0}, 20) == log(rungs, {"a": 3.0}, 40) == []
    assert rungs.log("b", 80, 2.0) == []
    assert rungs.log("a", 80, 1.0) == [Cut("b", 80, 2.0, 2, 2)]
    rungs = ladder("ab")
    assert rungs.log("b", 80, 2.0) == []
    assert log(rungs, {"a": 5.0}, 10) == log(rungs, {"a": 4.0}, 20) == log(rungs, {"a": 3.0}, 40) == []
    assert rungs.log("a", 80, 1.0) == [Cut("b", 80, 2.0, 2, 2)]
    rungs.check()


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from([1, 3, 7]), min_size=2, max_size=8), st.randoms(use_true_random=False))
def test_whoever_logs_how_often_no_order_of_arrival_matters(periods: list[int], random: Any) -> None:
    """Each trial logs after so many steps, some ahead of others: the same ones are stopped at the same rungs."""

    def run(order: list[int]) -> set[tuple[str, int]]:
        rungs, logged, cuts = Ladder(halving(every=2)), [0] * len(periods), []
        rungs.start(map(str, range(len(periods))))
        for trial in order:
            logged[trial] += 1
            cuts += rungs.log(str(trial), logged[trial] * periods[trial], float(trial % 3))
            rungs.check()
        return {(cut.name, cut.step) for cut in cuts}

    logs = [trial for trial, period in enumerate(periods) for _ in range(24 // period)]
    shuffled = list(logs)
    random.shuffle(shuffled)
    in_step = sorted(
        (k * period, trial) for trial, period in enumerate(periods) for k in range(1, 24 // period + 1)
    )
    assert run(shuffled) == run(logs) == run([trial for _, trial in in_step])


@pytest.mark.parametrize(
    "wrong", [{"every": 0}, {"every": 1.5}, {"keep": 0}, {"keep": 1}, {"mode": "low"}, {"at_least": 0}]
)
def test_a_rule_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    """With the value in the message."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        halving(**wrong)


def test_the_metrics_name_says_what_is_better() -> None:
    """An accuracy is kept where it is high, without a word; of a name that says nothing nobody guesses."""
    assert halving("val_accuracy").mode == "max"
    assert halving("val_loss").mode == "min"
    assert halving("accuracy", mode="min").mode == "min"
    with pytest.raises(UnknownDirection, match=r"tsnb.records.direction\(churn='max'\)"):
        halving("churn")


def test_a_rule_shows_what_it_says() -> None:
    """Its repr can be read, and it is the same as another one with the same numbers."""
    assert halving() == Halving("loss", 100, 0.5, "min", 1)
    assert "every=100" in repr(halving())


def taken(rungs: Ladder, name: str, step: int, value: float) -> list[Cut]:
    """Let a trial take a batch of 8 samples and log; return what is cut."""
    rungs.learn(name, {"samples": 8 * step})
    return rungs.take(name, LoggedRow(step, 0, step, 8 * step, 0.0, {"loss": value}))


def test_a_trial_that_never_logs_the_metric_is_not_waited_for() -> None:
    """Once it has taken as many samples as the others to a second rung, the first is decided, and it is said once."""
    rungs = ladder("abcde", every=10)
    said: list[str] = []
    cuts: list[Cut] = []
    for step in range(1, 60):
        rungs.learn("e", {"samples": 8 * step})
        for name, value in zip("abcd", (1.0, 2.0, 3.0, 4.0), strict=True):
            cuts += taken(rungs, name, step, value)
            said += rungs.remarks()
            rungs.check()
    assert [cut.name for cut in cuts] == ["c", "d", "b"]
    assert len(said) == 1
    assert said[0].startswith("e has logged no 'loss' yet, so the other trials are compared without it.")


def test_a_trial_that_has_not_come_as_far_is_waited_for() -> None:
    """It has taken fewer samples than the others: it still may log."""
    rungs = ladder("ab", every=10)
    for step in range(1, 60):
        rungs.learn("b", {"samples": 8 * 15})
        assert not taken(rungs, "a", step, 1.0)
    assert not rungs.remarks()
    assert [cut.name for cut in taken(rungs, "b", 59, 2.0)] == ["b"]


def test_a_trial_that_logs_the_metric_late_is_compared_from_then_on() -> None:
    """At the next rung of those that were with it from the start."""
    rungs = ladder("abc", every=10)
    cuts: list[Cut] = []
    for step in range(1, 100):
        rungs.learn("c", {"samples": 8 * step})
        cuts += taken(rungs, "a", step, 1.0) + taken(rungs, "b", step, 2.0)
        if step >= 25:
            cuts += taken(rungs, "c", step, 0.5)
        rungs.check()
    assert [(cut.name, cut.step) for cut in cuts] == [("b", 10), ("a", 40)]
