"""Numbers in other trackers, read back with the trackers' own readers."""

from __future__ import annotations

import logging
import math
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.records.recorded import START_S, begun, forked, row, succeeded
from tsnb.errors import ExtraMissing
from tsnb.records import trackers
from tsnb.records.run import Run
from tsnb.records.trackers import OwnThread, check_bridges, open_bridges
from tsnb.records.writes import LoggedRow


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start with nothing configured, and leave nothing: a bridge tells MLflow by a variable that files are meant."""
    for name in (
        "MLFLOW_TRACKING_URI",
        "MLFLOW_EXPERIMENT_NAME",
        "MLFLOW_ALLOW_FILE_STORE",
        "TSNB_TENSORBOARD_DIR",
    ):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")


def log_to(name: str, run: Run, state: str = "done") -> None:
    """Train a little, as a trial's process does."""
    (bridge,) = open_bridges([name, name], run)
    bridge.rows([row(0, loss=1.0), row(1, loss=0.5, top=math.nan)])
    bridge.rows([row(2, loss=0.25)])
    bridge.end(state)


def events(place: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(place)).Reload()


def hparams(found: Any) -> Any:
    """Return what the HParams tab has of a run's parameters, by name."""
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    summaries = found.SummaryMetadata("_hparams_/session_start_info")
    return HParamsPluginData.FromString(summaries.plugin_data.content).session_start_info.hparams


def test_tensorboard_reads_scalars_and_parameters(project: Path) -> None:
    """Steps, times and values as logged; the parameters in the HParams tab of the same run."""
    run = begun("cnn", lr=0.1, kind=int, fast=True)
    log_to("tensorboard", run)
    found = events(project / "tensorboard" / "cnn-1")
    assert sorted(found.Tags()["scalars"]) == ["loss", "top"]
    assert [(e.step, e.wall_time, e.value) for e in found.Scalars("loss")] == [
        (0, START_S, 1.0), (1, START_S + 1, 0.5), (2, START_S + 2, 0.25),
    ]  # fmt: skip
    assert math.isnan(found.Scalars("top")[0].value)
    params = hparams(found)
    assert params["lr"].number_value == 0.1
    assert params["kind"].string_value == "<class 'int'>"
    assert [p.name for p in (project / "tensorboard").iterdir()] == ["cnn-1"], (
        "no second run for the parameters"
    )


def test_tensorboard_has_integers_that_no_float_is_as_text(project: Path) -> None:
    """One of hundreds of digits had ended the logging; its own are floats."""
    run = begun("cnn", small=3, large=2**60 + 1, huge=10**400)
    log_to("tensorboard", run)
    found = events(project / "tensorboard" / "cnn-1")
    assert [one.value for one in found.Scalars("loss")] == [1.0, 0.5, 0.25]
    params = hparams(found)
    assert params["small"].number_value == 3.0
    assert params["large"].string_value == str(2**60 + 1)
    assert params["huge"].string_value == f"1{'0' * 400}"


