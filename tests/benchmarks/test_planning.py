"""The benchmark of plans: its table and what it says of the choice. tests/planning runs real plans."""

from __future__ import annotations

import pytest

from benchmarks.planning import Row, table, verdict


def test_the_regret_is_against_what_turned_out_best() -> None:
    """Per mix; intervals that hold are counted."""
    rows = [
        Row("m", "in turn", 20.0, 18.0, 22.0, 25.0, chosen=False),
        Row("m", "one stream", 10.0, 9.0, 11.0, 10.5, chosen=True),
        Row("m", "one stream, a list", 10.0, 9.0, 11.0, 10.0, chosen=False),
    ]
    assert rows[0].off == pytest.approx(-0.2)
    said = verdict(rows)
    assert "2 of 3 within their interval" in said and "Regret of the choice: median 5%" in said
    assert "| m | one stream | 10.0 | 9.0-11.0 | 10.5 | -5% | chosen |" in table(rows)


def test_two_runs_of_one_schedule_are_no_regret() -> None:
    """They are one choice, with the mean of both."""
    rows = [
        Row("m", "a loader each", 10.0, 9.0, 11.0, 10.0, chosen=False),
        Row("m", "one stream", 10.0, 9.0, 11.0, 10.5, chosen=True),
        Row("m", "one stream, a list", 10.0, 9.0, 11.0, 9.5, chosen=False, same_as="one stream"),
    ]
    assert "Regret of the choice: median 0%" in verdict(rows)
    assert "| the same as one stream |" in table(rows)
