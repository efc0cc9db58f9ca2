"""Which parameters the trials of a sweep get: all combinations of a grid, or a number drawn from a space.

| space | what is drawn |
|---|---|
| `uniform(low, high)` | a float; every part of the range equally often |
| `loguniform(low, high)` | a float; every factor equally often: 1e-4 to 1e-3 as often as 1e-3 to 1e-2 |
| `randint(low, high)` | a whole number, both ends included |
| `choice(values)` | one of them; a plain list or tuple means the same |

Pure: the same seed gives the same parameters, in the same order.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = [
    "Distribution",
    "choice",
    "combinations",
    "draw",
    "loguniform",
    "randint",
    "require_no_name",
    "settings",
    "uniform",
]

TRIES = 100
"""How often a combination that was drawn already is drawn again before the space counts as exhausted."""


class Distribution(Protocol):
    """The distribution of one parameter."""

    def draw(self, random: random.Random) -> Any:
        """Return one value."""


@dataclass(frozen=True)
class Uniform:
    """A float between two others, every part of the range equally often."""

    low: float
    high: float

    def draw(self, random: random.Random) -> float:
        """Return one value."""
        return random.uniform(self.low, self.high)


@dataclass(frozen=True)
class LogUniform:
    """A positive float between two others, every factor equally often."""

    low: float
    high: float

    def draw(self, random: random.Random) -> float:
        """Return one value."""
        drawn = math.exp(random.uniform(math.log(self.low), math.log(self.high)))
        return min(max(drawn, self.low), self.high)  # exp(log(x)) may miss x by a rounding


@dataclass(frozen=True)
class RandInt:
    """A whole number between two others, both included."""

    low: int
    high: int

    def draw(self, random: random.Random) -> int:
        """Return one value."""
        return random.randint(self.low, self.high)


@dataclass(frozen=True)
class Choice:
    """One of several values."""

    values: tuple[Any, ...]

    def draw(self, random: random.Random) -> Any:
        """Return one value."""
        return random.choice(self.values)


def uniform(low: float, high: float) -> Distribution:
    """Draw a float between two bounds, evenly over the range.

    Example:
        >>> space = {"dropout": tsnb.search.uniform(0.0, 0.5)}

    Args:
        low: Smallest value.
        high: Largest value.

    Raises:
        ValueError: If `low` is not below `high`.
    """
    _require_range("uniform", low, high)
    return Uniform(low, high)


def loguniform(low: float, high: float) -> Distribution:
    """Draw a float between two bounds, evenly over its magnitudes.

    Learning rates want this.

    Example:
        >>> space = {"lr": tsnb.search.loguniform(1e-4, 1e-1)}

    Args:
        low: Smallest value, above 0.
        high: Largest value.

    Raises:
        ValueError: If `low` is not above 0, or not below `high`.
    """
    _require_range("loguniform", low, high)
    if low <= 0:
        raise ValueError(
            f"loguniform({low}, {high}) is invalid, because the lower end must be above 0. Use uniform() for "
            "other ranges."
        )
    return LogUniform(low, high)


def randint(low: int, high: int) -> Distribution:
    """Draw a whole number between two bounds, both included.

    Example:
        >>> space = {"depth": tsnb.search.randint(2, 6)}

    Args:
        low: Smallest number.
        high: Largest number.

    Raises:
        ValueError: If `low` or `high` is not a whole number, or `low` is not below `high`.
    """
    _require_range("randint", low, high)
    if low != int(low) or high != int(high):
        raise ValueError(f"randint({low}, {high}) is invalid. Pass whole numbers, or use uniform().")
    return RandInt(int(low), int(high))


def choice(values: Iterable[Any]) -> Distribution:
    """Draw one of several values, each equally often.

    Example:
        >>> space = {"activation": tsnb.search.choice(["relu", "gelu"])}

    Args:
        values: Values to draw from, at least one.

    Raises:
        ValueError: If there are no values.
    """
    if isinstance(values, str) or not (listed := tuple(values)):
        raise ValueError(f"choice({values!r}) is invalid. Pass a list of values, for example [16, 32].")
    return Choice(listed)


def _require_range(word: str, low: float, high: float) -> None:
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"{word}({low}, {high}) is invalid. Pass the lower end first, then the higher one.")


def combinations(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return every combination of the values, the last parameter changing fastest.

    Args:
        grid: The values of each parameter, by its name.

    Raises:
        ValueError: A parameter has no list of values, or an empty one.
    """
    columns = [_listed(name, values) for name, values in grid.items()]
    return [dict(zip(grid, row, strict=True)) for row in itertools.product(*columns)]