def test_tensorboard_sees_rows_before_the_trial_ends(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where it is told to; a killed trial's rows are there as well."""
    monkeypatch.setenv("TSNB_TENSORBOARD_DIR", str(tmp_path / "tb"))
    (bridge,) = open_bridges(["tensorboard"], begun("cnn"))
    bridge.rows([row(0, loss=1.0)])
    for _ in range(200):
        if (
            list((tmp_path / "tb" / "cnn-1").glob("*"))
            and "loss" in events(tmp_path / "tb" / "cnn-1").Tags()["scalars"]
        ):
            break
        threading.Event().wait(0.05)
    else:
        pytest.fail("the row never came")
    bridge.end("stopped")


@pytest.mark.parametrize("tracker", ["tensorboard", "mlflow"])
def test_a_link_where_a_tracker_writes_is_not_followed(
    project: Path, tmp_path: Path, tracker: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Planted while `.tsnb` was open to others: the tracker is given up, and nothing is written elsewhere."""
    run = begun("cnn")
    (tmp_path / "elsewhere").mkdir()
    (project / tracker).symlink_to(tmp_path / "elsewhere")
    log_to(tracker, run)
    assert f"{project / tracker} is a link" in caplog.text
    assert not list((tmp_path / "elsewhere").iterdir())


def test_mlflow_reads_params_metrics_and_the_end(project: Path, tmp_path: Path) -> None:
    """An experiment a project, a run a run; names that MLflow refuses are changed, long values cut."""
    import mlflow

    odd: dict[str, Any] = {"text": "x" * 9000, "odd=name": 1}
    run = begun("cnn", lr=0.1, **odd)
    log_to("mlflow", run)
    log_to("mlflow", begun("wide"), "failed")
    log_to("mlflow", begun("deep"), "stopped")
    client = mlflow.MlflowClient((project / "mlflow").as_uri())
    experiment = client.get_experiment_by_name(tmp_path.name)
    assert experiment is not None
    found = {r.info.run_name: r for r in client.search_runs([experiment.experiment_id])}
    assert {name: r.info.status for name, r in found.items()} == {
        "cnn-1": "FINISHED", "wide-1": "FAILED", "deep-1": "KILLED",
    }  # fmt: skip
    params = found["cnn-1"].data.params
    assert params["lr"] == "0.1"
    assert params["odd_name"] == "1"
    assert len(params["text"]) == 500
    history = client.get_metric_history(found["cnn-1"].info.run_id, "loss")
    assert [(m.step, m.timestamp, m.value) for m in history] == [
        (0, START_S * 1000, 1.0), (1, (START_S + 1) * 1000, 0.5), (2, (START_S + 2) * 1000, 0.25),
    ]  # fmt: skip


def test_mlflow_has_every_name_and_no_two_as_one(project: Path) -> None:
    """One that it refuses had ended the logging of all; "acc@1" and "acc_1" were one history."""
    import mlflow

    names = [
        "/x", "a//b", "..", "", "c/../d", "n" * 300, "acc@1", "acc_1", "loss", "loss/a", "top/one/two",
        "top", "top/one",
    ]  # fmt: skip
    odd: dict[str, Any] = {name: place for place, name in enumerate(names)}
    run = begun("cnn", **odd)
    (bridge,) = open_bridges(["mlflow"], run)
    for step in range(2):
        bridge.rows([row(step)._replace(numbers={name: float(place) for name, place in odd.items()})])
    bridge.end("done")
    client = mlflow.MlflowClient((project / "mlflow").as_uri())
    (found,) = client.search_runs([one.experiment_id for one in client.search_experiments()])
    assert sorted(found.data.metrics.values()) == sorted(odd.values())
    assert sorted(map(int, found.data.params.values())) == sorted(odd.values())
    assert {"_/x", "a/_/b", "acc_1", "loss", "loss.a_2", "top/one/two"} <= {*found.data.metrics}
    for name in found.data.metrics:
        assert len(client.get_metric_history(found.info.run_id, name)) == 2, name


def test_mlflow_logs_where_its_own_variables_say(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials that start together make one experiment, not one each."""
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mine").as_uri())
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "together")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    runs = [begun(f"t{number}") for number in range(4)]
    assert succeeded([forked(lambda run=run: log_to("mlflow", run)) for run in runs])  # type: ignore[misc]
    client = mlflow.MlflowClient((tmp_path / "mine").as_uri())
    (experiment,) = [e for e in client.search_experiments() if e.name == "together"]
    assert len(client.search_runs([experiment.experiment_id])) == 4
    assert not (project / "mlflow").exists()


def trackio_rows(project: str, run: str) -> list[dict[str, Any]]:
    """Return a run's rows as trackio's dashboard reads them."""
    from trackio.sqlite_storage import SQLiteStorage

    return list(SQLiteStorage.get_logs(project, run))


def test_trackio_reads_rows_parameters_and_odd_names(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps and values as logged, by its own reader; names that it keeps for itself end nothing and hide nothing."""
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "store"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def logged() -> None:
        log_to("trackio", begun("cnn", lr=0.1, _depth=3, kind=int))
        (bridge,) = open_bridges(["trackio"], begun("odd"))
        odd = {"step": 7.0, "time": 8.0, "__x": 9.0, "inf": math.inf}
        bridge.rows([row(5)._replace(numbers=odd)])
        bridge.end("failed")

    assert succeeded([forked(logged)])

    def read() -> None:
        import trackio

        runs = {run.name: run for run in trackio.Api().runs(tmp_path.name)}
        assert runs.keys() == {"cnn-1", "odd-1"}
        rows = trackio_rows(tmp_path.name, "cnn-1")
        assert [(one["step"], one["loss"]) for one in rows] == [(0, 1.0), (1, 0.5), (2, 0.25)]
        assert [math.isnan(one["top"]) for one in rows if "top" in one] == [True]
        config = runs["cnn-1"].config or {}
        assert (config["lr"], config["param _depth"], config["kind"]) == (0.1, 3, "<class 'int'>")
        (only,) = trackio_rows(tmp_path.name, "odd-1")
        assert only["step"] == 5
        assert (only["step (logged)"], only["time (logged)"], only["logged __x"]) == (7.0, 8.0, 9.0)
        assert only["inf"] == math.inf

    assert succeeded([forked(read)]), "trackio takes its folder when it is imported: in a process of its own"
    assert not (project / "trackio").exists()
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700, "its files are for everybody"


def test_trackio_takes_trials_that_log_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them write to one file of trackio's at the same time."""
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "store"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))
    runs = [begun(f"trial{k}") for k in range(4)]
    assert succeeded([forked(lambda run=run: log_to("trackio", run)) for run in runs])  # type: ignore[misc]

    def read() -> None:
        import trackio

        found = {run.name: trackio_rows(tmp_path.name, run.name) for run in trackio.Api().runs(tmp_path.name)}
        assert found.keys() == {f"trial{k}-1" for k in range(4)}
        assert all([one["loss"] for one in rows] == [1.0, 0.5, 0.25] for rows in found.values())

    assert succeeded([forked(read)])


