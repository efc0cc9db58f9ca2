"""Foreign text made fit to be shown: in a terminal, a page, a log, or a file that a person opens.

Exception texts, metric names, names of files and hosts come from elsewhere: from a data set, another process, a file.
An escape sequence in one of them would set a terminal's title or clipboard, or clear it; a direction override would
reorder the line; a newline would forge one. Each text is cleaned once, where it *enters* (where a message, a reading,
a registry entry or a record is decoded), so that nothing that shows text needs care.

| what | becomes |
|---|---|
| control characters (C0, DEL, C1), direction overrides, lone surrogates | `?` |
| tabs, newlines, line separators | a space in `one_line`; kept (as newlines) in `block` |
| anything past the bound | `...` |

Letters of every script, emoji and what joins them stay as they are.
"""

from __future__ import annotations

import contextlib
import os
import re
import traceback
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

__all__ = [
    "LINE",
    "TEXT",
    "block",
    "coloured",
    "encodable",
    "harmless",
    "is_terminal",
    "one_line",
    "plain_warnings",
    "raised_in",
    "uncoloured",
]

LINE = 1000
"""Characters of a line, where nothing else is said."""
TEXT = 200_000
"""Characters of a block, such as a traceback."""

_BREAKS = (*range(0x09, 0x0E), 0x85, 0x2028, 0x2029)
"""Tab, line feed, vertical tab, form feed, carriage return; next line; line and paragraph separator."""
_BAD: dict[int, str] = {
    **dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), "?"),
    **dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x2070)), "?"),  # directions
    **dict.fromkeys(range(0xFFF9, 0xFFFC), "?"),  # annotations hide the text between them
    **dict.fromkeys(range(0xD800, 0xE000), "?"),  # cannot be encoded: printing them would raise
}
_IN_A_LINE = {**_BAD, **dict.fromkeys(_BREAKS, " ")}
_IN_A_BLOCK: dict[int, str] = {**_BAD, **dict.fromkeys(_BREAKS, "\n"), 0x09: "\t"}
_COLOUR = re.compile(r"(\x1b\[[0-9;:]{0,32}m)")
_OURS = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120  # pathlib is not imported for this
_PYTHONS = os.path.dirname(os.__file__)  # noqa: PTH120


def one_line(text: object, most: int = LINE) -> str:
    """Return a text as one printable line.

    Args:
        text: A text, or what is shown as its `str`.
        most: Characters at most; a longer one ends in "...".
    """
    line = text if isinstance(text, str) else str(text)
    if len(line) > most:
        line = line[: max(0, most - 3)] + "..."
    return line if line.isprintable() else line.translate(_IN_A_LINE)


def block(text: object, most: int = TEXT) -> str:
    """Return a text of several lines, printable; of one that is too long the end is kept, as of a traceback.

    Args:
        text: A text, or what is shown as its `str`.
        most: Characters at most.
    """
    lines = text if isinstance(text, str) else str(text)
    if len(lines) > most:
        lines = "..." + lines[len(lines) - max(0, most - 3) :]
    return lines if lines.isprintable() else lines.replace("\r\n", "\n").translate(_IN_A_BLOCK)


def encodable(value: Any) -> Any:
    r"""Return a text, or lists and tables with texts in them, that any file, table and socket takes.

    A lone surrogate, such as Python makes of a file name that is not UTF-8, becomes its number: "\\udcff".

    Args:
        value: As JSON has it; anything else is returned as it is.
    """
    if isinstance(value, str):
        return (
            value
            if type(value) is str and value.isascii()
            else str.encode(value, "utf-8", "backslashreplace").decode()
        )
    if isinstance(value, dict):
        return {encodable(key): encodable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [encodable(item) for item in value]
    return value


def harmless(text: str) -> str:
    """Return a text of several lines, printable, whole: what a person prints may have texts from anywhere in it."""
    return block(text, len(text))


def raised_in(error: BaseException) -> str:
    """Return the line of the user's code that raised, as ", in FILE, line N"; empty where none is known.

    That is the last one that is not of an installed package or of Python, if there is one; and none of tsnb.

    Args:
        error: That was caught.
    """
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<frozen", _OURS))
    ]
    installed = (_PYTHONS, "site-packages", "dist-packages")
    own = [frame for frame in frames if not any(word in frame.filename for word in installed)] or frames
    return one_line(f", in {own[-1].filename}, line {own[-1].lineno}") if own else ""


def is_terminal(stream: Any) -> bool:
    """Return whether a stream is a terminal, which shows colours: a file and a pipe keep their sequences.

    Args:
        stream: One with `isatty`, or anything else, which is none.
    """
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # closed, or a replacement that cannot say
        return False


def uncoloured(lines: Iterable[str]) -> str:
    """Return lines of a traceback as one text, without the colours that IPython gives it."""
    return _COLOUR.sub("", "\n".join(lines))


def coloured(text: str, most: int = TEXT) -> str:
    """Return a text of several lines whose colours stay (escape sequences that end in `m`), and no other sequence.

    Args:
        text: What a program wrote for a terminal.
        most: Characters at most.
    """
    if len(text) > most:
        text = "..." + text[len(text) - max(0, most - 3) :]
    parts = _COLOUR.split(text)
    parts[::2] = [part.replace("\r\n", "\n").translate(_IN_A_BLOCK) for part in parts[::2]]
    return "".join(parts)


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Print tsnb's warnings without a place in the code, while tsnb itself calls what a user's code calls elsewhere.

    The place would be in tsnb. Warnings of other code keep theirs.
    """
    usual, own = warnings.formatwarning, str(Path(__file__).parents[1])

    def formatted(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        if filename.startswith(own):
            return f"warning: {message}\n"
        return usual(message, category, filename, lineno, line)

    warnings.formatwarning = formatted
    try:
        yield
    finally:
        warnings.formatwarning = usual
