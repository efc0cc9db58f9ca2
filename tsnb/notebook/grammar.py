"""The lines after a magic's name: one parser a subcommand, and errors that suggest the nearest word."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from typing import Any, NoReturn

from IPython.core.error import UsageError

from tsnb.config import PACINGS, read_weight
from tsnb.duels.grammar import add_duel
from tsnb.experiments.plan import TrialOptions, read_words
from tsnb.experiments.verbs import VERBS, add_arguments
from tsnb.growing.selection import add_rounds
from tsnb.option_kinds import COUNT, in_its_words
from tsnb.options import (
    NOTEBOOK,
    StreamOptions,
    TuneOptions,
    add_options,
    read_setting,
    settings_together,
)
from tsnb.sweeps.space_grammar import add_sweep
from tsnb.text.words import did_you_mean

__all__ = [
    "SWEEP",
    "TENSORSOCKET",
    "TRIAL",
    "TRIALS",
    "Parser",
    "expanded",
    "options_of",
    "parse",
    "words_of",
]


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are IPython's, in one line and with a suggestion."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description, add_help=False, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raise what IPython shows without a traceback.

        Raises:
            UsageError: Always.
        """
        stop = "" if message.endswith("?") else "."
        raise UsageError(f"{self.prog}: {message}{stop}\nUsage: {' '.join(self.format_usage().split()[1:])}")

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse words; an unknown option is answered with the nearest known one.

        Raises:
            UsageError: They do not fit.
        """
        known = options_of(self)
        for word in words:
            name = word.partition("=")[0]
            if name.startswith("--") and name not in known:
                if self is TRIAL and name in options_of(SWEEP):
                    self.error(f"{name} is for many trials of one cell. Write %%sweep instead of %%trial")
                self.error(f"unknown option {name}.{self._instead(name, known)}".removesuffix("."))
        return self.parse_args(settings_together(self, words))

    def _instead(self, name: str, known: Sequence[str]) -> str:
        """Return what to write in place of an unknown option: the nearest one, or what people mean by it."""
        bare = [option[2:] for option in known]  # the dashes are alike in all, and no reason to name one
        if near := did_you_mean(name[2:], bare):
            return near.replace("'", "'--", 1)
        if self is SWEEP and name != "--name":
            return f" To sweep over a parameter, write --grid {name[2:]}=A,B"
        if self in {TRIAL, SWEEP}:
            form = self.prog.split()[0]
            return (
                f" Write the name first: {form} NAME"
                if name == "--name"
                else f" {form} takes no parameters: set {name[2:]} in the cell"
            )
        return ""


def options_of(parser: argparse.ArgumentParser) -> list[str]:
    """Return a parser's long options."""
    return [
        option for action in parser._actions for option in action.option_strings if option.startswith("--")
    ]


def _balance() -> Parser:
    parser = _named("%tensorsocket balance", "Change how trials share compute.", optional=True)
    parser.add_argument(
        "pacing",
        metavar="|".join(PACINGS),
        help="together keeps trials in step, weights divides compute by --weight, free lets each trial run ahead",
    )
    parser.add_argument(
        "--weight",
        type=in_its_words(read_weight),
        action="append",
        default=[],
        metavar="NAME=2",
        help="with weights: a trial's share of the compute (repeatable)",
    )
    return parser


def _tune() -> Parser:
    parser = _named("%tensorsocket tune", "Show or change a loader's number of workers.", optional=True)
    add_options(parser, TuneOptions, NOTEBOOK)
    parser.set_defaults(workers=None)  # left out, and no name: only looked at
    return parser


def _rounds() -> Parser:
    parser = _named(
        "%tensorsocket rounds", "Train on growing data in rounds of selected samples.", optional=True
    )
    add_rounds(parser)
    return parser


def _start() -> Parser:
    parser = Parser("%tensorsocket start", "Serve a loader from a background process.")
    parser.add_argument(
        "loader",
        nargs="?",
        metavar="LOADER",
        help="variable that holds the loader; not with %%%%tensorsocket",
    )
    parser.add_argument("--name", required=True, help="name of the stream, by which trials attach")
    add_options(parser, StreamOptions, NOTEBOOK)
    parser.add_argument(
        "--replace",
        action="store_true",
        help="replace this notebook's stream of the same name; its trials wait and continue",
    )
    return parser


