"""The launching process's part of a run's records, written beside the hub's thread: a slow disk holds up no output."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from tsnb import registry
from tsnb.experiments.plan import TrialPlan
from tsnb.records.commits import commit_here, look
from tsnb.records.run import Run, RunStart

__all__ = ["asked", "begin_run", "noted", "written"]

T = TypeVar("T")

_pen = ThreadPoolExecutor(1, "tsnb-records")  # one: what is written of a run stays in order


def begin_run(plan: TrialPlan) -> Run:
    """Enter a run of a trial in the project's records, as queued."""
    options = plan.options
    start = RunStart(
        plan.name,
        plan.text,
        params=plan.params,
        options=options.given,
        sweep=options.sweep,
        origin=registry.describe_origin(),
        seed=options.seed,
        git=commit_here(),
    )
    run = Run.begin(start)
    if start.git:
        look(run.committed)
    return run


async def asked(method: Callable[..., T], *arguments: Any) -> T:
    """Have one of a run's methods called on the thread that writes, and return what it returns."""
    try:
        work = _pen.submit(method, *arguments)
    except RuntimeError:  # the interpreter is ending: no thread takes work any more
        return method(*arguments)
    return await asyncio.wrap_future(work)


async def written(method: Callable[..., None], *arguments: Any) -> None:
    """Have something written down, and wait for it; the methods of a run never raise."""
    await asked(method, *arguments)


def noted(method: Callable[..., None], *arguments: Any) -> None:
    """Have something written down behind all that is to be written already; wait for nothing."""
    try:
        _pen.submit(method, *arguments)
    except RuntimeError:  # as above
        method(*arguments)
