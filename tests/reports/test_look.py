"""Figures on a light and on a dark page: their ground is the page's, and what they say can be read on both."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tsnb
from tests.panel.streams import three_models
from tests.records.recorded import trained
from tests.reports.test_figures import host
from tsnb.planners.timeline import PlannedTrial, Timeline
from tsnb.records.run import Run, RunStart
from tsnb.records.writes import Parent
from tsnb.reports.figures import WORDS, draw_word
from tsnb.reports.look import CLEAR, GREY, look
from tsnb.reports.plotting import draw_timeline
from tsnb.reports.svg import PARKED, WAITING
from tsnb.show.words import COLOURS

if TYPE_CHECKING:
    import plotly.graph_objects as go

GROUNDS = ("#ffffff", "#111111")
"""JupyterLab's, light and dark."""


def figures() -> Iterator[tuple[str, go.Figure]]:
    """Return one of each kind that `tsnb.plot` draws."""
    readings = [replace(each, host=host(each)) for each in three_models().run(60)]
    for word in WORDS:
        yield word, draw_word(word, readings)
    trained("a", [1.0, 2.0])
    parent = Parent("a", 1, 0, 1, 8)
    Run.begin(RunStart("b", "x = 1", {}, {}, parent=parent)).process(os.getpid(), {})
    yield "logged", tsnb.plot("loss")
    yield "lineage", tsnb.plot("lineage")
    told = (PlannedTrial("a", (0.0, 1.0), (0.0, 2.0), None), PlannedTrial("b", (1.0, 2.0), None, (2.0, 3.0)))
    yield "plan", draw_timeline(Timeline("plan", told))


def contrast(one: str, other: str) -> float:
    """Return how far two colours stand apart, 1 to 21, as WCAG has it."""

    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def said(found: Any) -> Iterator[str]:
    """Return all colours in a part of a figure, but for what has a ground of its own."""
    if isinstance(found, dict):
        for key, value in found.items():
            if key != "hoverlabel":
                yield from said(value)
    elif isinstance(found, (list, tuple)):
        for value in found:
            yield from said(value)
    elif isinstance(found, str) and re.fullmatch(r"#[0-9A-Fa-f]{6}|white|black", found):
        yield found


def test_every_figure_lets_the_page_s_own_ground_through(project: Path) -> None:
    """Notebooks have dark themes, and a figure cannot ask for theirs: what is grey is readable on both grounds."""
    ours = {*COLOURS, WAITING, PARKED}
    seen = set()
    for word, figure in figures():
        layout = figure.to_dict()["layout"]
        template = layout.pop("template")["layout"]
        assert template["paper_bgcolor"] == template["plot_bgcolor"] == CLEAR, word
        assert template["font"]["color"] == GREY
        greys = {*said(layout), *said(figure.to_dict()["data"])} - ours
        for grey in greys:
            assert min(contrast(grey, ground) for ground in GROUNDS) > 3, (word, grey)
        seen |= greys
    assert min(contrast(GREY, ground) for ground in GROUNDS) > 4
    assert GREY in seen


def test_what_plotly_paints_by_itself_has_no_ground_of_its_own_either() -> None:
    """Lines around bars and the grid; what shows under the mouse has one, since it lies above the curves."""
    made = look().to_plotly_json()
    bars, axes = made["data"]["bar"][0], [made["layout"][axis] for axis in ("xaxis", "yaxis")]
    assert not {*said(bars["marker"]), *said(axes)}
    card = made["layout"]["hoverlabel"]
    assert contrast(card["bgcolor"], card["font"]["color"]) > 7
