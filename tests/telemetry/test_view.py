"""A stream as every screen shows it: rows that agree with the sentence above them."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from tests.reports.made import START_S, consumer, reading
from tests.reports.test_story import early
from tsnb.reports import Report
from tsnb.show.view_text import as_text
from tsnb.telemetry.readings import EndReading, StreamReading
from tsnb.telemetry.shown.view import StreamView
from tsnb.top.view import screen


def by_turns(ticks: int = 60) -> list[StreamReading]:
    """Two trials, "wide" slower by far; over some ticks it happens to be ahead, and "small" counts as the slowest."""
    found = []
    for k in range(ticks):
        s = k * 0.25
        states = ("streaming", "sets the pace") if k % 12 >= 6 else ("sets the pace", "streaming")
        wide = consumer("wide", s, batches=4 * k, attached_s=s, state=states[0])
        small = consumer("small", 0.6 * s, held_s=0.4 * s, batches=4 * k, attached_s=s, state=states[1])
        found.append(reading(s, wide, small, window=8))
    return found


def test_no_row_sets_the_pace_but_the_one_that_the_sentence_names() -> None:
    """A row said "sets the pace" below "wide sets the pace. small waits for slower trials 40 % of its time"."""
    view, seen = StreamView(), set()
    for each in by_turns():
        view.feed(each)
        if view.say.pace:
            assert view.say.lead == "wide sets the pace."
            seen |= {(row.name, row.state) for row in view.rows.values()}
    assert seen == {("wide", "sets the pace"), ("small", "held back"), ("small", "streaming")}
    (row,) = [line for line in as_text(view, "s").splitlines() if line.startswith("small ")]
    assert "sets the pace" not in row


def test_a_trial_that_has_failed_is_not_starting_on_any_screen() -> None:
    """Its notebook tells of an end at once, and a moment later that it waits no more: the report alone knew that."""
    view = StreamView()
    for each in early():
        view.feed(each)
    drawn = io.StringIO()
    Console(file=drawn, width=160, color_system=None).print(screen(view, 160))
    for text in (Report(early()).text, as_text(view, "s"), drawn.getvalue()):
        lines = [line for line in text.splitlines() if "see its log" not in line]
        (row,) = [line for line in lines if line.lstrip(" ▌│").startswith("classify-lr10.0")]
        assert "failed" in row, row
        assert "lr10.0 starting" not in text and "lr0.1" in text
    (*_, last) = early()
    view.feed(replace(last, time_s=START_S + 4, pending={}, ends=()))
    view.feed(replace(last, time_s=START_S + 5, pending={"classify-lr10.0": "starting"}, ends=()))
    assert (view.rows["classify-lr10.0"].state, view.rows["classify-lr10.0"].end) == ("starting", "")


def test_columns_stand_below_their_heads_though_one_waits_for_something_long() -> None:
    """A wait for some ranks shifted all numbers of its row."""
    view = StreamView()
    long = replace(
        consumer("a[0]", 1.0, attached_s=2.0, batches=5), awaits="ranks 1 and 2 of 3 on another machine"
    )
    view.feed(reading(0, long, consumer("b", 1.0, attached_s=2.0, batches=5)))
    head, *rows = as_text(view, "s").partition("\n\n")[2].splitlines()[:3]
    assert "waits for ranks 1 and 2 of 3 on another machine" in rows[0]
    for row in rows:
        assert row[: head.index("lag") + 3].split()[-1] == "0", row


def two_and_a_slow_one(ticks: int) -> list[StreamReading]:
    """Two trials that wait for "wide"."""
    found = []
    for k in range(ticks):
        s = k * 0.25
        quick = [
            consumer(name, 0.1 * s, held_s=0.9 * s, batches=4 * k, attached_s=s, state="held back", pid=pid)
            for name, pid in (("a", 2), ("b", 3))
        ]
        wide = consumer("wide", s, batches=4 * k, attached_s=s, state="sets the pace")
        found.append(reading(s, wide, *quick, window=8))
    return found


def test_no_row_sets_the_pace_below_a_sentence_by_which_no_trial_waits_for_another() -> None:
    """Rows said that two trials set the pace below "The loader is the limit." and "No trial is waiting."."""
    view, leads = StreamView(), set()
    for k in range(40):
        s = k * 0.25
        spent = {"computing_s": 0.9 * s, "waiting_s": 0.1 * s} if k < 20 else {"computing_s": s}
        both = (consumer(name, batches=4 * k, attached_s=s, state="sets the pace", **spent) for name in "ab")
        view.feed(reading(s, *both, window=8))
        leads.add(view.say.kind)
        assert view.say.pace is None
        assert {row.state for row in view.rows.values()} == {"streaming"}, (k, view.say.text)
    assert leads > {"loader-bound", "model-bound"}


def test_the_sentence_tells_no_shares_of_a_trial_whose_row_has_none_yet() -> None:
    """It said that the loader was the limit by the first moment of one trial, while its row was empty."""
    view = StreamView()
    view.feed(reading(0.0, consumer("a", 0.0, waiting_s=0.4, attached_s=0.4, state="waiting", batches=1)))
    assert view.say.text == "a is reading. Their time shares appear in a moment."
    view.feed(reading(0.5, consumer("a", 0.5, waiting_s=0.4, attached_s=0.9, batches=9)))
    assert view.say.lead == "No trial is waiting."
    news = consumer("b", 0.0, waiting_s=0.3, attached_s=0.3, state="waiting", batches=1)
    for s in (1.0, 1.5, 2.0, 2.5):
        view.feed(reading(s, consumer("a", s, waiting_s=0.4, attached_s=s + 0.4, batches=round(18 * s))))
    view.feed(reading(3.0, consumer("a", 3.0, waiting_s=0.4, attached_s=3.4, batches=54), news))
    assert "b" not in view.say.text.split()


def test_the_sentence_tells_of_no_trial_that_reads_no_more() -> None:
    """It said for two seconds that a trial set the pace which had been stopped, and that a paused one computed."""
    for gone in ((), (consumer("wide", 4.75, batches=76, attached_s=4.75, state="paused"),)):
        view, readings = StreamView(), two_and_a_slow_one(21)
        for each in readings[:-1]:
            view.feed(each)
        assert view.say.lead == "wide sets the pace."
        *_, last = readings
        view.feed(replace(last, consumers=(*gone, *last.consumers[1:])))
        assert view.say.pace is None
        said = "wide no longer reads. a and b waited for slower trials 90 % and 90 % of their time."
        assert view.say.text == said


def test_the_sentence_names_a_trial_that_failed_as_soon_as_its_row_says_so() -> None:
    """For two seconds it told of the pace alone."""
    view, readings = StreamView(), two_and_a_slow_one(22)
    for each in readings[:-2]:
        view.feed(each)
    before, last = readings[-2:]
    view.feed(replace(before, consumers=before.consumers[:-1]))
    assert view.rows["b"].state == "gone"
    failed = EndReading("b", "failed", last.time_s, 3, "ValueError: too bad")
    view.feed(replace(last, consumers=last.consumers[:-1], ends=(failed,)))
    assert view.rows["b"].state == "failed"
    assert view.say.text.startswith("b failed: see its log. wide sets the pace. a waits")


def test_it_is_over_when_the_last_trial_has_told_how_it_ended() -> None:
    """A trial that was stopped was named as the best for a moment, until its end was told."""
    view, readings = StreamView(), two_and_a_slow_one(21)
    for each in readings[:-1]:
        view.feed(each)
    *_, last = readings
    ends = [EndReading(c.name, "done", last.time_s, c.pid, "", {"accuracy": 0.9}) for c in last.consumers]
    left = EndReading("wide", "left", last.time_s, 1, "", {"accuracy": 0.95})
    view.feed(replace(last, consumers=(), ends=(*ends[1:], left)))
    assert not view.is_over and view.outcome == ("", "")
    told = replace(left, state="stopped", time_s=last.time_s + 0.2)
    view.feed(replace(last, time_s=last.time_s + 0.25, consumers=(), ends=(told,)))
    assert view.outcome == (
        "a is best: accuracy 90.0 %, equal to b.",
        "2 done, 1 stopped. wide ended early with 95.0 %.",
    )
    view.feed(replace(last, time_s=last.time_s + 1, consumers=last.consumers, ends=()))
    view.feed(
        replace(
            last,
            time_s=last.time_s + 2,
            consumers=(),
            ends=(*ends[1:], replace(left, time_s=last.time_s + 2)),
        )
    )
    assert not view.is_over
    view.feed(replace(last, time_s=last.time_s + 5, consumers=(), ends=()))
    assert view.is_over, "nobody tells how it ended"
