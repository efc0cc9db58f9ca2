"""Optuna's studies over trials that share one stream: ask for parameters, run them side by side, tell what came out.

Optuna's `study.optimize` calls an objective that asks for its parameters while it runs. Here the function runs in a
process of its own, so the parameters come from `space`, before it starts (Optuna's ask-and-tell interface).

    import optuna, tsnb
    from tsnb.integrations.optuna import optimize

    study = optuna.create_study(direction="minimize", pruner=optuna.pruners.MedianPruner(n_startup_trials=3))
    optimize(study, train, metric="loss", n_trials=24, space={"lr": tsnb.search.loguniform(1e-4, 1e-1)},
             prune_every=100)
"""

from __future__ import annotations

import concurrent.futures
import math
from collections.abc import Callable, Mapping
from typing import Any

from tsnb.conducting.conductor import Conductor
from tsnb.conducting.rule import Rule
from tsnb.errors import ExtraMissing
from tsnb.experiments.plan import TrialPlan, name_of
from tsnb.experiments.running.engine import engine_of
from tsnb.experiments.trial import Trial
from tsnb.kernels.hub import the_hub
from tsnb.kernels.output.outlets import outlet_here
from tsnb.planners.queueing import Places
from tsnb.records.scores import known_direction, rank
from tsnb.sweeps.pruning.race_table import Race
from tsnb.sweeps.pruning.rungs import Halving
from tsnb.sweeps.settled import FunctionCode, Settled
from tsnb.sweeps.spaces import Choice, LogUniform, RandInt, Uniform, require_no_name
from tsnb.sweeps.sweep import Sweep, enter

try:
    import optuna
except ImportError:
    raise ExtraMissing("Optuna is not installed here. Install it: pip install 'tsnb[optuna]'") from None

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.study import StudyDirection
from optuna.trial import TrialState

from tsnb.integrations.live_pruning import StudyRungs

__all__ = ["optimize"]

NAME = "tsnb_trial"
"""The user attribute of a study's trial that holds the name of the trial here."""

ENDING_S = 10.0
"""How long the kernels of trials that have ended may take to be gone."""


def optimize(
    study: optuna.Study,
    fn: Callable[..., Any],
    *,
    metric: str,
    n_trials: int,
    space: Mapping[str, Any],
    at_once: int | None = None,
    prune_every: int | None = None,
    prune: Halving | Race | None = None,
    name: str | None = None,
    **options: Any,
) -> Sweep:
    """Run trials with parameters that a study suggests, several at once, and return when the last has ended.

    A trial's result is the last value of `metric` that it logged. One that fails, is stopped by hand or logs no such
    number is reported as failed. An interrupt stops all that run, and reports them as failed. Of the trials that have
    ended the best one keeps its kernel, so that `sweep.best()["net"]` works; `sweep.stop()` ends it.

    Args:
        study: The study, of one objective.
        fn: The function; it gets the parameters by name, and says `tsnb.attach()` and `tsnb.log(...)`.
        metric: The logged number that is optimised.
        n_trials: How many trials are run.
        space: What each parameter is drawn from, by its name: Optuna's distributions, those of `tsnb.sweeps`, or a
            list of values.
        at_once: How many run at once; by default two for each core, or as many as a cluster has
            room for. The study learns from those that have ended, so
            fewer at once are better guesses.
        prune_every: After every so many steps the study's pruner is asked, for all trials that started together at
            once. None: it is never asked.
        prune: Another rule by which trials are stopped early: `tsnb.search.race("loss")`,
            `tsnb.search.halving("loss")`.
        name: What the trials' names begin with; by default the function's name.
        **options: Options of `tsnb.run` (stream, batch_size, threads...) and arguments of the function that are the
            same in all trials.

    Returns:
        The sweep: a mapping of its trials that shows as a table; `results()`, `best()`. The study has them too, each
        with the name of its trial in the user attribute "tsnb_trial".

    Raises:
        ValueError: The study has several objectives, or its direction is not the metric's, or a number or the space
            is invalid.
        TypeError: The parameters do not fit the function.
        TrialFailed: Every trial failed.
    """
    if len(study.directions) != 1:
        raise ValueError(
            "optimize() needs a study with one direction, because trials are compared by one logged "
            "number. Create a study with direction=."
        )
    minimizes = study.direction == StudyDirection.MINIMIZE
    _require_same_direction(metric, "min" if minimizes else "max")
    for word, number in (("n_trials", n_trials), ("at_once", at_once), ("prune_every", prune_every)):
        if number is not None and number < 1:
            raise ValueError(f"{word}={number} is invalid. Pass 1 or more.")
    if prune is not None and prune_every is not None:
        raise ValueError("prune= and prune_every= both stop trials early. Pass one of them.")
    require_no_name(space)
    title = name or name_of(fn)
    drawn = {word: _distribution(word, what) for word, what in space.items()}
    plan = FunctionCode(fn).settled(f"{title}-0", title, options, dict.fromkeys(space))
    source = _StudySource(title, plan, study, drawn, n_trials, metric)
    engine = engine_of(plan)
    engine.join()
    places = Places(at_once or engine.places(plan, n_trials)[0], more=source.more)
    rule: Rule | None = None
    if prune_every:
        rule = StudyRungs(study, source.asked, metric, prune_every)
    elif prune is not None:
        rule = prune.begin(source.params, plan.options.seed)
    conductor = Conductor(source, places, rule)
    sweep = Sweep(title, source.params, conductor, metric, "min" if minimizes else "max")
    enter(sweep)
    try:
        sweep.conduct()
    finally:
        source.close()
    return sweep.wait()


