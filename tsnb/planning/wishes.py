"""What is to be planned: trials as their user gives them, and what is left to the plan of each. Starts nothing.

A *strategy* of a trial (`planners.strategies`) is one combination of a number of threads and of a value for each
parameter that `choose` names.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tsnb.config import check_name
from tsnb.errors import TsnbError
from tsnb.experiments.functions import plan_function
from tsnb.experiments.plan import OPTION_NAMES, TrialPlan, epochs_of, name_of, trial_name
from tsnb.experiments.replanning import check_changes, check_fit, replanned
from tsnb.experiments.trial import Trial
from tsnb.options import runs_here
from tsnb.planners.strategies import Jobs, Strategy, fitting
from tsnb.planning.trial_costs import Profile
from tsnb.stalling import asked
from tsnb.text.words import size_text

__all__ = [
    "Choices",
    "TrialWish",
    "choices_for",
    "not_run",
    "one_epoch_text",
    "read_choices",
    "strategies",
    "too_large",
    "wanted",
]

Choices = tuple[tuple[str, tuple[Any, ...]], ...]
"""Parameters, and the values of which each trial has one: the preferred one first."""


@dataclass(frozen=True)
class TrialWish:
    """A trial that is to be planned."""

    name: str
    """Its name."""
    fn: Callable[..., Any] | Trial = field(repr=False)
    """What it runs: a function, or the code of a trial."""
    params: Mapping[str, Any]
    """The function's arguments, or what is to be other than in that trial, by name."""
    epochs: float
    """That it takes."""
    open_ended: bool = False
    """Whether it does not say how many: then one is assumed."""
    device: str | None = None
    """The only device that it sees; None: whatever there is."""

    def told(self, epochs: int) -> TrialWish:
        """Return it as one that has said itself, while it was profiled, how many epochs it takes.

        Args:
            epochs: So many; 0: it has not.
        """
        return replace(self, epochs=float(epochs), open_ended=False) if self.open_ended and epochs else self

    def require_fit(self, params: Mapping[str, Any]) -> None:
        """Refuse parameters that it does not take beside its own: else that is found when the loader has been measured.

        Raises:
            TypeError: It does not take them.
        """
        if isinstance(self.fn, Trial):
            check_changes(self.fn.life.plan, {**self.params, **params})
            return
        signature = inspect.signature(self.fn)
        ours = dict.fromkeys(signature.parameters.keys() & set(_OURS))
        check_fit(signature, {**ours, **self.params, **params}, name_of(self.fn))

    def given(self, params: Mapping[str, Any], device: str | None = None) -> TrialWish:
        """Return it with what a plan has chosen for it.

        Args:
            params: Parameters, beside its own.
            device: The only device that it sees; None: as before.
        """
        return replace(self, params={**self.params, **params}, device=device or self.device)

    def check(self, threads: int) -> None:
        """Refuse what could not be started, in the user's words: else it is found when the loader has been measured.

        Args:
            threads: Torch threads of it.

        Raises:
            ValueError: An option of its own is invalid, or has it run on a cluster.
            Exception: As `tsnb.run` and `Trial.rerun` raise.
        """
        made = self.planned(self.name, self.name, threads)
        made.discard()
        if not runs_here(made.options.engine):
            raise ValueError(
                f"Trial {self.name!r} has engine={made.options.engine!r}, but a measurement on this machine "
                "does not apply to a cluster. Remove engine."
            )

    @property
    def known_as(self) -> tuple[str, ...]:
        """The names by which it, or the trial that `tsnb.run` makes of its function, is known."""
        own = self.fn.name if isinstance(self.fn, Trial) else trial_name(name_of(self.fn), self.params)
        return self.name, own

    def planned(self, name: str, stream: str, threads: int, gate: Path | None = None) -> TrialPlan:
        """Return what starts it.

        Args:
            name: The name that it gets.
            stream: What it takes batches of.
            threads: Torch threads of it.
            gate: The gate at which it waits before its first batch.

        Raises:
            Exception: As `tsnb.run` and `Trial.rerun` raise.
        """
        options: dict[str, Any] = {"stream": stream, "threads": threads}
        options |= {} if self.device is None else {"device": self.device}
        if not isinstance(self.fn, Trial):
            made = plan_function(self.fn, self.params, name=name, **options)
            return replace(made, options=replace(made.options, gate=gate, in_turn=True))
        told = replanned(self.fn.life.plan, {**self.params, **options, "name": name}, gate)
        alone = replace(told.options, sweep="", in_turn=True, log_to=(), restart=None, after=None)
        return replace(told, options=alone)


