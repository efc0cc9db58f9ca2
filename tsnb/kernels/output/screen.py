r"""What a terminal would show of a stream of text: its lines, a progress bar as one line and not as a thousand.

A line *settles* when nothing can change it any more. The last `OPEN_LINES` lines stay *open*: a carriage return,
a backspace or a cursor that moves up (`tqdm` draws nested bars so) still writes over them.

| control | what it does here |
|---|---|
| `\n`, `\r\n` | next line |
| `\r` | start of the line; what follows writes over it |
| `\b` | one column back |
| `ESC [ n A` | n lines up, as far as lines are open |
| `ESC [ K`, `ESC [ 2 K` | clears the rest of the line, or all of it |

Colours stay in the text; `plain` takes them out. No I/O, no clock.
"""

from __future__ import annotations

import re

__all__ = ["LONGEST_LINE", "OPEN_LINES", "Screen", "plain"]

OPEN_LINES = 16
"""More progress bars than that at once are not drawn in place, but below each other."""

LONGEST_LINE = 10_000
"""Characters; a line that never ends settles in pieces of about this length."""

_CONTROL = re.compile(r"(\r?\n|\r|\x08|\x1b\[\d{0,4}[AK])")
_MOVES = re.compile(r"\r(?!\n)|\x08|\x1b\[\d{0,4}[AK]")
_TORN = re.compile(r"(?:\x1b(?:\[[\d;?]*)?|\r)\Z")
_ESCAPES = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")


def plain(text: str) -> str:
    """Return the text without colours and other escape sequences."""
    return _ESCAPES.sub("", text)


class Screen:
    """Takes text as a program prints it, and gives lines."""

    def __init__(self) -> None:
        self._lines = [""]
        self._row = 0
        self._column = 0
        self._torn = ""

    @property
    def open(self) -> str:
        """The lines that may still change; the last one may have no end yet."""
        return "\n".join(self._lines)

    @property
    def in_a_line(self) -> bool:
        """Whether the next text would stand behind other text."""
        return bool(self._lines[self._row])

    def feed(self, text: str) -> str:
        """Take text.

        Returns:
            What has settled by it: whole lines, or a piece of a very long one.
        """
        text = self._torn + text
        torn = _TORN.search(text)  # a control sequence may come in two pieces
        self._torn = torn.group() if torn else ""
        text = text.removesuffix(self._torn)
        if _MOVES.search(text) or not self._at_end:
            for number, piece in enumerate(_CONTROL.split(text)):
                if number % 2:
                    self._move(piece)
                elif piece:
                    self._write(piece)
        else:
            first, *others = text.replace("\r\n", "\n").split("\n")
            self._lines[-1] += first
            self._lines += others
            self._row, self._column = len(self._lines) - 1, len(plain(self._lines[-1]))
        return self._settle()

    @property
    def _at_end(self) -> bool:
        return self._row == len(self._lines) - 1 and self._column == len(plain(self._lines[-1]))

    def _move(self, piece: str) -> None:
        if piece in {"\n", "\r\n"}:
            self._row, self._column = self._row + 1, 0
            if self._row == len(self._lines):
                self._lines.append("")
        elif piece == "\r":
            self._column = 0
        elif piece == "\b":
            self._column = max(0, self._column - 1)
        elif piece.endswith("A"):
            self._row = max(0, self._row - int(piece[2:-1] or 1))
        else:
            self._clear(piece[2:-1])

    def _clear(self, which: str) -> None:
        line = plain(self._lines[self._row])
        self._lines[self._row] = "" if which == "2" else line[: self._column]

    def _write(self, text: str) -> None:
        line, width = self._lines[self._row], len(plain(text))
        if self._column < len(plain(line)):  # written over, it loses its colours: they would be cut apart
            line = plain(line)
            self._lines[self._row] = line[: self._column] + text + line[self._column + width :]
        else:
            self._lines[self._row] = line + " " * (self._column - len(plain(line))) + text
        self._column += width

    def _settle(self) -> str:
        settled = [line + "\n" for line in self._lines[:-OPEN_LINES]]
        del self._lines[:-OPEN_LINES]
        self._row = max(0, self._row - len(settled))
        if len(self._lines[-1]) > LONGEST_LINE:
            settled.append(self.open)
            self._lines, self._row, self._column = [""], 0, 0
        return "".join(settled)
