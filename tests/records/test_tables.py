"""The project's records as tables, figures and files."""

from __future__ import annotations

import csv
import datetime as dt
import json
import math
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import tsnb
from tests.records.recorded import START_S, begun, row, trained
from tsnb.cli import main
from tsnb.errors import ExtraMissing
from tsnb.records.run import Run, RunStart
from tsnb.records.scores import UnknownDirection
from tsnb.records.selection import NoSuchRecord


def without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)


def test_results_are_a_row_a_run_with_parameters_and_last_numbers(project: Path) -> None:
    """The last run of each name, in the order of their starts; `all_runs` shows the former ones too."""
    trained("a", [3.0, 1.0, 2.0], params={"lr": 0.1}, sweep="s")
    trained("b", [5.0], params={"lr": 0.2, "wd": 0}, state="failed")
    trained("a", [0.5], params={"lr": 0.3})
    table = tsnb.results()
    assert list(table.columns) == [
        "name", "run", "state", "started", "duration_s", "stream", "epochs", "samples", "samples_per_s",
        "peak_bytes", "sweep", "seed", "notebook", "git", "tags", "lr", "wd", "loss",
    ]  # fmt: skip
    assert list(table["name"]) == ["b", "a"]
    assert list(table["run"]) == [1, 2]
    assert list(table["state"]) == ["failed", "done"]
    assert list(table["loss"]) == [5.0, 0.5]
    assert list(table["lr"]) == [0.2, 0.3]
    assert list(table["samples"]) == [8, 8]
    assert abs(table["started"].iloc[0].to_pydatetime() - dt.datetime.now()) < dt.timedelta(minutes=5)  # noqa: DTZ005
    everything = tsnb.results(all_runs=True)
    assert list(everything["name"]) == ["a", "b", "a"]
    assert list(everything["loss"]) == [2.0, 5.0, 0.5]
    assert list(tsnb.results("s", all_runs=True)["name"]) == ["a"], "a sweep's name chooses its runs"


def test_why_a_trial_is_queued_is_a_column_while_one_is(project: Path) -> None:
    """In the words of `tsnb.trials`; one that has started, or ended, waits no more."""
    run, other = begun("large"), begun("small")
    assert "waits_for" not in tsnb.results()
    run.state("queued", "it starts when 'small' is done")
    table = tsnb.results()
    assert list(table.columns)[2:4] == ["state", "waits_for"]
    assert table["waits_for"].fillna("").tolist() == ["it starts when 'small' is done", ""]
    other.end("done")
    run.state("starting")
    assert "waits_for" not in tsnb.results()


def test_a_trial_of_another_notebook_is_not_hidden_by_one_of_the_same_name(project: Path) -> None:
    """The last run of each name in each notebook; a run is told from others by name and number."""
    trained("cnn", [3.0], origin="notebook a.ipynb")
    trained("cnn", [2.0], origin="notebook b.ipynb")
    trained("cnn", [1.0], origin="notebook b.ipynb")
    table = tsnb.results()
    assert table[["name", "run", "notebook", "loss"]].values.tolist() == [
        ["cnn", 1, "a.ipynb", 3.0],
        ["cnn", 3, "b.ipynb", 1.0],
    ]
    assert list(tsnb.results("cnn", all_runs=True)["run"]) == [1, 2, 3]


