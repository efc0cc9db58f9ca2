"""Sweeps as they are written on a line, a magic's or the terminal's: the options, and the words behind them.

`lr=0.1,0.01`, `lr=loguniform(1e-4,1e-1)`, `cnn-lr{lr}-wd{wd}`, `--halving loss --every 100`.

Values are Python's where they are (numbers, True, None, quoted text, tuples), else text: `--grid optimizer=sgd,adam`.
"""

from __future__ import annotations

import argparse
import ast
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tsnb.option_kinds import COUNT, in_its_words, share
from tsnb.sweeps import spaces
from tsnb.sweeps.spaces import Distribution
from tsnb.text.masks import Masked

__all__ = ["TypedRule", "add_sweep", "filled", "read_grid", "read_rule", "read_space", "unlike"]

DISTRIBUTIONS = {"uniform": spaces.uniform, "loguniform": spaces.loguniform, "randint": spaces.randint}


_SHARE = share("a share, 0 to 1 (2% or 0.02)").typed

RULES = {
    "halving": ("every", "keep", "mode"),
    "race": ("error", "mode"),
    "population": ("every", "share", "mode"),
}
"""What the trials of a sweep are compared for, and the options that go with it."""
EXAMPLES = {
    "every": "--halving loss --every 100",
    "keep": "--halving loss --keep 50%",
    "error": "--race loss --error 1%",
    "share": "--population loss --share 20%",
    "mode": "--halving accuracy --mode max",
}


def add_sweep(parser: argparse.ArgumentParser) -> None:
    """Have a parser take what makes many trials of one function or cell, on every surface alike.

    `--grid` and `--space` may be given as often as there are parameters. `read_rule` reads what compares the trials.
    """
    for flag, read, metavar, told in (
        ("--grid", read_grid, "NAME=A,B", "values of a parameter (repeatable)"),
        ("--space", read_space, "NAME=uniform(A,B)", "distribution to draw a parameter from (repeatable)"),
        (
            "--choose",
            read_grid,
            "NAME=A,B",
            "with --plan: values from which the plan picks one per trial (repeatable)",
        ),
    ):
        parser.add_argument(
            flag, type=in_its_words(read), action="append", default=[], metavar=metavar, help=told
        )
    parser.add_argument("--n", type=COUNT.typed, metavar="N", help="number of random draws")
    parser.add_argument(
        "--at-once",
        type=COUNT.typed,
        metavar="N",
        help="number of trials that run at once (default: two per core)",
    )
    parser.add_argument(
        "--rotate",
        type=COUNT.typed,
        metavar="BATCHES",
        help="start all trials and train them in turns of BATCHES batches",
    )
    parser.add_argument(
        "--plan", action="store_true", help="profile the trials and run them in the fastest order"
    )
    parser.add_argument(
        "--deadline", metavar="18:00", help="plan the trials and start only those that finish by then"
    )
    parser.add_argument("--halving", metavar="METRIC", help="stop the worse half at regular steps, by METRIC")
    parser.add_argument(
        "--race", metavar="METRIC", help="stop a trial as soon as another is clearly ahead in METRIC"
    )
    parser.add_argument(
        "--population",
        metavar="METRIC",
        help="replace the worst trials in METRIC with changed clones of the best",
    )
    parser.add_argument(
        "--every",
        type=COUNT.typed,
        metavar="STEPS",
        help="steps to the first comparison (halving), or per generation (population)",
    )
    for flag, metavar, told in (
        ("--keep", "50%", "with --halving: share of trials to keep (default: 50%%)"),
        ("--error", "1%", "with --race: chance of a wrong verdict (default: 1%%)"),
        ("--share", "20%", "with --population: share of trials to replace (default: 20%%)"),
    ):
        parser.add_argument(flag, type=_SHARE, metavar=metavar, help=told)
    parser.add_argument(
        "--mode", choices=("min", "max"), help="whether a low (min) or high (max) METRIC is better"
    )


class TypedRule(NamedTuple):
    """What the trials of a sweep are compared for, as it was typed."""

    word: str
    """"halving", "race" or "population"."""
    options: dict[str, Any]
    """The metric, and what else was typed."""