class _StudySource(Settled):
    """What one call of `optimize` has asked the study for, and told it.

    Attributes:
        asked: Trials of the study that have not been told, by name.
    """

    def __init__(
        self,
        title: str,
        plan: TrialPlan,
        study: optuna.Study,
        space: dict[str, BaseDistribution],
        n_trials: int,
        metric: str,
    ) -> None:
        self._given: dict[str, dict[str, Any]] = {}
        super().__init__(title, plan, self._given, outlet_here(title))
        self.asked: dict[str, optuna.Trial] = {}
        self.minimizes = study.direction == StudyDirection.MINIMIZE
        self._study = study
        self._space = space
        self._n_trials = n_trials
        self._metric = metric
        self._best: Trial | None = None
        self._endings: list[concurrent.futures.Future[None]] = []

    def more(self, free: int) -> list[str]:
        """Ask the study for parameters; return the names of the trials that get them."""
        names = []
        for _ in range(min(free, self._n_trials - len(self._given))):
            trial = self._study.ask(fixed_distributions=self._space)
            name = f"{self.title}-{trial.number}"
            trial.set_user_attr(NAME, name)
            self.asked[name] = trial
            self._given[name] = dict(trial.params)
            names.append(name)
        return names

    def ended(self, trial: Trial) -> None:
        """Tell the study how a trial ended."""
        number = self.asked.pop(trial.name).number
        value = trial.metrics.get(self._metric, math.nan)
        if trial.state == "done" and not math.isnan(value):
            self._study.tell(number, value)
        elif trial.state == "pruned":
            self._study.tell(number, state=TrialState.PRUNED)
        else:
            self._study.tell(number, state=TrialState.FAIL)
        self._keep_best(trial, value)

    def _keep_best(self, trial: Trial, value: float) -> None:
        """End the kernels of all ended trials but the best one's: a study may have hundreds."""
        best, mode = self._best, "min" if self.minimizes else "max"
        loses = trial
        better = best is None or rank(value, mode) < rank(best.metrics[self._metric], mode)
        if trial.state == "done" and not math.isnan(value) and better:
            loses, self._best = best or trial, trial
        if loses is not self._best:
            self._endings.append(the_hub().post(loses.life.end()))

    def close(self) -> None:
        """Wait for the kernels that are being ended, and tell the study of trials that never came to an end."""
        concurrent.futures.wait(self._endings, ENDING_S)
        while self.asked:
            self._study.tell(self.asked.popitem()[1].number, state=TrialState.FAIL)


def _require_same_direction(metric: str, mode: str) -> None:
    """Refuse a study that would look for the worst trial.

    Raises:
        ValueError: The metric is known to be good the other way round.
    """
    known = known_direction(metric)
    if known is not None and known != mode:
        does, wanted = {"min": ("minimizes", "maximize"), "max": ("maximizes", "minimize")}[mode]
        raise ValueError(
            f"The study {does}, but a {'high' if known == 'max' else 'low'} {metric!r} is good. Create "
            f"it with direction={wanted!r}. If the opposite is true here, first call "
            f"tsnb.records.direction({{{metric!r}: {mode!r}}})."
        )


def _distribution(name: str, what: Any) -> BaseDistribution:
    """Return a parameter's distribution as Optuna has it."""
    match what:
        case BaseDistribution():
            return what
        case Uniform(low, high):
            return FloatDistribution(low, high)
        case LogUniform(low, high):
            return FloatDistribution(low, high, log=True)
        case RandInt(low, high):
            return IntDistribution(low, high)
        case Choice(values):
            return CategoricalDistribution(values)
        case list() | tuple() if what:
            return CategoricalDistribution(what)
    raise ValueError(
        f"space: {name}={what!r} cannot be drawn from. Pass a distribution of optuna.distributions, a "
        "list of values, or uniform, loguniform, randint or choice of tsnb.search."
    )
