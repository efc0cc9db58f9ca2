"""What the Tab key offers behind our magics: subcommands, loaders, names of streams and trials, options.

Words come through IPython's hook for commands. Options come through a matcher, since the hook is given what
stands behind the last dash only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from IPython.core import completer
from IPython.core.getipython import get_ipython

from tsnb.config import PACINGS
from tsnb.discovery import registry
from tsnb.errors import TsnbError
from tsnb.experiments.overview.board import trials
from tsnb.notebook.grammar import SWEEP, TENSORSOCKET, TRIAL, TRIALS, options_of
from tsnb.notebook.streams import loader_names
from tsnb.options import RESTARTS
from tsnb.records.trackers import BRIDGES
from tsnb.telemetry.watching import watched

if TYPE_CHECKING:
    from IPython.core.completer import CompletionContext, SimpleMatcherResult

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


def _options(line: str) -> list[str]:
    """Return the options that may stand at the end of a line."""
    words = line.split()
    if len(words) < 2 or words[0] not in COMMANDS or line.endswith(" ") or not words[-1].startswith("-"):
        return []
    commands = {"%trials": TRIALS, "%%trial": {words[1]: TRIAL}, "%%sweep": {words[1]: SWEEP}}.get(
        words[0], TENSORSOCKET
    )
    parser = commands.get(words[1])
    return [o for o in options_of(parser) if o.startswith(words[-1])] if parser else []


def _match_options(context: CompletionContext) -> SimpleMatcherResult:
    """Return the options that may stand at the cursor."""
    line = context.line_with_cursor[: context.cursor_position]
    options = _options(line)
    if not options:
        return {"completions": []}
    return {
        "completions": [completer.SimpleCompletion(option, type="param") for option in options],
        "suppress": True,
        "matched_fragment": line.split()[-1],
    }


def _match_options_by_text(_text: str) -> list[str]:
    """Return the options that may stand at the cursor, for an IPython whose matchers get no context."""
    shell: Any = get_ipython()
    return _options(shell.Completer.text_until_cursor)


# IPython has contexts since 8.6. Google Colab and Kaggle pin 7.34.
match_options: Any = (
    completer.context_matcher()(_match_options)
    if hasattr(completer, "context_matcher")
    else _match_options_by_text
)
"""The matcher for the options of our magics, as this IPython takes it."""
