"""A sweep: many trials from one function or cell, by name, as a table, and which of them is the best.

The sweeps of this process are kept here, the last of each name.
"""

from __future__ import annotations

import html
import math
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from tsnb.conducting.conductor import Conductor
from tsnb.conducting.rule import Cut
from tsnb.errors import TsnbError
from tsnb.experiments import trials
from tsnb.experiments.ends import follow_stream_for, stream_for
from tsnb.experiments.overview.board import NoSuchTrial, stop_together
from tsnb.experiments.overview.trials_table import shown_scores
from tsnb.experiments.pausing import pause_trials
from tsnb.experiments.running.trial_life import TrialLife
from tsnb.experiments.trial import Trial
from tsnb.lazy import Hinting
from tsnb.native.endings import Bound
from tsnb.planners.timeline import Timeline
from tsnb.records.scores import best_of, direction, direction_of, known_direction, leaders
from tsnb.records.tables import shown, told_apart
from tsnb.sweeps.folds import Score, score_in, scores_of, scores_table
from tsnb.telemetry.watching import counters, judges, sources
from tsnb.text.masks import Masked, masked_text
from tsnb.text.printable import harmless
from tsnb.text.words import html_table, text_table

__all__ = ["Sweep", "enter", "find", "live"]

_FOR_A_PLACE = "it starts when another trial of its sweep ends"
"""What a trial of a sweep waits for that has not been started."""

_COMING = ("queued", "starting", "running")
"""States of a trial that may still attach."""

_COLUMNS = ("name", "state", "stopped_at", "not_paired", "duration_s", "epochs", "samples", "parent")
"""Of the results, beside parameters and numbers; `parent` is a population's."""

STOPPING_S = 60.0
"""How long stopping all trials of a sweep may take."""


