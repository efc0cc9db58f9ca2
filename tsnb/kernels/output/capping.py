"""How much of a background kernel's output a cell shows: a notebook is not a log file.

Output shown under a cell is saved with the notebook, and slows the page down. Only output that stays there counts: a
progress bar that is drawn a thousand times counts once, and `clear_output` frees everything again. Past the bound
one line says where the rest is. Tracebacks and the trial's own lines of state are always shown.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tsnb.kernels.output.screen import Screen
from tsnb.text.printable import uncoloured

__all__ = ["SHOWN_CHARACTERS", "SHOWN_RICH_CHARACTERS", "Budget", "Cap"]

SHOWN_CHARACTERS = 100_000
"""Text under one cell: some 1,500 lines."""

SHOWN_RICH_CHARACTERS = 20_000_000
"""Figures and tables under one cell, as text (pictures are base64): about a hundred pictures."""

_OWN = re.compile(r"0x[0-9a-f]+|# %%trial \S+")
"""What each trial has of its own in a traceback: the addresses of objects, and the first line of its cell."""

Shown = tuple[str, dict[str, Any]]


@dataclass
class Budget:
    """How much is shown under one cell so far, by all the kernels that show their output there."""

    characters: int = 0
    """Of text, as it stays."""
    rich: int = 0
    """Of figures and tables."""
    full: set[str] = field(default_factory=set)
    """What has reached its bound: "text", "rich"."""
    tracebacks: dict[str, str] = field(default_factory=dict)
    """The trials that have shown a traceback, by it: that of a function that fails in each trial is shown once."""

    def unrepeated(self, label: str, lines: Sequence[str]) -> Sequence[str]:
        """Return the lines of a traceback; only the error and who has shown the rest, if another trial has.

        Args:
            label: The trial's name.
            lines: The traceback.
        """
        first = self.tracebacks.setdefault(_OWN.sub("", uncoloured(lines)).replace(label, ""), label)
        if first == label:
            return lines
        error = uncoloured(lines).rstrip().rpartition("\n")[2]
        return [f"{error} (the traceback is that of {first})"]


class Cap:
    """Decides what of one kernel's output is shown.

    Args:
        log_path: The full log, where there is one.
        rest: How else to see the rest, a sentence for the line that tells of it.
        budget: That of its cell, where others show their output too; left out: the cell is its own.
    """

    def __init__(self, log_path: Path | None = None, rest: str = "", budget: Budget | None = None) -> None:
        self._log_path = log_path
        self._rest = rest
        self._shared = budget is not None
        self._budget = budget or Budget()
        self._screen = Screen()

    def text(self, name: str, text: str) -> list[Shown]:
        """Return what to show for text on the named stream: it, a part of it, the line that tells, nothing."""
        if "text" in self._budget.full:
            return []
        room = SHOWN_CHARACTERS - self._budget.characters - len(self._screen.open)
        self._budget.characters += len(self._screen.feed(text))
        if self._budget.characters <= SHOWN_CHARACTERS:
            return [("stream", {"name": name, "text": text})]
        part, _, _ = text[: max(0, room)].rpartition("\n")
        return [("stream", {"name": name, "text": part + "\n"}), *self._tell("text")]

    def rich(self, kind: str, content: dict[str, Any]) -> list[Shown]:
        """Return what to show for a display, its update, or `clear_output`."""
        if kind == "clear_output":
            if self._shared:
                return []  # it would clear what the others have shown
            self._budget, self._screen = Budget(), Screen()
        elif kind == "display_data":
            self._budget.rich += sum(map(_size, content["data"].values()))
            if self._budget.rich > SHOWN_RICH_CHARACTERS:
                return self._tell("rich")
        return [(kind, content)]

    def _tell(self, what: str) -> list[Shown]:
        """Return the line that says where the rest is, the first time that anything is full."""
        told = bool(self._budget.full)
        self._budget.full.add(what)
        return [] if told else [("display_data", {"data": self._notice(), "metadata": {}, "transient": {}})]

    def _notice(self) -> dict[str, str]:
        words = "Some output is not shown here because there is too much of it."
        if self._log_path is None:
            return {"text/plain": f"{words} {self._rest}".rstrip()}
        return {
            "text/plain": f"{words} The full log: {self._log_path} {self._rest}".rstrip(),
            "text/html": f"<p>{words} The full log: {_link(self._log_path)} {html.escape(self._rest)}</p>",
        }


def _link(path: Path) -> str:
    """Return the path, as a link where a notebook's server gives the file out: not above it, and not hidden."""
    near, shown = os.path.relpath(path), html.escape(str(path))
    if any(part.startswith(".") for part in Path(near).parts):
        return f"<code>{shown}</code>"
    return f'<a href="{html.escape(near)}" target="_blank">{shown}</a>'


def _size(value: object) -> int:
    return len(value) if isinstance(value, str) else len(repr(value))
