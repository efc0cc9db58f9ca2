"""The help of the magics, as `%trials?` shows it, made from their parsers.

docs/make_reference.py makes a page from the same parsers.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Mapping

__all__ = ["arguments", "commands_text", "metavar", "options_text", "usage"]

WIDTH = 100
"""Letters of a line, without the indentation of a docstring."""


def arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the arguments of a command, without `--help`."""
    return [action for action in parser._actions if action.dest != "help"]


def metavar(action: argparse.Action) -> str:
    """Return what is typed for the value of an argument: "N", "min|max", "NAME ..."; empty for a switch."""
    if action.nargs == 0:
        return ""
    if action.choices is not None:
        return "|".join(map(str, action.choices))
    name = action.metavar or action.dest.upper()
    words = name if isinstance(name, str) else f"{name[0]} [{name[1]} ...]"
    return f"{words} ..." if action.nargs in ("*", "+") and isinstance(name, str) else words


def usage(command: str, parser: argparse.ArgumentParser) -> str:
    """Return how a command is typed: its arguments without a dash, and the options that it needs."""
    words = [command]
    for action in arguments(parser):
        if not action.option_strings or action.required:
            typed = " ".join([*action.option_strings[-1:], metavar(action)])
            words.append(f"[{typed}]" if action.nargs in ("?", "*") else typed)
    return " ".join(words)


def options_text(parser: argparse.ArgumentParser, indent: int, without: Iterable[str] = ()) -> str:
    """Return a line or more for each option of a command.

    Args:
        parser: The command's.
        indent: Blanks before each line.
        without: Options that are left out, by the name of their value.
    """
    lines = []
    for action in arguments(parser):
        if action.option_strings and action.dest not in without:
            typed = f"{action.option_strings[-1]} {metavar(action)}".strip()
            lines += _columns(typed, (action.help or "") % {}, indent, 24)
    return "\n".join(lines)


def commands_text(magic: str, parsers: Mapping[str, argparse.ArgumentParser], indent: int) -> str:
    """Return the help of a magic's commands: what each does, and its options."""
    lines = []
    for name, parser in parsers.items():
        lines += _columns(usage(f"{magic} {name}", parser), parser.description or "", indent, 40)
        if options := options_text(parser, indent + 4):
            lines.append(options)
    return "\n".join(lines)


def _columns(left: str, right: str, indent: int, width: int) -> list[str]:
    """Return two columns as lines: the right one begins on the next line if the left one is too long."""
    blank = " " * (indent + width)
    lines = textwrap.wrap(
        right,
        indent + WIDTH,
        initial_indent=blank,
        subsequent_indent=blank,
        break_long_words=False,
        break_on_hyphens=False,
    )
    left = f"{' ' * indent}{left}"
    if lines and len(left) < len(blank):
        return [f"{left:<{len(blank)}}{lines[0].lstrip()}", *lines[1:]]
    return [left, *lines]
