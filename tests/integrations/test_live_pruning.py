"""Real pruners of Optuna over trials in lockstep: they prune as if each trial had come last."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Literal

import optuna
import pytest
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner, SuccessiveHalvingPruner

from tsnb.integrations.live_pruning import StudyRungs

optuna.logging.set_verbosity(optuna.logging.WARNING)

SPACE: dict[str, optuna.distributions.BaseDistribution] = {"x": optuna.distributions.FloatDistribution(0, 1)}


class Run:
    """Trials of a new study, a letter each, that started together."""

    def __init__(
        self,
        pruner: BasePruner,
        names: Sequence[str],
        every: int = 10,
        direction: Literal["minimize", "maximize"] = "minimize",
    ) -> None:
        self.study = optuna.create_study(pruner=pruner, direction=direction)
        self.asked = {name: self.study.ask(fixed_distributions=SPACE) for name in names}
        self.rungs = StudyRungs(self.study, self.asked, "loss", every)
        self.rungs.start(names)

    def log(self, values: dict[str, float], step: int) -> set[str]:
        cuts = []
        for name, value in values.items():
            cuts += self.rungs.log(name, step, value)
            self.rungs.check()
        return {cut.name for cut in cuts}


def test_halving_prunes_the_worse_half_whatever_the_order() -> None:
    """Optuna's own successive halving, asked in the usual way, depends on who comes first; here it does not."""
    for order in itertools.permutations("abcd"):
        run = Run(SuccessiveHalvingPruner(min_resource=10, reduction_factor=2), "abcd")
        values = {name: float("abcd".index(name)) for name in order}
        assert run.log(values, 10) == {"c", "d"}, order
        assert run.log({name: values[name] for name in order if name in "ab"}, 20) == {"b"}, order
        run.rungs.end("a", withdrawn=False)


def test_the_median_pruner_compares_live_trials() -> None:
    """It looks at complete trials only, of which lockstep has none: here those worse than the others' median go."""
    run = Run(MedianPruner(n_startup_trials=3), "abcde")
    assert run.log(dict(zip("abcde", (5.0, 1.0, 2.0, 9.0, 3.0), strict=True)), 10) == {"a", "d"}
    reported = [trial.intermediate_values for trial in run.study.get_trials()]
    assert reported == [{10: 5.0}, {10: 1.0}, {10: 2.0}, {10: 9.0}, {10: 3.0}]
    few = Run(MedianPruner(n_startup_trials=5), "abcde")
    assert few.log(dict(zip("abcde", (5.0, 1.0, 2.0, 9.0, 3.0), strict=True)), 10) == set(), (
        "four others are no five"
    )


def test_larger_is_better_where_the_study_maximises() -> None:
    """The direction is the study's."""
    run = Run(SuccessiveHalvingPruner(min_resource=10, reduction_factor=2), "abcd", direction="maximize")
    assert run.log({"a": 0.1, "b": 0.9, "c": 0.8, "d": 0.2}, 10) == {"a", "d"}


def test_nan_is_pruned() -> None:
    """By both pruners; and it disturbs no comparison of the others."""
    for pruner in (
        SuccessiveHalvingPruner(min_resource=10, reduction_factor=2),
        MedianPruner(n_startup_trials=1),
    ):
        run = Run(pruner, "abc")
        assert "a" in run.log({"a": math.nan, "b": 1.0, "c": 2.0}, 10)


def test_trials_that_were_there_before_count_too() -> None:
    """A cohort that starts later is compared with what the study knows of those before it."""
    run = Run(SuccessiveHalvingPruner(min_resource=10, reduction_factor=2), "abcd")
    run.log({"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}, 10)
    run.asked["e"] = run.study.ask(fixed_distributions=SPACE)
    run.rungs.start("e")
    assert run.log({"e": 3.5}, 10) == {"e"}


@pytest.mark.parametrize(
    "pruner", [NopPruner(), HyperbandPruner(min_resource=10, max_resource=100)], ids=type
)
def test_other_pruners_are_asked_as_well(pruner: BasePruner) -> None:
    """Whatever they say, it is about steps that all have reached."""
    run = Run(pruner, "abcdef")
    live = list("abcdef")
    for step in (10, 20, 40, 80):
        pruned = run.log({name: float(ord(name)) for name in live}, step)
        assert pruned < set(live)
        live = [name for name in live if name not in pruned]
    assert "a" in live
