"""The numbers that a trial has logged, as its notebook sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tsnb.records.rows import LoggedRow

__all__ = ["Metrics", "read_rows"]


class Metrics(Mapping[str, float]):
    """A trial's logged numbers: the last value of each by its name, and all of them by step or epoch.

    Rows are added on the hub's thread; any other may read.
    """

    def __init__(self, rows: Sequence[LoggedRow] = ()) -> None:
        self._rows: list[LoggedRow] = []
        self._last: dict[str, float] = {}
        self.add(rows)

    def add(self, rows: Sequence[LoggedRow]) -> None:
        """Take rows, in the order in which they were logged."""
        last = dict(self._last)
        for row in rows:
            last.update(row.numbers)
        self._rows.extend(rows)
        self._last = last  # exchanged as a whole: another thread may be iterating over the former

    @property
    def rows(self) -> list[LoggedRow]:
        """Every `tsnb.log` of the trial, in order."""
        return list(self._rows)

    def by_step(self, metric: str) -> dict[int, float]:
        """Return a number's values by the step they were logged for; of several at one step the last.

        Args:
            metric: Its name, as in `tsnb.log(loss=...)`.
        """
        return {row.step: row.numbers[metric] for row in self.rows if metric in row.numbers}

    def by_epoch(self, metric: str) -> dict[int, float]:
        """Return a number's last value in each epoch of the stream, from 0.

        Args:
            metric: Its name. What was logged before the first batch belongs to no epoch and is left out.
        """
        return {
            row.epoch: row.numbers[metric]
            for row in self.rows
            if metric in row.numbers and row.epoch is not None
        }

    def __getitem__(self, metric: str) -> float:
        return self._last[metric]

    def __iter__(self) -> Iterator[str]:
        return iter(self._last)

    def __len__(self) -> int:
        return len(self._last)

    def __repr__(self) -> str:
        return repr(self._last)


def read_rows(sent: Sequence[Sequence[Any]]) -> list[LoggedRow]:
    """Return rows as a trial's kernel has published them; nan and inf came as text."""
    return [LoggedRow._make([*row, {k: float(v) for k, v in told.items()}]) for *row, told in sent]
