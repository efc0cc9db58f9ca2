"""Figures and reports have the panel's colours (those are compared in tests/telemetry/test_words.py)."""

from __future__ import annotations

from tsnb.reports.svg import colours_of
from tsnb.telemetry.words import COLOURS


def test_a_ninth_trial_begins_anew() -> None:
    """As in the panel: lanes beyond the palette take its colours again, in order."""
    names = [f"t{number}" for number in range(10)]
    assert list(colours_of(names).values()) == [*COLOURS, *COLOURS[:2]]
