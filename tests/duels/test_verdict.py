"""What blocks say, in a word: better, worse, no difference found, undecided."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsnb.duels.verdict import BETTER, NONE, OPEN, WORSE, Block, Rules, judge

ACC, LOSS = Rules("acc", "max"), Rules("loss", "min")


def blocks(*pairs: tuple[float, float]) -> list[Block]:
    return [Block(number, number, a, b, (100, 100), (10, 10)) for number, (a, b) in enumerate(pairs, 1)]


def steady(gain: float, number: int) -> list[Block]:
    """Blocks that differ a little in how much the candidate gains."""
    return blocks(*((0.5, 0.5 + gain * (1 + 0.1 * math.sin(k))) for k in range(number)))


def test_the_words() -> None:
    """By the metric's direction; with the effect in the metric's unit, whichever way that is good."""
    better, worse = judge(steady(0.1, 10), ACC), judge(steady(0.1, 10), LOSS)
    assert (better.word, worse.word) == (BETTER, WORSE)
    assert better.effect == pytest.approx(0.1, rel=0.2) and worse.effect == pytest.approx(0.1, rel=0.2)
    assert better.interval[0] > 0 and worse.interval[0] > 0
    assert len(better.blocks) < 10 and better.decided and not better.why
    assert better.wins == (len(better.blocks), 0, 0) and worse.wins == (0, len(worse.blocks), 0)


def test_equal_arms_end_soon() -> None:
    """Two that are the same in every block differ by nothing."""
    found = judge(blocks(*[(0.5, 0.5)] * 8), ACC)
    assert (found.word, len(found.blocks), found.effect) == (NONE, 6, 0.0)
    assert found.wins == (0, 0, 6)


def test_what_is_no_number_is_worse() -> None:
    """A candidate that diverges with every seed loses; where both do, they are equal."""
    assert judge(blocks(*[(0.5, math.nan)] * 8), ACC).word == WORSE
    assert judge(blocks(*[(0.5, math.inf)] * 8), LOSS).word == WORSE
    assert judge(blocks(*[(math.nan, 0.5)] * 8), ACC).word == BETTER
    both = judge(blocks(*[(math.nan, math.nan)] * 8), ACC)
    assert both.word == NONE and math.isnan(both.effect)


def test_code_that_raises_with_every_seed_is_told_at_once() -> None:
    """A typing error needs no test."""
    broken = [Block(k, k, 0.5, math.nan, raised=("", "NameError: x")) for k in (1, 2)]
    found = judge(broken, ACC)
    assert (found.word, found.why) == (OPEN, "the candidate failed with every seed: NameError: x")
    assert not judge([*blocks((0.5, 0.6)), *broken], ACC).why


def test_what_is_open_says_why() -> None:
    """All seeds are spent, or it was ended."""
    pairs = blocks((0.5, 0.6), (0.6, 0.4), (0.5, 0.7))
    assert judge(pairs, Rules("acc", "max", most=3)).why == "all 3 seeds are spent"
    assert judge(pairs, ACC, ended="it was stopped").why == "it was stopped"
    assert judge([], ACC, ended="it was stopped").word == OPEN
    assert judge(pairs, ACC).still is None or judge(pairs, ACC).still


def test_the_smallest_difference_that_matters() -> None:
    """None larger is there: that can be said of a sure small gain, which is better all the same where it is seen."""
    small = [Block(k, k, 0.5, 0.5 + (0.001 if k % 2 else -0.001)) for k in range(1, 20)]
    rules = Rules("acc", "max", min_delta=0.05)
    found = next(v for n in range(1, 20) if (v := judge(small[:n], rules)).decided)
    assert found.word == NONE and -0.05 < found.interval[0] < found.interval[1] < 0.05


@given(
    st.lists(
        st.tuples(st.sampled_from([0.1, 0.2, math.nan]), st.sampled_from([0.1, 0.3, math.nan])), max_size=12
    )
)
def test_a_verdict_that_stands_never_changes(pairs: list[tuple[float, float]]) -> None:
    """Whatever comes after it; and it can be written as JSON's own numbers, but for nan."""
    whole = judge(blocks(*pairs), ACC)
    for number in range(len(pairs)):
        part = judge(blocks(*pairs[:number]), ACC)
        if part.decided:
            assert (whole.word, whole.blocks) == (part.word, part.blocks)
    assert json.dumps(whole.to_dict()) and str(whole) and whole.about


def test_pairing_and_what_it_is_about() -> None:
    """How much less a pair varies than two runs; what both arms had in common; and what they did not."""
    pairs = [
        Block(k, k, 0.5 + 0.1 * k, 0.51 + 0.1 * k + 0.001 * (k % 2), (100, 150), (10, 15), paired="weights")
        for k in range(1, 6)
    ]
    found = judge(pairs, ACC)
    assert found.pairing > 100
    assert "same first weights" in found.about and found.unequal.startswith("The candidate took 1.5 times")
    assert not judge(pairs, Rules("acc", "max", equal="samples")).unequal


def test_what_is_still_needed_is_said_as_far_as_it_is_known() -> None:
    """A pace, if there is one; else the fewest seeds, since a seed at most doubles the evidence."""
    least = "more seeds are needed. The seeds so far do not tell how many."
    assert judge([], ACC).needs == f"At least 6 {least}"
    assert judge(steady(0.1, 2), ACC).needs == f"At least 4 {least}"
    assert judge(steady(0.1, 3), ACC).needs == "About 4 more seeds are needed at this pace."
    mixed = judge(blocks((0.5, 0.7), (0.5, 0.31), (0.5, 0.72), (0.5, 0.6)), Rules("acc", "max", most=5))
    assert mixed.needs.endswith("Only 1 are left.") or mixed.still is None
    assert not judge(steady(0.1, 10), ACC).needs and not judge([], ACC, ended="it was stopped").needs


@given(
    st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), max_size=8),
    st.sampled_from([None, 0.3]),
    st.sampled_from([-1.0, 0.0, 0.5, 2.0]),
)
def test_no_verdict_comes_before_the_fewest_seeds(
    gains: list[float], min_delta: float | None, then: float
) -> None:
    """Whatever they bring."""
    rules = Rules("acc", "max", min_delta=min_delta)
    now = judge(blocks(*((0.0, gain) for gain in gains)), rules)
    more = [*gains, *[then] * (now.fewest - 1)]
    assert now.decided or not judge(blocks(*((0.0, gain) for gain in more)), rules).decided


def test_every_screen_has_the_same_of_a_duel() -> None:
    """As strict JSON: a state, sentences, the numbers of `to_dict`, and a row for each seed."""
    pairs = blocks((0.5, 0.7), (0.5, math.nan), (0.5, 0.5))
    told = judge(pairs, ACC).told("new", over=False)
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert (told["duel"], told["state"], told["over"]) == ("new", "running", False)
    assert told["said"].startswith("So far undecided after 3 seeds")
    assert told.items() >= {"verdict": "undecided", "seeds": 3, "wins": 1, "losses": 1, "ties": 1}.items()
    assert [row["favours"] for row in told["blocks"]] == ["better", "worse", ""]
    assert told["blocks"][0]["difference"] == pytest.approx(0.2) and told["blocks"][1]["difference"] is None
    over = judge(pairs, ACC, ended="it was stopped").told("new", over=True)
    assert (over["state"], over["needs"]) == ("undecided", "") and over["said"].startswith("undecided")
