"""A course whose trials all start from one plan, which was settled and shipped when the sweep began.

`settle_cell` makes the plan of a cell: its code and variables, its parameters checked. The names of the sweep and of
its trials come from a template: "cnn", or "cnn-lr{lr}" with parameters in braces.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tsnb.config import check_name
from tsnb.experiments.board import launch
from tsnb.experiments.cells import plan_cell
from tsnb.experiments.plan import OPTION_NAMES, TrialOptions, TrialPlan, trial_name
from tsnb.experiments.replanning import replanned
from tsnb.experiments.trial import Trial
from tsnb.kernels.hub import the_hub
from tsnb.kernels.output.capping import Budget
from tsnb.kernels.output.marking import marked
from tsnb.kernels.output.outlets import Outlet
from tsnb.planners.strategies import given_words
from tsnb.sweeps.conductor import Launcher
from tsnb.sweeps.space_grammar import filled, unlike
from tsnb.words import did_you_mean

__all__ = ["Settled", "naming_of", "settle_cell", "title_of", "trial_names"]


class Settled(Launcher):
    """A course that starts its trials from one plan.

    Args:
        title: The sweep's name.
        plan: What its trials have in common, shipped already.
        params: The parameters and options of each, by its name; may grow.
        here: Where their output goes.
    """

    def __init__(
        self, title: str, plan: TrialPlan, params: Mapping[str, Mapping[str, Any]], here: Outlet
    ) -> None:
        self.title = title
        self.params = params
        self._gives: Callable[[str], Mapping[str, Any]] = lambda _: {}
        self._said: Mapping[str, Mapping[str, Any]] = {}
        self._plan = plan
        self._here = here
        self._budget = Budget()

    def launch(self, name: str, gate: Path | None) -> Trial:
        """Start a trial, with parameters of its own."""
        chosen, said = self._gives(name), self._said.get(name, {})
        if other := {word: value for word, value in chosen.items() if value != said.get(word, value)}:
            words = " and ".join(given_words(*each) for each in other.items())
            self.say(f"{name} starts with {words}, which the plan now prefers")
        plan = replanned(self._plan, {**self.params[name], **chosen, "name": name}, gate)
        return launch(replace(plan, naming=self._plan.naming), marked(self._here, name, self._budget))

    def params_of(self, name: str) -> Mapping[str, Any]:
        """Return its parameters, those that all trials share among them."""
        own = {**self.params[name], **self._said.get(name, {})}
        return {**self._plan.params, **{word: own[word] for word in own if word not in OPTION_NAMES}}

    def take_choice(self, gives: Callable[[str], Mapping[str, Any]]) -> None:
        """Have trials started with what a plan has chosen for them.

        Args:
            gives: Returns the options and parameters of a trial, by its name; they may change until it starts, and it
                is said where they are other than now.
        """
        self._gives, self._said = gives, {name: dict(gives(name)) for name in self.params}

    def ended(self, trial: Trial) -> None:
        """Do nothing: its state says it all."""

    def over(self) -> None:
        """Let go of what was shipped: every trial that was started shares it."""
        self._plan.arrival["cargo"].close()

    def say(self, line: str) -> None:
        """Show a line where the trials' output is shown. From any thread."""
        content = {"name": "stdout", "text": f"sweep {self.title!r}: {line}\n"}
        the_hub().loop.call_soon_threadsafe(self._here.publish, "stream", content)


def settle_cell(
    title: str,
    name: str,
    source: str,
    namespace: Mapping[str, Any],
    params: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    transform: Callable[[str], str],
    also: Iterable[str],
    check: bool,
) -> TrialPlan:
    """Return what the trials of a cell have in common, its variables shipped.

    Args:
        title: Of the sweep.
        name: Of its first trial.
        source: The cell.
        namespace: The notebook's variables.
        params: The parameters of the first trial.
        options: `plan.TrialOptions`, by name.
        transform: IPython's `transform_cell`.
        also: Variables that it takes along whether it reads them or not.
        check: Whether names that are not defined, and parameters that it does not read, are refused.

    Raises:
        Exception: As `run_cell` raises.
    """
    settled = TrialOptions(**{**options, "sweep": title})
    told = plan_cell(
        name, source, namespace, settled, transform=transform, params=params, also=also, check=check
    )
    own = {key: value for key, value in params.items() if key not in OPTION_NAMES}
    if check:
        try:
            _require_read(told, own)
        except BaseException:
            told.discard()
            raise
    return replace(told, params=own, signature=_signature(params))


def _require_read(plan: TrialPlan, names: Iterable[str]) -> None:
    """Refuse parameters that make no difference to a cell: its trials would be the same, recorded as different ones.

    Raises:
        ValueError: The cell sets one of them itself, or reads none of that name.
    """
    for name in names:
        if name in plan.reads:
            continue
        if name in plan.sets:
            raise ValueError(
                f"The cell sets {name!r} itself, so a value for it would have no effect. Nothing was started. "
                f"Remove that line: the sweep provides {name!r} as a variable."
            )
        hint = did_you_mean(name, plan.reads)
        raise ValueError(
            f"The cell reads no variable {name!r}, so a value for it would have no effect. Nothing was "
            f"started.{hint} If tsnb cannot see how the cell reads it, add --no-check."
        )


def _signature(names: Iterable[str]) -> inspect.Signature:
    """Return what a cell takes: an option of ours that is swept over (batch_size) is a variable of the cell, too."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature([inspect.Parameter(name, kind, default=None) for name in names])


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
