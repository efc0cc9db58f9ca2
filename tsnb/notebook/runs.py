"""What `%%trial`, `%%sweep` and `%trials` do."""

from __future__ import annotations

import contextlib
import os
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from tsnb.duels.grammar import asked
from tsnb.errors import TsnbError
from tsnb.experiments.cells import run_cell, set_up
from tsnb.experiments.overview.board import NoSuchTrial, stop_together, trials
from tsnb.experiments.pausing import pause_trials
from tsnb.experiments.plan import TrialOptions
from tsnb.experiments.trial import ENDED, Trial
from tsnb.experiments.verbs import VERBS
from tsnb.hosting.serving import producer_kernels
from tsnb.kernels.cargo.capture import loops_over
from tsnb.options import typed
from tsnb.records.run import Run
from tsnb.records.selection import LOG_END, log_of
from tsnb.sweeps.settled import CellCode
from tsnb.sweeps.space_grammar import read_rule
from tsnb.sweeps.starting import rule_of, swept
from tsnb.sweeps.sweep import Sweep, find, known, live, waiting_in
from tsnb.text.printable import coloured
from tsnb.text.words import is_now

if TYPE_CHECKING:
    from tsnb.duels.result import Duel
    from tsnb.experiments.running.trial_life import TrialLife
    from tsnb.panel import Panel

__all__ = ["clear", "logs", "run", "run_sweep", "steer", "steer_shown", "wait"]


def run(shell: Any, given: Namespace, cell: str) -> Duel | None:
    """Start a trial from a cell; with `--wait`, wait for its end. Return the duel that it is to be compared in, if any.

    Raises:
        TrialFailed: It was waited for, and failed.
        Exception: As `run_cell` raises.
    """
    if given.setup:
        _set_up(shell, given, cell)
        return None
    compared = asked(given)
    if given.against is not None:
        return _run_duel(shell, given, cell, compared)
    if compared:
        raise ValueError(
            f"--{next(iter(compared)).replace('_', '-')} is for a duel. Add --against OTHER, or leave it out."
        )
    trial = run_cell(
        given.name,
        cell,
        shell.user_ns,
        transform=shell.transform_cell,
        also=given.with_,
        check=given.check,
        **typed(given, TrialOptions),
    )
    hint = _served_loader(shell.transform_cell(cell), shell.user_ns)
    if hint:
        print(hint)  # noqa: T201 (shown under the cell)
    if given.wait:
        trial.wait()
    return None


def _run_duel(shell: Any, given: Namespace, cell: str, compared: Mapping[str, Any]) -> Duel:
    """Compare a cell with the code of a trial.

    Raises:
        ValueError: No metric is given.
        Exception: As `duel_cell` raises.
    """
    if given.metric is None:
        raise ValueError(
            "--against needs the logged number to compare. Add --metric, for example --metric val_loss."
        )
    from tsnb.duels.starting import duel_cell  # numpy: no notebook waits for it before it needs it

    duel = duel_cell(
        given.name,
        cell,
        shell.user_ns,
        trials[given.against],
        transform=shell.transform_cell,
        also=given.with_,
        options=typed(given, TrialOptions),
        **compared,
    )
    return duel.wait() if given.wait else duel


def _set_up(shell: Any, given: Namespace, cell: str) -> None:
    """Take a cell that all trials run first, and say so.

    Raises:
        ValueError: A trial is named, too.
        Exception: As `set_up` raises.
    """
    if given.name is not None:
        raise ValueError("--setup takes no name, because its cell runs first in every trial. Remove the name")
    there = set_up(cell, shell.user_ns, shell.transform_cell)
    said = "run this cell first. To end that, run an empty %%trial --setup" if there else "run no set-up cell"
    print(f"trials that start from now on {said}")  # noqa: T201 (shown under the cell)


