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
    """Return a table of this project's trials: one row a run, as it stands now.

    Columns: name, run (1 for the first of that name), state, waits_for (only while one is queued: for what), started
    (local time), duration_s, stream, epochs, samples, samples_per_s (empty without a stream), peak_bytes (the largest
    memory that its process had to itself, on this machine), sweep, seed, notebook (or script), git (the commit
    that it started from, with "-dirty" where files differed from it, "?" where that is unknown), tags, parent (only
    where there are clones: the trial that it was cloned from, and where), then one a parameter and one a logged name
    (its last value, which is the trial's score). Where a name is taken: "NAME (param)", "NAME (logged)".

    With `target`: what each trial had cost when it reached a number, as `tsnb.report` says it: after_s (seconds),
    cpu_s (its CPU seconds), loader_cpu_s (those of the loader that all share, in that time), joules (of counters that
    counted for it alone) and, where a price is given, price; named "joules (accuracy)" where several numbers are
    wanted. Empty where it was not reached, "not measurable here" where nothing counted it, "not watched here" where
    this process has no readings of the run: never 0, never an estimate.

    Args:
        trial: Only the trial of this name, or the sweep; left out: all of the project.
        all_runs: Former runs of each name too, not only the last of each notebook.
        sort: A logged name: the best trial first, those that are done before the others. Left out: as they began.
        by: With `sort`: a parameter ("lr") or an option ("batch_size", "seed") to compare the trials by: one row a
            value of it, the best first. Columns: it, trials (how many), best (the best score among them) and
            best_trial (of those that are done, if any is), mean and std of their scores (std from two on), best_ever
            (the best value that any of them ever logged). Scores that are nan count as trials, but not in the mean.
        mode: With `by`: "min" where a low score is good, "max" where a high one is; left out: as
            `tsnb.records.direction` or the metric's name says.
        tag: Only the runs with this tag (`tsnb.records.tag`), former ones too.
        target: By logged name, a number to reach: {"accuracy": 0.95}.
        vcpu_price: With `target`: what an hour of one core costs, in any currency; None: not counted.
        kwh_price: With `target`: what a kilowatt hour costs; None: not counted.
        recording: With `target`: the path of a recording (`tsnb.streams.record`) with the trials' readings; left out:
            those of the streams that this process watches or watched.

    Returns:
        A pandas DataFrame where pandas is installed, else a list of dictionaries with the same keys.

    Raises:
        NoSuchRecord: Nothing is called so, has that tag or logged that; lists what there is.
        UnknownDirection: Nothing says whether a high or a low value of `sort`, or of a wanted number, is good.
        ValueError: A number or price is invalid, or the file is not a recording.
        TsnbError: The project's records, or the recording, cannot be read.
    """
    if by is not None:
        if sort is None or target:
            raise ValueError(f"by={by!r} compares trials by a logged number, without target=: sort='loss'")
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
        raise ValueError("recording= tells what trials cost until a number: add target={'accuracy': 0.95}.")
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
