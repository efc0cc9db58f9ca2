"""Make what follows from the code: error-index.md, magics.md, command-line.md, tables of reference.md and architecture.md.

`.venv/bin/python docs/make_reference.py` writes them. They are committed, and tests/house/test_made_pages.py fails if
one of them is out of date.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import tsnb
from tsnb import errors
from tsnb.cli.commands import _parser
from tsnb.experiments.plan import TrialOptions
from tsnb.notebook.grammar import SWEEP, TENSORSOCKET, TRIAL, TRIALS
from tsnb.notebook.magic_help import arguments, metavar, usage
from tsnb.options import NOTEBOOK, add_options
from tsnb.stream.decisions.phases import Cause, Phase

DOCS = Path(__file__).parent
_NAMESPACES = ("streams", "data", "search", "records")
MADE = "<!-- made by docs/make_reference.py: change the code it is made from, and run that again -->"

COMMANDS = {
    "Serve and watch streams": "serve list status top record stop",
    "Change a stream while it runs": "balance tune rounds",
    "Run trials": "sweep duel results logs",
    "Steer a trial": "pause resume set clone extend interrupt",
    "Measure and plan": "stalls plan",
    "Look at the machine": "doctor devices mps",
    "Let programs use tsnb": "mcp skill",
}
"""The commands of the terminal by task, in the order of the page."""

EXAMPLES = {
    "tsnb serve": "tsnb serve data.cifar:make_loader --name cifar --seed 1",
    "tsnb list": "tsnb list --json",
    "tsnb status": "tsnb status cifar",
    "tsnb top": "tsnb top cifar --once",
    "tsnb record": "tsnb record cifar run.jsonl",
    "tsnb stop": "tsnb stop cifar/small",
    "tsnb balance": "tsnb balance cifar weights --weight large=2",
    "tsnb tune": "tsnb tune cifar --workers auto --memory 4GiB",
    "tsnb rounds": "tsnb rounds cifar --every 500 --select hard:0.2",
    "tsnb sweep": "tsnb sweep training:train --grid lr=0.1,0.01 --halving loss --every 100",
    "tsnb duel": "tsnb duel incumbent.py candidate.py --metric val_acc --json",
    "tsnb results": "tsnb results --sort accuracy",
    "tsnb logs": "tsnb logs small --run 1",
    "tsnb mcp": "tsnb mcp",
    "tsnb skill": "tsnb skill",
    "tsnb pause": "tsnb pause cifar/small",
    "tsnb resume": "tsnb resume cifar/small",
    "tsnb set": "tsnb set cifar/small lr=0.03",
    "tsnb clone": "tsnb clone cifar/small --name hot lr=0.03",
    "tsnb extend": "tsnb extend cifar/small --epochs 5",
    "tsnb interrupt": "tsnb interrupt cifar/small",
    "tsnb stalls": "tsnb stalls data.cifar:make_loader --train-step training:step --n-trials 8",
    "tsnb plan": "tsnb plan data.cifar:make_loader --trial training:train lr=0.1 --trial training:train lr=0.01",
    "tsnb doctor": "tsnb doctor",
    "tsnb devices": "tsnb devices",
    "tsnb mps": "tsnb mps status",
    "%tensorsocket start": "%tensorsocket start loader --name cifar --seed 1",
    "%tensorsocket list": "%tensorsocket list",
    "%tensorsocket status": "%tensorsocket status cifar",
    "%tensorsocket logs": "%tensorsocket logs cifar",
    "%tensorsocket stop": "%tensorsocket stop",
    "%tensorsocket restart": "%tensorsocket restart",
    "%tensorsocket reload": "%tensorsocket reload",
    "%tensorsocket dashboard": "%tensorsocket dashboard --side",
    "%tensorsocket report": "%tensorsocket report --target accuracy=0.95",
    "%tensorsocket record": "%tensorsocket record cifar run.jsonl",
    "%tensorsocket balance": "%tensorsocket balance weights --weight large=2",
    "%tensorsocket tune": "%tensorsocket tune --workers auto",
    "%tensorsocket rounds": "%tensorsocket rounds --every 500 --select hard:0.2",
    "%%trial": "%%trial small --seed 1",
    "%%sweep": "%%sweep cnn --grid lr=0.1,0.01 --halving loss --every 100",
    "%trials list": "%trials",
    "%trials stop": "%trials stop small",
    "%trials pause": "%trials pause small large",
    "%trials resume": "%trials resume",
    "%trials set": "%trials set small lr=0.03",
    "%trials interrupt": "%trials interrupt small",
    "%trials wait": "%trials wait cnn",
    "%trials logs": "%trials logs small --run 1",
    "%trials follow": "%trials follow small",
    "%trials clone": "%trials clone small --name hot lr=0.03",
    "%trials rerun": "%trials rerun small seed=2",
    "%trials extend": "%trials extend small --epochs 5",
    "%trials clear": "%trials clear",
}
"""A line for each command, as one may type it. tests/house/test_made_pages.py has the parsers read them."""


def pages() -> dict[str, str]:
    """Return the text of each page by its file name."""
    return {
        "error-index.md": _errors(),
        "magics.md": _magics(),
        "command-line.md": _command_line(),
        "reference.md": _reference(),
        "architecture.md": _architecture(),
    }


def commands() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each command of the terminal."""
    found = next(action for action in _parser()._actions if isinstance(action, argparse._SubParsersAction))
    for choice in found._choices_actions:
        found.choices[choice.dest].description = choice.help
    return dict(found.choices)