def _listed(name: str, values: Any) -> list[Any]:
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise ValueError(f"grid: {name}={values!r} is not a list of values. Write {name}=[{values!r}].")
    listed = list(values)
    if not listed:
        raise ValueError(f"grid: {name} has no values. Pass at least one.")
    return listed


def draw(space: Mapping[str, Any], n: int, seed: int | None) -> list[dict[str, Any]]:
    """Return `n` different combinations of parameters, drawn from a space.

    Args:
        space: A `Distribution`, or a list of values, by each parameter's name.
        n: How many combinations.
        seed: Makes the draw repeatable; None: another one every time.

    Raises:
        ValueError: A parameter has neither, or the space does not hold so many combinations.
    """
    columns = {name: _distribution(name, what) for name, what in space.items()}
    source = random.Random(seed)
    drawn: dict[str, dict[str, Any]] = {}
    for _ in range(TRIES * n):
        row = {name: column.draw(source) for name, column in columns.items()}
        drawn.setdefault(repr(row), row)  # values need not be hashable
        if len(drawn) == n:
            return list(drawn.values())
    raise ValueError(
        f"The space has fewer than {n} different combinations: {len(drawn)} were found. Lower n."
    )


def require_no_name(params: Iterable[str]) -> None:
    """Refuse a parameter called "name": every trial would find its own name in its place.

    Raises:
        ValueError: There is one.
    """
    if "name" in params:
        raise ValueError(
            "'name' cannot be a sweep parameter because it names the trial. Rename it, for example to "
            "'model'."
        )


def _distribution(name: str, what: Any) -> Distribution:
    if hasattr(what, "draw"):
        found: Distribution = what
        return found
    if isinstance(what, (list, tuple)):
        return choice(what)
    raise ValueError(
        f"space: {name}={what!r} cannot be drawn from. "
        "Use a list of values, or uniform, loguniform, randint or choice of tsnb.search."
    )


_EXAMPLES = {"grid": '{"lr": [0.1, 0.01]}', "space": '{"lr": tsnb.search.loguniform(1e-4, 1e-1)}'}


def settings(
    grid: Mapping[str, Sequence[Any]] | None,
    space: Mapping[str, Any] | None,
    n: int | None,
    seed: int | None,
) -> list[dict[str, Any]]:
    """Return the parameters of every trial of a sweep: with a grid and a space, the grid for each draw.

    Args:
        grid: The values of each parameter, or None.
        space: What each parameter is drawn from, or None.
        n: How many are drawn; goes with `space`.
        seed: Of the draw.

    Raises:
        ValueError: Neither is given, one parameter is in both or called "name", or `n` does not fit.
        TypeError: One of them is no mapping.
    """
    for option, given in (("grid", grid), ("space", space)):
        if given is not None and not isinstance(given, Mapping):
            raise TypeError(
                f"{option}= takes a dict, got {type(given).__name__}. Write {option}={_EXAMPLES[option]}."
            )
    if not grid and not space:
        raise ValueError("A sweep needs parameters: grid={'lr': [0.1, 0.01]}, or space=... and n=...")
    if space and (n is None or n < 1):
        raise ValueError(
            f"n={n!r} is invalid. Pass the number of trials to draw from the space, for example n=12."
        )
    if n is not None and not space:
        raise ValueError(
            f"n={n} needs space=..., because a grid has as many trials as combinations. Remove n, or add "
            "space=."
        )
    require_no_name({**(grid or {}), **(space or {})})
    twice = sorted(set(grid or ()) & set(space or ()))
    if twice:
        raise ValueError(f"{', '.join(twice)} is in the grid and in the space. Remove it from one of them.")
    draws = draw(space, n, seed) if space and n else [{}]
    return [{**one, **other} for one in draws for other in combinations(grid or {})]
