"""What may be asked of a duel, checked, and as it is typed: on the command line and behind `%%trial --against`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from tsnb.option_kinds import Kind, is_number, one_of, seconds, share, whole

__all__ = ["Wish", "add_duel", "asked"]

_BUDGET = seconds("a number of seconds above 0", lambda value: 0 < value < math.inf)
_RISK = share("a chance above 0% and below 100%, for example 0.05", "5%")
_DELTA = Kind("a number above 0", float, lambda v: is_number(v) and 0 < v < math.inf, "DELTA", float)
_KINDS = {
    "error": Kind(_RISK.wanted, _RISK.read, lambda v: is_number(v) and 0 < v < 1, "5%", float),
    "seeds": whole("a whole number of seeds, 2 or more", 2),
    "budget_s": _BUDGET,
    "min_delta": _DELTA,
    "equal": one_of(("samples", "time")),
    "at_once": whole("how many trials run at once, 2 or more, as the two arms of a seed do", 2),
}
OURS = {
    "seed": "tsnb draws the seeds of a duel",
    **dict.fromkeys(("detach", "needs", "after"), "a duel starts and stops its own trials"),
}
"""Options that the trials of a duel cannot have, and why."""


@dataclass(frozen=True)
class Wish:
    """What is asked of a duel: the keywords of `tsnb.duel`, which says what they are."""

    metric: str
    mode: str | None = None
    error: float = 0.05
    seeds: int | None = None
    budget_s: float | None = None
    min_delta: float | None = None
    equal: str | None = None
    series: str | None = None
    at_once: int | None = None

    def check(self, options: Mapping[str, Any]) -> None:
        """Refuse what cannot be asked.

        Args:
            options: Of the trials.

        Raises:
            ValueError: A number or an option is invalid.
        """
        for name, kind in _KINDS.items():
            if (value := getattr(self, name)) is not None:
                kind.checked(name, value)
        for option, why in OURS.items():
            given_one = options.get(option)
            if given_one is not None and given_one is not False:
                raise ValueError(f"{option}= does not work in a duel, because {why}. Remove it.")


def add_duel(parser: argparse.ArgumentParser, *, against: bool = False) -> None:
    """Have a parser take what is asked of a duel.

    Args:
        parser: The parser.
        against: Whether it makes a duel only where a trial is named, which it then takes too.
    """
    if against:
        parser.add_argument(
            "--against", metavar="OTHER", help="compare this cell with the code of trial OTHER over seeds"
        )
    parser.add_argument(
        "--metric",
        required=not against,
        metavar="METRIC",
        help="logged number to compare: the last value counts",
    )
    parser.add_argument(
        "--mode", choices=("min", "max"), help="whether a low (min) or high (max) METRIC is better"
    )
    for flag, name, told in (
        ("--error", "error", "chance of a verdict better or worse without a difference (default: 5%%)"),
        ("--seeds", "seeds", "largest number of seeds (default: 40)"),
        ("--budget", "budget_s", "seconds after which the duel ends, undecided"),
        ("--min-delta", "min_delta", "smallest difference that matters, in units of METRIC"),
    ):
        kind = _KINDS[name]
        parser.add_argument(flag, dest=name, type=kind.typed, metavar=kind.metavar, help=told)
    parser.add_argument(
        "--equal",
        choices=("samples", "time"),
        help="compare values at the same samples or seconds (default: the last values)",
    )
    parser.add_argument("--series", metavar="SERIES", help="name of a series of duels that share the error")


def asked(options: argparse.Namespace) -> dict[str, Any]:
    """Return what was typed, as keywords of `tsnb.duel`."""
    names = [
        field.name for field in fields(Wish) if field.name != "at_once"
    ]  # the trials' own option, where typed
    return {name: value for name in names if (value := getattr(options, name)) is not None}
