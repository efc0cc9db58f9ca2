"""What blocks say, in a word: better, worse, no difference found, undecided."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsnb.duels.seeds import Block, Rules
from tsnb.duels.verdict import BETTER, NONE, OPEN, WORSE, judge

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
    """Two that are the same in every block differ by nothing: the change probably never reached the training."""
    found = judge(blocks(*[(0.5, 0.5)] * 8), ACC)
    assert (found.word, len(found.blocks), found.effect) == (NONE, 6, 0.0)
    assert found.wins == (0, 0, 6) and found.interval == (0.0, 0.0) and found.pairing is None
    assert str(found).startswith(
        "no difference found after 6 seeds: both arms have exactly the same acc with every seed. "
        "The change does nothing to acc: it probably never reaches the training"
    )
    assert str(found).endswith("Check that the candidate runs the changed code")
    early = judge(blocks(*[(0.5, 0.5)] * 2), ACC)
    assert str(early).endswith("after 2 seeds: both arms have exactly the same acc with every seed")
    few = judge(blocks(*[(0.5, 0.5)] * 2), Rules("acc", "max", most=2))
    assert "it probably never reaches the training" in str(few) and "with seeds=6 or more" in str(few)
    nearly = str(judge(blocks(*[(0.5, 0.5)] * 3, (0.5, 0.6), (0.6, 0.5)), ACC))
    assert ": acc 0, 1 better, 1 worse, 3 equal" in nearly and "never reaches" not in nearly


def test_what_is_no_number_is_worse() -> None:
    """A candidate that diverges with every seed loses; where both do, nothing is compared, and the duel ends soon."""
    assert judge(blocks(*[(0.5, math.nan)] * 8), ACC).word == WORSE
    assert judge(blocks(*[(0.5, math.inf)] * 8), LOSS).word == WORSE
    assert judge(blocks(*[(math.nan, 0.5)] * 8), ACC).word == BETTER
    lost = judge(blocks(*[(0.5, math.nan)] * 8), ACC)
    assert str(lost) == "worse after 6 seeds: 0 better, 6 worse"
    assert (lost.effect, lost.pairing, lost.interval) == (None, None, (-math.inf, math.inf))
    assert not judge(blocks(*[(math.nan, math.nan)] * 2), ACC).why
    both = judge(blocks(*[(math.nan, math.nan)] * 3), ACC)
    assert (both.word, both.why) == (OPEN, "neither arm has a finite acc with any seed")
    assert (both.effect, both.wins, both.neither, both.compared) == (None, (0, 0, 0), 3, False)
    assert not both.about and "`tsnb logs NAME-3-candidate`" in both.needs


def test_arms_that_are_compared_at_the_same_samples_may_differ_later() -> None:
    """A change of a late epoch cannot show before it; nor do the samples of the whole run matter then."""
    pairs = [Block(k, k, 0.5, 0.5, (100, 200)) for k in range(1, 7)]
    for equal in ("samples", "time"):
        found = judge(pairs, Rules("loss", "min", equal=equal))
        assert "it probably takes effect later, never reaches the training, or" in str(found)
        assert not found.unequal and str(found.interval) == "(0.0, 0.0)"


def test_a_block_without_a_number_in_both_arms_says_nothing() -> None:
    """It is no tie: it changes neither the evidence nor the range, wherever it stands."""
    none = (math.nan, math.nan)
    pairs = [(0.5, 0.52), (0.5, 0.49), (0.5, 0.53), (0.5, 0.51), (0.5, 0.5)]
    without = judge(blocks(*pairs), ACC)
    for at in range(len(pairs) + 1):
        found = judge(blocks(*pairs[:at], none, none, *pairs[at:]), ACC)
        assert (found.evidence, found.interval, found.effect) == (
            without.evidence,
            without.interval,
            without.effect,
        )
        assert (found.wins, found.neither) == ((3, 1, 1), 2)
        assert (found.still, found.fewest) == (without.still, without.fewest)
        assert len(found.over_time) == len(found.rows) == 7
    assert "3 better, 1 worse, 1 equal, 2 without a number in both arms" in str(found)
    assert judge(blocks(*[none, (0.5, 0.5)] * 5), ACC).word == OPEN, "five pairs are too few"
    assert judge(blocks(*[none, (0.5, 0.5)] * 6), ACC).word == NONE


def test_evidence_below_one_is_for_neither_side() -> None:
    """Three wins and two losses, of which one is large, are no evidence that the change is worse."""
    gains = (0.02, -0.01, 0.03, -0.2, 0.0, 0.25)
    found = judge(blocks(*((0.5, 0.5 + gain) for gain in gains)), ACC)
    last = found.rows[-1]
    assert (last["evidence"], last["for"]) == (found.evidence, "") and found.evidence < 1, last
    assert [row["for"] for row in found.rows] == ["better", "", "", "", "", ""]
    assert all(0 < row["evidence"] < 1 for row in found.rows[1:])


def test_code_that_raises_with_every_seed_is_told_at_once() -> None:
    """A typing error needs no test."""
    broken = [Block(k, k, 0.5, math.nan, raised=("", "NameError: x")) for k in (1, 2)]
    found = judge(broken, ACC)
    assert (found.word, found.why) == (OPEN, "the candidate failed with every seed: NameError: x")
    assert not judge([*blocks((0.5, 0.6)), *broken], ACC).why
    assert not found.compared and not found.about and not found.unequal
    assert str(judge(broken, ACC, name="new")) == (
        "undecided after 2 seeds. The candidate failed with every seed: NameError: x. "
        "Read the traceback (`tsnb logs new-2-candidate`), correct the candidate, and run the duel again."
    )


@pytest.mark.parametrize(
    ("errors", "why"),
    [
        (("KeyError: a.", "KeyError: a."), "both arms failed with every seed: KeyError: a"),
        (
            ("KeyError: a", "KeyError: b"),
            "both arms failed with every seed. Incumbent: KeyError: a. Candidate: KeyError: b",
        ),
    ],
)
def test_two_arms_that_fail_with_every_seed_are_both_named(errors: tuple[str, str], why: str) -> None:
    """And are not equal: the seeds have a count of their own."""
    found = judge([Block(k, k, math.nan, math.nan, raised=errors) for k in (1, 2)], ACC, name="new")
    assert (found.word, found.why) == (OPEN, why)
    assert (found.wins, found.neither, found.compared) == ((0, 0, 0), 2, False)
    assert "`tsnb logs new-2-incumbent` and `tsnb logs new-2-candidate`" in found.needs
    told = found.told("new", over=True)
    assert (told["ties"], told["neither"], told["about"]) == (0, 2, "") and "equal" not in told["said"]


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
    sure = str(judge(steady(0.01, 12), rules))
    assert sure.startswith("better") and sure.endswith(
        "The difference is sure, but smaller than min_delta=0.05"
    )
    assert "min_delta" not in str(judge(steady(0.1, 12), rules))


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
    assert json.dumps(whole.to_dict()) and "nan" not in str(whole)
    assert bool(whole.about) == whole.compared and sum(whole.wins) + whole.neither == len(whole.blocks)


def test_pairing_and_what_it_is_about() -> None:
    """How much less a pair varies than two runs; what both arms had in common; and what they did not."""
    pairs = [
        Block(k, k, 0.5 + 0.1 * k, 0.51 + 0.1 * k + 0.001 * (k % 2), (100, 150), (10, 15), paired="weights")
        for k in range(1, 6)
    ]
    found = judge(pairs, ACC)
    assert found.pairing is not None and found.pairing > 100
    assert "same first weights" in found.about and found.unequal.startswith("The candidate took 1.5 times")
    assert not judge(pairs, Rules("acc", "max", equal="samples")).unequal
    for kinds, words in (
        (["other weights"] * 5, "with the same batches but other first weights for"),
        (["batches"] * 5, "with the same batches for"),
        (["weights"] * 4 + ["other weights"], "with the same batches for"),
        (["weights"] * 4 + [""], "with the same seed for"),
    ):
        told = judge([replace(one, paired=kind) for one, kind in zip(pairs, kinds, strict=True)], ACC)
        assert words in told.about


def test_what_is_still_needed_is_said_as_far_as_it_is_known() -> None:
    """A pace, if there is one; else the fewest seeds, since a seed at most doubles the evidence."""
    least = "are needed for a verdict. The seeds so far do not tell how many."
    assert judge([], ACC).needs == f"At least 6 more seeds (12 trials) {least}"
    assert judge(steady(0.1, 2), ACC).needs == f"At least 4 more seeds (8 trials) {least}"
    assert judge(steady(0.1, 3), ACC).needs == (
        "About 4 more seeds (8 trials) are needed for a verdict, if they are like the 3 so far."
    )
    short = judge(steady(0.1, 3), Rules("acc", "max", most=4))
    assert short.needs.endswith("Only 1 is left. A larger seeds= can continue the duel after that.")
    assert not judge(steady(0.1, 10), ACC).needs and not judge([], ACC, ended="it was stopped").needs


def test_an_undecided_end_says_how_many_more_seeds_and_how_to_go_on() -> None:
    """A larger number of seeds where they are spent; else the same duel again."""
    spent = judge(steady(0.1, 3), Rules("acc", "max", most=3))
    assert spent.why == "all 3 seeds are spent"
    assert spent.needs == (
        "About 4 more seeds (8 trials) would be needed for a verdict, if they are like the 3 so far. To continue, run "
        "the same duel again under the same name with seeds=7 or more."
    )
    assert str(spent).endswith(f". All 3 seeds are spent. {spent.needs}") and spent.to_dict()["needs"]
    told = spent.told("new", over=True)
    assert told["needs"] == spent.needs and spent.needs not in told["said"]
    stopped = judge(steady(0.1, 3), ACC, ended="it was stopped")
    assert stopped.needs.endswith("run the same duel again under the same name.")
    few = judge(steady(0.1, 2), Rules("acc", "max", most=2))
    assert few.needs.startswith(
        "At least 4 more seeds (8 trials) would be needed for a verdict. The seeds so far do not tell how many."
    )


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
    assert over["state"] == "undecided" and over["said"].startswith("undecided")
    assert over["needs"].endswith("run the same duel again under the same name.")
