"""What a trial kernel does before, after and between its code: called in the child, on its main thread.

The beginning and the end are IPython's own events around the code (`pre_run_cell`, `post_run_cell`), not orders
of the notebook: for a detached trial the notebook may be gone by then, and what it has begun must still be ended.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from tsnb.experiments.in_kernel.cloning import Cloning
from tsnb.experiments.in_kernel.detaching import enter_detached, leave
from tsnb.experiments.in_kernel.keeping import arrived, deliver, keep, let_go, trim
from tsnb.experiments.in_kernel.reporter import (
    tell,
)
from tsnb.experiments.in_kernel.trial_here import TrialHere
from tsnb.experiments.live_values import values_here
from tsnb.experiments.news import (
    RELEASE,
    SET,
    Begun,
    Ended,
    error_of,
    how_it_ended,
    interrupt_behind,
)
from tsnb.experiments.plan import FUNCTION, PARAMETERS, epochs_of
from tsnb.kernels.beside import begin_with_others
from tsnb.kernels.cargo.imported import lacking
from tsnb.kernels.gate import pass_lock
from tsnb.kernels.in_kernel.arrival import arrive, fetch_sent, seed_everything, use_threads
from tsnb.native.endings import raise_again
from tsnb.native.ties import untie
from tsnb.records.run import Run
from tsnb.stream.this_process import this_process
from tsnb.text.masks import remember
from tsnb.text.printable import uncoloured

__all__ = ["begin", "deliver", "enter", "finish", "keep"]

_trials: list[TrialHere] = []

_MAY_BE_SECRET = (str, bytes, dict, list)
"""Variables that are looked at for secrets, so that a traceback does not show them in the records."""


def enter(settings: dict[str, Any], run: Run | None = None) -> None:
    """Get ready for the trial's code. Called once, before it.

    Args:
        settings: What `arrive` takes, the trial's name and options (`plan.TrialOptions.attach`), `changed`, where
            parameters lie that are not as they were shipped, `run`, the handle on its records, `started_s`,
            seconds since 1970 when it was asked for.
        run: The handle on its records, where it is another than `run` of the settings says.
    """
    for name in ("name", "stream", "batch_size", "device", "outside", "in_turn"):
        setattr(this_process, name, settings[name])
    this_process.paused = settings.get("paused", False)
    this_process.threads_fixed = settings["threads"] is not None
    turns = settings["rotation"]
    this_process.rotation = None if turns is None else (turns[0], turns[1], turns[2])
    if settings["gate"]:
        this_process.gate = partial(pass_lock, Path(settings["gate"]))
    elif settings.get("starting"):
        this_process.gate = partial(begin_with_others, Path(settings["starting"]))
    variables = arrive(settings, ("Trial", settings["name"]))
    if settings["changed"] is not None:
        variables.get(PARAMETERS, variables).update(fetch_sent(settings["changed"]))
    this_process.epochs = _planned_epochs(variables)
    remember(os.environ)
    remember({name: value for name, value in variables.items() if type(value) in _MAY_BE_SECRET})
    arrived(vars(sys.modules["__main__"]))
    trial = TrialHere(settings, run)
    trial.begin()
    this_process.standing, this_process.first_batch = trial.stands, trial.attaching
    _trials.append(trial)
    if not settings["setup"]:
        begin()


def _planned_epochs(variables: dict[str, Any]) -> int:
    """Return how many epochs a trial takes, as its parameter or variable `epochs` says; 0: it has none."""
    return epochs_of(variables.get(FUNCTION), variables.get(PARAMETERS, variables)) or 0


def begin() -> None:
    """Look at IPython's cells from now on: the next one is the trial's. Called once, after its set-up cell."""
    from IPython.core.getipython import get_ipython

    settings = _trials[-1].settings
    shell: Any = get_ipython()
    shell.events.register("pre_run_cell", _before_code)
    cloning = Cloning(_trials[-1], settings["name"])
    cloning.answer({SET: values_here().request, RELEASE: _trials[-1].memory.request})
    shell.events.register("post_run_cell", _after_code)
    shell.set_custom_exc((KeyboardInterrupt,), _say_nothing if settings["in_turn"] else _say_where)
    use_threads(settings["threads"] or 1)
    if settings["seed"] is not None:
        seed_everything(settings["seed"])


def _say_nothing(*_: Any, **__: Any) -> None:
    """Take the place of an interrupt's traceback where a sweep stops trials by the dozen.

    IPython needs up to half a second of computing to lay one out: six at once would hold up those that go on.
    """


_cells: list[Any] = []
"""What IPython runs now: the trial's cell, and those that it runs itself (`get_ipython().run_cell`)."""