def read_rule(given: argparse.Namespace) -> TypedRule | None:
    """Return by what the trials of a sweep are compared; None: they are not.

    Args:
        given: What was typed, by a parser of `add_sweep`.

    Raises:
        ValueError: The options do not go together.
    """
    words = [word for word in RULES if getattr(given, word) is not None]
    asked = {name: value for name in EXAMPLES if (value := getattr(given, name)) is not None}
    if not words:
        if asked:
            name = next(iter(asked))
            ways = " or ".join(f"--{word} METRIC" for word, taken in RULES.items() if name in taken)
            raise ValueError(f"--{name} needs {ways}: {EXAMPLES[name]}")
        return None
    if len(words) > 1:
        raise ValueError(
            f"{' and '.join(f'--{word}' for word in words)} exclude each other. Keep one of them"
        )
    word, taken = words[0], RULES[words[0]]
    if other := next((name for name in asked if name not in taken), None):
        raise ValueError(
            f"--{other} does not work with --{word}, which takes {', '.join(f'--{name}' for name in taken)}"
        )
    if word == "population":
        _check_population(given)
    return TypedRule(word, {"metric": getattr(given, word), **asked})


def _check_population(given: argparse.Namespace) -> None:
    """Refuse what a population cannot have.

    Raises:
        ValueError: It was typed.
    """
    for name, why in (
        (
            "grid",
            "because its values change while the trials run. Draw them with --space lr=loguniform(1e-4,1e-1)",
        ),
        ("at_once", "because all its trials run at once. Set their number with --n"),
        ("rotate", "because all its trials run at once"),
        ("plan", "because all its trials run at once, so there is no order to plan"),
        ("deadline", "because all its trials run at once, so there is no order to plan"),
        ("choose", "because all its trials run at once, so there is no plan to choose"),
    ):
        if getattr(given, name):
            raise ValueError(f"--{name.replace('_', '-')} does not work with --population, {why}")
    if not given.space:
        raise ValueError("--population needs hyperparameters to change: --space lr=loguniform(1e-4,1e-1)")


def read_grid(text: str) -> tuple[str, list[Any]]:
    """Read `NAME=VALUE,VALUE...`.

    Raises:
        ValueError: It is not such a text.
    """
    name, values = _setting(text, "lr=0.1,0.01")
    found = [_value(part) for part in _parts(values)]
    if len(found) == 1 and isinstance(found[0], (list, tuple)):
        several = ",".join(map(repr, found[0]))
        raise ValueError(
            f"{text!r} has one value, a list. For its values, write {name}={several}. To pass the list itself, add it "
            "to the code."
        )
    return name, found


def read_space(text: str) -> tuple[str, Distribution]:
    """Read `NAME=uniform(LOW,HIGH)`, loguniform, randint, or `NAME=choice(VALUE,VALUE...)`.

    Raises:
        ValueError: It is not such a text.
    """
    name, call = _setting(text, "lr=loguniform(1e-4,1e-1)")
    found = re.fullmatch(r"(\w+)\((.*)\)", call.strip())
    word, inside = found.groups() if found else ("", "")
    arguments = [_value(part) for part in _parts(inside)] if inside.strip() else []
    if word == "choice":
        return name, spaces.choice(arguments)
    make = DISTRIBUTIONS.get(word)
    if make is None or len(arguments) != 2 or not all(isinstance(a, (int, float)) for a in arguments):
        raise ValueError(
            f"{text!r} is invalid. Write {name}=uniform(LOW,HIGH), loguniform(LOW,HIGH), "
            "randint(LOW,HIGH) or choice(A,B,C)"
        )
    return name, make(*arguments)


def _setting(text: str, example: str) -> tuple[str, str]:
    name, equals, rest = text.partition("=")
    if not name.isidentifier() or not equals or not rest.strip():
        raise ValueError(f"{text!r} is invalid. Write the parameter's name, = and its values: {example}")
    return name, rest


def _parts(text: str) -> list[str]:
    """Split at commas that stand in no bracket and no quotes."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        else:
            depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


class _Names(string.Formatter):
    """Fills in values so that a name stays a name: floats short, odd characters as dashes."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return one value as it stands in a name."""
        short = f"{value:.4g}" if isinstance(value, float) and not format_spec else format(value, format_spec)
        return re.sub(r"[^A-Za-z0-9._-]+", "-", short)


def filled(template: str, params: Mapping[str, Any]) -> str:
    """Return a trial's name: `cnn-lr{lr}` with the value of `lr` in its place.

    Args:
        template: The name with parameters in braces, formats too: `{lr:.0e}`.
        params: The parameters.

    Raises:
        ValueError: A name in braces is not a parameter, or the braces do not match.
    """
    try:
        return _Names().vformat(template, (), Masked(params))
    except (KeyError, IndexError, AttributeError) as error:
        there = ", ".join(params)
        raise ValueError(
            f"{template!r}: {{{error.args[0]}}} is not a parameter of this sweep ({there})"
        ) from None


def unlike(names: Sequence[str]) -> list[str]:
    """Return the names, a number behind each that was there before: parameters may differ in what names leave out."""
    made: dict[str, None] = {}
    for name in names:
        number, own = 1, name
        while own in made:
            number += 1
            own = f"{name[:60]}-{number}"
        made[own] = None
    return list(made)
