"""Sweeps as they are written on a magic's line: `lr=0.1,0.01`, `lr=loguniform(1e-4,1e-1)`, `cnn-lr{lr}-wd{wd}`.

Values are Python's where they are (numbers, True, None, quoted text, tuples), else text: `--grid optimizer=sgd,adam`.
"""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

from tsnb.masks import Masked
from tsnb.sweeps import spaces
from tsnb.sweeps.spaces import Distribution

__all__ = ["filled", "read_grid", "read_sample", "unlike"]

DISTRIBUTIONS = {"uniform": spaces.uniform, "loguniform": spaces.loguniform, "randint": spaces.randint}


def read_grid(text: str) -> tuple[str, list[Any]]:
    """Read `NAME=VALUE,VALUE...`.

    Raises:
        ValueError: It is not such a text.
    """
    name, values = _setting(text, "lr=0.1,0.01")
    return name, [_value(part) for part in _parts(values)]


def read_sample(text: str) -> tuple[str, Distribution]:
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
            f"{text!r}: write {name}=uniform(LOW,HIGH), loguniform(LOW,HIGH), randint(LOW,HIGH) or choice(A,B,C)"
        )
    return name, make(*arguments)


def _setting(text: str, example: str) -> tuple[str, str]:
    name, equals, rest = text.partition("=")
    if not name.isidentifier() or not equals or not rest.strip():
        raise ValueError(f"{text!r}: write the parameter's name, = and its values: {example}")
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
