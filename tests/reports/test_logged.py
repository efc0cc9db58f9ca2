"""Logged numbers of many trials as figures, from the project's records."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

import tsnb
from tests.records.recorded import START_S, begun, row, trained
from tsnb.records.run import Run, RunStart
from tsnb.records.selection import NoSuchRecord
from tsnb.records.writes import Parent
from tsnb.reports.logged import thinned
from tsnb.show.words import COLOURS


def test_plot_draws_a_line_a_trial_on_the_chosen_axis(project: Path) -> None:
    """Step, epoch (its last value), samples, and seconds since the trial ran."""
    run = begun("a")
    record = run.read()
    assert record is not None
    assert record.running_s is not None
    run.add_rows([row(0, 0, loss=3.0), row(1, 0, loss=2.0), row(2, 1, loss=1.0)])
    trained("b", [5.0])
    points = {x: tsnb.plot("loss", x=x).data[0] for x in ("step", "epoch", "samples", "seconds")}
    assert list(points["step"].x) == [0, 1, 2]
    assert list(points["step"].y) == [3.0, 2.0, 1.0]
    assert list(zip(points["epoch"].x, points["epoch"].y, strict=True)) == [(0, 2.0), (1, 1.0)]
    assert list(points["samples"].x) == [0, 8, 16]
    assert points["seconds"].x[1] == pytest.approx(START_S + 1 - record.running_s)
    figure = tsnb.plot("loss")
    assert [line.name for line in figure.data] == ["a", "b"]
    assert [note.text for note in figure.layout.annotations] == ["best: a"], "also while it trains"
    assert figure.data[0].line.width > figure.data[1].line.width
    assert [line.line.color for line in figure.data] == list(COLOURS[:2])
    assert "loss" in figure.to_html(include_plotlyjs=False)


def test_lines_of_one_value_share_a_colour_and_an_entry(project: Path) -> None:
    """So that a sweep over seeds shows its parameter, not its trials."""
    for number, lr in enumerate((0.1, 0.2, 0.1)):
        trained(f"t{number}", [1.0], params={"lr": lr})
    figure = tsnb.plot("loss", by="lr")
    assert [line.name for line in figure.data] == ["lr=0.1", "lr=0.1", "lr=0.2"]
    assert [line.showlegend for line in figure.data] == [True, False, True]
    assert figure.data[0].line.color == figure.data[1].line.color != figure.data[2].line.color


def test_several_runs_of_a_name_are_told_apart_in_a_figure(project: Path) -> None:
    """By their number."""
    trained("a", [1.0])
    trained("a", [2.0])
    assert [line.name for line in tsnb.plot("loss", all_runs=True).data] == ["a run 1", "a run 2"]
    assert [line.name for line in tsnb.plot("loss").data] == ["a"]


def test_a_long_line_keeps_its_peaks(project: Path) -> None:
    """A figure of a million points would be 30 MB of notebook; a spike of one step still shows."""
    points = [(float(x), math.sin(x / 1000)) for x in range(100_000)]
    points[50_123] = (50_123.0, 40.0)
    points[70_001] = (70_001.0, math.nan)
    kept = thinned(points, 2000)
    assert len(kept) <= 2000
    assert (50_123.0, 40.0) in kept
    assert kept == sorted(kept)
    assert not any(math.isnan(value) for _, value in kept)
    assert thinned(points[:100], 2000) == points[:100]


def test_a_name_that_is_none_says_what_there_is(project: Path) -> None:
    """The stream's words and the logged names are both listed, and the nearest of them."""
    with pytest.raises(NoSuchRecord, match=r"'lss'.*Of a stream: lag, fill.*Logged .*: nothing yet\."):
        tsnb.plot("lss")
    trained("a", [1.0])
    with pytest.raises(NoSuchRecord, match=r"'los'.*Did you mean 'loss'\?.*project's trials: loss\."):
        tsnb.plot("los")
    with pytest.raises(NoSuchRecord, match="Did you mean 'throughput'"):
        tsnb.plot("troughput")
    with pytest.raises(ValueError, match="'samples', 'seconds'"):
        tsnb.plot("loss", x="time")


def test_lineage_draws_clones_below_their_parents_from_where_they_branched(project: Path) -> None:
    """Trials without clones are left out; what goes with other words only is refused."""
    trained("alone", [1.0])
    with pytest.raises(NoSuchRecord, match=r"No trial is a clone. Create one with trial.clone\(\)"):
        tsnb.plot("lineage")
    for name, origin, samples in (("a", "", 0), ("b", "a", 16), ("c", "a", 8), ("d", "b", 24)):
        parent = Parent(origin, 1, 1, samples // 8, samples) if origin else None
        Run.begin(RunStart(name, "x = 1", {}, {}, parent=parent)).process(os.getpid(), {})
    figure = tsnb.plot("lineage")
    assert list(figure.layout.yaxis.ticktext) == ["a", "b", "d", "c"]
    assert [line.x[0] for line in figure.data if line.line.width == 5] == [0, 16, 24, 8]
    assert [tuple(line.y) for line in figure.data if line.line.dash] == [(0, 1), (1, 2), (0, 3)]
    second = Parent("a", 2, 1, 3, 24)
    Run.begin(RunStart("e", "x = 1", {}, {}, parent=second)).process(os.getpid(), {})
    told = [line.hovertemplate for line in tsnb.plot("lineage").data if line.hovertemplate]
    assert "a clone of &#x27;a&#x27; (run 2) from batch 3 of epoch 1 on" in told[-1], "no trial is called a-2"
    rows = {row["name"]: row["parent"] for row in tsnb.results().to_dict("records")}
    assert (rows["c"], rows["e"]) == ("a, batch 1 of epoch 1", "a (run 2), batch 3 of epoch 1")
    with pytest.raises(ValueError, match="by= does not work with 'lineage'"):
        tsnb.plot("lineage", by="lr")
