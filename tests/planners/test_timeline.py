"""A plan in time: what was planned, what was and what is still to come, for everything that draws it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.panel.streams import three_models
from tsnb.planners import timeline
from tsnb.planners.timeline import PlannedTrial, Timeline, newest, show
from tsnb.reports.document import Report
from tsnb.reports.plotting import draw_timeline, plot

TRIALS = (
    PlannedTrial("done", (0.0, 10.0), (0.0, 12.0)),
    PlannedTrial("runs", (0.0, 20.0), (1.0, 15.0), (15.0, 24.0)),
    PlannedTrial("waits", (10.0, 30.0), None, (24.0, 40.0)),
    PlannedTrial("as planned", (30.0, 40.0), None, (30.0, 40.0)),
    PlannedTrial("clone", None, (14.0, 15.0), (15.0, 24.0)),
)


@pytest.fixture(autouse=True)
def nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another test's plan is not this one's."""
    monkeypatch.setattr(timeline, "_newest", [])


def test_bars_say_what_was_planned_what_was_and_what_is_still_to_come() -> None:
    """A line as planned, and below it what differs: a character a second here."""
    lines = Timeline("plan", TRIALS).bars().splitlines()
    assert lines == [
        "done        " + "█" * 10 + " " * 32 + "10 s",
        "            " + "▒" * 12 + " " * 30 + "12 s actual",
        "runs        " + "█" * 20 + " " * 22 + "20 s",
        "             " + "▒" * 14 + "░" * 9 + " " * 18 + "24 s predicted",
        "waits       " + " " * 10 + "█" * 20 + " " * 12 + "30 s",
        "            " + " " * 24 + "░" * 16 + "  40 s predicted",
        "as planned  " + " " * 30 + "█" * 10 + "  40 s",
        "clone       " + " " * 14 + "▒" + "░" * 9 + " " * 18 + "24 s predicted",
    ]
    assert Timeline("plan", ()).bars() == "", "a plan of which nothing can be done in time"
    held = PlannedTrial("held", (0.0, 10.0), (0.0, 12.0), paused=True)
    assert Timeline("plan", (held,)).bars().endswith("12 s so far, paused"), "not an end, and not foretold"
    behind = PlannedTrial("behind", (10.0, 20.0), held=True)
    assert Timeline("plan", (held, behind)).bars().endswith("waits for a paused trial"), "not a start"


def test_the_figure_has_the_same_bars() -> None:
    """Planned and real ones stand beside each other, what is still to come behind what was."""
    bars = {bar.name: bar for bar in draw_timeline(Timeline("plan", TRIALS)).data}
    assert list(bars) == ["planned", "actual", "predicted"]
    for name, part in (("planned", "planned"), ("actual", "actual"), ("predicted", "ahead")):
        drawn = zip(bars[name].y, bars[name].base, bars[name].x, strict=True)
        assert {trial: (start, start + length) for trial, start, length in drawn} == {
            each.name: span for each in TRIALS if (span := getattr(each, part)) is not None
        }
    behind = PlannedTrial("behind", (10.0, 20.0), held=True)
    assert [note.text for note in draw_timeline(Timeline("plan", (behind,))).layout.annotations] == [
        "waits for a paused trial"
    ]
    assert bars["actual"].offsetgroup == bars["predicted"].offsetgroup != bars["planned"].offsetgroup


def test_the_newest_plan_is_drawn_as_it_is_by_then() -> None:
    """Of a sweep that was planned after a plan it is the sweep's; asked again, it has gone on."""
    with pytest.raises(Exception, match="This process has no plan"):
        plot("plan")
    with pytest.raises(ValueError, match="stream= does not work with 'plan'"):
        plot("plan", stream="mnist")
    show(lambda: Timeline("plan", TRIALS))
    now: list[tuple[PlannedTrial, ...]] = [TRIALS[:1]]
    show(lambda: Timeline("sweep 's'", now[0]))
    assert [bar.name for bar in plot("plan").data] == ["planned", "actual"]
    now[0] = TRIALS
    assert plot("plan").layout.title.text == "sweep 's'" and len(plot("plan").data) == 3
    found = newest()
    assert found is not None and json.loads(json.dumps(found.to_dict()))["trials"][0]["actual"] == [0.0, 12.0]


def test_a_plan_is_of_a_stream_while_its_trials_took_it() -> None:
    """Not of another stream, nor of one of that name that was served before or after, nor before it was begun."""
    plan = Timeline("plan", TRIALS, ("mnist",), 1000.0)
    assert plan.concerns("mnist", 990.0, 1005.0) and plan.concerns("mnist", 1014.0, 2000.0)
    assert not plan.concerns("other", 990.0, 1005.0)
    assert not plan.concerns("mnist", 900.0, 999.0) and not plan.concerns("mnist", 1016.0, 2000.0)
    assert not replace(plan, began_s=None).concerns("mnist", 990.0, 1005.0)
    assert not replace(plan, trials=TRIALS[2:4]).concerns("mnist", 990.0, 1005.0), "none has started"


def test_a_report_tells_the_same() -> None:
    """As text, as numbers and in its picture; without a plan none of them speaks of one."""
    readings = list(three_models().run(2.0))
    plan = Timeline("plan", TRIALS)
    told, without = Report(readings, plan=plan), Report(readings)
    assert plan.bars() in told.text and "as planned" not in without.text
    assert (
        told.to_dict()["plan"] == json.loads(json.dumps(plan.to_dict())) and without.to_dict()["plan"] is None
    )
    for words in (
        "done: planned 0:00 to 0:10",
        "runs: predicted 0:15 to 0:24",
        "clone: actual 0:14 to 0:15",
    ):
        assert words in told.svg
    behind = Report(readings, plan=Timeline("plan", (PlannedTrial("behind", (10.0, 20.0), held=True),)))
    assert "waits for a paused trial" in behind.svg and "waits for a paused trial" in behind.text
    assert "in colour: actual" in told.svg and "planned" not in without.svg
