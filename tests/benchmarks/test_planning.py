"""The benchmark of plans: its table and what it says of the choice. tests/planning runs real plans."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.planning import Row, table, verdict


def row(way: str, *runs_s: float, **more: Any) -> Row:
    """Return a way that was foretold to take 10 s, 9 to 11."""
    return Row("m", way, 10.0, 9.0, 11.0, runs_s, **{"chosen": False, **more})


def test_the_regret_is_against_what_turned_out_best() -> None:
    """Per mix, in medians of the rounds; intervals are held against each run."""
    rows = [
        row("in turn", 12.5, 30.0, 11.0),
        row("one stream", 10.0, 10.5, 11.5, chosen=True),
        row("one stream, a list", 10.0, 9.8, 14.0),
    ]
    assert [each.off for each in rows] == pytest.approx([-0.2, 10 / 10.5 - 1, 0.0])
    said = verdict(rows)
    assert "5 of 9 runs within their interval" in said and "Regret of the choice: median 5%" in said
    assert "2 of 3 within 15%" in said
    assert "| m | one stream | 10.0 | 9.0-11.0 | 10.5 | 10.0-11.5 | -5% | chosen |" in table(rows)


def test_ways_of_one_schedule_are_no_regret() -> None:
    """They are one choice, with the runs of both."""
    rows = [
        row("a loader each", 10.0),
        row("one stream", 10.5, chosen=True),
        row("one stream, a list", 9.5, same_as="one stream"),
    ]
    assert "Regret of the choice: median 0%" in verdict(rows)
    assert "| the same as one stream |" in table(rows)
