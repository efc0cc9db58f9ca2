"""What each tracker is told, in its own words. Imported where one was asked for; each imports its own package only."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tsnb.records.database import alone
from tsnb.records.project import own_place, project_name
from tsnb.records.rows import LoggedRow

__all__ = ["MLflow", "TensorBoard", "WeightsAndBiases"]


class TensorBoard:
    """Writes event files to `.tsnb/tensorboard/NAME-NUMBER`, or below `$TSNB_TENSORBOARD_DIR`.

    Each name is a scalar; the parameters stand in the HParams tab, with the names of the first row as its metrics.
    """

    def __init__(self) -> None:
        from torch.utils import tensorboard

        self._tensorboard = tensorboard
        self._writer: Any = None
        self._params: dict[str, Any] = {}
        self._closing: Any = None

    def begin(self, name: str, params: Mapping[str, Any], directory: Path) -> None:
        """Open the event file."""
        chosen = os.environ.get("TSNB_TENSORBOARD_DIR")
        place = Path(chosen) / name if chosen else own_place(directory, "tensorboard", name)
        self._writer = self._tensorboard.SummaryWriter(str(place))
        self._params = {
            key: v if isinstance(v, bool | int | float | str) else str(v) for key, v in params.items()
        }

    def rows(self, rows: Sequence[LoggedRow]) -> None:
        """Write them, so that TensorBoard sees them at once."""
        if self._closing is None and rows:
            self._declare(rows[0].numbers)
        for row in rows:
            for name, value in row.numbers.items():
                self._writer.add_scalar(name, value, row.step, row.time_s)
        self._writer.flush()

    def end(self, state: str) -> None:
        """Close the event file."""
        if self._closing is None:
            self._declare({})
        if state == "done":
            self._writer.file_writer.add_summary(self._closing)
        self._writer.close()

    def _declare(self, numbers: Mapping[str, float]) -> None:
        """Write the parameters. Not `add_hparams`: that makes a second run of them."""
        from torch.utils.tensorboard import summary

        written: Any = summary  # annotated in part only
        experiment, opening, self._closing = written.hparams(self._params, dict(numbers))
        self._writer.file_writer.add_summary(experiment)
        self._writer.file_writer.add_summary(opening)


class MLflow:
    """Logs to where `MLFLOW_TRACKING_URI` says, else to files in `.tsnb/mlflow`; an experiment a project.

    `MLFLOW_EXPERIMENT_NAME` counts as in MLflow; else the experiment is called as the project's directory.
    """

    METRICS_A_CALL = 1000
    PARAMS_A_CALL = 100
    PARAM_CHARACTERS = 500
    """Limits of MLflow's servers, of the older ones for the characters."""
    STATES = {"done": "FINISHED", "stopped": "KILLED"}  # noqa: RUF012 (a constant)

    def __init__(self) -> None:
        import mlflow
        import mlflow.entities

        self._mlflow = mlflow
        self._client: Any = None
        self._run = ""

    def begin(self, name: str, params: Mapping[str, Any], directory: Path) -> None:
        """Open a run in the project's experiment."""
        own = ""
        if not os.environ.get("MLFLOW_TRACKING_URI"):
            own = own_place(directory, "mlflow").as_uri()
            # MLflow 3 wants to be told that files are meant; a database would have to be set up by each trial
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        self._client = self._mlflow.MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or own)
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or project_name(directory)
        self._run = self._client.create_run(
            self._experiment(experiment, directory), run_name=name
        ).info.run_id
        entries = [
            self._mlflow.entities.Param(_mlflow_name(key), str(value)[: self.PARAM_CHARACTERS])
            for key, value in params.items()
        ]
        for first in range(0, len(entries), self.PARAMS_A_CALL):
            self._client.log_batch(self._run, params=entries[first : first + self.PARAMS_A_CALL])

    def rows(self, rows: Sequence[LoggedRow]) -> None:
        """Log them, with the time at which they were logged."""
        metrics = [
            self._mlflow.entities.Metric(_mlflow_name(name), value, int(row.time_s * 1000), row.step)
            for row in rows
            for name, value in row.numbers.items()
        ]
        for first in range(0, len(metrics), self.METRICS_A_CALL):
            self._client.log_batch(self._run, metrics=metrics[first : first + self.METRICS_A_CALL])

    def end(self, state: str) -> None:
        """Say how it ended."""
        self._client.set_terminated(self._run, self.STATES.get(state, "FAILED"), int(time.time() * 1000))

    def _experiment(self, name: str, directory: Path) -> str:
        # one at a time: trials that start together would each make an experiment of that name
        with alone(directory):
            found = self._client.get_experiment_by_name(name)
            return str(found.experiment_id if found else self._client.create_experiment(name))


def _mlflow_name(name: str) -> str:
    """Return a name that MLflow takes: letters, digits, and some signs."""
    return re.sub(r"[^\w\-. :/]", "_", name)


class WeightsAndBiases:
    """Logs with `wandb`: offline, into `.tsnb/wandb`, unless `WANDB_MODE` or `WANDB_API_KEY` is set.

    So nobody's numbers leave the machine unasked, and no trial stops at a question for a login.
    """

    def __init__(self) -> None:
        import wandb

        self._wandb = wandb
        self._run: Any = None

    def begin(self, name: str, params: Mapping[str, Any], directory: Path) -> None:
        """Open a run in the project `WANDB_PROJECT`, else in one called as the project's directory."""
        online = os.environ.get("WANDB_API_KEY")
        place = own_place(directory, "wandb")
        self._run = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT") or project_name(directory),
            name=name,
            config=dict(params),
            dir=str(place),
            mode=os.environ.get("WANDB_MODE") or ("online" if online else "offline"),
        )
        # W&B's own step has to grow with every call; ours need not
        self._run.define_metric("*", step_metric="step")

    def rows(self, rows: Sequence[LoggedRow]) -> None:
        """Log them."""
        for row in rows:
            self._run.log({**row.numbers, "step": row.step})

    def end(self, state: str) -> None:
        """Close the run."""
        self._run.finish(exit_code=0 if state in {"done", "stopped"} else 1)
