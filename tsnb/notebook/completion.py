"""What the Tab key offers behind our magics: subcommands, loaders, names of streams and trials, options.

Words come through IPython's hook for commands. Options come through a matcher, since the hook is given what
stands behind the last dash only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from IPython.core.completer import (
    CompletionContext,
    SimpleCompletion,
    SimpleMatcherResult,
    context_matcher,
)

from tsnb import registry
from tsnb.config import PACINGS
from tsnb.errors import TsnbError
from tsnb.experiments.board import trials
from tsnb.notebook.grammar import SWEEP, TENSORSOCKET, TRIAL, TRIALS, options_of
from tsnb.notebook.streams import loader_names
from tsnb.options import RESTARTS
from tsnb.records.trackers import BRIDGES
from tsnb.telemetry.watching import watched

__all__ = ["COMMANDS", "complete_words", "match_options"]

COMMANDS = ("%tensorsocket", "%%tensorsocket", "%%trial", "%%sweep", "%trials")
"""The magics whose lines are completed."""


def complete_words(shell: Any, event: Any) -> list[str]:
    """Return the words that may stand at the cursor. IPython's `complete_command` hook."""
    return [word for word in _candidates(shell, event.line, event.symbol) if word.startswith(event.symbol)]


def _candidates(shell: Any, line: str, symbol: str) -> Iterable[str]:
    magic, *words = line.split()
    if symbol and words:
        words.pop()  # the one being written
    commands = {
        "%tensorsocket": TENSORSOCKET,
        "%%tensorsocket": {"start": TENSORSOCKET["start"]},
        "%trials": TRIALS,
    }
    if magic in ("%%trial", "%%sweep"):
        options: dict[str, Iterable[str]] = {
            "--stream": _streams(),
            "--log-to": BRIDGES,
            "--restart": RESTARTS,
        }
        return options.get(words[-1] if words else "", list(trials))
    if not words:
        return commands.get(magic, {})
    if words[0] == "start":
        if words[-1] == "--restart":
            return RESTARTS
        return loader_names(shell.user_ns) if magic == "%tensorsocket" else ()
    if words[0] == "balance":
        return [*_streams(), *PACINGS] if len(words) == 1 else PACINGS
    if words[0] == "report":
        ended = [name for name, there in watched().items() if there.readings()]
        return [*_streams(), *ended]  # one that has ended has its report still
    return list(trials) if magic == "%trials" else _streams()


def _streams() -> list[str]:
    with contextlib.suppress(TsnbError):
        return [entry.name for entry in registry.entries()]
    return []


@context_matcher()  # type: ignore[untyped-decorator]
def match_options(context: CompletionContext) -> SimpleMatcherResult:
    """Return the options that may stand at the cursor."""
    line = context.line_with_cursor[: context.cursor_position]
    words = line.split()
    if len(words) < 2 or words[0] not in COMMANDS or line.endswith(" ") or not words[-1].startswith("-"):
        return {"completions": []}
    commands = {"%trials": TRIALS, "%%trial": {words[1]: TRIAL}, "%%sweep": {words[1]: SWEEP}}.get(
        words[0], TENSORSOCKET
    )
    parser = commands.get(words[1])
    options = [o for o in options_of(parser) if o.startswith(words[-1])] if parser else []
    return {
        "completions": [SimpleCompletion(option, type="param") for option in options],
        "suppress": bool(options),
        "matched_fragment": words[-1],
    }
