"""Figures and reports have the panel's colours (those are compared in tests/telemetry/test_words.py)."""

from __future__ import annotations

import re
from dataclasses import replace

from tests.panel.streams import Stream, Trial
from tests.telemetry.test_diagnosis import consumer, stream
from tests.telemetry.test_words import SOURCE
from tsnb.reports import Report
from tsnb.reports.svg import SHAPES, colours_of, shapes_of
from tsnb.show.words import COLOURS
from tsnb.telemetry.lives.runs import lanes_of
from tsnb.telemetry.shown.view import StreamView


def test_a_ninth_trial_begins_anew() -> None:
    """As in the panel: lanes beyond the palette take its colours again, in order."""
    names = [f"t{number}" for number in range(10)]
    assert list(colours_of(names, {}).values()) == [*COLOURS, *COLOURS[:2]]


def test_trials_of_one_colour_have_other_outlines() -> None:
    """In reports too, and those of the panel: 56 pairs before one comes again."""
    names = [f"t{number}" for number in range(56)]
    pairs = {(colours_of(names, {})[name], shapes_of(names, {})[name]) for name in names}
    assert len(pairs) == 56
    script = (SOURCE / "shapes.js").read_text(encoding="utf-8")
    assert tuple(re.findall(r'^  "(M[^"]+)", //', script, re.MULTILINE)) == SHAPES
    svg = Report(list(Stream([Trial(name, 0.1) for name in names[:9]]).run(20)), ended=True).svg
    marks = svg.count(f'fill="{COLOURS[0]}" transform')
    assert marks == 6, "two rows; in each chart a curve and its name"


def test_a_trial_has_the_colour_of_its_row_in_the_panel() -> None:
    """Rows are numbered as trials are heard of: a queued one, which has no bar in a report, keeps its number."""
    readings = [
        stream(consumer("a"), pending={"queued": "queued: memory", "b": "queued: memory"}),
        replace(stream(consumer("a"), consumer("b")), time_s=101.0),
    ]
    view = StreamView()
    for reading in readings:
        view.feed(reading)
    lanes = lanes_of(readings)
    assert lanes == {name: row.number for name, row in view.rows.items()} == {"a": 0, "queued": 1, "b": 2}
    assert colours_of(["a", "b", "b run 1", "c"], lanes) == {
        "a": COLOURS[0],
        "b": COLOURS[2],
        "b run 1": COLOURS[2],
        "c": COLOURS[3],
    }
