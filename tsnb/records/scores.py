"""Which way a logged number is good, and the one score that a trial has in it. Pure.

- A metric's **direction** is what `tsnb.records.direction` was told, else what its name means: "val/accuracy" is good
  when it is high, "loss_val" when it is low. No other name is guessed: `direction_of` says which line to type.
- A trial's **score** in a metric is the last value that it logged: that of the network that `trial["net"]` returns.
- Of several trials the **best** is the one with the best score. One that ended early counts only where there is no
  other. nan is worse than any number. Of equal scores one that is done is best, then the first by name: a screen
  that is opened late does not know which came first.

Tables, `best`, `compare`, `halving`, Optuna, panel, `tsnb top` and reports all ask here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from tsnb.errors import TsnbError

__all__ = [
    "UnknownDirection",
    "best_of",
    "check_mode",
    "declared",
    "direction",
    "direction_of",
    "known_direction",
    "leaders",
    "rank",
    "score",
    "told",
]

MODES = ("min", "max")
ENDED_EARLY = ("failed", "crashed", "interrupted", "stopped", "pruned")
"""Ends of trials that have trained less than they should: their last value is no result."""

_HIGH = (
    "acc accuracy accuracies auc auroc auprc aupr ap map precision recall sensitivity specificity f f1 f2 fbeta fscore "
    "score scores reward rewards return returns bleu rouge meteor chrf cider spice iou miou giou jaccard dice r2 psnr "
    "ssim kappa mcc ndcg mrr hit hits top win wins success correct similarity correlation pearson spearman likelihood "
    "elbo tpr tnr throughput"
)
"""Words in a name that say: the higher, the better."""

_LOW = (
    "loss losses error errors err mistakes perplexity ppl mse rmse msle rmsle mae mape smape mad nll bce ce xent "
    "crossentropy logloss hinge huber kl kld wer cer ter eer fid kid lpips brier ece regret cost time latency duration "
    "runtime elapsed seconds fpr fnr bpc bpd misclassification"
)
"""Words in a name that say: the lower, the better."""

DECIDES = frozenset({"loss", "losses", "error", "errors", "err"})
"""Beside a word of the other kind these decide: a dice_loss is a loss."""

TURNS = frozenset({"neg", "negative"})
"""Words that turn the meaning round: neg_mse, negative_log_likelihood."""

_OTHER = (
    "gap ratio weight weights scale std stdev var variance diff difference delta drop change count lr norm "
    "threshold minus inverse grad gradient temperature decay"
)
"""Words after which a name means something else: a loss_scale is not a loss."""

HIGH, LOW, OTHER = (frozenset(words.split()) for words in (_HIGH, _LOW, _OTHER))

_told: dict[str, str] = {}
_listeners: list[Callable[[dict[str, str]], None]] = []


class UnknownDirection(TsnbError, ValueError):
    """Nothing says whether a high or a low value of a metric is good; the message has the line to type."""


def direction(metrics: Mapping[str, str] | None = None, /, **named: str) -> None:
    """Declare whether a high or a low value of a metric is good.

    Holds for everything that compares trials: `best`, `results`, `halving`, tables, plots, Optuna and the panel.
    tsnb knows names such as accuracy, f1 and reward (high), or loss, error and perplexity (low). A declared
    direction overrides that. A trial tells its notebook.

    Example:
        >>> tsnb.records.direction(churn="min", quality="max")

    Args:
        metrics: "min" or "max" by name, for names that are not identifiers, such as {"val/churn": "min"}. Defaults
            to none.
        **named: "min" where a low value is good, "max" where a high one is.

    Raises:
        ValueError: If a direction is another word.
    """
    given = {**(metrics or {}), **named}
    for metric, mode in given.items():
        check_mode(mode, metric, metric)
    _told.update(given)
    for listener in _listeners if given else ():
        listener(given)


def told(listener: Callable[[dict[str, str]], None]) -> None:
    """Have a listener called with the directions that `direction` is given from now on, in the calling thread."""
    _listeners.append(listener)


def check_mode(mode: str, metric: str, word: str = "mode") -> str:
    """Return a direction that was given.

    Args:
        mode: What was given.
        metric: The logged name.
        word: The argument that it was given as.

    Raises:
        ValueError: It is neither "min" nor "max".
    """
    if mode not in MODES:
        raise ValueError(
            f"{word}={mode!r} is invalid. Pass 'min' if a low {metric} is better, 'max' if a high "
            f"{metric} is better."
        )
    return mode


def declared(metrics: Iterable[str]) -> dict[str, str]:
    """Return the directions that `direction` was given in this process, of these metrics."""
    return {metric: _told[metric] for metric in metrics if metric in _told}


def known_direction(metric: str, elsewhere: Mapping[str, str] | None = None) -> str | None:
    """Return "min" or "max" where it was said, or the name says it; else None.

    Args:
        metric: A logged name, with a prefix or suffix as they are in use: "train/loss", "valAcc", "f1_macro", "acc@5".
        elsewhere: Directions that were declared in other processes, by metric. What was said in this one holds first.
    """
    if metric in _told:
        return _told[metric]
    if elsewhere and metric in elsewhere:
        return elsewhere[metric]
    words = _words(metric)
    high, low = bool(words & HIGH), bool(words & LOW)
    if words & OTHER or not (high or low) or (high and low and not words & DECIDES):
        return None
    return ("min" if low else "max") if not words & TURNS else ("max" if low else "min")


def direction_of(metric: str, mode: str | None = None) -> str:
    """Return which way a metric is good: as given, else as it was said or its name says.

    Args:
        metric: A logged name.
        mode: "min" or "max"; None: not given.

    Raises:
        UnknownDirection: Neither a given direction nor the name says.
        ValueError: `mode` is another word.
    """
    if mode is not None:
        return check_mode(mode, metric)
    known = known_direction(metric)
    if known is None:
        said = f"{metric}='max'" if metric.isidentifier() else f"{{{metric!r}: 'max'}}"
        raise UnknownDirection(
            f"tsnb cannot tell whether a high or a low {metric!r} is better. Pass mode='max' or mode='min', "
            f"or set it once in a separate cell: tsnb.records.direction({said})  (or 'min')."
        )
    return known


def score(values: Sequence[float]) -> float:
    """Return a trial's score in a metric: the last value that it logged; nan where it logged none.

    Args:
        values: What it logged, oldest first.
    """
    return values[-1] if values else math.nan


def rank(value: float, mode: str, state: str = "done") -> tuple[bool, bool, float, bool]:
    """Return a key to sort scores by, the best first.

    Args:
        value: A trial's score.
        mode: "min" or "max".
        state: How the trial stands. One that ended early comes after the others. Of equal scores, one that is done
            comes first.
    """
    low = 0.0 if math.isnan(value) else value if mode == "min" else -value
    return math.isnan(value), state in ENDED_EARLY, low, state != "done"


def best_of(trials: Iterable[tuple[str, str, float]], mode: str) -> str | None:
    """Return the name of the best trial; None where none has a score.

    Args:
        trials: Name, state and score of each.
        mode: "min" or "max".
    """
    able = [trial for trial in trials if not math.isnan(trial[2])]
    found = min(able, key=lambda trial: (rank(trial[2], mode, trial[1]), trial[0]), default=None)
    return None if found is None else found[0]


def leaders(
    trials: Sequence[tuple[str, str, Mapping[str, float]]], elsewhere: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the name of the best trial by metric: of those that two or more logged, and whose direction is known.

    Args:
        trials: Name, state and scores by metric of each.
        elsewhere: As `known_direction`.
    """
    found = {}
    for metric in dict.fromkeys(metric for *_, scores in trials for metric in scores):
        mode = known_direction(metric, elsewhere)
        those = [(name, state, scores[metric]) for name, state, scores in trials if metric in scores]
        best = best_of(those, mode) if mode is not None and len(those) > 1 else None
        if best is not None:
            found[metric] = best
    return found


def _words(metric: str) -> set[str]:
    """Return the words of a name: at signs and camel's humps, with their number and without ("acc1", "r2", "top5")."""
    parts = [part for part in re.split(r"[^A-Za-z0-9]+", metric) if part]
    humps = [hump for part in parts for hump in re.split(r"(?<=[a-z0-9])(?=[A-Z])", part)]
    words = {word.lower() for word in (*parts, *humps)}
    return words | {word.rstrip("0123456789") for word in words}