class Sweep(Bound, Hinting, Mapping[str, Trial]):
    """Hold the trials of one sweep by name, and show them as a table.

    Holds the trials that were started. Made by `tsnb.sweep`.

    Example:
        >>> sweep = tsnb.sweep(train, grid={"lr": [0.1, 0.01]})
        >>> sweep.wait().results()

    Attributes:
        name: Name of the sweep.
        params: Parameters of every trial by its name, also of trials that were not started. Likely secrets are
            masked.
        folds: Number of folds of a cross-validation, else 0.

    Args:
        name: Name of the sweep.
        params: Parameters of every trial by its name. The mapping may grow.
        conductor: Conductor that runs the trials.
        metric: Metric of `best`. Defaults to None.
        mode: "min" or "max": which values are better. Defaults to `tsnb.records.direction`, else the metric's name.
        foretell: Function that returns the plan as it is now. Defaults to None, no plan.
    """

    _instead = "Pass its results() instead, or what a trial returned: trial.result()."
    _meant = dict.fromkeys(("kill", "cancel", "terminate"), "stop()") | {
        "status": 'print(sweep), or sweep["NAME"].state for one trial',
        "join": "wait()",
        "output": 'sweep["NAME"].logs()',
    }

    def __init__(
        self,
        name: str,
        params: Mapping[str, Mapping[str, Any]],
        conductor: Conductor,
        metric: str | None = None,
        mode: str | None = None,
        *,
        foretell: Callable[[], Timeline] | None = None,
    ) -> None:
        self.name = name
        self.params: Mapping[str, Mapping[str, Any]] = Masked(params)
        self._conductor = conductor
        self._metric = metric
        self._mode = mode
        self._foretell = foretell
        self.folds = 0
        self._over = threading.Event()
        self._error: BaseException | None = None

    def begin(self) -> None:
        """Start the first trials, and a thread that starts and stops the others. Called once.

        Raises:
            Exception: A trial could not be started; then none runs.
        """
        try:
            self._conductor.fill()
        except BaseException:
            self._conductor.abort()
            self._over.set()
            raise
        for producer in self._producers():
            follow_stream_for(producer)  # it is told how many are to come
        threading.Thread(target=self._run, name=f"tsnb-sweep-{self.name}", daemon=True).start()

    def conduct(self) -> None:
        """Run all trials, on this thread. Called once, instead of `begin`.

        Raises:
            BaseException: A trial could not be started, or this thread was interrupted; all trials were stopped.
        """
        try:
            self._conductor.run()
        finally:
            self._over.set()

    def _run(self) -> None:
        try:
            self._conductor.run()
        except BaseException as error:  # noqa: BLE001 (raised again in `wait`)
            self._error = error
        finally:
            self._over.set()

    def __getitem__(self, name: str) -> Trial:
        trial = self._conductor.trials.get(name)
        if trial is not None:
            return trial
        if name in self.params:
            raise NoSuchTrial(f"Trial {name!r} of sweep {self.name!r} {self._unstarted(name)}")
        raise NoSuchTrial(f"Sweep {self.name!r} has no trial {name!r}. Its trials: {', '.join(self.params)}")

    def _unstarted(self, name: str) -> str:
        if name in self._conductor.refused:
            return f"was not started: {self._conductor.refused[name]}"
        return (
            "was not started" if self._over.is_set() else f"has not been started yet: {self._waits_for(name)}"
        )

    def _waits_for(self, name: str) -> str:
        """Return what a trial that has not been started waits for."""
        late = self._conductor.late.get(name)
        return _FOR_A_PLACE if late is None else f"{late}, too late unless others end early"

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._conductor.trials))

    def __len__(self) -> int:
        return len(self._conductor.trials)

    @property
    def over(self) -> bool:
        """Whether all trials have ended, and none will be started."""
        return self._over.is_set()

    @property
    def not_started(self) -> dict[str, str]:
        """Reasons by the names of the trials that were not started.

        A plan does not start what could not be done in time (`deadline=`), or the sweep ended before. While the
        sweep runs, an early stop or a failure of another trial may still leave time.
        """
        refused = {**self._conductor.late, **self._conductor.refused}
        if not self._over.is_set():
            return refused
        why = self._conductor.gave_up or "the sweep was stopped before it started"
        return {name: refused.get(name, why) for name in self.params if name not in self}

    def to_come(self, stream: str) -> int:
        """Return how many of its trials are still to attach to a stream; those that a plan does not start are none.

        Args:
            stream: Its name.
        """
        started = dict(self._conductor.trials)
        waiting = self.params.keys() - started.keys() - self.not_started.keys()
        starting = [trial for trial in started.values() if trial.state in _COMING and not trial.attached]
        found = 0 if self.over else len(waiting) + len(starting)
        return found if found and stream in map(stream_for, self._producers()) else 0

    def queued(self, stream: str = "") -> dict[str, str]:
        """Return the trials that have not been started yet, in their order: state and reason by name.

        Args:
            stream: Name of a stream: only where trials of the sweep have taken batches of it. Defaults to any.
        """
        started = dict(self._conductor.trials)
        taken = {name for trial in started.values() for name in trial.report.get("stream", "").split(", ")}
        if self.over or (stream and stream not in taken):
            return {}
        waiting = [name for name in self.params if name not in {**started, **self._conductor.refused}]
        return {name: f"queued: {self._waits_for(name)}" for name in waiting}

    def _producers(self) -> set[str | None]:
        """Return the streams that its trials were given, of those that have been started."""
        return {trial.options.get("stream") for trial in self._conductor.trials.values()}

    @property
    def plan(self) -> Timeline | None:
        """Plan of the sweep: as first planned, as it was, and as predicted now.

        Shows as bars. None without a plan. `tsnb.plot("plan")` draws the newest plan.
        """
        return None if self._foretell is None else self._foretell()

    @property
    def stopped_early(self) -> dict[str, Cut]:
        """Trials stopped because others were better: step, value and rank."""
        cuts = self._conductor.cuts.copy()
        return {name: cut for name, cut in cuts.items() if self[name].state == "pruned"}

    def wait(self, timeout_s: float | None = None) -> Sweep:
        """Wait until every trial has ended.

        An interrupt ends the waiting, and the sweep continues. If it also ends the `with` block that serves the
        stream, the sweep is stopped first. A failed trial does not end the sweep: see its state and `logs()`.

        Example:
            >>> sweep.wait(timeout_s=60)

        Args:
            timeout_s: Seconds to wait. Defaults to None, without a limit.

        Returns:
            This sweep.

        Raises:
            TrialFailed: If every trial that was started has failed. The message is the first one's.
            TimeoutError: If they have not ended within `timeout_s` seconds. They continue.
        """
        if not self._over.wait(timeout_s):
            raise TimeoutError(
                f"Sweep {self.name!r} is not over after {timeout_s} s, and continues: {self._counts()}"
            )
        if self._error is not None:
            raise self._error
        failed = [trial for trial in self.values() if trial.state in {"failed", "crashed"}]
        for trial in failed:
            trial.failure_seen = True
        if failed and len(failed) == len(self):
            failed[0].wait()
        return self

    def stop(self) -> None:
        """Stop every trial and its kernel, and start no more of them.

        The memory of trials that have ended is freed too.

        Example:
            >>> sweep.stop()
        """
        self._conductor.stop()
        self._over.wait(STOPPING_S)
        stop_together(self.values(), STOPPING_S)

    def pause(self, *, release: bool = False) -> None:
        """Pause every running trial until `resume`.

        A paused trial keeps its place, so no waiting trial starts in its stead.

        Example:
            >>> sweep.pause()
            >>> sweep.resume()

        Args:
            release: Whether to free the GPU memory of their checkpointed objects meanwhile. Defaults to False.

        Raises:
            TsnbError: If a trial takes batches of no stream on this machine now, or has no GPU memory to free. The
                others pause.
        """
        pause_trials(self._running, on=True, release=release)

    def resume(self) -> None:
        """Let the paused trials continue.

        Example:
            >>> sweep.pause()
            >>> sweep.resume()

        Raises:
            TsnbError: If a trial takes batches of no stream on this machine now.
        """
        pause_trials(self._running, on=False)

    def set(self, **values: Any) -> None:
        """Change live hyperparameters of every running trial.

        Each trial changes from its next batch on.

        Example:
            >>> sweep.set(lr=0.03)

        Args:
            **values: New values by the names of `tsnb.live`.

        Raises:
            TsnbError: If no trial is running.
            Exception: If a trial refuses, as `Trial.set` raises. Trials before it have taken the values.
        """
        if not (running := self._running):
            raise TsnbError(
                f"No trial of {self.name!r} is running. Live hyperparameters can be set only while trials run"
            )
        for life in running:
            try:
                life.trial.set(**values)
            except TsnbError:
                if life.state == "running":
                    raise  # else it has ended since it was looked, and holds up no other

    @property
    def _running(self) -> list[TrialLife]:
        return [trial.life for trial in self.values() if trial.life.state == "running"]

    def best(self, metric: str | None = None, mode: str | None = None) -> Trial:
        """Return the best trial, by the last value that it logged.

        A trial that ended early, for example because it was stopped or failed, counts only if there is no other.

        Example:
            >>> sweep.best("loss").params

        Args:
            metric: Logged number to compare. Defaults to the one that decided which trials were stopped.
            mode: "min" or "max". Defaults to that of the early stop, else `tsnb.records.direction` or the metric's
                name.

        Raises:
            ValueError: If no metric is given or known, no trial has logged it, or `mode` is another word.
            UnknownDirection: If tsnb cannot tell whether a high or a low value is good.
        """
        metric = metric or self._metric
        if metric is None:
            raise ValueError('Pass the metric to compare, for example sweep.best("loss")')
        if mode is None and metric == self._metric:
            mode = self._mode
        if all(math.isnan(trial.metrics.get(metric, math.nan)) for trial in self.values()):
            raise ValueError(
                f"No trial of sweep {self.name!r} has logged {metric!r}. Log it with tsnb.log({metric}=...)"
            )
        scores = [(name, t.state, t.metrics.get(metric, math.nan)) for name, t in self.items()]
        found = best_of(scores, direction_of(metric, mode))
        assert found is not None
        return self[found]

    def scores(self) -> dict[str, Score]:
        """Return mean and spread of every logged number, over folds or seeds.

        Trials that are done count.

        Example:
            >>> sweep.scores()
        """
        return scores_of(self.values())

    def score(self, metric: str) -> Score:
        """Return mean and spread of one number, over the trials that are done.

        Example:
            >>> sweep.score("loss").mean

        Args:
            metric: Logged name.

        Raises:
            ValueError: If no trial that is done has logged it.
        """
        return score_in(self.scores(), metric)

    def results(self) -> Any:
        """Return a table of the sweep, one row per trial.

        Columns: name, state, the parameters, stopped_at (step of an early stop), not_paired (others began without
        it, with other batches), duration_s, epochs and samples (taken so far), and the last logged numbers. A taken
        name becomes "epochs (param)" or "samples (logged)".

        Example:
            >>> sweep.results()

        Returns:
            A pandas DataFrame where pandas is installed, else a list of dictionaries with the same keys.
        """
        rows = [self._row(name) for name in self.params]
        columns = list(dict.fromkeys(column for row in rows for column in row))
        return shown(columns, [[row.get(column) for column in columns] for row in rows])

    def _row(self, name: str) -> dict[str, Any]:
        trial, cut = self._conductor.trials.get(name), self.stopped_early.get(name)
        row: dict[str, Any] = {"name": name, "state": self._state_of(name), **self._named(self.params[name])}
        row["stopped_at"] = None if cut is None else cut.step
        row["not_paired"] = name in self._conductor.unpaired
        report = {} if trial is None else trial.report
        row["duration_s"] = None if trial is None else round(trial.duration_s, 3)
        row.update({key: report.get(key) for key in ("epochs", "samples")})
        metrics = {} if trial is None else trial.metrics
        return {
            **row,
            **dict(zip(told_apart(metrics, {*row, *_COLUMNS}, "logged"), metrics.values(), strict=True)),
        }

    def _named(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters by the names of their columns."""
        return dict(zip(told_apart(params, _COLUMNS, "param"), params.values(), strict=True))

    def _state_of(self, name: str) -> str:
        trial = self._conductor.trials.get(name)
        if trial is not None:
            return trial.state
        return "not started" if self._over.is_set() or name in self._conductor.refused else "queued"

    def _counts(self) -> str:
        states = [self._state_of(name) for name in self.params]
        return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))

    def _cells(self, name: str, leading: Mapping[str, str]) -> list[str]:
        trial, cut = self._conductor.trials.get(name), self.stopped_early.get(name)
        state = self._state_of(name) if trial is None else trial.state_text
        if state == "queued" and trial is None:
            state += f": {self._waits_for(name)}"
        if cut is not None:
            state += f" at step {cut.step}: {cut.why}"
        if name in self._conductor.unpaired:
            state += ", not paired"
        if name in self._conductor.refused:
            state += f": {self._conductor.refused[name]}"
        logged = "" if trial is None else shown_scores(trial, leading)
        time = "" if trial is None else f"{trial.duration_s:.1f} s"
        return [name, *(_short(value) for value in self.params[name].values()), state, time, logged]

    def _table(self) -> list[list[str]]:
        names = dict.fromkeys(word for given in self.params.values() for word in given)
        leading = leaders([(name, trial.state, trial.metrics) for name, trial in self.items()])
        rows = [self._cells(name, leading) for name in self.params]
        return [["trial", *names, "state", "time", "last numbers"], *rows]

    @property
    def _title(self) -> str:
        reason = self._conductor.gave_up
        return f"sweep {self.name!r}: {self._counts()}" + (f". Given up: {reason}" if reason else "")

    def __repr__(self) -> str:
        scores = text_table(scores_table(self.scores(), self.folds)) if self.folds else []
        return harmless("\n".join([*scores, self._title, *text_table(self._table())]))

    def _repr_html_(self) -> str:
        title = f"<p>{self.folds}-fold cross-validation</p>"
        scores = f"{title}{html_table(scores_table(self.scores(), self.folds))}" if self.folds else ""
        return f"{scores}<p>{html.escape(self._title)}</p>{html_table(self._table())}"


def _short(value: Any) -> str:
    """Return a parameter as a table shows it."""
    text = f"{value:.4g}" if isinstance(value, float) else masked_text(str(value))
    return text if len(text) <= 24 else text[:23] + "…"


_sweeps: dict[str, Sweep] = {}
os.register_at_fork(after_in_child=_sweeps.clear)  # `native.forks`, 2


def enter(made: Sweep) -> None:
    """Take in a sweep; one of the same name that still runs is stopped first, as a trial's former run is."""
    former = _sweeps.get(made.name)
    if former is not None and not former.over:
        former.stop()
    _sweeps[made.name] = made
    if made._metric is not None and made._mode is not None and known_direction(made._metric) != made._mode:
        direction({made._metric: made._mode})  # it was told to the sweep, and holds on every screen


def find(name: str) -> Sweep | None:
    """Return the last sweep of a name, if there was one."""
    return _sweeps.get(name)


def known() -> list[Sweep]:
    """Return the last sweep of each name, in the order of their first start."""
    return list(_sweeps.values())


def rules() -> dict[str, str]:
    """Return the metric by which the rule of each sweep decides that has one, by the sweep's name."""
    return {sweep.name: sweep._metric for sweep in known() if sweep._metric is not None}


def _deciding(names: Collection[str]) -> list[str]:
    """Return the metrics by which rules decide, of the sweeps that have one of these trials, started or not."""
    those = set(names)
    return [sweep._metric for sweep in known() if sweep._metric is not None and those & sweep.params.keys()]


def live() -> list[Sweep]:
    """Return those that are not over."""
    return [sweep for sweep in _sweeps.values() if not sweep.over]


def params_waiting() -> dict[str, Mapping[str, Any]]:
    """Return the parameters of the trials that wait in sweeps, by name."""
    return {name: sweep._conductor.params_of(name) for sweep in live() for name in sweep.queued()}


def waiting_in(name: str) -> Sweep | None:
    """Return the sweep in which a trial waits that has not been started yet; None: there is none."""
    return next((sweep for sweep in live() if name in sweep.queued()), None)


def _stop_those_of(going: Sequence[Trial] | None) -> None:
    for sweep in live():
        if going is None or any(trial in going for trial in sweep.values()):
            sweep.stop()


def _to_come(stream: str) -> int:
    """Return how many trials of sweeps are still to attach to a stream."""
    return sum(sweep.to_come(stream) for sweep in live())


def _queued(stream: str) -> dict[str, str]:
    """Return which trials of sweeps have not been started yet, of those that a stream is told of."""
    return {name: said for sweep in live() for name, said in sweep.queued(stream).items()}


trials.starters.append(_stop_those_of)
counters.append(_to_come)
sources.append(_queued)
judges.append(_deciding)
