"""Optuna's pruners over trials that train side by side.

A pruner compares a trial with what others logged *before* it: MedianPruner with those that are complete,
SuccessiveHalvingPruner with those that came to a step earlier. Trials in lockstep have no before: asked in the usual
way the one prunes no trial, and the other depends on which was a moment faster. So the study's own pruner is asked when
all trials that started together have logged the same step, and for each of them it is shown a copy of the study in
which the others are complete, with what they have logged so far: as if this one had come last.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

import optuna
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tsnb.conducting.rule import Cut
from tsnb.records.scores import rank
from tsnb.sweeps.pruning.rungs import Rungs

__all__ = ["StudyRungs"]


class StudyRungs(Rungs):
    """The rungs of a study: at every so many steps its pruner is asked.

    Args:
        study: The study.
        asked: Its trials that run, by the names that they have here; grows and shrinks.
        metric: The logged number that is reported.
        every: Steps between two rungs.
    """

    def __init__(
        self, study: optuna.Study, asked: Mapping[str, optuna.Trial], metric: str, every: int
    ) -> None:
        super().__init__(metric)
        self._study = study
        self._asked = asked
        self._every = every

    def step_of(self, rung: int) -> int:
        """Return the step at which a rung lies."""
        return (rung + 1) * self._every

    def judge(self, rung: int, live: Sequence[str]) -> list[Cut]:
        """Report what a cohort logged, and return those that the study's pruner would stop, each if it came last."""
        values = self.values_at(rung)
        step = self.step_of(rung)
        for name in live:
            self._asked[name].report(values[name], step)
        before = self._study.get_trials()
        for name in live:
            self._asked[
                name
            ].should_prune()  # pruners note which trials passed; this answer itself is not used
        after = self._study.get_trials()
        mode = "min" if self._study.direction == StudyDirection.MINIMIZE else "max"
        ranking = sorted(values, key=lambda name: rank(values[name], mode))
        return [
            Cut(name, step, values[name], ranking.index(name) + 1, len(ranking))
            for name in live
            if self._pruned(self._asked[name].number, before, after)
        ]

    def _pruned(self, number: int, before: Sequence[FrozenTrial], after: Sequence[FrozenTrial]) -> bool:
        """Return what the pruner says of one trial, all others being complete or as far as they are."""
        running = {trial.number for trial in self._asked.values()}
        shown = [_completed(t, self._study) if t.number in running else t for t in after]
        shown[number] = before[number]
        with _silent():
            storage = InMemoryStorage()
            storage.create_new_study(self._study.directions, self._study.study_name)
        # another pruner of the same kind: some keep what they learned of a study
        pruner = copy.deepcopy(self._study.pruner)
        view = optuna.Study(self._study.study_name, storage, pruner=pruner)
        for trial in shown:
            view.add_trial(trial)
        return bool(pruner.prune(view, view.get_trials(deepcopy=False)[number]))


def _completed(trial: FrozenTrial, study: optuna.Study) -> FrozenTrial:
    """Return a running trial as if it were complete, with the last value that it reported."""
    if trial.last_step is None:
        return trial
    last = trial.intermediate_values[trial.last_step]
    worst = math.inf if study.direction == StudyDirection.MINIMIZE else -math.inf
    shown = copy.copy(trial)
    shown.state = TrialState.COMPLETE
    shown.values = [worst if math.isnan(last) else last]
    shown.datetime_complete = datetime.now()  # noqa: DTZ005 (as Optuna keeps its times)
    return shown


@contextmanager
def _silent() -> Iterator[None]:
    """Keep Optuna from announcing a study that is only a view."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)
