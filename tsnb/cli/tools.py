"""The commands that a program may call as tools. Each command's own parser is the table that a tool is made from.

A tool has the command's name and help. Its arguments are the parser's, with their help, and it answers what the command
prints with `--json`. So a new option of a command is an argument of its tool as well.
"""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Mapping
from typing import Any, NamedTuple

from tsnb.experiments.verbs import VERBS
from tsnb.text.words import did_you_mean, sentence

__all__ = ["TOOLS", "WAIT", "Tool", "tools_of", "words_of"]


class Effect(NamedTuple):
    """What a call may do: programs ask a person before some of them."""

    reads: bool = False
    """It changes nothing."""
    ends: bool = False
    """It ends what runs."""
    acts_on: str = ""
    """What its name may be, if it is always to be given: a program stops no stream by leaving it out."""


def _effect_of(name: str, acts_on: str) -> Effect:
    """Return what a call of a verb may do."""
    if name == "stop":
        return Effect(
            ends=True,
            acts_on="STREAM/TRIAL stops only this trial. STREAM stops the stream and ends the data of all its trials.",
        )
    if acts_on == "all":
        return Effect(
            acts_on=f"STREAM {name}s all trials of the stream. STREAM/TRIAL {name}s only this trial."
        )
    return Effect()


TOOLS = {
    "list": Effect(reads=True),
    "status": Effect(reads=True),
    "results": Effect(reads=True),
    "logs": Effect(reads=True),
    "sweep": Effect(),
    "duel": Effect(),
    **{name: _effect_of(name, verb.acts_on) for name, verb in VERBS.items() if verb.command and verb.is_tool},
    "stalls": Effect(),
}
"""The commands that are tools, in the order in which a program is told of them."""
WAIT = "wait"
"""The tool that is no command: the server answers it itself."""


class Tool(NamedTuple):
    """A command as a program is told of it."""

    name: str
    description: str
    schema: dict[str, Any]
    """JSON Schema of its arguments."""
    effect: Effect


def tools_of(parser: argparse.ArgumentParser) -> list[Tool]:
    """Return the tools.

    Args:
        parser: The command line's.
    """
    found = _commands(parser)
    help_of = {choice.dest: choice.help or "" for choice in found._choices_actions}
    return [
        Tool(
            name,
            f"{sentence(help_of[name])}. {effect.acts_on}".rstrip(),
            _schema(found.choices[name], effect),
            effect,
        )
        for name, effect in TOOLS.items()
    ]


def words_of(parser: argparse.ArgumentParser, name: str, arguments: Mapping[str, Any]) -> list[str]:
    """Return the words of the command line that a call of a tool stands for.

    Args:
        parser: The command line's.
        name: The tool's.
        arguments: By name, as the tool's schema has them.

    Raises:
        ValueError: There is no such tool or argument, or the command refuses them.
    """
    if name not in TOOLS:
        names = [*TOOLS, WAIT]
        raise ValueError(f"No tool is named {name!r}.{did_you_mean(name, names)} Tools: {', '.join(names)}")
    known = _arguments(_commands(parser).choices[name])
    for key in arguments:
        if key not in known:
            raise ValueError(
                f"{name} has no argument {key!r}.{did_you_mean(key, known)} Arguments: {', '.join(known) or 'none'}"
            )
    options, values = ["--json"], []
    for key, action in known.items():
        given = arguments.get(key)
        if given is None:
            if _needed(action, TOOLS[name]):
                told = _property(action, TOOLS[name])["description"]
                raise ValueError(f"{name} needs the argument {key!r} ({told}).")
        elif action.option_strings:
            options += _option(key, action, given)
        else:
            values += [_text(key, value) for value in (given if isinstance(given, list) else [given])]
    words = [name, *options, *(["--", *values] if values else [])]  # no value is taken for an option
    _check(parser, words)
    return words


def _commands(parser: argparse.ArgumentParser) -> Any:
    return next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))


def _arguments(command: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Return what a tool takes, by name: all but the help, and `--json`, which every call has.

    An option is called as it is typed: `at_once` is `--at-once`.
    """
    return {
        action.option_strings[-1].lstrip("-").replace("-", "_")
        if action.option_strings
        else action.dest: action
        for action in command._actions
        if action.dest not in ("help", "json")
    }


def _needed(action: argparse.Action, effect: Effect) -> bool:
    named = bool(effect.acts_on) and action.dest in ("name", "target")
    return named or (action.required and action.nargs not in ("*", "?"))


def _schema(command: argparse.ArgumentParser, effect: Effect) -> dict[str, Any]:
    known = _arguments(command)
    return {
        "type": "object",
        "properties": {key: _property(action, effect) for key, action in known.items()},
        "required": [key for key, action in known.items() if _needed(action, effect)],
        "additionalProperties": False,
    }


def _property(action: argparse.Action, effect: Effect) -> dict[str, Any]:
    """Return one argument: a flag, a word, a number, or several words."""
    text = (action.help or "") % {"default": action.default, "prog": ""}
    if _needed(action, effect) and action.nargs == "?":
        text = "STREAM or STREAM/TRIAL"
    if action.nargs == 0:
        return {"type": "boolean", "description": text}
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    told = {"description": f"{metavar}: {text}" if metavar else text}
    if action.choices is not None:
        return {"type": "string", "enum": list(action.choices), **told}
    if _several(action):
        return {"type": "array", "items": {"type": "string"}, **told}
    kinds: dict[Any, Any] = {int: "integer", float: "number", None: "string"}
    return {"type": kinds.get(action.type, ["string", "number"]), **told}


def _several(action: argparse.Action) -> bool:
    return isinstance(action, argparse._AppendAction) or action.nargs in ("*", "+")


def _option(key: str, action: argparse.Action, given: Any) -> list[str]:
    flag = action.option_strings[-1]
    if action.nargs == 0:
        if not isinstance(given, bool):
            raise ValueError(f"{key} must be true or false, got {given!r}.")
        return [flag] if given else []
    several = given if isinstance(given, list) and _several(action) else [given]
    return [f"{flag}={_text(key, value)}" for value in several]


def _text(key: str, value: Any) -> str:
    """Return a value as it is typed.

    Raises:
        ValueError: It is neither a string nor a number.
    """
    if not isinstance(value, (str, int, float)) or isinstance(value, bool):
        raise ValueError(f"{key} must be a string or a number, got {value!r}.")
    return str(value)


def _check(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Have the command's parser read the words.

    Raises:
        ValueError: It refuses them.
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parser.parse_args(words)
    except SystemExit:
        raise ValueError(said.getvalue().rpartition("error: ")[2].strip() or "Invalid arguments.") from None
