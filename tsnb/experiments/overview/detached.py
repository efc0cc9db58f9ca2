"""Detached trials of other notebooks, found again: followed through the project's records, ended by signals.

Their output is in their log; their variables are gone, because a detached kernel ends with its code.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tsnb.errors import TsnbError
from tsnb.experiments.bookkeeping import asked
from tsnb.experiments.pausing import consumers_in
from tsnb.experiments.plan import TrialOptions, TrialPlan
from tsnb.experiments.running.attempt import Delivery
from tsnb.experiments.running.states import Outcome
from tsnb.experiments.running.trial_life import TrialLife
from tsnb.extensions.live import set_live
from tsnb.kernels.hub import Hub
from tsnb.records.detached_entries import DetachedEntry
from tsnb.records.reading import ENDED, RunRecord
from tsnb.records.run import Run
from tsnb.records.writes import LoggedRow
from tsnb.telemetry.observer import Observer

__all__ = ["FoundLife"]

LOOK_S = 0.5
"""How often the records of a trial that was found are read while it runs."""

GONE_S = 5.0
"""How long a killed process may take to be gone."""


class _Nowhere:
    """An outlet for output that is in a log already."""

    def publish(self, kind: str, content: dict[str, Any]) -> None:
        """Show nothing."""


class FoundLife(TrialLife):
    """The life of a trial that another process has started and left.

    Args:
        entry: Where it was found.
        hub: The hub on whose thread it is followed.
    """

    def __init__(self, entry: DetachedEntry, hub: Hub) -> None:
        run = Run.of(entry.run)
        plan = TrialPlan(run.name, "", {"cargo": None, "changed": None}, {}, TrialOptions(detach=True))
        record = None
        with contextlib.suppress(TsnbError):
            record = run.read()
        first = "running" if record is None or record.state == "paused" else record.state
        super().__init__(plan, hub, _Nowhere(), run, first=first)
        self.entry = entry
        self.log_path = Path(entry.log_path)
        self._position = 0
        self.metrics.add(self._until_now())
        if record is not None:
            self.params, self.options, self.report = record.params, record.options, record.report
            self.started_s, self.states.paused = record.started_s, record.state == "paused"
            self.took_s = record.duration_s if record.state in ENDED else None

    @property
    def pid(self) -> int | None:
        """Its process, while there is one whose number means something here."""
        return self.entry.pid if self.entry.runs_here else None

    async def _go(self) -> Outcome:
        """Follow it to its end."""
        while self.entry.alive:
            record = await self._look()
            if not self.entry.runs_here and record is not None and record.state in ENDED:
                break  # in another container: its records alone tell of its end
            await asyncio.sleep(LOOK_S)
        return outcome_of(await self._look())

    async def _look(self) -> RunRecord | None:
        """Take in the news from the records."""
        with contextlib.suppress(TsnbError):
            rows, self._position = await asked(self._run.rows, self._position)
            if rows:
                self.take_rows(rows)
            record = await asked(self._run.read)
            if record is not None:
                self.report = record.report
                self.changes = record.changes
                self.states.paused = record.state == "paused"
            return record
        return None

    def _until_now(self) -> list[LoggedRow]:
        """Return what it has logged until now. Called once, before it is followed."""
        with contextlib.suppress(TsnbError):
            rows, self._position = self._run.rows(0)
            return rows
        return []

    def require_here(self) -> None:
        """Refuse to signal a process that cannot be seen from here: its number means another one, or nothing.

        Raises:
            TsnbError: It runs in another container, or on another machine.
        """
        if self.entry.alive and not self.entry.runs_here:
            raise TsnbError(
                f"The detached trial {self.entry.name!r} runs in another container or on another machine "
                f"({self.entry.process.host}). Interrupt or stop it there: %trials stop {self.entry.name}"
            )

    def interrupt(self) -> None:
        """Interrupt its code, as Jupyter does."""
        self._signal(signal.SIGINT)

    async def leave(self) -> None:
        """Kill it, with its workers, and wait until it has gone."""
        self._signal(signal.SIGKILL)
        deadline = time.monotonic() + GONE_S
        while self.entry.runs_here and time.monotonic() < deadline:  # noqa: ASYNC110 (there is no event to wait for)
            await asyncio.sleep(0.02)

    def _signal(self, number: int) -> None:
        if self.entry.runs_here:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.entry.pid, number)

    async def set(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Ask it by way of a stream that it takes: its kernel speaks to the notebook that started it only.

        Raises:
            TsnbError: It takes none on this machine, or has not come to its next batch.
        """
        return await asyncio.to_thread(self._set, changes)

    def _set(self, changes: dict[str, Any]) -> dict[str, Any]:
        for stream, consumer in consumers_in(self):
            with contextlib.closing(Observer(stream)) as observer:
                told = set_live(observer, consumer, changes)
            return {"status": "error" if told.kind else "ok", "ename": told.kind, "evalue": told.error}
        raise TsnbError(
            f"Trial {self.entry.name!r} was started by another notebook and reads no stream of this machine "
            "now. Set its live hyperparameters there, while that notebook runs"
        )

    async def deliver(self, variables: Sequence[str], before: Sequence[str]) -> Delivery:
        """Refuse: its kernel speaks to the notebook that started it only.

        Raises:
            TsnbError: Always.
        """
        raise TsnbError(
            f"The variables of the detached trial {self.entry.name!r} of another notebook end with it. To "
            "keep a result, let the trial save it: tsnb.log_artifact(path)"
        )


def outcome_of(record: RunRecord | None) -> Outcome:
    """Return how a run has ended as its records say."""
    if record is None or record.state not in ENDED:
        return Outcome("crashed", "its process has ended, and its records do not show how")
    return Outcome(record.state, record.failure, record.duration_s)
