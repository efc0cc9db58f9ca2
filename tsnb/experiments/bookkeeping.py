"""What the launching process keeps of a trial: the numbers that it has logged, and its own part of the run's records.

Records are written beside the hub's thread: a slow disk holds up no output.
"""

from __future__ import annotations

import asyncio
import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from tsnb.config import is_profiled
from tsnb.discovery import registry
from tsnb.experiments.plan import TrialPlan
from tsnb.kernels.hub import the_hub
from tsnb.records.commits import commit_here, look
from tsnb.records.run import Run, RunStart
from tsnb.records.writes import LoggedRow, Parent

__all__ = ["LoggedNumbers", "asked", "begin_run", "noted", "written"]


class LoggedNumbers(Mapping[str, float]):
    """A trial's logged numbers: the last value of each by its name, and all of them by step or epoch.

    Rows are added on the hub's thread; any other may read.

    A row lies in three arrays: its place (five numbers, nan for None), which names it has, and their values. That takes
    a tenth of the memory of objects: a notebook keeps the numbers of every trial until it ends.
    """

    def __init__(self) -> None:
        self._places = array("d")
        self._values = array("d")
        self._kinds = array("L")
        self._names: list[tuple[str, ...]] = []
        self._kind_of: dict[tuple[str, ...], int] = {}
        self._last: dict[str, float] = {}

    def add(self, rows: Sequence[LoggedRow]) -> None:
        """Take rows, in the order in which they were logged."""
        last = dict(self._last)
        for *place, numbers, stream_epoch in rows:
            last.update(numbers)
            names = tuple(numbers)
            kind = self._kind_of.get(names)
            if kind is None:
                self._names.append(names)
                kind = self._kind_of[names] = len(self._names) - 1
            self._places.extend(math.nan if n is None else n for n in (*place, stream_epoch))
            self._values.extend(numbers.values())
            self._kinds.append(kind)  # last: a reader in another thread takes rows that are whole
        self._last = last  # exchanged as a whole: another thread may be iterating over the former

    def cut(self, count: int) -> None:
        """Forget all rows behind the first `count`: the trial logs them again."""
        if count >= len(self._kinds):
            return
        there = self.rows[:count]
        for held in (self._places, self._values, self._kinds):
            del held[:]
        self._last = {}
        self.add(there)

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self._kinds)

    @property
    def rows(self) -> list[LoggedRow]:
        """Every `tsnb.log` of the trial, in order."""
        return list(self._each())

    def _each(self) -> Iterator[LoggedRow]:
        at = 0
        for number in range(len(self._kinds)):
            names = self._names[self._kinds[number]]
            values = self._values[at : at + len(names)]
            at += len(names)
            step, epoch, batch, samples, time_s, given = self._places[6 * number : 6 * number + 6]
            numbers = dict(zip(names, values, strict=True))
            place = int(step), _whole(epoch), _whole(batch), int(samples), time_s
            yield LoggedRow(*place, numbers, _whole(given))

    def by_step(self, metric: str) -> dict[int, float]:
        """Return a number's values by the step they were logged for; of several at one step the last.

        Args:
            metric: Its name, as in `tsnb.log(loss=...)`.
        """
        return {row.step: row.numbers[metric] for row in self._each() if metric in row.numbers}

    def by_epoch(self, metric: str) -> dict[int, float]:
        """Return a number's last value in each of the trial's epochs, from 1.

        Args:
            metric: Its name. What was logged before the first batch belongs to no epoch and is left out.
        """
        return {
            row.epoch: row.numbers[metric]
            for row in self._each()
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


def _whole(number: float) -> int | None:
    return None if math.isnan(number) else int(number)


T = TypeVar("T")


def begin_run(plan: TrialPlan, parent: Parent | None = None) -> Run:
    """Enter a run of a trial in the project's records, as queued; not where it is only profiled for a plan.

    Args:
        plan: What is run.
        parent: Which trial it is a clone of.
    """
    if is_profiled(plan.name):
        return Run.unrecorded(plan.name, the_hub().new_path("profiled"))
    options = plan.options
    start = RunStart(
        plan.name,
        plan.text,
        params=plan.params,
        options=options.given,
        sweep=options.sweep,
        origin=registry.describe_origin(),
        seed=plan.seed,
        git=commit_here(),
        parent=parent,
    )
    run = Run.begin(start)
    if start.git:
        look(run.committed)
    return run


async def asked(method: Callable[..., T], *arguments: Any) -> T:
    """Have one of a run's methods called on the thread that writes, and return what it returns."""
    try:
        work = the_hub().pen.submit(method, *arguments)
    except RuntimeError:  # the interpreter is ending: no thread takes work any more
        return method(*arguments)
    return await asyncio.wrap_future(work)


async def written(method: Callable[..., None], *arguments: Any) -> None:
    """Have something written down, and wait for it; the methods of a run never raise."""
    await asked(method, *arguments)


def noted(method: Callable[..., None], *arguments: Any) -> None:
    """Have something written down behind all that is to be written already; wait for nothing."""
    try:
        the_hub().pen.submit(method, *arguments)
    except RuntimeError:  # as above
        method(*arguments)