def test_without_pandas_the_tables_are_dictionaries(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same keys and numbers."""
    trained("a", [3.0, 1.0], params={"lr": 0.1})
    frames = {
        "results": tsnb.results(),
        "history": tsnb.records.history(),
        "compare": tsnb.results(sort="loss", by="lr"),
    }
    without_pandas(monkeypatch)
    for name, rows in (
        ("results", tsnb.results()),
        ("history", tsnb.records.history()),
        ("compare", tsnb.results(sort="loss", by="lr")),
    ):
        assert isinstance(rows, list)
        assert list(rows[0]) == list(frames[name].columns)
        assert len(rows) == len(frames[name])
    assert tsnb.results()[0]["loss"] == 1.0


def test_what_shares_a_name_is_told_apart(project: Path) -> None:
    """A parameter called as a column of ours, a number called as a parameter: nothing is hidden."""
    run = begun("a", lr=0.1, state="frozen")
    run.add_rows([row(0, lr=0.05, samples=7.0)])
    table = tsnb.results()
    assert table.loc[0, ["state", "state (param)", "lr", "lr (logged)", "samples (logged)"]].tolist() == [
        "running", "frozen", 0.1, 0.05, 7.0,
    ]  # fmt: skip


def test_a_project_without_records_is_an_empty_table(project: Path) -> None:
    """And looking does not make it a project."""
    assert len(tsnb.results()) == 0
    assert len(tsnb.records.history()) == 0
    assert list(tsnb.records.history().columns)[:3] == ["name", "run", "step"]
    assert not project.exists()


def test_a_typo_is_told_with_what_there_is(project: Path) -> None:
    """Names, metrics, parameters and axes."""
    trained("wide", [1.0], params={"lr": 0.1})
    with pytest.raises(NoSuchRecord, match=r"'wida'.*Did you mean 'wide'"):
        tsnb.results("wida")
    with pytest.raises(NoSuchRecord, match=r"logged 'los'.*Did you mean 'loss'"):
        tsnb.records.history("los")
    with pytest.raises(NoSuchRecord, match="Parameters here: lr, batch_size"):
        tsnb.results(sort="loss", by="wd")
    with pytest.raises(ValueError, match="'max' if a high"):
        tsnb.results(sort="loss", by="lr", mode="low")
    trained("odd", [1.0], params={"lr": 0.1}, metric="churn")
    with pytest.raises(UnknownDirection, match=r"tsnb.records.direction\(churn='max'\)"):
        tsnb.results(sort="churn", by="lr")


def test_history_has_every_number_in_long_form(project: Path) -> None:
    """In the order of logging, nan included."""
    run = begun("a")
    run.add_rows([row(0, loss=1.0, top=0.1), row(1, None, loss=math.nan)])
    trained("b", [7.0])
    table = tsnb.records.history(trial="a")
    assert list(table.columns) == ["name", "run", "step", "epoch", "samples", "time_s", "metric", "value"]
    assert list(table["metric"]) == ["loss", "top", "loss"]
    assert list(table["step"]) == [0, 0, 1]
    assert table["value"].iloc[:2].tolist() == [1.0, 0.1]
    assert math.isnan(table["value"].iloc[2])
    assert table["time_s"].iloc[2] == START_S + 1
    assert list(tsnb.records.history("loss")["name"]) == ["a", "a", "b"]


def test_compare_ranks_the_values_of_a_parameter(project: Path) -> None:
    """By the best score of its trials, their last values; mean and spread over seeds; what is nan is in no mean."""
    trained("a1", [3.0, 1.0, 2.0], params={"lr": 0.1})
    trained("a2", [3.0, 4.0], params={"lr": 0.1})
    trained("b", [0.5, 9.0], params={"lr": 1})
    trained("c", [math.nan], params={"lr": 10})
    trained("d", [0.0])
    table = tsnb.results(sort="loss", by="lr")
    assert list(table.columns) == [
        "lr",
        "trials",
        "best",
        "best_trial",
        "best_state",
        "mean",
        "std",
        "best_ever",
    ]
    assert list(table["lr"]) == [0.1, 1, 10]
    assert list(table["trials"]) == [2, 1, 1]
    assert list(table["best"].iloc[:2]) == [2.0, 9.0]
    assert list(table["best_trial"].iloc[:2]) == ["a1", "b"]
    assert table["mean"].iloc[0] == 3.0
    assert table["std"].iloc[0] == pytest.approx(1.4142, abs=1e-4)
    assert list(table["best_ever"].iloc[:2]) == [1.0, 0.5]
    assert math.isnan(table["mean"].iloc[2])
    high = tsnb.results(sort="loss", by="lr", mode="max")
    assert list(high["lr"]) == [1, 0.1, 10]
    assert list(high["best"].iloc[:2]) == [9.0, 4.0]
    assert list(tsnb.results(sort="loss", by="batch_size")["trials"]) == [5], "options compare as well"


def test_an_accuracy_is_ranked_by_its_highest_without_a_word(project: Path) -> None:
    """Those that train stand among those that are done, by value; those that were stopped follow, nan and none last."""
    for name, state, values in (
        ("low", "done", [0.9, 0.4]),
        ("high", "done", [0.1, 0.8]),
        ("cut", "stopped", [0.95]),
        ("broken", "done", [math.nan]),
        ("equal", "running", [0.8]),
        ("first", "running", [0.9]),
    ):
        trained(name, values, state=state, params={"lr": 1 if state == "stopped" else 0.1}, metric="val_acc")
    trained("other", [1.0])
    table = tsnb.results(sort="val_acc", by="lr")
    assert list(table["best_trial"]) == ["first", "cut"] and list(table["best_state"]) == [
        "running",
        "stopped",
    ]
    table = tsnb.results(sort="val_acc")
    assert list(table["name"]) == ["first", "high", "equal", "low", "cut", "broken", "other"]
    assert list(table["state"][:4]) == ["running", "done", "running", "done"]
    assert list(tsnb.results()["name"]) == ["low", "high", "cut", "broken", "equal", "first", "other"]
    with pytest.raises(NoSuchRecord, match="Did you mean 'val_acc'"):
        tsnb.results(sort="val_ac")


def test_a_table_that_is_printed_steers_no_terminal(project: Path) -> None:
    """Parameters stand in it as they are, whatever they hold; how it prints is another matter."""
    name = "\x1b]0;title\x07\x9b2J \u202e reversed"
    trained("a", [1.0], params={"augment": name, "\x1b[2Jkey": 1})
    for table in (tsnb.results(), tsnb.results(sort="loss", by="augment")):
        assert table["augment"].tolist() == [name]
        assert str(table) == repr(table)
        for text in (repr(table), table.to_string()):
            assert "?]0;title??2J ? reversed" in text
            assert not set(text) & set("\x1b\x07\x9b\u202e")
    assert "\x1b[2Jkey" in tsnb.results().columns
    table = tsnb.results()
    for again in (table.head(), table.copy(), pickle.loads(pickle.dumps(table)), table[["name"]], table.T):
        assert type(again) is pd.DataFrame
    assert again.equals(pd.DataFrame(table).T)


def test_equal_numbers_are_one_value_of_a_parameter(project: Path) -> None:
    """`lr=1` in one sweep and `lr=1.0` in the next; True is no number here."""
    for name, lr in (("a", 1), ("b", 1.0), ("c", True), ("d", 0.5)):
        trained(name, [1.0], params={"lr": lr})
    assert list(tsnb.results(sort="loss", by="lr")["trials"]) == [2, 1, 1]


def test_export_writes_what_the_tables_show(project: Path, tmp_path: Path) -> None:
    """Trials and metrics, as CSV and as Parquet, the same rows in each."""
    trained("a", [3.0, 1.0], params={"lr": 0.1, "layers": [1, 2], "mixed": 1})
    trained("b", [math.nan], params={"mixed": "much", "big": 2**70})
    path = tsnb.records.export(tmp_path / "runs.csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [r["name"] for r in rows] == ["a", "b"]
    assert [r["loss"] for r in rows] == ["1.0", "nan"]
    assert rows[0]["layers"] == "[1, 2]"
    assert rows[1]["lr"] == ""
    table = pq.read_table(tsnb.records.export(tmp_path / "runs.parquet")).to_pylist()
    assert [r["mixed"] for r in table] == ["1", "much"]
    assert table[0]["loss"] == 1.0
    assert isinstance(table[0]["started"], dt.datetime)
    metrics = pq.read_table(tsnb.records.export(tmp_path / "m.parquet", what="metrics")).to_pylist()
    assert [(r["name"], r["step"], r["metric"]) for r in metrics] == [
        ("a", 0, "loss"), ("a", 1, "loss"), ("b", 0, "loss"),
    ]  # fmt: skip
    lines = tsnb.records.export(tmp_path / "m.csv", what="metrics", trial="a").read_text().splitlines()
    assert len(lines) == 3
    assert sorted(os.listdir(tmp_path)) == [".tsnb", "m.csv", "m.parquet", "runs.csv", "runs.parquet"]


def test_export_says_what_it_needs(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ending it knows, a folder that exists, pyarrow for Parquet; the former file stays on any of them."""
    trained("a", [1.0])
    target = tmp_path / "runs.parquet"
    target.write_text("former")
    with pytest.raises(ValueError, match=r"\.csv or \.parquet"):
        tsnb.records.export(tmp_path / "runs.xlsx")
    with pytest.raises(ValueError, match="'metrics'"):
        tsnb.records.export(target, what="everything")
    with pytest.raises(FileNotFoundError, match="Create it first"):
        tsnb.records.export(tmp_path / "no" / "runs.csv")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'tsnb\[results\]'"):
        tsnb.records.export(target)
    assert target.read_text() == "former"


def test_results_come_before_any_number_and_across_processes(project: Path) -> None:
    """A queued run is a row; another process, without torch or the notebook, sees the same."""
    Run.begin(RunStart("waiting", ""))
    assert tsnb.results().loc[0, "state"] == "queued"
    program = (
        "import sys, tsnb\nsys.modules['pandas'] = None\n"
        "rows = tsnb.results()\nassert rows[0]['name'] == 'waiting', rows\nassert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_text_that_a_spreadsheet_would_run_is_made_harmless(
    project: Path, tmp_path: Path, start: str
) -> None:
    """`=HYPERLINK(...)` as a parameter's value or name; numbers below zero stay numbers."""
    trained(
        "a", [-0.5], params={"data": f"{start}HYPERLINK(1)", f"{start}name": -1, "lr": -0.1, "plain": "a-b"}
    )
    with tsnb.records.export(tmp_path / "runs.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["data"] == f"'{start}HYPERLINK(1)"
    assert row[f"'{start}name"] == "-1"
    assert (row["lr"], row["loss"], row["plain"]) == ("-0.1", "-0.5", "a-b")


def test_integers_are_exact_beside_a_gap_or_a_fraction(project: Path) -> None:
    """As floats, which pandas makes of them there, the large ones were other numbers."""
    large = 2**60 + 1
    trained("a", [1.0], params={"id": large, "other": large, "size": 3})
    trained("b", [1.0], params={"id": None, "other": 0.5, "size": None})
    frame = tsnb.results().set_index("name")
    assert (frame.loc["a", "id"], frame.loc["b", "id"]) == (large, None)
    assert (frame.loc["a", "other"], frame.loc["b", "other"]) == (large, 0.5)
    assert frame["size"].dtype == float, "small ones are numbers to compute with"
    assert list(frame["loss"]) == [1.0, 1.0] and frame["loss"].dtype == float


def test_none_is_a_value_of_a_parameter(project: Path) -> None:
    """Trials with `scheduler=None` were left out of the comparison; a parameter that was not given still is."""
    trained("a", [0.5], params={"decay": None})
    trained("b", [0.7], params={"decay": 0.1})
    trained("c", [0.9])
    found = tsnb.results(sort="loss", by="decay")
    assert found["best_trial"].tolist() == ["a", "b"]
    assert found["decay"].isna().tolist() == [True, False]
    with pytest.raises(NoSuchRecord, match="No trial has a parameter 'threads'"):
        tsnb.results(sort="loss", by="threads")


def test_no_two_columns_have_one_name(project: Path, tmp_path: Path) -> None:
    """A file that is read by name would lose one: Parquet did."""
    run = trained("a", [1.0], params={"loss": 2.0, "epochs": 3, "epochs (param)": 4})
    run.add_rows([row(9)._replace(numbers={"loss (logged)": 5.0})])
    frame = tsnb.results()
    assert frame.columns.is_unique
    assert (frame["epochs"] + frame["epochs (param)"] + frame["epochs (param) (param)"]).tolist() == [8]
    assert [frame[name].tolist() for name in ("loss", "loss (logged)", "loss (logged) (logged)")] == [
        [2.0], [1.0], [5.0],
    ]  # fmt: skip


def test_results_as_json_are_strict_json(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A diverged loss is null, as in a report: JSON has no NaN, and most of what reads it fails at that word."""
    trained("a", [math.nan], params={"top": math.inf})
    trained("b", [0.5])
    assert main(["results", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert [(one["loss"], one["top"]) for one in rows] == [(None, None), (0.5, None)]


def test_a_time_of_numpy_is_no_number_among_parameters(project: Path) -> None:
    """Its item() is an integer where it counts nanoseconds."""
    run = trained("a", [1.0], params={"at": np.timedelta64(5, "ns"), "size": np.int64(5)})
    assert run.params["size"] == 5
    assert run.params["at"].endswith("timedelta64(5,'ns')")
