"""The names of a sweep and of its trials, from a template: "cnn", or "cnn-lr{lr}" with parameters in braces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tsnb.config import check_name
from tsnb.experiments.plan import TrialOptions, trial_name
from tsnb.sweeps.space_grammar import filled, unlike

__all__ = ["naming_of", "title_of", "trial_names"]


def title_of(template: str) -> str:
    """Return a sweep's name: what stands before the first brace of its trials' names."""
    return template.partition("{")[0].rstrip("-._") or "sweep"


def trial_names(template: str, params: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of a sweep's trials, each another one.

    Args:
        template: A name with parameters in braces, or one that they are added to.
        params: The parameters of each trial.

    Raises:
        ValueError: They cannot be names of trials.
    """
    if "{" not in template:
        check_name(template, "sweep")
    names = [_name(template, given) for given in params]
    return [check_name(name, "trial") for name in unlike(names)]


def _name(template: str, given: Mapping[str, Any]) -> str:
    return filled(template, given) if "{" in template else trial_name(template, given)


def naming_of(template: str, words: Iterable[str]) -> Callable[[Mapping[str, Any], TrialOptions], str]:
    """Return what names a trial of a sweep that is run again with other parameters: the same ones stand in it."""
    shown = tuple(words)

    def naming(params: Mapping[str, Any], options: TrialOptions) -> str:
        return _name(template, {word: params.get(word, getattr(options, word, None)) for word in shown})

    return naming