def wanted(given: Any, epochs: float | None) -> list[TrialWish]:
    """Read the trials to plan.

    Args:
        given: Functions, or pairs of a function and its parameters; with a mapping under the trials' names.
        epochs: That each takes that is not given its own by "epochs"; a function with such a parameter gets it.

    Raises:
        TypeError: It is something else, or the parameters do not fit.
        ValueError: No trial was given, two have one name, or one has a name that cannot be a trial's.
    """
    named = given.items() if isinstance(given, Mapping) else ((None, each) for each in _each(given))
    found = []
    for name, each in named:
        fn, params = each if isinstance(each, tuple) and len(each) == 2 else (each, {})
        if not (callable(fn) or isinstance(fn, Trial)) or not isinstance(params, Mapping):
            raise TypeError(
                "tsnb.plan takes functions like tsnb.run, each alone or with its parameters: "
                'tsnb.plan({"small": (train, {"width": 32}), "large": (train, {"width": 512})}, '
                'loader=loader). To plan a cell, pass its trial: tsnb.trials["cnn"].'
            )
        own, there = _known(fn, params)
        said = there if epochs is None or "epochs" in params else epochs
        long = 1 if said is None else said
        long = asked.EPOCHS.checked("epochs", long)
        called = check_name(name or trial_name(own, params), "trial")
        if epochs is not None and _takes_epochs(fn):  # what is planned is what is run
            params = {"epochs": int(long) if long == int(long) else long, **params}
        wish = TrialWish(called, fn, dict(params), float(long), said is None)
        if not isinstance(fn, Trial):
            wish.require_fit({})
        found.append(wish)
    names = [each.name for each in found]
    if not names:
        raise ValueError("tsnb.plan needs at least one trial. Pass a mapping of names to functions.")
    if double := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(
            f"tsnb.plan has two trials named {double!r}. Pass different parameters, or a mapping of names to "
            "functions."
        )
    return found


_OURS = ("name", "stream", "threads")
"""What a function is given as well if it has a parameter of that name."""


def _takes_epochs(fn: Callable[..., Any] | Trial) -> bool:
    """Whether code has a parameter `epochs` that can be given to it."""
    if not isinstance(fn, Trial):
        return "epochs" in inspect.signature(fn).parameters
    plan = fn.life.plan
    return "epochs" in plan.params or (plan.signature is not None and "epochs" in plan.signature.parameters)


def _known(fn: Callable[..., Any] | Trial, params: Mapping[str, Any]) -> tuple[str, Any]:
    """Return what the trials of some code are called, and how many epochs they take; None where it does not say.

    Raises:
        TsnbError: It is a trial of another notebook, whose code is there.
    """
    if not isinstance(fn, Trial):
        return name_of(fn), params.get("epochs", epochs_of(fn, params))
    if fn.life.launch is None:
        raise TsnbError(
            f"Trial {fn.name!r} was started by another notebook, which holds its code and variables. Run "
            "its cell here first"
        )
    plan = fn.life.plan
    known = {**plan.params, **plan.arguments, **params}
    there = plan.signature.parameters.get("epochs") if plan.signature is not None else None
    default = None if there is None or there.default is there.empty else there.default
    return fn.name, known.get("epochs", default or fn.eta.epochs or None)


def _each(given: Any) -> Iterable[Any]:
    return given if isinstance(given, Iterable) else [given]