def _served_loader(source: str, variables: dict[str, Any]) -> str:
    """Return a hint where a cell loops over a loader that is served: it takes a copy of its own along."""
    kernels = producer_kernels.values()
    names = {word: k.name for word, value in variables.items() for k in kernels if k.serves(value)}
    for name in loops_over(source, names):
        return (
            f"note: this trial loops over its own copy of {name!r}, which is served as {names[name]!r}. "
            f"To share the stream: for batch in tsnb.attach(stream={names[name]!r})"
        )
    return ""


def steer(verb: str, names: Sequence[str], given: Namespace) -> Any:
    """Do to trials and sweeps what a verb of `%trials` says; return the message to print, or the table.

    Args:
        verb: One of `VERBS` that has a magic.
        names: Those that are meant; none: all of this notebook's own.
        given: What stands behind them.

    Raises:
        Exception: As the trial's method raises.
    """
    if VERBS[verb].acts_on == "one":
        return _steer_one(verb, given)
    if not names and verb == "stop":
        trials.stop()
        return trials
    if verb == "interrupt":
        for trial in [_trial(name) for name in dict.fromkeys(names)]:
            trial.interrupt()
        return trials
    sweeps, single = _meant(names)
    for sweep in sweeps:
        VERBS[verb].do(cast("Trial", sweep), vars(given))  # it has the method too
    if verb == "stop":
        stop_together(single, by="by %trials stop")
    elif single or not names:
        meant = [trial.life for trial in single] if names else _running()
        pause_trials(meant, on=verb == "pause", release=getattr(given, "release", False))
    return trials


def _steer_one(verb: str, given: Namespace) -> str:
    name, arguments = given.name, {**vars(given), "changes": dict(getattr(given, "changes", ()))}
    if verb == "set":
        sweeps, single = _meant([name])
        for one in [*sweeps, *single]:
            VERBS[verb].do(cast("Trial", one), arguments)
        new = ", ".join(f"{value}={to!r}" for value, to in arguments["changes"].items())
        return f"{name}: {new} from the next batch on"
    made: Trial = VERBS[verb].do(trials[name], arguments)
    if verb == "rerun":
        return f"trial {made.name!r}: run {made.number}, from the code and variables of {name!r}"
    if verb == "extend":
        return f"trial {made.name!r} continues for {given.epochs} more epochs"
    return f"trial {made.name!r} is {made.parent}"


def _running() -> list[TrialLife]:
    return [trial.life for trial in trials.own if trial.life.state == "running"]


def _meant(names: Iterable[str]) -> tuple[list[Sweep], list[Trial]]:
    """Return the sweeps and the trials of some names, each once.

    Raises:
        NoSuchTrial: There is neither of one of them; lists both.
    """
    sweeps: list[Sweep] = []
    single: list[Trial] = []
    for name in dict.fromkeys(names):
        sweep = None if name in trials else find(name)
        if sweep is None:
            single.append(_trial(name))
        else:
            sweeps.append(sweep)
    return sweeps, single


def _trial(name: str) -> Trial:
    try:
        return trials[name]
    except NoSuchTrial as error:
        here = [one for one in known() if not one.over or any(trial in trials for trial in one.params)]
        there = ", ".join(sweep.name for sweep in here)
        raise NoSuchTrial(f"{error}. Sweeps here: {there}" if there else str(error)) from None


def clear() -> Any:
    """Stop all of this notebook's own and forget them; return the table."""
    trials.clear()
    return trials


def wait(names: Sequence[str]) -> Any:
    """Wait for trials and sweeps, or all of this notebook's own; return the table.

    Raises:
        TrialFailed: One failed.
    """
    sweeps, single = _meant(names) if names else (live(), [])
    meant: list[Sweep | Trial] = [*sweeps, *single]
    for one in meant:
        one.wait()
    if not names:
        trials.wait()
    return trials


