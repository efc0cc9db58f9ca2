"""The picture beside a live panel: what a saved notebook shows of it where the panel itself cannot be.

A widget's state is not saved by default, so a notebook that is opened again without its kernel has an error in the
panel's place, and so have pages made from it (nbconvert, code hosts). The picture is an output of its own in the same
cell: the stream's report so far as SVG, shown with the first trial, made anew when a trial leaves, at the stream's
end, and once a minute. While the panel is alive in a page, its front end hides the picture, which it knows by the mark
in it.

A page that was loaded again drops what is published for a cell that it has not started. The panel in it is alive all
the same, so each picture goes to the panel as well, whose front end puts it in its place (`outputs.js`).

Where the panel's widget is not found, JupyterLab has an error in its place. A style sheet, an output of its own
between the two, hides that error: the picture says more.

Another cell that shows the same panel has the same picture, under the same mark: whichever of them is alive hides all.

The picture is not shown at once: JupyterLab 4.6 drops what a cell displays just when the notebook's first widget opens.

Reports, and numpy with them, are imported with this module, on the thread that asks for a panel: a cell that imports
numpy while another thread does may meet it half imported.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
import weakref
from dataclasses import dataclass, replace
from typing import Any

from tsnb.errors import TsnbError
from tsnb.kernels.output.outlets import CollectedOutlet, Outlet, outlet_here
from tsnb.notebook.trial_logs import TrialLogs
from tsnb.panel import Panel
from tsnb.reports import report
from tsnb.reports.learned.beside import told_beside
from tsnb.telemetry.readings import OutcomeReading, StreamReading

__all__ = ["EVERY_S", "Still", "leave_still", "renew_stills"]

_log = logging.getLogger("tsnb")

EVERY_S = 60.0
"""How old the picture of a stream that runs may be."""


class Still:
    """The picture of one panel, of each of its streams.

    Attributes:
        mark: What the front end knows it by; the beginning of an id in each picture.

    Args:
        panel: The panel; its cell runs.
    """

    def __init__(self, panel: Panel) -> None:
        self.mark = f"tsnb-still-{uuid.uuid4().hex[:12]}"
        self._panel = panel
        self._cells = [outlet_here(panel.stream or "panel")]
        self._of: dict[str, _Pictured] = {}
        self._left: dict[str, dict[str, Any]] = {}
        self._drawing = threading.Lock()
        self._again = threading.Event()

    def news(self, reading: StreamReading | None = None, stream: str = "") -> None:
        """Make the picture anew where something has ended, or it has grown old. Called with the panel's lock held.

        Args:
            reading: The newest one; None: the stream's state has changed in another way, as at its end.
            stream: The stream's name.
        """
        this = self._of.setdefault(stream, _Pictured(len(self._of)))
        former, ended = this.here, reading is None
        logs = TrialLogs()
        beside = frozenset([*logs.states_beside(), *logs.states_of_duels()])
        ended = ended or beside != this.beside
        this.beside = beside
        if reading is not None:
            this.here = frozenset(reading.attached)
            ended = ended or bool(reading.ends or former - this.here) or reading.outcome != this.outcome
            this.outcome = reading.outcome
        first = this.cells < len(self._cells) and bool(this.here or this.cells)
        if ended or first or time.monotonic() - this.made_s > EVERY_S:
            this.made_s = time.monotonic()
            this.wanted = True
            self._again.set()
            threading.Thread(target=self._draw, name=f"tsnb-still-{stream}", daemon=True).start()

    def show_here(self) -> None:
        """Have the picture in the cell that runs, too: it shows the same panel."""
        self._cells.append(outlet_here(self._panel.stream or "panel"))

    def renew(self) -> None:
        """Make all of it anew, here and now; and leave the panel itself, as it is, as a recording."""
        for this in list(self._of.values()):
            this.wanted = True
        self._again.set()
        self._draw()
        self._panel.leave_recording()

    def again(self) -> None:
        """Give the panel its newest pictures again: a page was loaded, which may hold old ones."""
        for mark, data in list(self._left.items()):
            self._panel.leave_output(mark, data)

    def _draw(self) -> None:
        """Draw until nothing is new. On a thread of its own: a long stream's picture takes a tenth of a second."""
        with self._drawing:
            while self._again.is_set():
                self._again.clear()
                for stream, this in list(self._of.items()):
                    if this.wanted:
                        this.wanted = False
                        self._picture(stream, this)

    def _picture(self, stream: str, this: _Pictured) -> None:
        try:
            found = report(stream or self._panel.stream or None)
        except (TsnbError, LookupError, OSError, ValueError) as error:
            _log.debug("no picture of the panel: %s", error)
            return
        rows = [] if this.number else TrialLogs().beside()  # once in a panel of several streams
        told = told_beside(rows, found.story.trials, found.story.pending)
        if not found.story.trials and not told:
            return
        found.story = replace(found.story, beside=told)
        mark = f"{self.mark}-{this.number}" if this.number else self.mark
        data = found._repr_mimebundle_()
        from tsnb.reports.svg import marked  # numpy comes with it

        data["image/svg+xml"] = marked(data["image/svg+xml"], mark)
        fresh = self._cells[this.cells :]
        this.cells += len(fresh)
        # a client without a page has one output of a cell, which is to be the picture; its file has the widget, too
        for cell in fresh if not this.number else ():
            if not isinstance(cell, CollectedOutlet):
                self._leave(f"{self.mark}-style", {"text/html": _no_error(self.mark)}, cell)
        if this.cells > len(fresh):
            self._leave(mark, data)
        for cell in fresh:
            self._leave(mark, data, cell)

    def _leave(self, mark: str, data: dict[str, Any], cell: Outlet | None = None) -> None:
        """Have an output in a cell, else renew it wherever it is; also in pages that know the panel only."""
        content: dict[str, Any] = {"data": data, "metadata": {}, "transient": {"display_id": mark}}
        kind = "update_display_data" if cell is None else "display_data"
        (cell or self._cells[-1]).publish(kind, content)
        self._left[mark] = data
        self._panel.leave_output(mark, data)


