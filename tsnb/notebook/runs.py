"""What `%%trial`, `%%sweep` and `%trials` do."""

from __future__ import annotations

import contextlib
import os
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tsnb.duels.grammar import asked
from tsnb.errors import TsnbError
from tsnb.experiments.cells import run_cell, set_up
from tsnb.experiments.overview.board import NoSuchTrial, stop_together, trials
from tsnb.experiments.pausing import pause_trials
from tsnb.experiments.plan import TrialOptions
from tsnb.experiments.trial import ENDED, Trial
from tsnb.hosting.serving import producer_kernels
from tsnb.kernels.cargo.capture import loops_over
from tsnb.options import typed
from tsnb.records.run import Run
from tsnb.records.selection import LOG_END, log_of
from tsnb.sweeps.settled import CellCode
from tsnb.sweeps.space_grammar import read_rule
from tsnb.sweeps.starting import rule_of, swept
from tsnb.sweeps.sweep import Sweep, find, known, live, waiting_in
from tsnb.telemetry.observer import pause as pause_consumers
from tsnb.text.printable import coloured
from tsnb.text.words import is_now

if TYPE_CHECKING:
    from tsnb.duels.result import Duel
    from tsnb.experiments.running.trial_life import TrialLife
    from tsnb.panel import Panel

__all__ = [
    "clone",
    "extend",
    "interrupt",
    "interrupt_consumer",
    "logs",
    "pause",
    "pause_consumer",
    "rerun",
    "resume",
    "run",
    "run_sweep",
    "set_values",
    "stop",
    "stop_consumer",
    "wait",
]


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


def rerun(name: str, changes: Iterable[tuple[str, Any]]) -> str:
    """Run a trial's code again, with some parameters or options changed; return the message to print.

    Raises:
        Exception: As `Trial.rerun` raises.
    """
    again = trials[name].rerun(**dict(changes))
    return f"trial {again.name!r}: run {again.number}, from the code and variables of {name!r}"


def extend(name: str, epochs: int) -> str:
    """Have a trial that is done go on for some more epochs; return the message to print.

    Raises:
        Exception: As `Trial.extend` raises.
    """
    trial = trials[name].extend(epochs)
    return f"trial {trial.name!r} continues for {epochs} more epochs"


def clone(name: str, new: str | None, changes: Iterable[tuple[str, Any]], at: int | None = None) -> str:
    """Make two of a trial at its next batch; return the message to print.

    Args:
        name: The trial.
        new: The clone's name; None: one is made.
        changes: New values of its live values.
        at: The epoch at whose start they part; None: they part at its next batch.

    Raises:
        Exception: As `Trial.clone` raises.
    """
    made = trials[name].clone(new, at=at, **dict(changes))
    return f"trial {made.name!r} is {made.parent}"


def stop(names: Sequence[str]) -> Any:
    """Stop trials and sweeps, or all of this notebook's own, their kernels too; return the table."""
    if not names:
        trials.stop()
        return trials
    sweeps, single = _meant(names)
    for sweep in sweeps:
        sweep.stop()
    stop_together(single, by="by %trials stop")
    return trials


def pause(names: Sequence[str], *, release: bool = False) -> Any:
    """Pause trials and sweeps, or all of this notebook's own that run; return the table.

    Args:
        names: Which; none: all.
        release: Have them give the GPU memory of what they keep back meanwhile.

    Raises:
        TsnbError: As `Trial.pause` raises.
    """
    return _have_paused(names, on=True, release=release)


def resume(names: Sequence[str]) -> Any:
    """Let trials and sweeps, or all of this notebook's own that were paused, go on; return the table."""
    return _have_paused(names, on=False)


def _have_paused(names: Sequence[str], *, on: bool, release: bool = False) -> Any:
    if not names:
        pause_trials(_running(), on=on, release=release)
        return trials
    sweeps, single = _meant(names)
    for sweep in sweeps:
        if on:
            sweep.pause(release=release)
        else:
            sweep.resume()
    if single:
        pause_trials([trial.life for trial in single], on=on, release=release)
    return trials


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


def interrupt(names: Sequence[str]) -> Any:
    """Interrupt the code of trials; return the table."""
    for trial in [_trial(name) for name in dict.fromkeys(names)]:
        trial.interrupt()
    return trials


def set_values(name: str, changes: dict[str, Any]) -> str:
    """Change live values of one trial, or of all of a sweep that run; return the message to print.

    Raises:
        Exception: As `Trial.set` raises.
    """
    sweeps, single = _meant([name])
    meant: list[Sweep | Trial] = [*sweeps, *single]
    for one in meant:
        one.set(**changes)
    return f"{name}: {', '.join(f'{value}={to!r}' for value, to in changes.items())} from the next batch on"


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


def interrupt_consumer(panel: Panel) -> Callable[[str], None]:
    """Return what a panel's interrupt button does: raise KeyboardInterrupt in the trial's cell, its kernel lives on.

    Called with the consumer's name on a thread of the panel's own. It raises TsnbError where this notebook has no such
    trial on that stream, or it is not running.
    """

    def interrupt(name: str) -> None:
        trial = _trial_on(panel, name)
        if trial is None:
            raise TsnbError(
                f"{name} cannot be interrupted from here, because it is not a trial of this notebook. Stop "
                "ends its loop"
            )
        if trial.state in ENDED:
            raise TsnbError(f"{name} is not running: it {is_now(trial.state)}")
        trial.interrupt()

    return interrupt


def stop_consumer(panel: Panel) -> Callable[[str], None]:
    """Return what a panel's stop button does: stop the trial that it shows, else ask the consumer to end.

    Called with the consumer's name on a thread of the panel's own.
    """

    def stop(name: str) -> None:
        trial = _trial_on(panel, name)
        if trial is not None and trial.state not in ENDED:
            trial.stop_by("in the panel")
            return
        if (sweep := waiting_in(name)) is not None:
            raise TsnbError(
                f"{name!r} has not been started: sweep {sweep.name!r} starts it. To stop the whole sweep, "
                f"run %trials stop {sweep.name}"
            )
        from tsnb.telemetry.observer import Observer

        observer = Observer(panel.stream_of(name) or None)
        try:
            observer.request_consumer_stop(name)
        finally:
            observer.close()

    return stop


def pause_consumer(panel: Panel) -> Callable[[str, bool], None]:
    """Return what a panel's pause button does: pause the trial that it shows, or have it go on, else that consumer.

    Called with the consumer's name, and whether it is to pause, on a thread of the panel's own.
    """

    def pause(name: str, on: bool) -> None:
        trial = _trial_on(panel, name)
        if trial is None or trial.life.options.get("engine"):
            pause_consumers(panel.stream or None, name, on=on)
        elif on:
            trial.pause()
        else:
            trial.resume()

    return pause


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
