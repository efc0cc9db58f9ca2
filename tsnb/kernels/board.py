"""All trials of this process: a mapping by name that shows as a table."""

from __future__ import annotations

import asyncio
import difflib
import html
import threading
import time
from collections.abc import Iterator, Mapping

from tsnb.kernels.hub import the_hub
from tsnb.kernels.trial import ENDED, STOP_GRACE_S, NoSuchVariable, Trial

__all__ = ["Board", "trials"]


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


_SHOWN = ("trial", "state", "time", "last numbers")


def _cells(trial: Trial) -> list[str]:
    numbers = ", ".join(f"{name} {value:.4g}" for name, value in trial.metrics.items())
    return [trial.name, trial.state, f"{trial.duration_s:.1f} s", numbers]


trials = Board()
"""The trials of this process."""