def _page(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", MADE, *map(_wrapped, parts)]) + "\n"


def _wrapped(part: str) -> str:
    """Break a paragraph or a list into lines; tables and headings stay as they are."""
    if part.startswith(("|", "#")):
        return part
    return "\n".join(
        textwrap.fill(
            line,
            120,
            subsequent_indent="  " if line.startswith("- ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in part.splitlines()
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _errors() -> str:
    kinds = [getattr(errors, name) for name in errors.__all__]
    raised = [kind for kind in kinds if issubclass(kind, errors.TsnbError) and kind is not errors.TsnbError]
    warned = [kind for kind in kinds if issubclass(kind, Warning)]
    head = ("Class", "Cause", "Fix")
    return _page(
        "Error index",
        "Every error that tsnb raises on purpose is a subclass of `tsnb.errors.TsnbError`. Its message names the stream or "
        "trial, and its last sentence says what to do. Wrong arguments raise `ValueError` or `TypeError`, as everywhere in "
        "Python.",
        "To start from what you see instead, read [trouble by symptom](by-symptom.md).",
        "## Errors",
        _table(head, map(_error, raised)),
        "## Warnings",
        _table(head, map(_error, warned)),
        "## Catch an error",
        "Some classes also derive from an error of Python's, so that for example `except LookupError` catches them:",
        _table(
            ("Class", "Also a"), [(f"`{kind.__name__}`", also) for kind in raised if (also := _also(kind))]
        ),
        "**See also:** [trouble by symptom](by-symptom.md) · [questions and answers](faq.md) · "
        "[guarantees](guarantees.md) · [the classes](reference.md#errors)",
    )


def cause_and_fix(kind: type) -> tuple[str, str]:
    """Return what an error's docstring says: why it is raised, and what to do."""
    paragraphs = [" ".join(part.split()) for part in (inspect.getdoc(kind) or "").split("\n\n")]
    fixes = [part.removeprefix("Fix: ") for part in paragraphs if part.startswith("Fix: ")]
    causes = itertools.takewhile(lambda part: not part.startswith("Fix: "), paragraphs)
    return " ".join(causes), " ".join(fixes)


def _error(kind: type) -> tuple[str, str, str]:
    return (f"`{kind.__name__}`", *cause_and_fix(kind))


def _also(kind: type) -> str:
    return ", ".join(
        f"`{base.__name__}`" for base in kind.__bases__ if not issubclass(base, errors.TsnbError)
    )


def _reference() -> str:
    """Return the page as it is written, with a new table of functions at the start of each group."""
    text = (DOCS / "reference.md").read_text(encoding="utf-8")
    return re.sub(
        r"<!-- summary -->\n.*?<!-- end of summary -->(.*?\n```\n)",
        lambda group: f"<!-- summary -->\n{_summary(group[1])}\n<!-- end of summary -->{group[1]}",
        text,
        flags=re.DOTALL,
    )


def _architecture() -> str:
    """Return the page as it is written, with a new table of the phases of a consumer."""
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    rows = [
        (
            "any" if len(cause.before) == len(Phase) else ", ".join(p.value for p in cause.before),
            cause.after.value,
            cause.words,
        )
        for cause in Cause
    ]
    table = _table(("From", "To", "When"), rows)
    return re.sub(
        r"(?<=<!-- phases -->\n).*?(?=\n<!-- end of phases -->)", lambda _: table, text, flags=re.DOTALL
    )


def _summary(directives: str) -> str:
    """Return the table of the public names in a group: what each of them does, by its docstring's first line."""
    rows = []
    for name in re.findall(r"^\.\. auto(?:function|class|data):: ([\w.]+)", directives, re.MULTILINE):
        part, _, word = name.removeprefix("tsnb.").rpartition(".")
        space = getattr(tsnb, part) if part in _NAMESPACES else tsnb if not part else None
        if space is not None:
            first = (inspect.getdoc(getattr(space, word)) or "").split("\n\n")[0]
            rows.append((f"`tsnb.{name.removeprefix('tsnb.')}`", " ".join(first.split())))
    return _table(("Name", "What it does"), rows)


def _magics() -> str:
    shared = argparse.ArgumentParser(add_help=False)
    add_options(shared, TrialOptions, NOTEBOOK)
    trial_options = {action.dest for action in shared._actions}
    return _page(
        "Magics",
        "`%load_ext tsnb` registers four magics. `%tensorsocket?`, `%%trial?`, `%%sweep?` and `%trials?` show their help in "
        "a notebook. A `{name}` in a line is replaced by the value of that variable.",
        _table(
            ("Magic", "Use it to"),
            [
                ("[`%tensorsocket`](#tensorsocket)", "serve a loader and look after the stream"),
                ("[`%%trial`](#trial)", "run a cell as a trial"),
                ("[`%%sweep`](#sweep)", "run a cell as many trials"),
                ("[`%trials`](#trials)", "look after the trials of this notebook"),
            ],
        ),
        "## tensorsocket",
        "Without NAME, a command acts on the stream of this notebook. A cell that starts with `%%tensorsocket start --name "
        "NAME` builds the loader itself, in the background process, as the variable `loader`.",
        _overview("%tensorsocket", TENSORSOCKET),
        *_sections("%tensorsocket", TENSORSOCKET),
        "## trial",
        "The cell returns at once and trains in its own process, with copies of the variables that it reads. Running a cell "
        "of the same name again replaces the trial.",
        *_described("%%trial", TRIAL),
        "## sweep",
        "Each trial of the sweep finds its parameters as variables. The sweep is the result of the cell (`_`).",
        *_described("%%sweep", SWEEP, without=trial_options),
        "`%%sweep` also takes every option of [`%%trial`](#trial), for example `--seed` and `--stream`.",
        "## trials",
        "`%trials` alone shows the table of trials. Without NAME, `stop`, `pause`, `resume` and `wait` act on all trials that "
        "this notebook has started.",
        _overview("%trials", TRIALS),
        *_sections("%trials", TRIALS),
        "**See also:** [run a cell](run-a-cell.md) · [sweeps](sweeps.md) · [the command line](command-line.md)",
    )


def _command_line() -> str:
    found = commands()
    parts: list[str] = []
    for task, names in COMMANDS.items():
        chosen = {name: found[name] for name in names.split()}
        parts += [f"## {task}", _overview("tsnb", chosen), *_sections("tsnb", chosen)]
    return _page(
        "Command line",
        "`tsnb COMMAND` does from a terminal what the magics do in a notebook. `tsnb COMMAND --help` prints the same text as "
        "this page.",
        "- `MODULE:NAME` is a loader or function in a module that Python can import from the current directory, for example "
        "`data.cifar:make_loader`.\n"
        "- `STREAM/TRIAL` names a trial by its stream, for example `cifar/small`.\n"
        "- With `--json` a command prints its answer as JSON on standard output, and everything else on standard error.\n"
        "- The exit status is 0 for success, 1 for a failure whose message says what to do, and 2 for wrong usage.",
        *parts,
        "**See also:** [automation](automation.md) · [agents](agents.md) · [the magics](magics.md)",
    )


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:].removesuffix('.')}."


def _overview(before: str, parsers: Mapping[str, argparse.ArgumentParser]) -> str:
    """Return the table of some commands: how each is typed, and what it does."""
    rows = []
    for name, parser in parsers.items():
        json = " [--json]" if any(action.dest == "json" for action in arguments(parser)) else ""
        rows.append((f"`{usage(f'{before} {name}', parser)}{json}`", _sentence(parser.description or "")))
    return _table(("Command", "What it does"), rows)


def _sections(before: str, parsers: Mapping[str, argparse.ArgumentParser]) -> list[str]:
    """Return a section for each command that takes more than its overview has."""
    parts = []
    for name, parser in parsers.items():
        if any(action.option_strings and action.dest != "json" for action in arguments(parser)):
            parts += [f"### {before} {name}", *_described(f"{before} {name}", parser)]
    return parts


def _described(name: str, parser: argparse.ArgumentParser, without: Iterable[str] = ()) -> list[str]:
    """Return an example and the table of a command's arguments."""
    rows = [_row(action) for action in arguments(parser) if action.dest not in without]
    return [f"Example: `{EXAMPLES[name]}`", _table(("Argument", "What it does"), rows)]


def _row(action: argparse.Action) -> tuple[str, str]:
    """Return one argument as it is typed, and its help."""
    text = (action.help or "") % {"default": action.default, "prog": ""}
    assert text, f"{action.dest} has no help"
    if not action.option_strings:
        return f"`{metavar(action)}`", text
    typed = f"{action.option_strings[-1]} {metavar(action)}".strip()
    return f"`{typed}`", f"{text} (required)" if action.required else text


if __name__ == "__main__":
    for file, text in pages().items():
        (DOCS / file).write_text(text, encoding="utf-8")
