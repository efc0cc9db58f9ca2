"""The messages of a kernel on another machine, until they are fetched: in order, each once, and within a bound.

The process that fetches says how many messages it has; those are dropped, and it gets all that came since. So a request
that is repeated because its answer got lost loses and repeats nothing; nor does the first one, if it comes late.

Pure: messages in, messages out.
"""

from __future__ import annotations

from typing import Any

__all__ = ["DIED", "REPLY", "WANTED", "Backlog", "Message"]

REPLY = "tsnb_reply"
"""Content: `request`, and `reply`, the kernel's reply to it."""
DIED = "tsnb_died"
"""Content: `text`, how the kernel's process ended."""
WANTED = "tsnb_wanted"
"""Published by the kernel, for its actor. Content: `stream`, one of the cluster that is wanted there; None asks which
is the only one. `answer`: the file where the kernel looks for what became of it."""

Message = tuple[str, "dict[str, Any]"]
"""A kind and a content, as Jupyter's messaging protocol has them, or one of our own."""

WAITING_CHARS = 16 * 2**20
"""Text that waits at most: a loop that prints without end must not fill a machine whose notebook stands still."""
JOINED_CHARS = 65_536
"""Pieces of text are joined up to this size."""


class Backlog:
    """Messages that wait.

    Args:
        most_chars: How much text waits at most; what comes beyond that is left out, and that is said in its place.
    """

    def __init__(self, most_chars: int = WAITING_CHARS) -> None:
        self._most_chars = most_chars
        self._waiting: list[Message] = []
        self._first = 0  # the number of the first that waits
        self._given = 0  # those before this number were handed out: they must stay as they are
        self._chars = 0
        self._left_out = 0

    def add(self, kind: str, content: dict[str, Any]) -> None:
        """Take a message."""
        if kind != "stream":
            self._waiting.append((kind, content))
        elif self._chars + len(content["text"]) > self._most_chars:
            self._left_out += len(content["text"])
        else:
            self._add_text(content["name"], content["text"])

    def _add_text(self, name: str, text: str) -> None:
        self._chars += len(text)
        if self._waiting and self._first + len(self._waiting) > self._given:
            kind, last = self._waiting[-1]
            if kind == "stream" and last["name"] == name and len(last["text"]) < JOINED_CHARS:
                text = last["text"] + text
                self._waiting.pop()
        self._waiting.append(("stream", {"name": name, "text": text}))

    def since(self, seen: int) -> list[Message]:
        """Return what waits behind the first `seen` messages, and forget those.

        Args:
            seen: How many messages were received in all; fewer than were said before: a question that came late.
        """
        if seen < self._first:
            return []
        gone = self._waiting[: seen - self._first]
        del self._waiting[: seen - self._first]
        self._first = seen
        self._chars -= sum(len(content["text"]) for kind, content in gone if kind == "stream")
        if self._left_out:
            left_out, self._left_out = self._left_out, 0
            note = (
                "\n"
                f"[{left_out:,} characters were left out here, because they arrived faster than they could "
                "be fetched]\n"
            )
            self._add_text("stderr", note)
        self._given = self._first + len(self._waiting)
        return list(self._waiting)
