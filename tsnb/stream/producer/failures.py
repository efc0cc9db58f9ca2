"""What the user's loader raised, as text, and its frames let go of.

An exception is the user's own code: its `str()` may raise, its causes may form a ring, its class may pretend to be
another one. Nothing here lets any of that out: the loading thread has to live through it.
"""

from __future__ import annotations

import contextlib
import json
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from tsnb.text.printable import encodable

__all__ = ["forget", "kind_of", "message_of", "shortened", "text_of", "way_out_of"]

TRACEBACK_BYTES = 100_000
"""What a traceback may take, as JSON, in a packet of 128 KiB."""


def text_of(error: BaseException) -> str:
    """Return its traceback as Python would print it, as far as it lets itself be printed."""
    try:
        text = "".join(traceback.format_exception(error))
    except BaseException as broken:  # noqa: BLE001  # the error's own code, which may raise anything
        where = "".join(traceback.format_tb(_traceback(error)))
        text = f"{where}{kind_of(error)}: (printing it raised {kind_of(broken)})\n"
    if not _str(error) and (inside := _inside(error)):
        text += inside  # a worker's error carries its traceback there
    return str(encodable(text))


def message_of(error: BaseException) -> str:
    """Return the last line of what it says, at most 500 characters."""
    said = _str(error)
    if not said:
        inside = _inside(error)
        if said is None and inside is None:
            return "(its str() raises)"
        said = inside or ""
    lines = encodable(said[-100_000:]).strip().splitlines()
    return lines[-1].strip()[:500] if lines else "(no message)"  # the traceback has it whole


def way_out_of(error: BaseException) -> str:
    """Return what to do about an error that a loader raises because it is served, as a further sentence; else ""."""
    if "objects created in a thread can only be used in that same thread" not in (_str(error) or ""):
        return ""
    return (
        " tsnb loads in its own thread and forks the workers there. Open the connection in the dataset "
        "when __getitem__ first needs it, or with sqlite3.connect(..., check_same_thread=False)."
    )


def kind_of(error: BaseException) -> str:
    """Return the name of its class, whatever its metaclass says."""
    return str(vars(type)["__name__"].__get__(type(error)))


def shortened(text: str) -> str:
    """Return the end of a traceback, which tells most, as long as a packet can take it."""
    text = text[-TRACEBACK_BYTES:]
    while len(json.dumps(text)) > TRACEBACK_BYTES:
        text = text[-(len(text) * 3 // 4) :]
    return text


def forget(error: BaseException) -> None:
    """Let go of what the frames of an error hold, and of its causes.

    torch raises errors from workers in a way that leaves a cycle: the epoch's iterator, and with it its workers,
    would stay until some garbage collection.
    """
    for one in _all(error):
        with contextlib.suppress(BaseException):  # what is let go of may be finalized, by the user's code
            traceback.clear_frames(_traceback(one))


def _all(error: BaseException) -> Iterator[BaseException]:
    """Give an error, its causes, and those in a group, each once."""
    seen: dict[int, BaseException] = {}
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        yield one
        # read past the class: it may have attributes of its own by these names
        waiting += [e for name in ("__cause__", "__context__") if (e := _field(one, name)) is not None]
        with contextlib.suppress(BaseException):
            waiting += [e for e in getattr(one, "exceptions", ()) if isinstance(e, BaseException)]


def _traceback(error: BaseException) -> TracebackType | None:
    found: TracebackType | None = _field(error, "__traceback__")
    return found


def _field(error: BaseException, name: str) -> Any:
    return vars(BaseException)[name].__get__(error)


def _str(error: BaseException) -> str | None:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001
        return None


def _inside(error: BaseException) -> str | None:
    """Return the text that it was made with."""
    return next((x for x in _field(error, "args") if type(x) is str), None)
