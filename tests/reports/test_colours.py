"""Figures and reports have the panel's colours (those are compared in tests/telemetry/test_words.py)."""

from __future__ import annotations

from dataclasses import replace

from tests.telemetry.test_diagnosis import consumer, stream
from tsnb.reports.svg import colours_of
from tsnb.telemetry.lives.runs import lanes_of
from tsnb.telemetry.shown.view import StreamView
from tsnb.telemetry.shown.words import COLOURS


def test_a_ninth_trial_begins_anew() -> None:
    """As in the panel: lanes beyond the palette take its colours again, in order."""
    names = [f"t{number}" for number in range(10)]
    assert list(colours_of(names, {}).values()) == [*COLOURS, *COLOURS[:2]]


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
