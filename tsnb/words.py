"""What messages and tables of every part are made of: the nearest known word, and rows as text or HTML. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["did_you_mean", "html_table", "text_table"]


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return " Did you mean 'start'?", or nothing where no known word is close.

    Args:
        word: What was given.
        known: What it may have meant.
    """
    near = difflib.get_close_matches(str(word), list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of equal length as lines with columns, the head among them."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def html_table(rows: Sequence[Sequence[str]], style: str = "") -> str:
    """Return rows as a table for a notebook; the first is its head, and every cell is text.

    Args:
        rows: Cells, one list a row.
        style: CSS of the table itself.
    """

    def line(cells: Sequence[str], tag: str) -> str:
        return "".join(f"<{tag} style='text-align:left'>{escape(cell)}</{tag}>" for cell in cells)

    head, *others = rows
    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in others)
    opening = f"<table style='{escape(style, quote=True)}'>" if style else "<table>"
    return f"{opening}<thead><tr>{line(head, 'th')}</tr></thead><tbody>{body}</tbody></table>"
