"""All trials of this process: a mapping by name that shows as a table, and the table of their results."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import html
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from tsnb.kernels.hub import the_hub
from tsnb.kernels.outlets import Outlet, outlet_here
from tsnb.kernels.plan import TrialPlan
from tsnb.kernels.trial import ENDED, STOP_GRACE_S, NoSuchVariable, Trial

__all__ = ["Board", "NoSuchTrial", "launch", "results", "trials"]

_COLUMNS = ("name", "state", "started", "duration_s", "stream", "epochs", "samples", "samples_per_s")


class Board(Mapping[str, Trial]):
    """The trials of this notebook, by name, in the order of their first start."""

    def __init__(self) -> None:
        self._trials: dict[str, Trial] = {}
        self._lock = threading.Lock()

    def put(self, trial: Trial) -> Trial | None:
        """Enter a trial, and return the one of the same name that it takes the place of."""
        with self._lock:
            former = self._trials.get(trial.name)
            self._trials[trial.name] = trial
            return former

    def __getitem__(self, name: str) -> Trial:
        trial = self._trials.get(name)
        if trial is None:
            near = difflib.get_close_matches(str(name), self._trials, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            there = ", ".join(self._trials) or "none yet (%%trial NAME starts one)"
            raise NoSuchTrial(f"no trial named {name!r}.{hint} Trials here: {there}")
        return trial

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._trials))

    def __len__(self) -> int:
        return len(self._trials)

    @property
    def live(self) -> list[Trial]:
        """Those that have not ended."""
        return [trial for trial in self.values() if trial.state not in ENDED]

    def wait(self, timeout_s: float | None = None) -> Board:
        """Wait until all have ended.

        Raises:
            TrialFailed: One of them failed or was lost (the first in order; the others are waited for too).
            TimeoutError: They have not ended within `timeout_s` seconds.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        failure: Exception | None = None
        for trial in self.values():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                trial.wait(left)
            except TimeoutError:
                raise
            except Exception as error:  # noqa: BLE001 (raised when all have ended)
                failure = failure or error
        if failure is not None:
            raise failure
        return self

    def stop(self) -> None:
        """Stop all of them at once, their kernels too; those that have ended give their memory back."""
        if self:
            the_hub().call(self._end_all())

    async def _end_all(self) -> None:
        await asyncio.gather(*(trial.end(STOP_GRACE_S) for trial in self.values()))

    def __repr__(self) -> str:
        if not self:
            return "no trials yet: %%trial NAME at the top of a cell starts one"
        rows = [[name.replace("_", " ") for name in _SHOWN], *map(_cells, self.values())]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if not self:
            return f"<p>{html.escape(repr(self))}</p>"
        head = "".join(f"<th style='text-align:left'>{name}</th>" for name in _SHOWN)
        rows = "".join(
            "<tr>"
            + "".join(f"<td style='text-align:left'>{html.escape(c)}</td>" for c in _cells(t))
            + "</tr>"
            for t in self.values()
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


class NoSuchTrial(NoSuchVariable):
    """This notebook has no trial of that name."""


_SHOWN = ("trial", "state", "time", "parameters", "last numbers")


def _cells(trial: Trial) -> list[str]:
    name = trial.name if trial.number == 1 else f"{trial.name} (run {trial.number})"
    params = ", ".join(f"{word} {_short(value)}" for word, value in trial.params.items())
    numbers = ", ".join(f"{word} {value:.4g}" for word, value in trial.metrics.items())
    return [name, trial.state, f"{trial.duration_s:.1f} s", params, numbers]


def _short(value: Any) -> str:
    """Return a parameter as a table shows it: what is no number or text by its type."""
    return str(value)[:40] if isinstance(value, (bool, int, float, str)) else type(value).__name__


trials = Board()
"""The trials of this process."""


def launch(plan: TrialPlan, outlet: Outlet | None = None) -> Trial:
    """Start a trial, and return at once. One of the same name is asked to stop and replaced.

    Args:
        plan: What is run, shipped already.
        outlet: Where its output goes; left out: under the running cell, or to the terminal.
    """
    former = trials.get(plan.name)
    number = 1 if former is None else former.number + 1
    trial = Trial(plan, the_hub(), outlet or outlet_here(plan.name), number, launch)
    trial.begin(trials.put(trial))
    return trial


def results() -> Any:
    """Return a table of all trials: one row a trial, its last logged numbers as columns.

    Columns: name, state, started (local time), duration_s, stream, epochs, samples, samples_per_s (nothing
    where it attached to no stream), then one a logged name.

    Returns:
        A pandas DataFrame where pandas is installed, else a list of dictionaries with the same keys.
    """
    rows = [_row(trial) for trial in trials.values()]
    logged = {name: None for trial in trials.values() for name in trial.metrics}
    columns = [*_COLUMNS, *(name for name in logged if name not in _COLUMNS)]
    with contextlib.suppress(ImportError):
        import pandas as pd

        return pd.DataFrame(rows, columns=columns)
    return [{column: row.get(column) for column in columns} for row in rows]


def _row(trial: Trial) -> dict[str, Any]:
    own = {
        "name": trial.name,
        "state": trial.state,
        "started": time.strftime("%H:%M:%S", time.localtime(trial.started_s)),
        "duration_s": round(trial.duration_s, 3),
    }
    return {**trial.metrics, **trial.report, **own}
