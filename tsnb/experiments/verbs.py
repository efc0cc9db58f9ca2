"""What can be done to a trial: one table, which every surface is made from.

| made from the table | where |
|---|---|
| the commands of `%trials` | `notebook.grammar`, `notebook.runs` |
| the commands of the command line, and how they reach a trial of another notebook | `steering` |
| the tools of a coding agent | `cli.tools` |
| the panel's buttons: those in a row act on one or many, those in the drawer on one | `panel.widget`, `notebook` |
| what the command line asks of the notebook that has the trial | `overview.requests` |
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tsnb.option_kinds import EPOCH, EPOCH_COUNT, in_its_words
from tsnb.options import COMMAND, read_change

if TYPE_CHECKING:
    from tsnb.experiments.trial import Trial

__all__ = ["VERBS", "Verb", "add_arguments", "needed_words"]


class Argument(NamedTuple):
    """What stands behind a verb and its trial."""

    flag: str
    """The option as it is typed, or `changes`: settings such as lr=0.03."""
    text: str
    how: Mapping[str, Any] = {}
    """What else `add_argument` takes."""
    needed: bool = False
    in_terminal: str = ""
    """What the command line's help says in addition."""


class Verb(NamedTuple):
    """One row of the table."""

    do: Callable[[Trial, Mapping[str, Any]], Any]
    """Does it to a trial of this process, with the arguments by name; returns what the trial's method returns."""
    magic: str = ""
    """The help of its `%trials` command; empty: there is none."""
    command: str = ""
    """The help of its command of the command line; empty: there is none."""
    acts_on: Literal["one", "some", "all"] = "one"
    """`some`: several trials at once; `all`: also all of them, where none is named."""
    arguments: tuple[Argument, ...] = ()
    there: str = ""
    """What the drawer says where another notebook has started the trial; empty: it is not in the drawer."""
    by_door: bool = False
    """Whether the command line asks the notebook that has the trial (`kernels.door`); else its stream."""
    is_tool: bool = True
    """Whether a coding agent may call its command."""


def _changes(text: str, **more: Any) -> Argument:
    return Argument("changes", f"{text}, for example lr=0.03", {"metavar": "NAME=VALUE"}, **more)


VERBS = {
    "pause": Verb(
        lambda trial, given: trial.pause(release=bool(given.get("release"))),
        "Pause trials or sweeps at their next batch.",
        "pause a trial at its next batch; the others continue",
        "all",
        (
            Argument(
                "--release",
                "also free the GPU memory of what tsnb.checkpoint holds, until the trial resumes",
                {"action": "store_true"},
                in_terminal=" (one trial only)",
            ),
        ),
        by_door=True,
    ),
    "resume": Verb(
        lambda trial, _: trial.resume(),
        "Resume paused trials or sweeps where they were.",
        "resume a paused trial where it was",
        "all",
    ),
    "set": Verb(
        lambda trial, given: trial.set(**given["changes"]),
        "Change live hyperparameters of a trial or a sweep, from its next batch on.",
        "change live hyperparameters of a trial (tsnb.live) from its next batch on",
        arguments=(_changes("new value", needed=True, in_terminal=" (default: show the current values)"),),
        there="Set its live hyperparameters there",
    ),
    "clone": Verb(
        lambda trial, given: trial.clone(given.get("new") or None, at=given.get("at"), **given["changes"]),
        "Clone a trial at its next batch.",
        "clone a running trial at its next batch, optionally with changed values",
        arguments=(
            _changes("live hyperparameter of the clone"),
            Argument("--name", "name of the clone (default: a new one)", {"dest": "new", "metavar": "NEW"}),
            Argument(
                "--at",
                "start from the checkpoint at the start of this epoch, from 1; also works for an ended trial",
                {"type": EPOCH.typed, "metavar": "EPOCH"},
            ),
        ),
        there="Clone it there",
        by_door=True,
    ),
    "extend": Verb(
        lambda trial, given: trial.extend(given.get("epochs", 0)),
        "Continue a finished trial for more epochs.",
        "continue a finished trial for more epochs",
        arguments=(
            Argument(
                "--epochs",
                "number of epochs to add",
                {"type": EPOCH_COUNT.typed, "metavar": "N"},
                needed=True,
            ),
        ),
        there="Extend it there",
        by_door=True,
    ),
    "rerun": Verb(
        lambda trial, given: trial.rerun(**given["changes"]),
        "Run a trial's code and variables again.",
        arguments=(
            Argument(
                "changes",
                "new values of parameters or options, for example lr=0.03 seed=2",
                {"metavar": "PARAMETER=VALUE"},
            ),
        ),
        there="Run it again there",
    ),
    "release": Verb(lambda trial, _: trial.pause(release=True), there="Release its memory there"),
    "interrupt": Verb(
        lambda trial, _: trial.interrupt(),
        "Interrupt the code of trials, as Ctrl-C does; their variables stay.",
        "interrupt the code of a trial, like Ctrl-C",
        "some",
        is_tool=False,
    ),
    "stop": Verb(
        lambda trial, _: trial.stop(),
        "Stop trials or sweeps.",
        "stop a stream, or one of its trials (STREAM/TRIAL)",
        "all",
    ),
}
"""The verbs, in the order in which a surface lists them."""


def add_arguments(parser: argparse.ArgumentParser, name: str, surface: str) -> None:
    """Have a parser take what stands behind a verb and its trial.

    Args:
        parser: The parser of the verb's command.
        name: The verb.
        surface: `COMMAND` or `NOTEBOOK`. A terminal's settings are read by its command, which answers in JSON.
    """
    in_terminal = surface == COMMAND
    for flag, text, how, needed, more in VERBS[name].arguments:
        kind: dict[str, Any] = {"required": True} if needed else {}
        if flag == "changes":
            kind = {"nargs": "+" if needed and not in_terminal else "*"}
            kind |= {} if in_terminal else {"type": in_its_words(read_change)}
        parser.add_argument(flag, help=f"{text}{more}" if in_terminal else text, **how, **kind)


def needed_words(name: str) -> str:
    """Return what one must type behind a verb and its trial, each with a blank before it: " --epochs N"."""
    needed = [argument for argument in VERBS[name].arguments if argument.needed]
    return "".join(
        f" {how['metavar']}" if flag == "changes" else f" {flag} {how['metavar']}"
        for flag, _, how, *_ in needed
    )