def _named(prog: str, description: str, *, optional: bool) -> Parser:
    parser = Parser(prog, description)
    if optional:
        parser.add_argument("name", nargs="?", metavar="NAME", help="stream (default: this notebook's)")
    else:
        parser.add_argument("name", metavar="NAME", help="trial" if prog.startswith("%trials") else "stream")
    return parser


def _several(prog: str, description: str, *, optional: bool = True) -> Parser:
    parser = Parser(prog, description)
    default = " (default: all of this notebook)" if optional else ""
    parser.add_argument(
        "names", nargs="*" if optional else "+", metavar="NAME", help=f"trial or sweep{default}"
    )
    return parser


def _dashboard() -> Parser:
    parser = Parser("%tensorsocket dashboard", "Show the live panel of a stream, or of several together.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="stream (default: this notebook's)")
    parser.add_argument(
        "--side", action="store_true", help="show the panel next to the notebook (needs the package sidecar)"
    )
    return parser


def _stop() -> Parser:
    parser = _named("%tensorsocket stop", "Stop a stream and its process.", optional=True)
    parser.add_argument(
        "--other", action="store_true", help="stop it even if another notebook or process serves it"
    )
    return parser


def _record() -> Parser:
    parser = _named("%tensorsocket record", "Record a stream's readings to a file.", optional=False)
    parser.add_argument("file", nargs="?", metavar="FILE", help="new file, for example run.jsonl")
    parser.add_argument("--stop", action="store_true", help="end the recording")
    return parser


def _report() -> Parser:
    parser = _named("%tensorsocket report", "Show where the time of each trial went.", optional=True)
    parser.add_argument(
        "--target",
        type=in_its_words(_wanted),
        action="append",
        default=[],
        metavar="METRIC=0.95",
        help="also show what each trial had cost when it reached this value (repeatable)",
    )
    parser.add_argument(
        "--vcpu-price", type=float, metavar="0.04", help="with --target: price of one core for an hour"
    )
    parser.add_argument(
        "--kwh-price", type=float, metavar="0.3", help="with --target: price of a kilowatt hour"
    )
    return parser


def _wanted(text: str) -> tuple[str, float]:
    """Read a number to reach."""
    name, value = read_setting(text)
    try:
        return name, float(value)
    except ValueError:
        raise ValueError(
            f"{text!r} is invalid. Pass a logged name and a number, for example accuracy=0.95"
        ) from None


def _trial() -> Parser:
    parser = Parser("%%trial", "Run this cell as a trial, in its own background kernel.")
    parser.add_argument("name", nargs="?", metavar="NAME", help="name of the trial")
    parser.add_argument(
        "--setup",
        action="store_true",
        help="run this cell first in every later trial; an empty cell ends that",
    )
    add_duel(parser, against=True)
    _add_cell(parser)
    # only --setup does without a name
    parser.usage = " ".join(parser.format_usage().split()[1:]).replace("[NAME]", "NAME").replace("%", "%%")
    return parser


def _sweep() -> Parser:
    parser = Parser("%%sweep", "Run this cell as many trials, one per combination of parameters.")
    parser.add_argument(
        "name", metavar="NAME", help="first part of the trials' names, or a whole name such as cnn-lr{lr}"
    )
    add_sweep(parser)
    _add_cell(parser)
    return parser


def _add_cell(parser: Parser) -> None:
    """Have a parser take what is said of a cell that runs as a trial, or as many."""
    add_options(parser, TrialOptions, NOTEBOOK)
    parser.add_argument(
        "--with",
        type=read_words,
        default=(),
        dest="with_",
        metavar="NAME,NAME",
        help="variables to copy into the trial although the cell does not read them by name",
    )
    parser.add_argument(
        "--no-check",
        action="store_false",
        dest="check",
        help="run the cell although it reads undefined names",
    )
    parser.add_argument("--wait", action="store_true", help="return when the trial or sweep has ended")


def _logs() -> Parser:
    parser = _named("%trials logs", "Show what a trial printed.", optional=False)
    parser.add_argument("--run", type=COUNT.typed, metavar="N", help="number of the run (default: the last)")
    return parser


def _verb(name: str) -> Parser:
    verb, prog = VERBS[name], f"%trials {name}"
    if verb.acts_on == "one":
        parser = _named(prog, verb.magic, optional=False)
    else:
        parser = _several(prog, verb.magic, optional=verb.acts_on == "all")
    add_arguments(parser, name, NOTEBOOK)
    return parser


TENSORSOCKET = {
    "start": _start(),
    "list": Parser("%tensorsocket list", "List the running streams."),
    "status": _named("%tensorsocket status", "Show a stream and its trials.", optional=True),
    "logs": _named("%tensorsocket logs", "Show what the stream's process printed.", optional=False),
    "stop": _stop(),
    "restart": _named(
        "%tensorsocket restart",
        "Serve the same loader from a new process; trials wait and continue.",
        optional=True,
    ),
    "reload": _named(
        "%tensorsocket reload",
        "Serve the notebook's current loader; trials wait and continue.",
        optional=True,
    ),
    "dashboard": _dashboard(),
    "report": _report(),
    "record": _record(),
    "balance": _balance(),
    "tune": _tune(),
    "rounds": _rounds(),
}
"""The subcommands of `%tensorsocket`."""

TRIALS = {
    "list": Parser("%trials list", "List this notebook's trials."),
    **{name: _verb(name) for name, verb in VERBS.items() if verb.magic},
    "wait": _several("%trials wait", "Wait for trials or sweeps to end."),
    "logs": _logs(),
    "follow": _named(
        "%trials follow",
        "Show a trial's output below this cell, for example after a page reload.",
        optional=False,
    ),
    "clear": Parser("%trials clear", "Stop all trials and empty the table; their records stay."),
}
"""The subcommands of `%trials`."""

TRIAL, SWEEP = _trial(), _sweep()
"""What stands behind `%%trial` and `%%sweep`."""


_VALUES = re.compile(r"""(--(?:grid|space|choose)(?:\s+|=))([^\s'"](?:'[^']*'|"[^"]*"|[^\s'"])*)""")
"""An option and its values, unless all of them are in quotes: `--grid bits='8',16`, `--grid k={'a':1},{'a':2}`."""


_SWEPT = re.compile(r"""--(?:grid|space)(?:\s+|=)['"]?(\w+)=""")
_NAMED = re.compile(r"\{([A-Za-z_]\w*)[^{}]*\}|\$([A-Za-z_]\w*)")


def expanded(line: str, shell: Any) -> str:
    """Put the notebook's values for `{name}` and `$name` on a magic's line, except for parameters that it sweeps over.

    Those stand in the trials' name, and each trial has its own value: `%%sweep "cnn-lr{lr}" --grid lr=0.1,0.01`.

    Args:
        line: What stands behind the magic's name.
        shell: IPython's shell.
    """
    swept = set(_SWEPT.findall(line))

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        known = name not in swept and name in shell.user_ns
        return str(shell.var_expand(found[0])) if known else found[0]

    return _NAMED.sub(value, line)


def words_of(line: str, magic: str) -> list[str]:
    """Split a magic's line as a shell would, except that quotes in values to sweep over are Python's.

    Raises:
        UsageError: A quote is not closed.
    """
    try:
        return shlex.split(_VALUES.sub(lambda found: found[1] + shlex.quote(found[2]), line), comments=True)
    except ValueError as error:
        raise UsageError(f"{magic}: {error}: {line!r}") from None


def parse(line: str, magic: str, commands: dict[str, Parser], default: str | None = None) -> tuple[str, Any]:
    """Return a line's subcommand and its arguments.

    Args:
        line: What stands behind the magic's name.
        magic: That name, for messages.
        commands: The subcommands' parsers.
        default: What an empty line means.

    Raises:
        UsageError: The subcommand does not exist, or its arguments do not fit; suggests the nearest one.
    """
    words = words_of(line, magic) or ([default] if default else [])
    if not words:
        raise UsageError(f"{magic} needs a command: {', '.join(commands)}")
    command, *rest = words
    if command not in commands:
        hint = did_you_mean(command, commands)
        raise UsageError(f"{magic} has no command {command!r}.{hint} Commands: {', '.join(commands)}")
    return command, commands[command].read(rest)
