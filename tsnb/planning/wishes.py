"""What is to be planned: trials as their user gives them, and numbers that are checked. Starts nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tsnb.experiments.plan import epochs_of, name_of, trial_name

__all__ = ["TrialWish", "check_number", "one_epoch_text", "wanted"]


@dataclass(frozen=True)
class TrialWish:
    """A trial that is to be planned."""

    name: str
    """Its name."""
    fn: Callable[..., Any] = field(repr=False)
    """What it runs."""
    params: Mapping[str, Any]
    """The function's arguments, by name."""
    epochs: float
    """That it takes."""
    open_ended: bool = False
    """Whether it does not say how many: then one is assumed."""


def wanted(given: Any, epochs: float | None, *, caller: str = "tsnb.plan") -> list[TrialWish]:
    """Read the trials to plan.

    Args:
        given: Functions, or pairs of a function and its parameters; with a mapping under the trials' names.
        epochs: That each takes, where its parameters do not say so by "epochs".
        caller: The function that the user called.

    Raises:
        TypeError: It is something else.
        ValueError: No trial was given, or two have one name.
    """
    named = given.items() if isinstance(given, Mapping) else ((None, each) for each in _each(given))
    found = []
    for name, each in named:
        fn, params = each if isinstance(each, tuple) and len(each) == 2 else (each, {})
        if not callable(fn) or not isinstance(params, Mapping):
            raise TypeError(
                f"{caller} takes functions as tsnb.run does, each alone or with its parameters: "
                f'{caller}({{"small": (train, {{"width": 32}}), "large": (train, {{"width": 512}})}}, loader=loader).'
            )
        own = name_of(fn)
        said = epochs if epochs is not None else params.get("epochs", epochs_of(fn, params) or None)
        long = 1 if said is None else said
        if isinstance(long, bool) or not isinstance(long, (int, float)) or not 0 < long < math.inf:
            raise ValueError(f"epochs={long!r}: give the number of epochs that a trial takes.")
        found.append(TrialWish(name or trial_name(own, params), fn, dict(params), float(long), said is None))
    names = [each.name for each in found]
    if not names or len(set(names)) < len(names):
        raise ValueError(
            f"{caller} needs at least one trial, each with a name of its own: give a mapping of names to functions."
        )
    return found


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
        f" {', '.join(names)} {'is' if one else 'are'} taken to train for one epoch{'' if one else ' each'}, "
        "as nothing says how many: give a parameter epochs."
    )


def check_number(name: str, value: Any, what: str) -> None:
    """Refuse an argument that is not a number above 0; None is left out.

    Args:
        name: The argument's.
        value: What was given.
        what: What it is, in words.

    Raises:
        ValueError: It is not.
    """
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is not None and not (number and 0 < value < math.inf):
        raise ValueError(f"{name}={value!r}: give {what}, more than 0.")