def _say_where(
    shell: Any, kind: type[BaseException], error: BaseException, where: Any, tb_offset: Any = None
) -> None:
    """Show an interrupt's traceback up to the line of the user's that it met; tsnb's frames below that do not help."""
    own, ours = [], str(Path(__file__).parents[2])
    while where is not None and not where.tb_frame.f_code.co_filename.startswith(ours):
        own.append(where)
        where = where.tb_next
    shown = None
    for part in reversed(own):
        shown = TracebackType(shown, part.tb_frame, part.tb_lasti, part.tb_lineno)
    shell.showtraceback((kind, error, shown), tb_offset=tb_offset)


def _before_code(info: Any) -> None:
    """Say that the code begins, and let a detached trial go. IPython calls it right before the code.

    Until this moment a detached trial's process ends with the notebook, so that one whose code never arrives is not
    left over; from this moment it is on its own: it is found by its entry, and ends itself.
    """
    _cells.append(info)
    try:
        for trial in _trials:
            if not trial.ended and len(_cells) == 1:
                if trial.settings["detach"]:
                    enter_detached(trial.run)
                    untie()
                tell(Begun(trial.versions))
    except KeyboardInterrupt:  # IPython prints what its events raise, and runs the code all the same
        from IPython.core.events import EventManager

        raise_again(KeyboardInterrupt, EventManager.trigger.__code__)


def _after_code(result: Any) -> None:
    """End the trial when its code has. IPython calls it after each cell that is the user's, nested ones too."""
    from IPython.core.getipython import get_ipython

    if _is_nested(None if result is None else result.info):
        get_ipython()._last_traceback = None  # type: ignore[union-attr] # it is not how the trial's own cell ended
        return
    _cells.clear()
    outcome = _outcome(result)
    shell: Any = get_ipython()
    shell.InteractiveTB.tb = None  # the debugger would begin there
    error = error_of(result)
    if hint := lacking(error):
        print(hint, file=sys.stderr)  # noqa: T201 (shown under the cell)
    let_go(error)
    finish(outcome.state, outcome.failure)


def _is_nested(info: Any) -> bool:
    """Return whether a cell that has ended was run by the trial's own, which goes on.

    Args:
        info: What IPython has announced it as; None: it did not get as far. An empty cell is never announced.
    """
    if info is None:
        nested = len(_cells) > 1
        if nested:
            _cells.pop()
        return nested
    known = [index for index, cell in enumerate(_cells) if cell is info]
    if known and known[0]:
        del _cells[known[0] :]
    return bool(_cells) and known != [0]


def _outcome(result: Any) -> Ended:
    """Read how the code ended from IPython's ExecutionResult (None: it did not get as far)."""
    from IPython.core.getipython import get_ipython

    error = interrupt_behind(error_of(result))
    shown = getattr(get_ipython(), "_last_traceback", None) or []
    exits_well = isinstance(error, SystemExit) and error.code in (None, 0)
    if exits_well or (error is None and result is not None and not shown):
        return how_it_ended("")
    raised = "KeyboardInterrupt" if result is None else type(error).__name__
    last = uncoloured(shown).rstrip().rpartition("\n")[2]
    return how_it_ended(raised, last if error is None else f"{raised}: {error}", shown)


def finish(state: str, failure: str = "") -> None:
    """Hand on the last rows, leave every stream, and say how the trial ended. The first call counts.

    Args:
        state: "done", "failed" or "stopped".
        failure: What was raised: one line, then the traceback.
    """
    with _without_interrupts():
        for trial in _trials:
            if not trial.ended:
                trial.end(state, failure)
                if trial.settings["detach"]:
                    leave(failure)
                trim()


class _without_interrupts:  # noqa: N801 (read as a word: `with _without_interrupts():`)
    """Inside it, a stop that comes late does not break what puts things in order."""

    def __enter__(self) -> None:
        self._former: Callable[..., Any] | int | None = signal.signal(signal.SIGINT, signal.SIG_IGN)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._former)
