"""Runs as tests record them, and processes that record."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tsnb.records.run import Run, RunStart
from tsnb.records.writes import LoggedRow

START_S = 1_700_000_000.0


def row(step: int, epoch: int | None = 0, **numbers: float) -> LoggedRow:
    """Return one `tsnb.log`; a step takes a second and eight samples."""
    return LoggedRow(step, epoch, step, step * 8, START_S + step, numbers)


def begun(name: str, sweep: str = "", seed: int | None = None, origin: str = "", **params: Any) -> Run:
    """Begin a run, which this process is."""
    options = {"batch_size": 8}
    run = Run.begin(RunStart(name, "x = 1", params, options, sweep=sweep, origin=origin, seed=seed))
    run.process(os.getpid(), {"torch": "2"})
    return run


def trained(
    name: str,
    values: Sequence[float],
    *,
    sweep: str = "",
    params: Mapping[str, Any] | None = None,
    state: str = "done",
    metric: str = "loss",
    origin: str = "",
) -> Run:
    """Record a run that logged these values (losses, else of `metric`), one a step, and ended."""
    run = begun(name, sweep=sweep, origin=origin, **(params or {}))
    run.add_rows([row(step)._replace(numbers={metric: value}) for step, value in enumerate(values)])
    run.report({"stream": "mnist", "epochs": 1, "samples": 8 * len(values), "samples_per_s": 12.5})
    run.end(state, duration_s=2.0)
    return run


def forked(work: Callable[[], object]) -> int:
    """Do work in a process of its own; return its number. It ends without Python's own ending, as a killed one does."""
    pid = os.fork()
    if pid == 0:
        status = 1
        signal.alarm(60)  # nothing of a failed test stays
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return pid


def killed(pid: int) -> None:
    """Kill a process, and wait until it has gone."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def succeeded(pids: Sequence[int]) -> bool:
    """Wait for processes; tell whether all did their work."""
    statuses = [os.waitpid(pid, 0)[1] for pid in pids]
    return not any(statuses)