def one_epoch_text(names: Sequence[str]) -> str:
    """Return the sentence that says of which trials one epoch is assumed; empty where there are none.

    Args:
        names: Trials that do not say how many epochs they take.
    """
    if not names:
        return ""
    one = len(names) == 1
    return (
        f" {', '.join(names)} {'is' if one else 'are'} assumed to train for one "
        f"epoch{'' if one else ' each'}, because the number is unknown. Add a parameter epochs."
    )


def read_choices(
    choose: Mapping[str, Sequence[Any]], taken: Mapping[str, str], instead: Callable[[str], str]
) -> Choices:
    """Return parameters and the values of each, each value once.

    Args:
        choose: As the user gives it.
        taken: Parameters that trials have otherwise, and how, in words: "swept over".
        instead: Says of an option what to do instead.

    Raises:
        ValueError: One is an option, is given otherwise too, or its values are not a list of plain ones.
    """
    found = []
    for name, values in choose.items():
        if name in OPTION_NAMES or name in ("epochs", "name"):
            raise ValueError(
                f"choose={{{name!r}: ...}} is invalid, because a plan picks only parameters that change how a "
                f"trial runs and not what it trains, such as a limit for tsnb.offload. {instead(name)}"
            )
        if name in taken:
            raise ValueError(f"{name} is {taken[name]} and also in choose=. Remove one of them.")
        if not isinstance(values, (list, tuple, range)) or not values or not all(map(_is_plain, values)):
            raise ValueError(
                f"choose={{{name!r}: {values!r}}} is invalid. Pass a list of numbers, strings or None with "
                'the preferred value first, for example choose={"limit": [None, "2GiB"]}.'
            )
        found.append((name, tuple(dict.fromkeys(values))))
    return tuple(found)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def strategies(choose: Choices, several: Sequence[int], threads: int) -> list[Strategy]:
    """Return all strategies, the preferred one first: other values count less than more threads.

    Args:
        choose: The values that are left to the plan.
        several: Numbers of torch threads that are, the fewest first; empty: none.
        threads: Torch threads of a trial, where the plan does not choose them.
    """
    names = [name for name, _ in choose]
    return [
        Strategy(
            number or threads,
            (*([("threads", number)] if number else ()), *zip(names, values, strict=True)),
        )
        for values in itertools.product(*(values for _, values in choose))
        for number in several or (0,)
    ]


def choices_for(wanted: Sequence[TrialWish], choose: Mapping[str, Sequence[Any]]) -> Choices:
    """Return what `tsnb.plan` was asked to choose for some trials.

    Raises:
        ValueError: As `read_choices`.
        TypeError: A trial does not take such a parameter.
    """
    taken = {word: f"set for {each.name}" for each in wanted for word in each.params}
    found = read_choices(choose, taken, _instead)
    for each in wanted:
        each.require_fit({name: values[0] for name, values in found})
    return found


def _instead(name: str) -> str:
    own = {"threads": "threads=(1, 2)", "device": 'devices=["cuda:0", "cuda:1"]'}
    return (
        f"Pass it as its own argument: {own[name]}."
        if name in own
        else f"Pass it to each trial: (train, {{{name!r}: ...}})."
    )


def not_run(found: Mapping[Strategy, Profile]) -> list[str]:
    """Say of trials that are not run with a value why they are not: they failed with it, or died."""
    return [
        f"{name} is not run with {strategy}: {why}"
        for strategy, seen in found.items()
        for name, why in seen.failed.items()
    ]


def too_large(jobs: Jobs, memory_bytes: float) -> list[str]:
    """Say of trials that do not fit with what is preferred for them, where they fit with another value.

    Args:
        jobs: The trials with each strategy, the preferred one first.
        memory_bytes: For all that run at once.
    """
    lines = []
    for name, each in fitting(jobs, memory_bytes).items():
        first, job = next(iter(jobs[name].items()))
        if first not in each:
            size = job.memory_bytes if job.memory_bytes > memory_bytes else job.device_bytes
            lines.append(f"{name} is not run with {first}: it does not fit the memory ({size_text(size)})")
    return lines
