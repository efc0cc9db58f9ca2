"""Trials' numbers in the trackers that people have already: TensorBoard, MLflow, Weights & Biases.

A tracker is asked for by name (`log_to`), checked before anything is started, and opened in the trial's process. It
works on a thread of its own there: a server that does not answer holds up neither the training nor what the
notebook is shown. A tracker that fails is given up with one warning; the project's own records go on.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from tsnb.errors import ExtraMissing
from tsnb.records.rows import LoggedRow
from tsnb.records.run import Run
from tsnb.words import did_you_mean

__all__ = ["BRIDGES", "Bridge", "check_bridges", "open_bridges"]

BRIDGES = {
    "tensorboard": ("tensorboard", "tsnb[tensorboard]"),
    "mlflow": ("mlflow", "tsnb[mlflow]"),
    "wandb": ("wandb", "wandb"),
}
"""By name: the package that is imported, and what to install for it."""

WAITING_AT_MOST = 10_000
"""Batches of rows that wait for a tracker: three quarters of an hour of its silence."""

ENDING_S = 30.0
"""How long a tracker may take to store what is left when its trial ends."""

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
        names: "tensorboard", "mlflow", "wandb".

    Raises:
        ValueError: tsnb knows no tracker of that name.
        ExtraMissing: Its package is not installed; says how to install it.
    """
    for name in names:
        if name not in BRIDGES:
            hint = did_you_mean(name, BRIDGES)
            raise ValueError(f"tsnb cannot log to {name!r}.{hint} It can log to: {', '.join(BRIDGES)}")
        package, install = BRIDGES[name]
        if not _installed(package):
            raise ExtraMissing(
                f"logging to {name} needs the package {package}, which is not installed here. "
                f"Install it: pip install '{install}'"
            )


def open_bridges(names: Sequence[str], run: Run) -> list[Bridge]:
    """Open a run in each tracker. Called in the trial's process; end each before the process ends.

    Args:
        names: As `check_bridges` takes them; a name given twice counts once.
        run: The run whose name and parameters they show.

    Returns:
        Bridges that have begun, and that never raise.

    Raises:
        ValueError: tsnb knows no tracker of that name.
        ExtraMissing: Its package is not installed.
    """
    check_bridges(names)
    from tsnb.records import trackers

    kinds: dict[str, Callable[[], Bridge]] = {
        "tensorboard": trackers.TensorBoard,
        "mlflow": trackers.MLflow,
        "wandb": trackers.WeightsAndBiases,
    }
    opened: list[Bridge] = []
    for name in dict.fromkeys(names):
        bridge = Apart(name, kinds[name])
        bridge.begin(run.label, run.params, run.directory)
        opened.append(bridge)
    return opened


class Apart:
    """A bridge that works on a thread of its own, and is given up when it fails. Never raises.

    Args:
        name: What the tracker is called in a warning.
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
        except Exception as error:  # noqa: BLE001 (a broken tracker is no reason to train nothing)
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
                self._give_up(f"it was not done {ENDING_S:.0f} s after the trial's end")

    def _put(self, method: str, *arguments: Any) -> None:
        if self._given_up:
            return
        try:
            self._calls.put_nowait((method, arguments))
        except queue.Full:
            self._give_up("it has taken nothing for too long")

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
                "this trial logs to %s no longer: %s. The project's own records go on: tsnb.history() has it all.",
                self._name,
                why,
            )


def _installed(package: str) -> bool:
    if package in sys.modules:
        return sys.modules[package] is not None
    return find_spec(package) is not None
