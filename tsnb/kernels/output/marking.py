"""Output of several trials under one cell: whole lines, each with its trial's name before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tsnb.kernels.output.capping import Budget
from tsnb.kernels.output.outlets import CellOutlet, Outlet, TerminalOutlet

__all__ = ["Marked", "marked", "marked_beside"]


class Marked:
    """Marks each line of one trial's output and hands it on.

    A line goes out when it is complete, since another trial's text may come next; of a progress bar, which writes one
    line over and over, that is its last state. Rich output and tracebacks are shown below a line with the mark.

    Attributes:
        beneath: Where it goes.
        budget: How much is shown there, by all of the sweep's trials.

    Args:
        outlet: The same as `beneath`.
        label: The trial's name.
        budget: As the attribute.
        unfinished: Returns the line that an unmarked neighbour has begun and not ended; empty: none.
    """

    def __init__(
        self,
        outlet: Outlet,
        label: str,
        budget: Budget | None = None,
        unfinished: Callable[[], str] = lambda: "",
    ) -> None:
        self.beneath = outlet
        self._unfinished, self._broken = unfinished, ""
        self.budget = budget or Budget()
        self._label, self._mark = label, f"[{label}] "
        self._open = {"stdout": "", "stderr": ""}

    def publish(self, kind: str, content: dict[str, Any]) -> None:
        """Show one message. Called on the hub's thread, in order."""
        if kind == "stream":
            self._write(content["name"], content["text"])
        elif kind != "clear_output":  # it would clear what the other trials have shown
            if kind != "update_display_data":
                self._write("stdout", "\n" if self._open["stdout"] else "")
                self._show("stdout", f"{self._mark}\n")
            if kind == "error":
                content = {**content, "traceback": self.budget.unrepeated(self._label, content["traceback"])}
            self.beneath.publish(kind, content)

    def _write(self, name: str, text: str) -> None:
        *lines, rest = (self._open[name] + text).replace("\r\n", "\n").split("\n")
        self._open[name] = rest.rpartition("\r")[2] or rest
        shown = [line.rstrip("\r").rpartition("\r")[2] for line in lines]
        self._show(name, "".join(f"{self._mark}{line}\n" for line in shown if line))

    def _show(self, name: str, text: str) -> None:
        if not text:
            return
        before, self._broken = self._broken, self._unfinished()
        apart = "\n" if self._broken and self._broken != before else ""
        self.beneath.publish("stream", {"name": name, "text": apart + text})


def marked(here: Outlet, label: str, budget: Budget | None = None) -> Outlet:
    """Return the outlet for one trial of a sweep.

    Args:
        here: The outlet of the cell that started the sweep.
        label: The trial's name.
        budget: How much is shown there, by all of the sweep's trials.
    """
    return TerminalOutlet(label, budget) if isinstance(here, TerminalOutlet) else Marked(here, label, budget)


def marked_beside(outlet: Outlet, other: Outlet, label: str, unfinished: Callable[[], str]) -> Outlet:
    """Return the outlet for a trial whose output may stand in the cell of another: its lines are marked there.

    Args:
        outlet: Where its output goes.
        other: Where the other's output goes.
        label: The trial's name.
        unfinished: Returns the line that the other one has begun and not ended; empty: none.
    """
    beneath = getattr(other, "beneath", other)
    if beneath is not other and outlet is other:
        return marked(beneath, label, getattr(other, "budget", None))
    cell = outlet.cell if isinstance(outlet, CellOutlet) else None
    shared = outlet is other or (cell is not None and cell == getattr(beneath, "cell", None))
    if not shared or isinstance(outlet, TerminalOutlet):
        return TerminalOutlet(label) if shared else outlet
    return Marked(outlet, label, unfinished=unfinished)
