"""A stream as every screen shows it: rows that agree with the sentence above them."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from tests.reports.made import START_S, consumer, reading
from tests.reports.test_story import early
from tsnb.reports import Report
from tsnb.show.view_text import as_text
from tsnb.telemetry.readings import StreamReading
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
        (row,) = [line for line in text.splitlines() if line.lstrip(" ▌│").startswith("classify-lr10.0")]
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
