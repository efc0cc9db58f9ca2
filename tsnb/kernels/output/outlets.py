"""Where a background kernel's output belongs: under the cell that started it, or on this process's terminal.

An outlet is made on the thread that runs the cell (it remembers the cell) and used on the hub's thread.

Clients that run a notebook without a front end (nbclient, nbconvert, papermill) take a cell's output only while that
cell runs. What a trial prints later would be lost, except for one feature of Jupyter's messaging protocol: a display
with an id can be replaced by any later cell. So there the launching cell gets one such display, output is collected,
and `flush_collected`, at the end of every cell, puts all of it into that display.
"""

from __future__ import annotations

import html
import os
import re
import sys
import threading
import uuid
import weakref
from typing import Any, Protocol

from tsnb.kernels.hub import the_hub
from tsnb.kernels.output.capping import Budget
from tsnb.kernels.output.marimo_cells import marimo_outlet
from tsnb.kernels.output.screen import Screen, plain
from tsnb.text.printable import coloured, is_terminal, uncoloured

__all__ = [
    "SWITCH",
    "CellOutlet",
    "CollectedOutlet",
    "Outlet",
    "TerminalOutlet",
    "client_here",
    "flush_collected",
    "is_unattended",
    "outlet_here",
]

SWITCH = "TSNB_BATCH"
_PICTURES = ("image/png", "image/jpeg", "image/gif")

_ENDS = re.compile(r"(\n|\r)")
_MOVES = re.compile(r"\x1b\[\d*[A-GK]")
"""What bars of several lines move by: on a terminal that trials share it would meet other trials' lines."""

WIDGET = "application/vnd.jupyter.widget-view+json"
"""A widget lives in the kernel that made it; without its model a page would show an error for it."""


class Outlet(Protocol):
    """Takes a kernel's output."""

    def publish(self, kind: str, content: dict[str, Any]) -> None:
        """Show one message. Called on the hub's thread, in order.

        Args:
            kind: "stream", "display_data", "update_display_data", "clear_output" or "error".
            content: As Jupyter's messaging protocol has it.
        """


def _request(kernel: Any) -> dict[str, Any]:
    """Return the message that asked for the cell that runs."""
    found: dict[str, Any] = (
        kernel.get_parent("shell") if hasattr(kernel, "get_parent") else kernel._parent_header
    )
    return found


def client_here() -> str | None:
    """Return which client sent the running cell: a page has another name each time it is loaded. None in a script."""
    kernel = _kernel_here()
    return None if kernel is None else _client_of(_request(kernel))


def _client_of(request: dict[str, Any]) -> str | None:
    found = request.get("header", {}).get("session")
    return found if isinstance(found, str) else None


class CellOutlet:
    """Re-publishes on the notebook kernel's own output channel, with the launching cell as parent.

    ipykernel's channel has a thread of its own, so this works while a cell runs; the session is ours, since
    the kernel's counts its messages without a lock. A page that is loaded again has forgotten which cell a message
    belongs to, and drops all that come for those that it has not started itself.

    Attributes:
        client: Which client sent the launching cell (`client_here`).
        cell: Which message asked for the launching cell.

    Args:
        kernel: The ipykernel of this process. Made while it runs the launching cell.
    """

    def __init__(self, kernel: Any) -> None:
        from jupyter_client.session import Session

        self._socket = kernel.iopub_socket
        self._parent = _request(kernel)
        self.client = _client_of(self._parent)
        self.cell: str | None = self._parent.get("header", {}).get("msg_id")
        theirs = kernel.session
        self._session = Session(
            key=theirs.key, signature_scheme=theirs.signature_scheme, username=theirs.username
        )

    def publish(self, kind: str, content: dict[str, Any]) -> None:
        """Show one message under the launching cell."""
        topic = f"kernel.tsnb.{kind}".encode()
        self._session.send(self._socket, kind, content, parent=self._parent, ident=topic)


class TerminalOutlet:
    """Writes to this process's standard streams, each line marked with its kernel's name.

    Colours stay on a terminal, and bars are drawn over. No other control sequence of what a trial prints reaches it.

    Args:
        label: The name.
        budget: That of a sweep or duel, of which several trials may fail in the same way.
    """

    capped = False
    """A terminal scrolls; under a cell all of it stays, so the relay shows so much and no more there."""

    def __init__(self, label: str, budget: Budget | None = None) -> None:
        self._label, self._mark = label, f"[{label}] "
        self._budget = budget or Budget()

    def publish(self, kind: str, content: dict[str, Any]) -> None:
        """Write one message; rich output as its plain text."""
        stream = sys.stderr if kind == "error" or content.get("name") == "stderr" else sys.stdout
        if kind == "stream":
            text = content["text"]
        elif kind == "error":
            text = "\n".join(self._budget.unrepeated(self._label, content["traceback"]))
        else:
            text = content.get("data", {}).get("text/plain", "")
        if not is_terminal(stream):
            text = uncoloured([text])
        pieces = _ENDS.split(_MOVES.sub("", text).replace("\r\n", "\n"))
        lines = zip(pieces[::2], [*pieces[1::2], ""], strict=True)
        marked = "".join(
            self._mark + coloured(line, len(line)).replace("\n", "?") + end
            for line, end in lines
            if line + end
        )
        if marked:
            the_hub().terminal.write(stream, marked if marked.endswith("\n") else marked + "\n")


