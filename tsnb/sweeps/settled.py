"""A source whose trials all start from one plan, which was settled and shipped when the sweep began.

`FunctionCode` and `CellCode` are what a sweep runs: each makes that plan of its code, its variables and parameters.
The names of the sweep and of its trials come from a template: "cnn", or "cnn-lr{lr}" with parameters in braces.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from tsnb.conducting.conductor import TrialSource
from tsnb.config import check_name
from tsnb.experiments.cells import plan_cell
from tsnb.experiments.functions import plan_function
from tsnb.experiments.overview.board import launch
from tsnb.experiments.plan import OPTION_NAMES, TrialOptions, TrialPlan, trial_name
from tsnb.experiments.replanning import replanned
from tsnb.experiments.trial import Trial
from tsnb.kernels.hub import the_hub
from tsnb.kernels.output.capping import Budget
from tsnb.kernels.output.marking import marked
from tsnb.kernels.output.outlets import Outlet
from tsnb.planners.strategies import given_words
from tsnb.sweeps.space_grammar import filled, unlike
from tsnb.text.words import did_you_mean

__all__ = ["CellCode", "FunctionCode", "Settled", "TrialCode", "naming_of", "title_of", "trial_names"]


class TrialCode(Protocol):
    """What the trials of a sweep run."""

    def settled(self, name: str, sweep: str, shared: Mapping[str, Any], own: Mapping[str, Any]) -> TrialPlan:
        """Return what the trials have in common, shipped.

        Args:
            name: Of the first trial.
            sweep: The sweep's name.
            shared: Options of `tsnb.run`, and arguments of a function, that are the same in all trials.
            own: What the first trial has for itself.

        Raises:
            Exception: As `tsnb.run` and `run_cell` raise; of a cell also ValueError, where a parameter has no effect.
        """


@dataclass(frozen=True)
class FunctionCode:
    """A function; it gets its parameters as arguments."""

    fn: Callable[..., Any]
    """The function."""
    with_: str | Iterable[str] = ()
    """Variables that it takes along besides."""
    check: bool = True
    """Whether names that are not defined are refused."""

    def settled(self, name: str, sweep: str, shared: Mapping[str, Any], own: Mapping[str, Any]) -> TrialPlan:
        """Return what the trials have in common, as `TrialCode` has it."""
        given = {**shared, **own}
        ours = {word: given.pop(word) for word in [*given] if word in OPTION_NAMES}
        return plan_function(
            self.fn, given, name=name, with_=self.with_, check=self.check, **{**ours, "sweep": sweep}
        )


@dataclass(frozen=True)
class CellCode:
    """A cell; it finds its parameters as variables."""

    source: str
    """The cell."""
    namespace: Mapping[str, Any]
    """The notebook's variables."""
    transform: Callable[[str], str] = str
    """IPython's `transform_cell`."""
    also: Iterable[str] = ()
    """Variables that it takes along whether it reads them or not."""
    check: bool = True
    """Whether names that are not defined, and parameters that it does not read, are refused."""

    def settled(self, name: str, sweep: str, shared: Mapping[str, Any], own: Mapping[str, Any]) -> TrialPlan:
        """Return what the trials have in common, as `TrialCode` has it."""
        options = TrialOptions(**{**shared, "sweep": sweep})
        told = plan_cell(
            name,
            self.source,
            self.namespace,
            options,
            transform=self.transform,
            params=own,
            also=self.also,
            check=self.check,
        )
        params = {word: value for word, value in own.items() if word not in OPTION_NAMES}
        if self.check:
            try:
                _require_read(told, params)
            except BaseException:
                told.discard()
                raise
        return replace(told, params=params, signature=_signature(own))


class Settled(TrialSource):
    """A source that starts its trials from one plan.

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
        return launch(replace(plan, naming=self._plan.naming), self._outlet(name))

    def _outlet(self, name: str) -> Outlet:
        """Return where the output of a trial goes."""
        return marked(self._here, name, self._budget)

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

    def over(self) -> None:
        """Let go of what was shipped: every trial that was started shares it."""
        self._plan.arrival["cargo"].close()

    def say(self, line: str) -> None:
        """Show a line where the trials' output is shown. From any thread."""
        content = {"name": "stdout", "text": f"sweep {self.title!r}: {line}\n"}
        the_hub().loop.call_soon_threadsafe(self._here.publish, "stream", content)


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
