"""Duels in a report: the same numbers in the picture, the text and the JSON."""

from __future__ import annotations

import json
import math
import re

from tests.reports.made import consumer, reading
from tsnb.duels.seeds import Block, Rules
from tsnb.duels.verdict import judge
from tsnb.reports import Report
from tsnb.reports.learned.duelled import duels_of, sources

READINGS = [reading(float(at), consumer("new-1-candidate", float(at))) for at in range(4)]
BLOCKS = [Block(k, 10 + k, 0.5, 0.6 + 0.01 * k) for k in range(1, 8)]


def test_a_report_has_the_verdict_and_a_bar_for_each_seed() -> None:
    """And what it is about; while the duel runs, what is still needed."""
    told = judge(BLOCKS, Rules("acc", "max")).told("new", over=True)
    made = Report(READINGS, duels=[told])
    assert "Duel new: better" in made.text and told["said"] in made.text
    assert told["about"] in " ".join(made.text.split())
    assert made.svg.count("<title>seed ") == 2 * told["seeds"] and "<title>seed 1: +0.11" in made.svg
    (kept,) = json.loads(json.dumps(made.to_dict()))["duels"]
    assert (kept["verdict"], kept["blocks"][0]["seed"]) == ("better", 11)
    open_ = judge(BLOCKS[:3], Rules("acc", "max")).told("new", over=False)
    text = Report(READINGS, duels=[open_]).text
    assert "Duel new: running" in text and open_["needs"] in text


def test_an_arm_without_a_number_has_the_largest_bar() -> None:
    """Where the metric is to be low, too; a duel without a seed has no bars."""
    pairs = [Block(1, 1, 0.5, 0.4), Block(2, 2, 0.5, math.nan), Block(3, 3, math.nan, math.nan)]
    svg = Report(READINGS, duels=[judge(pairs, Rules("loss", "min")).told("new", over=False)]).svg
    for title in ("seed 1: -0.1<", "seed 2: no number, worse<", "seed 3: no number, equal<"):
        assert f"<title>{title}" in svg
    assert (
        "<title>seed"
        not in Report(READINGS, duels=[judge([], Rules("loss", "min")).told("new", over=False)]).svg
    )


def test_bars_have_a_scale_and_the_numbers_of_their_seeds() -> None:
    """Bars had neither, so that nobody could say how much better, and on which seed."""
    svg = Report(READINGS, duels=[judge(BLOCKS, Rules("acc", "max")).told("new", over=True)]).svg
    texts = re.findall(r"<text [^>]*>([^<]*)</text>", svg)
    at = texts.index("seed")
    assert texts[at + 1 : at + 7] == [str(k) for k in range(1, 7)], "decided after six"
    assert (
        "0.16 better" in texts
        and "0.16 worse" not in texts
        and "40: better" in texts
        and "40: worse" in texts
    )
    few = judge([Block(k, k, 0.5, 0.4 if k % 2 else 0.6) for k in range(1, 7)], Rules("acc", "max"))
    told = few.told("new", over=False)
    many = {**told, "blocks": [{**told["blocks"][k % 6], "block": k + 1} for k in range(120)]}
    texts = re.findall(r"<text [^>]*>([^<]*)</text>", Report(READINGS, duels=[many]).svg)
    assert "0.1 better" in texts and "0.1 worse" in texts
    numbers = texts[texts.index("seed") + 1 : texts.index("evidence")]
    assert numbers[:3] == ["1", "5", "9"], "as many as there is room for"


def test_duels_are_those_of_the_trials() -> None:
    """Each source is asked for them by the trials' names."""
    here = judge(BLOCKS, Rules("acc", "max")).told("new", over=True)
    sources.append(lambda trials: [here] if "new-1-candidate" in trials else [])
    try:
        assert duels_of({"new-1-candidate"}) == (here,) and not duels_of({"other"})
    finally:
        sources.pop()