def _no_error(mark: str) -> str:
    """Return what hides JupyterLab's words above a picture: a widget's output that holds no widget."""
    child, style = ".jp-OutputArea-child", f"{mark}-style"
    widget = ":is(.jupyter-widgets,.lm-Panel)"  # the second while it waits for a kernel
    lost = f"{child}:has(> {widget}):not(:has(> {widget} > *)):has(~ {child} #{style})"
    # in a comment, which a style sheet may have: where a page takes the element away, no text of it stays
    return f'<style id="{style}"><!-- {lost},{child}:has(#{style}){{display:none}} --></style>'


@dataclass
class _Pictured:
    """What is pictured of one stream."""

    number: int
    here: frozenset[str] = frozenset()
    """The trials that were on it at its last reading."""
    beside: frozenset[tuple[str | int, ...]] = frozenset()
    """The trials without a stream by then, with their states; and the duels."""
    outcome: OutcomeReading | None = None
    """What its notebooks told by then of how its trials compare: it may come after the last end."""
    made_s: float = -EVERY_S
    """When its picture was made last; monotonic."""
    wanted: bool = False
    cells: int = 0
    """How many of the cells that show the panel have it."""


_stills: weakref.WeakSet[Still] = weakref.WeakSet()


def leave_still(panel: Panel) -> None:
    """Have a picture beside a panel, kept up to date. Called while the cell runs that shows the panel."""
    from IPython.core.getipython import get_ipython

    if getattr(get_ipython(), "kernel", None) is None:
        return
    if isinstance(panel.picture, Still):
        panel.picture.show_here()
    else:
        still = Still(panel)
        panel.picture = still
        _stills.add(still)


def renew_stills() -> None:
    """Have each panel of this notebook, and its picture, in the file as they are now.

    For clients without a page (nbclient), which keep what comes while a cell runs. Called at the end of a cell, on its
    thread.
    """
    for still in list(_stills):
        still.renew()
