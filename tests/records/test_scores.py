"""Which way a logged number is good: by its name, as it was said, or refused; and which trial is the best."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

import tsnb
from tsnb.records import scores
from tsnb.records.scores import UnknownDirection, best_of, direction_of, known_direction, leaders, score


@pytest.fixture(autouse=True)
def nothing_said() -> Iterator[None]:
    """What a test says of a metric ends with it."""
    before = dict(scores._told)
    yield
    scores._told.clear()
    scores._told.update(before)


HIGH = (
    "acc accuracy val_accuracy valAcc val/acc acc1 acc@5 top5 top-5-accuracy f1 f1_macro f1-score test.F1Score auc "
    "roc_auc AUROC precision recall score reward episode_reward mean_return bleu rougeL rouge1 mAP mAP50 mAP@0.5 "
    "map_50 mIoU iou dice val_dice r2 R2 psnr ssim log_likelihood neg_mean_squared_error neg_log_loss ndcg@10 "
    "hits@10 accuracy_val Accuracy/train balanced_accuracy"
)


def test_the_higher_the_better_by_its_name() -> None:
    """Also with prefix, suffix, number and humps."""
    assert {name: known_direction(name) for name in HIGH.split()} == dict.fromkeys(HIGH.split(), "max")


LOW = (
    "loss val_loss train/loss loss_val lossVal trainLoss Loss loss1 dice_loss iou_loss recall_error reward_loss error "
    "err top1_err error_rate perplexity ppl val.ppl mse RMSE val_mae nll negative_log_likelihood cross_entropy_loss "
    "wer test-cer fid regret time step_time train/time_s cumulative_regret neg_reward kl_loss log_loss"
)


def test_the_lower_the_better_by_its_name() -> None:
    """A loss of something good is a loss; what is negative is turned round."""
    assert {name: known_direction(name) for name in LOW.split()} == dict.fromkeys(LOW.split(), "min")


UNKNOWN = (
    "lr churn val x loss_scale grad_norm accuracy_gap score_std one_minus_acc loss_weight epoch temperature margin "
    "precision_time glossary embrace accent temporal map_time"
)


def test_nobody_guesses_of_another_name() -> None:
    """Neither where a word is only part of another, nor where words say both; the error has the line to type."""
    for name in UNKNOWN.split():
        assert known_direction(name) is None, name
        with pytest.raises(UnknownDirection, match=rf"tsnb\.records\.direction\({name}='max'\)"):
            direction_of(name)
        assert direction_of(name, "min") == "min", "said on the spot"


def test_what_is_said_goes_before_the_name() -> None:
    """Once, for this process; other names by a dict; another word than min and max is refused and changes nothing."""
    tsnb.records.direction({"val/churn": "min"}, quality="max", loss="max")
    assert [direction_of(name) for name in ("val/churn", "quality", "loss")] == ["min", "max", "max"]
    assert direction_of("loss", "min") == "min", "and the word on the spot goes before that"
    with pytest.raises(ValueError, match=r"quality='high' is invalid\. Pass 'min' if a low quality"):
        tsnb.records.direction(loss="min", quality="high")
    assert direction_of("loss") == "max"
    with pytest.raises(UnknownDirection, match=r"tsnb\.records\.direction\(\{'val/x': 'max'\}\)"):
        direction_of("val/x")


def test_a_score_is_the_last_value() -> None:
    """That of the network that can be fetched, not of one that has been trained over."""
    assert score([0.5, 0.9, 0.7]) == 0.7
    assert math.isnan(score([])) and math.isnan(score([0.9, math.nan]))


def test_one_that_ended_early_is_the_best_only_where_there_is_no_other() -> None:
    """A nan is worse than any number; of equal ones one that is done is best, then the first by name."""
    trials = [("a", "stopped", 0.1), ("b", "done", 0.4), ("c", "done", 0.4), ("d", "done", math.nan)]
    assert best_of(trials, "min") == "b"
    assert best_of(trials, "max") == "b"
    assert best_of(trials[::-1], "min") == "b", "in whatever order a screen has met them"
    assert best_of([("a", "running", 0.1), ("b", "running", 0.4)], "max") == "b"
    assert best_of([("a", "running", 0.1), *trials], "min") == "a"
    assert best_of([("a", "running", 0.4), *trials[1:]], "min") == "b"
    assert best_of([("a", "stopped", 0.1), ("b", "pruned", 0.4)], "max") == "b"
    assert best_of([("a", "done", math.nan), ("b", "stopped", math.inf)], "min") == "b"
    assert best_of([("a", "done", math.nan)], "min") is None


def test_the_best_is_marked_where_there_is_something_to_compare() -> None:
    """Not of a name that says nothing, nor of one trial alone."""
    trials = [
        ("a", "done", {"loss": 0.3, "acc": 0.8, "churn": 1.0, "f1": 1.0}),
        ("b", "done", {"loss": 0.4, "acc": 0.9, "churn": 2.0}),
    ]
    assert leaders(trials) == {"loss": "a", "acc": "b"}
