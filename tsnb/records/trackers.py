"""Trials' numbers in the trackers that people have already: TensorBoard, MLflow, trackio, Weights & Biases.

A tracker is asked for by name (`log_to`), checked before anything is started, and opened in the trial's process. It
works on a thread of its own there: a server that does not answer holds up neither the training nor what the
notebook is shown. A tracker that fails is given up with one warning; the project's own records go on.

Each tracker's own class (`TensorBoard`, `MLflow`, `Trackio`, `WeightsAndBiases`) lists its calls, and imports its
package.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from tsnb.errors import ExtraMissing
from tsnb.records.database import alone
from tsnb.records.project import own_place, project_name
from tsnb.records.run import Run
from tsnb.records.writes import LoggedRow
from tsnb.text.words import did_you_mean

__all__ = [
    "BRIDGES",
    "Bridge",
    "MLflow",
    "TensorBoard",
    "Trackio",
    "WeightsAndBiases",
    "check_bridges",
    "open_bridges",
]

BRIDGES = {
    "tensorboard": ("tensorboard", "tsnb[tensorboard]"),
    "mlflow": ("mlflow", "tsnb[mlflow]"),
    "trackio": ("trackio", "tsnb[trackio]"),
    "wandb": ("wandb", "wandb"),
}
"""By name: the package that is imported, and what to install for it."""

WAITING_AT_MOST = 10_000
"""Batches of rows that wait for a tracker: three quarters of an hour of its silence."""

ENDING_S = 30.0
"""How long a tracker may take to store the rest when its trial ends."""

_log = logging.getLogger("tsnb")


class Bridge(Protocol):
    """What carries one run's numbers to one tracker. In the trial's process, one call at a time, in this order."""

    def begin(self, name: str, params: Mapping[str, Any], directory: Path) -> None:
        """Open a run. Called once, first.

        Args:
            name: NAME-NUMBER of the run.
            params: The user's parameters.
            directory: The project's directory, for what a tracker keeps on disk.
        """

    def rows(self, rows: Sequence[LoggedRow]) -> None:
        """Take what was logged since the last time. Called a few times a second."""

    def end(self, state: str) -> None:
        """Close the run: done, failed or stopped. Called once, last, unless the process is killed."""


def check_bridges(names: Sequence[str]) -> None:
    """Check that trackers can be used here. Called before anything is started.

    Args:
        names: "tensorboard", "mlflow", "trackio", "wandb".

    Raises:
        ValueError: tsnb knows no tracker of that name.
        ExtraMissing: Its package is not installed; says how to install it.
    """
    for name in names:
        if name not in BRIDGES:
            hint = did_you_mean(name, BRIDGES)
            raise ValueError(f"tsnb cannot log to {name!r}.{hint} Supported trackers: {', '.join(BRIDGES)}")
        package, install = BRIDGES[name]
        if not _installed(package):
            raise ExtraMissing(
                f"Logging to {name} needs the package {package}, which is not installed here. Install it: pip "
                f"install '{install}'"
            )


def open_bridges(names: Sequence[str], run: Run) -> list[Bridge]:
    """Open a run in each tracker. Called in the trial's process; end each before the process ends.

    Args:
        names: As `check_bridges` takes them; a name given twice counts once.
        run: The run with the name and parameters that they show.

    Returns:
        Bridges that have begun, and that never raise.

    Raises:
        ValueError: tsnb knows no tracker of that name.
        ExtraMissing: Its package is not installed.
    """
    check_bridges(names)
    kinds: dict[str, Callable[[], Bridge]] = {
        "tensorboard": TensorBoard,
        "mlflow": MLflow,
        "trackio": Trackio,
        "wandb": WeightsAndBiases,
    }
    opened: list[Bridge] = []
    for name in dict.fromkeys(names):
        bridge = OwnThread(name, kinds[name])
        bridge.begin(run.label, run.params, run.directory)
        opened.append(bridge)
    return opened


class OwnThread:
    """A bridge that works on a thread of its own, and is given up when it fails. Never raises.

    Args:
        name: The tracker's name in a warning.
        make: Makes the bridge. Called on the calling thread, since it imports the tracker's package: the trial's
            own imports, and the processes that it forks, are not to meet a half-imported one.
    """

    def __init__(self, name: str, make: Callable[[], Bridge]) -> None:
        self._name = name
        self._calls: queue.Queue[tuple[str, tuple[Any, ...]]] = queue.Queue(WAITING_AT_MOST)
        self._given_up = False
        self._thread = threading.Thread(target=self._run, name=f"tsnb-{name}", daemon=True)
        try:
            self._bridge = make()
        except Exception as error:  # noqa: BLE001 (a broken tracker must not end the training)
            self._give_up(f"{type(error).__name__}: {error}")
        else:
            self._thread.start()

    def begin(self, name: str, params: Mapping[str, Any], directory: Path) -> None:
        """Have the run opened."""
        self._put("begin", name, params, directory)

    def rows(self, rows: Sequence[LoggedRow]) -> None:
        """Have rows stored."""
        self._put("rows", list(rows))

    def end(self, state: str) -> None:
        """Have the run closed, and wait for that, 30 s at most."""
        self._put("end", state)
        if self._thread.is_alive():
            self._thread.join(ENDING_S)
            if self._thread.is_alive():
                self._give_up(f"it had not finished {ENDING_S:.0f} s after the trial's end")

    def _put(self, method: str, *arguments: Any) -> None:
        if self._given_up:
            return
        try:
            self._calls.put_nowait((method, arguments))
        except queue.Full:
            self._give_up("it has accepted no data for too long")

    def _run(self) -> None:
        method = ""
        while method != "end" and not self._given_up:
            method, arguments = self._calls.get()
            try:
                getattr(self._bridge, method)(*arguments)
            except Exception as error:  # noqa: BLE001 (see the class)
                self._give_up(f"{type(error).__name__}: {error}")

    def _give_up(self, why: str) -> None:
        if not self._given_up:
            self._given_up = True
            _log.warning(
                "this trial no longer logs to %s: %s. The project's own records continue: "
                "tsnb.records.history() returns everything.",
                self._name,
                why,
            )


def _installed(package: str) -> bool:
    if package in sys.modules:
        return sys.modules[package] is not None
    return find_spec(package) is not None


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
        # its numbers are floats: an integer that none of them is stays as text
        self._params = {
            key: v
            if isinstance(v, bool | float | str) or (isinstance(v, int) and abs(v) <= 2**53)
            else str(v)
            for key, v in params.items()
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
        self._names = _Names()

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
        names = _Names()
        entries = [
            self._mlflow.entities.Param(names[key], str(value)[: self.PARAM_CHARACTERS])
            for key, value in params.items()
        ]
        for first in range(0, len(entries), self.PARAMS_A_CALL):
            self._client.log_batch(self._run, params=entries[first : first + self.PARAMS_A_CALL])

    def rows(self, rows: Sequence[LoggedRow]) -> None:
        """Log them, with the time at which they were logged."""
        metrics = [
            self._mlflow.entities.Metric(self._names[name], value, int(row.time_s * 1000), row.step)
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


class _Names:
    """What MLflow calls names: as it takes them, and no two alike: it would make one history of both.

    Nor is one another's folder, "loss" and "loss/train": to its files each name is a file.
    """

    def __init__(self) -> None:
        self._chosen: dict[str, str] = {}
        self._above: set[str] = set()

    def __getitem__(self, name: str) -> str:
        """Return what a name is called there, the same each time."""
        if name not in self._chosen:
            chosen, fitting, count = _mlflow_name(name), _mlflow_name(name), 1
            taken = {*self._chosen.values()}
            while chosen in taken | self._above or not taken.isdisjoint(_folders_of(chosen)):
                count += 1
                chosen = f"{fitting.replace('/', '.')}_{count}"
            self._above.update(_folders_of(chosen))
            self._chosen[name] = chosen
        return self._chosen[name]


def _folders_of(name: str) -> list[str]:
    return [name[:place] for place, letter in enumerate(name) if letter == "/"]


def _mlflow_name(name: str) -> str:
    """Return a name that MLflow takes: letters, digits, some signs, and a path that names itself."""
    parts = re.sub(r"[^\w\-. :/]", "_", name).split("/")
    return "/".join("_" if part in ("", ".", "..") else part for part in parts)[:240].rstrip("/")


class Trackio:
    """Logs with `trackio`, to where its own variables say, else into its own folder, where `trackio show` looks.

    It stores when it has stored a row, and not when the row was logged. Names that it keeps for itself are marked.
    """

    def __init__(self) -> None:
        import trackio

        self._trackio = trackio
        self._kept = {*getattr(trackio.utils, "RESERVED_KEYS", ())}
        # its files have the modes of the umask; a folder that is there is its user's
        with contextlib.suppress(OSError):
            Path(trackio.utils.TRACKIO_DIR).mkdir(0o700, parents=True)
        self._run: Any = None

    def begin(self, name: str, params: Mapping[str, Any], directory: Path) -> None:
        """Open a run in a project that is called as the project's directory. The machine is tsnb's to measure."""
        self._run = self._trackio.init(
            project=project_name(directory),
            name=name,
            config={f"param {key}" if key.startswith("_") else key: value for key, value in params.items()},
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def rows(self, rows: Sequence[LoggedRow]) -> None:
        """Log them."""
        for row in rows:
            own = {
                f"{name} (logged)"
                if name in self._kept
                else f"logged {name}"
                if name.startswith("__")
                else name: value
                for name, value in row.numbers.items()
            }
            self._run.log(own, step=row.step)

    def end(self, state: str) -> None:
        """Close the run."""
        self._run.finish()


class WeightsAndBiases:
    """Logs with `wandb`: offline, into `.tsnb/wandb`, unless `WANDB_MODE` or `WANDB_API_KEY` is set.

    So no numbers leave the machine unasked, and no trial stops at a question for a login.
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
            own = {"step (logged)" if name == "step" else name: value for name, value in row.numbers.items()}
            self._run.log({**own, "step": row.step})

    def end(self, state: str) -> None:
        """Close the run."""
        self._run.finish(exit_code=0 if state in {"done", "stopped"} else 1)
