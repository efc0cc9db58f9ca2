"""The colours of figures and reports: the panel's own, so that a trial looks the same everywhere."""

from __future__ import annotations

from collections.abc import Iterable

from tsnb.telemetry.words import COLOURS

__all__ = ["BETWEEN", "COMPUTING", "HELD", "PARKED", "PART_COLOURS", "WAITING", "colours_of"]

WAITING = "#D65A63"
"""Waiting for data: the red of the panel's bars on white."""

HELD = "#C3CAD2"
"""Held back by the slowest."""

BETWEEN = "#EEF1F4"
"""Between epochs: attached, and nothing is read."""

PARKED = "#E8C77A"
"""Parked: stood still past the stream's patience."""

COMPUTING = "#656D76"
"""Computing, where no trial is meant: in legends."""

PART_COLOURS = {"waiting": WAITING, "held": HELD, "between": BETWEEN, "parked": PARKED}
"""What a trial's time goes to beside computing, which has the trial's own colour."""


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each trial, in the order of first appearance, as the panel gives them out."""
    return {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}
