"""A course whose trials all start from one plan, which was settled and shipped when the sweep began."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tsnb.experiments.board import launch
from tsnb.experiments.plan import TrialPlan
from tsnb.experiments.replanning import replanned
from tsnb.experiments.trial import Trial
from tsnb.kernels.hub import the_hub
from tsnb.kernels.output.capping import Budget
from tsnb.kernels.output.marking import marked
from tsnb.kernels.output.outlets import Outlet
from tsnb.planners.strategies import given_words
from tsnb.sweeps.conductor import Launcher

__all__ = ["Settled"]


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
