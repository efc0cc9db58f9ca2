"""Figures, reports and the panel share their colours."""

from __future__ import annotations

import re
from pathlib import Path

from tsnb.reports.colours import PALETTE, colours_of

FRONTEND = Path(__file__).parents[2] / "tsnb" / "panel" / "frontend" / "src"


def test_figures_have_the_panels_colours() -> None:
    """One palette in both, in the same order; the front end has no other."""
    listed = [
        re.findall(r'"(#\w{6})"', file.read_text().partition("COLOURS = [")[2].partition("]")[0])
        for file in FRONTEND.glob("*.js")
        if "COLOURS = [" in file.read_text()
    ]
    assert [tuple(colours) for colours in listed] == [PALETTE]


def test_a_ninth_trial_begins_anew() -> None:
    """As in the panel: lanes beyond the palette take its colours again, in order."""
    names = [f"t{number}" for number in range(10)]
    assert list(colours_of(names).values()) == [*PALETTE, *PALETTE[:2]]
