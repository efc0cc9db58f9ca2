"""`tsnb.results`: the project's runs as a table, with what each had cost when it reached a wanted number.

The records know what was logged; what it cost is known from readings (`cost`), as a report's figures are: of the
streams that this process watches or watched, or of a recording. A reading belongs to the run that its time lies in.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tsnb.machine.energy import NOT_MEASURABLE
from tsnb.records.reading import RunRecord
from tsnb.records.scores import direction_of
from tsnb.records.selection import check_metric, chosen_runs
from tsnb.records.tables import compared, results_table, shown
from tsnb.reports.cost import Prices, TrialCost, costs, wanted_of
from tsnb.reports.sources import recorded
from tsnb.telemetry.readings import StreamReading
from tsnb.telemetry.watching import watched

__all__ = ["NOT_WATCHED", "costed_table", "results"]

NOT_WATCHED = "not watched here"
"""Of a run whose stream this process has no readings of."""
COUNTED = ("after_s", "cpu_s", "loader_cpu_s", "joules", "price")
LATE_S = 5.0
"""A reading may tell of a run that has just ended: what it logged last arrives a little later."""


def results(
    trial: str | None = None,
    *,
    all_runs: bool = False,
    sort: str | None = None,
    by: str | None = None,
    mode: str | None = None,
    tag: str | None = None,
    target: Mapping[str, float] | None = None,
    vcpu_price: float | None = None,
    kwh_price: float | None = None,
    recording: str | os.PathLike[str] | None = None,
) -> Any:
    """Return a table of this project's trials, one row per run.

    docs/compare-runs.md explains the columns. One column per parameter and per logged name (its last value) follows
    them. With `target`, the table also has what each trial had cost when it reached that number.

    Example:
        >>> tsnb.results()
        >>> tsnb.results(sort="loss", by="lr")

    Args:
        trial: Name of one trial or sweep. Defaults to all of the project.
        all_runs: Whether former runs of each name are shown too. Defaults to False.
        sort: Logged name to sort by, best trial first. Trials that ended early come last. Defaults to the
            order of starts.
        by: Parameter or option, with `sort`, to compare the trials by: one row per value. Defaults to None.
        mode: "min" or "max", with `by`: whether a low or a high score is good. Defaults to
            `tsnb.records.direction`, else the metric's name.
        tag: Tag of the runs to show (`tsnb.records.tag`), former ones too. Defaults to None.
        target: Numbers to reach, by logged name: {"accuracy": 0.95}. Defaults to None.
        vcpu_price: Price of one core for an hour, in any currency, with `target`. Defaults to None, not counted.
        kwh_price: Price of a kilowatt hour, with `target`. Defaults to None, not counted.
        recording: Path of a recording (`tsnb.streams.record`) with the trials' readings, with `target`. Defaults to
            the streams that this process watches.

    Returns:
        A pandas DataFrame where pandas is installed, else a list of dictionaries with the same keys.

    Raises:
        NoSuchRecord: If no trial, sweep, tag or logged name is called so.
        UnknownDirection: If tsnb cannot tell whether a high or a low value of `sort` or `target` is good.
        ValueError: If a number or price is invalid, or the file is not a recording.
        TsnbError: If the project's records or the recording cannot be read.
    """
    if by is not None:
        if sort is None or target:
            raise ValueError(
                f"by={by!r} compares trials by a logged number and does not work with target=. Use for "
                "example sort='loss'"
            )
        return shown(*compared(sort, by, mode, trial, all_runs, tag))
    return shown(
        *costed_table(
            trial,
            all_runs=all_runs,
            sort=sort,
            tag=tag,
            target=target,
            vcpu_price=vcpu_price,
            kwh_price=kwh_price,
            recording=recording,
        )
    )


def costed_table(
    name: str | None = None,
    *,
    all_runs: bool = False,
    sort: str | None = None,
    tag: str | None = None,
    target: Mapping[str, float] | None = None,
    vcpu_price: float | None = None,
    kwh_price: float | None = None,
    recording: str | os.PathLike[str] | None = None,
) -> tuple[list[str], list[list[Any]]]:
    """Return the columns and rows of `results`, which says what the arguments are.

    Raises:
        TsnbError: As `results` raises, and its other exceptions too.
    """
    wanted = wanted_of(target, Prices(vcpu_price, kwh_price))
    if recording is not None and not wanted:
        raise ValueError(
            "recording= adds what trials cost until they reached a number. Add target={'accuracy': 0.95}."
        )
    columns, rows = results_table(name, all_runs, sort, tag)
    if wanted:
        # the same runs, in the same order: a row has its name and number
        runs = {(run.name, run.number): run for run in chosen_runs(name, all_runs, tag)[1]}
        prices = Prices(vcpu_price, kwh_price)
        for metric in wanted:
            check_metric(metric, list(runs.values()))
        seen = _readings(recording)
        fields = [field for field in COUNTED if field != "price" or prices.asked]
        added = [(metric, field) for metric in wanted for field in fields]
        taken = set(columns)
        columns = [*columns, *(_title(metric, field, len(wanted) > 1, taken) for metric, field in added)]
        rows = [
            [*row, *_cells(runs[row[0], row[1]], list(runs.values()), seen, wanted, prices, added)]
            for row in rows
        ]
    return columns, rows


def _readings(recording: str | os.PathLike[str] | None) -> list[Sequence[StreamReading]]:
    """Return the readings of each stream that is known."""
    if recording is not None:
        return [recorded(Path(recording)).readings]
    return [there.readings() for there in watched().values()]


def _title(metric: str, field: str, several: bool, taken: set[str]) -> str:
    name = f"{field} ({metric})" if several else field
    return f"{name} (target)" if name in taken else name


def _cells(
    run: RunRecord,
    runs: Iterable[RunRecord],
    seen: Sequence[Sequence[StreamReading]],
    wanted: Mapping[str, float],
    prices: Prices,
    added: Sequence[tuple[str, str]],
) -> list[Any]:
    """Return what one run had cost, in the order of the columns."""
    ways = {metric: direction_of(metric) for metric in wanted}
    later = [other.started_s for other in runs if other.name == run.name and other.number > run.number]
    end_s = min([run.started_s + run.duration_s + LATE_S, *later])
    found: dict[str, TrialCost] = {}
    watched_it = False
    for readings in seen:
        its = [reading for reading in readings if run.started_s <= reading.time_s < end_s]
        watched_it = watched_it or any(c.name == run.name for reading in its for c in reading.consumers)
        for cost in costs(its, wanted, ways, prices):
            # of several streams (training, validation) the first that saw it reached
            known = found.get(cost.metric)
            if cost.name == run.name and (known is None or known.after_s is None):
                found[cost.metric], watched_it = cost, True
    return [
        _cell(found.get(metric), field, metric in run.metrics and not watched_it) for metric, field in added
    ]


def _cell(cost: TrialCost | None, field: str, unseen: bool) -> Any:
    if cost is None or cost.after_s is None:
        return NOT_WATCHED if unseen else None
    value = getattr(cost, field)
    return NOT_MEASURABLE if value is None else value
