"""Cross-validation: a trial for each fold on one stream, and what they logged together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tsnb
from tsnb.sweeps.folds import Score, folds_of, scores_of

LIMIT_S = 90


def made(source: str) -> Any:
    """A function that travels by value: this file cannot be imported in a trial."""
    import __main__

    exec(compile(source, "<cell>", "exec"), vars(__main__))
    return vars(__main__)["train"]


TRAIN = """
def train(fold, epochs=2):
    import tsnb
    batches, held = tsnb.attach(fold=fold), tsnb.attach(fold=fold, held_out=True)
    seen = [(batches.epoch, sorted(x.item() for (labels,) in batches for x in labels)) for _ in range(epochs)]
    validated = sorted(x.item() for (labels,) in held for x in labels)
    tsnb.log(held=float(fold[0]), epochs=epochs)
    return seen, batches.epoch, validated, held.name
"""


@pytest.mark.system
def test_every_fold_trains_on_what_it_does_not_validate_on_in_the_same_epochs(numbers: Any) -> None:
    """Three folds in real trials: together they validate on each sample once, and mean and spread are theirs."""
    found = tsnb.sweep(made(TRAIN), folds=3, seed=1).wait(LIMIT_S)
    trials = list(found.values())
    assert [trial.name for trial in trials] == ["train-fold0", "train-fold1", "train-fold2"]
    results = [trial.result() for trial in trials]
    got = [2 * len(seen[0][1]) + len(validated) for seen, _, validated, _ in results]
    assert [trial.report["samples"] for trial in trials] == list(found.results()["samples"]) == got
    assert {trial.report["epochs"] for trial in trials} == {2}, "the held-out consumer's epoch is no training"
    everything = [float(i) for i in range(400)]
    assert sorted(x for _, _, validated, _ in results for x in validated) == everything
    for (seen, last, validated, name), trial in zip(results, trials, strict=True):
        assert last == 1, "all folds were to share the stream's first two epochs"
        assert all(sorted(trained + validated) == everything for _, trained in seen)
        assert name == f"{trial.name}-held-out"
    assert found.score("held") == Score(1.0, 1.0, 3)
    assert found.scores()["epochs"] == Score(2.0, 0.0, 3)
    assert "3 of 3" in repr(found) and "train-fold2" in found._repr_html_()
    assert len(found.results()) == 3
    with pytest.raises(ValueError, match=r"has logged 'loss'.*The trials logged held, epochs"):
        found.score("loss")


def test_scores_are_of_folds_that_are_done() -> None:
    """One that failed, one that logged no number at all, and one whose loss is not a number."""

    class Trial:
        def __init__(self, state: str, **metrics: float) -> None:
            self.state, self.metrics = state, metrics

    trials: Any = {
        "a": Trial("done", loss=1.0, top=math.nan),
        "b": Trial("done", loss=3.0, top=1.0),
        "c": Trial("failed", loss=99.0),
        "d": Trial("done"),
    }
    scores = scores_of(trials.values())
    assert scores["loss"] == Score(2.0, math.sqrt(2.0), 2)
    assert math.isnan(scores["top"].mean) and scores["top"].trials == 2


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"folds": 1}, "folds=1 is invalid. Pass a whole number, 2 or more"),
        ({"folds": 5, "seed": "x"}, "seed='x'"),
        ({"folds": 2.0}, "2.0"),
    ],
)
def test_what_cannot_be_meant_starts_nothing(options: Any, why: str) -> None:
    """Before a trial is planned."""
    with pytest.raises(ValueError, match=why):
        tsnb.sweep(made(TRAIN), **options)


def test_a_number_of_numpy_is_a_number_of_folds() -> None:
    """A notebook that computes it has one; it travels to trials as Python's own."""
    assert folds_of(np.int64(2), None) == [(0, 2, 0), (1, 2, 0)]  # type: ignore[arg-type]
    assert {type(number) for fold in folds_of(np.int64(2), None) for number in fold} == {int}  # type: ignore[arg-type]


def test_a_function_without_fold_is_told(numbers: Any) -> None:
    """All of its trials would be the same."""
    with pytest.raises(TypeError, match="fold"):
        tsnb.sweep(made("def train(): pass"), folds=5)