def is_unattended(kernel: Any) -> bool:
    """Return whether the running cell was sent by a client without a person: it says that it cannot be asked for input.

    `TSNB_BATCH=0` says that there is one all the same, `TSNB_BATCH=1` that there is not.

    Args:
        kernel: The ipykernel of this process.
    """
    if os.environ.get(SWITCH) in {"0", "1"}:
        return os.environ[SWITCH] == "1"
    return _request(kernel).get("content", {}).get("allow_stdin") is False


class CollectedOutlet(CellOutlet):
    """Collects a kernel's output for one display below the launching cell.

    Args:
        kernel: The ipykernel of this process. Made while it runs the launching cell.
    """

    def __init__(self, kernel: Any) -> None:
        super().__init__(kernel)
        self._kernel = kernel
        self._display = {"display_id": uuid.uuid4().hex}
        self._lock = threading.Lock()
        self._parts: list[_Text | _Rich] = []
        self._shown = False
        super().publish("display_data", self._content())
        _outlets.add(self)

    def publish(self, kind: str, content: dict[str, Any]) -> None:
        """Keep one message until `flush_collected`. Called on the hub's thread, in order."""
        with self._lock:
            self._shown = False
            if kind == "stream":
                self._text().feed(content["text"])
            elif kind == "error":
                self._text().feed("\n".join([*content["traceback"], ""]))
            elif kind == "clear_output":
                self._parts.clear()
            else:
                self._take(kind, _Rich(content["data"], content.get("transient", {}).get("display_id")))

    def _text(self) -> _Text:
        if not self._parts or not isinstance(self._parts[-1], _Text):
            self._parts.append(_Text())
        return self._parts[-1]  # type: ignore[return-value]

    def _take(self, kind: str, new: _Rich) -> None:
        if kind == "update_display_data":
            same = [
                part for part in self._parts if isinstance(part, _Rich) and part.display_id == new.display_id
            ]
            for part in same:
                part.data = new.data
        else:
            self._parts.append(new)

    def flush(self) -> None:
        """Show all that came, if anything is new. Called while a cell runs, on its thread."""
        with self._lock:
            if self._shown:
                return
            self._shown = True
            content = self._content()
        self._parent = _request(self._kernel)
        super().publish("update_display_data", content)

    def _content(self) -> dict[str, Any]:
        if len(self._parts) == 1 and isinstance(alone := self._parts[0], _Rich) and WIDGET not in alone.data:
            return {
                "data": alone.data,
                "metadata": {},
                "transient": self._display,
            }  # as any cell's own output
        data = {"text/plain": "".join(part.text for part in self._parts).rstrip("\n")}
        if any(isinstance(part, _Rich) for part in self._parts):
            data["text/html"] = "".join(part.html for part in self._parts)
        return {"data": data, "metadata": {}, "transient": self._display}


class _Text:
    """What was printed between two displays."""

    def __init__(self) -> None:
        self._settled: list[str] = []
        self._screen = Screen()

    def feed(self, text: str) -> None:
        """Take text as it is printed; a progress bar becomes its last line."""
        self._settled.append(self._screen.feed(text))

    @property
    def text(self) -> str:
        """All of it, its colours included."""
        return "".join(self._settled) + self._screen.open

    @property
    def html(self) -> str:
        """The same, for a page."""
        return f"<pre>{html.escape(plain(self.text))}</pre>"


class _Rich:
    """A figure, a table, or anything else that was displayed."""

    def __init__(self, data: dict[str, Any], display_id: str | None) -> None:
        self.data = data
        self.display_id = display_id

    @property
    def text(self) -> str:
        """What stands for it where only text is shown."""
        return f"{self.data.get('text/plain', '')}\n"

    @property
    def html(self) -> str:
        """What a page shows: a picture or markup where there is one, as a cell's own output would."""
        for kind in _PICTURES:
            if kind in self.data:
                return f'<img alt="" src="data:{kind};base64,{html.escape(self.data[kind].strip())}">'
        for kind in ("text/html", "image/svg+xml"):
            if kind in self.data:
                return f"<div>{self.data[kind]}</div>"
        return f"<pre>{html.escape(self.text)}</pre>"


_outlets: weakref.WeakSet[CollectedOutlet] = weakref.WeakSet()


def flush_collected() -> None:
    """Show what all background kernels have printed until now. Called while a cell runs, on its thread."""
    for outlet in list(_outlets):
        outlet.flush()


def _kernel_here() -> Any:
    """Return the ipykernel of this process; None in a script or a terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None)


def outlet_here(label: str) -> Outlet:
    """Return the outlet for a kernel that is started here and now: the running cell, or the terminal."""
    kernel = _kernel_here()
    if kernel is None:
        return marimo_outlet() or TerminalOutlet(label)
    return CollectedOutlet(kernel) if is_unattended(kernel) else CellOutlet(kernel)