def test_a_tracker_that_is_not_installed_names_what_to_install(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything starts; W&B is not among our extras and is asked for by its own name."""
    with pytest.raises(ExtraMissing, match="pip install 'wandb'"):
        check_bridges(["wandb"])
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'tsnb\[tensorboard\]'"):
        open_bridges(["tensorboard"], begun("cnn"))
    with pytest.raises(ValueError, match=r"Did you mean 'mlflow'\?.*tensorboard, mlflow, trackio, wandb"):
        check_bridges(["mlfow"])
    check_bridges(["mlflow"])


class Slow:
    """A tracker whose server does not answer, until it is told to, or fails."""

    def __init__(self, fails: bool = False) -> None:
        self.answers = threading.Event()
        self.took: list[str] = []
        self.fails = fails

    def begin(self, name: str, params: Mapping[str, Any], directory: Path) -> None:
        self.answers.wait(60)
        self.took.append("begin")

    def rows(self, rows: Sequence[LoggedRow]) -> None:
        if self.fails:
            raise ConnectionError("no route")
        self.took.append(f"rows {len(rows)}")

    def end(self, state: str) -> None:
        self.took.append(f"end {state}")


def test_a_tracker_that_does_not_answer_holds_up_nothing(project: Path) -> None:
    """Rows wait for it, in order; the trial waits at its end only."""
    slow = Slow()
    bridge = OwnThread("slow", lambda: slow)
    bridge.begin("cnn-1", {}, project)
    for _ in range(100):
        bridge.rows([row(0, loss=1.0)])
    assert slow.took == []
    slow.answers.set()
    bridge.end("done")
    assert slow.took == ["begin", *["rows 1"] * 100, "end done"]


def test_a_tracker_that_never_answers_is_given_up(
    project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What waits for it has a limit, and so has the trial's end; one warning each way."""
    monkeypatch.setattr(trackers, "WAITING_AT_MOST", 10)
    monkeypatch.setattr(trackers, "ENDING_S", 0.05)
    slow = Slow()
    with caplog.at_level(logging.WARNING, "tsnb"):
        bridge = OwnThread("slow", lambda: slow)
        bridge.begin("cnn-1", {}, project)
        for _ in range(100):
            bridge.rows([row(0, loss=1.0)])
        bridge.end("done")
    assert len(caplog.records) == 1
    assert "tsnb.records.history() returns everything" in caplog.records[0].getMessage()
    slow.answers.set()


@pytest.mark.parametrize("when", ["at its start", "later"])
def test_a_tracker_that_fails_is_given_up_with_one_warning(
    project: Path, caplog: pytest.LogCaptureFixture, when: str
) -> None:
    """Whatever it raises, the trial goes on."""
    broken = Slow(fails=True)
    broken.answers.set()
    bridge = OwnThread("broken", (lambda: 1 / 0) if when == "at its start" else (lambda: broken))  # type: ignore[arg-type,return-value]
    bridge.begin("cnn-1", {}, project)
    for _ in range(3):
        bridge.rows([row(0, loss=1.0)])
    bridge.end("done")
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
