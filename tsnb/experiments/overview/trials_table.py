"""Trials as the rows of a table: state, time, what is left, parameters, last numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tsnb.experiments.plan import shown_value
from tsnb.experiments.trial import Trial
from tsnb.records.scores import leaders
from tsnb.show.words import remaining
from tsnb.text.words import first_numbers

__all__ = ["rows_of", "shown_scores"]

_SHOWN = ("trial", "state", "time", "left", "parameters", "last numbers")
"""`left`: until its last epoch is over; "epoch": only to the end of this one (docs/how-predictions-work.md). Left out
where none is known, as once all have ended."""


def rows_of(shown: Sequence[Trial]) -> list[list[str]]:
    """Return the table of some trials, its head first."""
    leading = leaders([(trial.name, trial.state, trial.metrics) for trial in shown])
    rows = [list(_SHOWN), *(_cells(trial, leading) for trial in shown)]
    if not any(trial.eta.known for trial in shown):
        for row in rows:
            del row[_SHOWN.index("left")]
    if any(trial.parent for trial in shown):
        for row, parent in zip(rows, ["parent", *(_origin(trial) for trial in shown)], strict=True):
            row.insert(2, parent)
    return rows


def _origin(trial: Trial) -> str:
    """Return which trial it is a clone of, and from where on."""
    return "" if trial.parent is None else trial.parent.told


def _cells(trial: Trial, leading: Mapping[str, str]) -> list[str]:
    name = trial.name if trial.number == 1 else f"{trial.name} (run {trial.number})"
    state = f"{trial.state} (detached)" if trial.options.get("detach") else trial.state
    said = trial.waits_for or (trial.life.failure if trial.state in ("stopped", "pruned") else "")
    state += f": {said}" if said else ""
    params = ", ".join(f"{word} {_short(value)}" for word, value in trial.params.items())
    left = remaining(trial.eta)
    return [name, state, f"{trial.duration_s:.1f} s", left, params, shown_scores(trial, leading)]


def shown_scores(trial: Trial, leading: Mapping[str, str]) -> str:
    """Return a trial's last numbers as tables show them, those marked in which it is the best.

    Args:
        trial: The trial.
        leading: The best trial's name by metric (`scores.leaders`).
    """
    best = {metric: " (best)" for metric in trial.metrics if leading.get(metric) == trial.name}
    return ", ".join(first_numbers(trial.metrics, marks=best))


def _short(value: Any) -> str:
    """Return a parameter as a table shows it: lists in short, objects by their type."""
    plain = value if isinstance(value, str) else shown_value(value)
    text = plain or (repr(value) if isinstance(value, (list, tuple)) else type(value).__name__)
    return text if len(text) <= 40 else f"{text[:39]}…"