def logs(name: str, number: int | None = None) -> str:
    """Return the end of what a trial printed; of one that this notebook does not have, what its record's log has.

    Args:
        name: The trial.
        number: Another run of that name than the last.

    Raises:
        NoSuchTrial: Neither this notebook nor the project's records have one of that name.
        NoSuchRecord: The records have no such run of it.
    """
    here = name in trials and number in {None, trials[name].number}
    if here or (former := _former_log(name, number)) is None:
        return coloured(trials[name].logs()[-LOG_END:], LOG_END) or f"Trial {name!r} has printed nothing yet."
    return former


def _former_log(name: str, number: int | None) -> str | None:
    """Return the end of the log of a run in the project's records, the last of that name; None if no run has that name.

    Raises:
        NoSuchRecord: There are runs of that name, and none has that number.
    """
    found = Run.find(name)
    if found is None:
        return None
    record, text = log_of(name, number)
    if text is None:
        where = found.directory / "logs" / f"{name}-{record.number}.log"
        return f"The log of trial {name!r} (run {record.number}) no longer exists: {where}"
    return text or f"Trial {name!r} (run {record.number}) has printed nothing yet."


def steer_shown(panel: Panel) -> Callable[[str, str], None]:
    """Return what the buttons of a panel's rows do: to the trial that a row shows, else to that consumer.

    Called with the verb and the consumer's name on a thread of the panel's own. It raises TsnbError where this notebook
    has no such trial on that stream and only it could do that, or the trial is not running.
    """

    def steer(verb: str, name: str) -> None:
        trial = _trial_on(panel, name)
        if verb == "interrupt":
            if trial is None:
                raise TsnbError(
                    f"{name} cannot be interrupted from here, because it is not a trial of this notebook. Stop "
                    "ends its loop"
                )
            if trial.state in ENDED:
                raise TsnbError(f"{name} is not running: it {is_now(trial.state)}")
        if verb == "stop" and trial is not None and trial.state not in ENDED:
            trial.stop_by("in the panel")
        elif verb == "stop" and (sweep := waiting_in(name)) is not None:
            raise TsnbError(
                f"{name!r} has not been started: sweep {sweep.name!r} starts it. To stop the whole sweep, "
                f"run %trials stop {sweep.name}"
            )
        elif verb == "stop" or trial is None or (verb != "interrupt" and trial.life.options.get("engine")):
            panel.ask_stream(verb, name)
        else:
            VERBS[verb].do(trial, {})

    return steer


def _trial_on(panel: Panel, name: str) -> Trial | None:
    """Return this notebook's trial that a panel's row shows: another process may have a consumer of that name there."""
    trial, pid = trials.get(name), panel.pid_of(name)
    if trial is None or pid is None or trial.pid is None or "engine" in trial.options:
        return trial
    with contextlib.suppress(OSError):
        # the processes that a trial starts are in its session
        return trial if pid == trial.pid or os.getsid(pid) == trial.pid else None
    return None


def run_sweep(shell: Any, given: Namespace, cell: str) -> Sweep:
    """Start a sweep from a cell; with `--wait`, wait for its end.

    Raises:
        ValueError: The parameters or options make no sweep.
        TrialFailed: It was waited for, and every trial failed.
        Exception: As `swept` raises.
    """
    if not given.grid and not given.space:
        raise ValueError("A sweep needs parameters: --grid lr=0.1,0.01 or --space lr=uniform(0,1) --n 8")
    options = {name: value for name, value in typed(given, TrialOptions).items() if value is not None}
    started = swept(
        CellCode(cell, shell.user_ns, shell.transform_cell, given.with_, given.check),
        given.name,
        grid=dict(given.grid),
        space=dict(given.space),
        n=given.n,
        rule=rule_of(read_rule(given)),
        at_once=given.at_once,
        rotate=given.rotate,
        plan=given.plan,
        deadline=given.deadline,
        choose=dict(given.choose),
        **options,
    )
    return started.wait() if given.wait else started
