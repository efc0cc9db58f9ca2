"""The picture beside a live panel: what a saved notebook shows of it where the panel itself cannot be.

A widget's state is not saved by default, so a notebook that is opened again without its kernel has an error in the
panel's place, and so have pages made from it (nbconvert, code hosts). The picture is an output of its own in the same
cell: the stream's report so far as SVG, shown with the first trial, made anew when a trial leaves, at the stream's
end, and once a minute. While the panel is alive in a page, its front end hides the picture, which it knows by the mark
in it.

It is not shown at once: JupyterLab 4.6 drops what a cell displays just when the notebook's first widget opens.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

from tsnb.errors import TsnbError
from tsnb.kernels.output.outlets import outlet_here
from tsnb.telemetry.readings import StreamReading

if TYPE_CHECKING:
    from tsnb.panel import Panel

__all__ = ["EVERY_S", "Still", "leave_still"]

EVERY_S = 60.0
"""How old the picture of a stream that runs may be."""

_log = logging.getLogger("tsnb")


class Still:
    """The picture of one panel.

    Attributes:
        mark: What the front end knows it by; an id in the picture.

    Args:
        panel: The panel; its cell runs.
    """

    def __init__(self, panel: Panel) -> None:
        self.mark = f"tsnb-still-{uuid.uuid4().hex[:12]}"
        self._panel = panel
        self._outlet = outlet_here(panel.stream or "panel")
        self._made_s = -EVERY_S
        self._here: frozenset[str] = frozenset()
        self._drawing = threading.Lock()
        self._again = threading.Event()
        self._shown = False

    def news(self, reading: StreamReading | None = None) -> None:
        """Make the picture anew where something has ended, or it has grown old. Called with the panel's lock held.

        Args:
            reading: The newest one; None: the stream's state has changed in another way, as at its end.
        """
        former = self._here
        if reading is not None:
            self._here = frozenset(c.name for c in reading.consumers if c.state != "gone")
        first = bool(self._here) and not self._shown
        if reading is None or first or former - self._here or time.monotonic() - self._made_s > EVERY_S:
            self._made_s = time.monotonic()
            self._again.set()
            threading.Thread(target=self._draw, name=f"tsnb-still-{self._panel.stream}", daemon=True).start()

    def _draw(self) -> None:
        """Draw until nothing is new. On a thread of its own: a long stream's picture takes a tenth of a second."""
        from tsnb.reports import report

        with self._drawing:
            while self._again.is_set():
                self._again.clear()
                try:
                    found = report(self._panel.stream or None)
                except (TsnbError, LookupError, OSError, ValueError) as error:
                    _log.debug("no picture of the panel: %s", error)
                    return
                if found.story.trials:
                    data = found._repr_mimebundle_()
                    data["image/svg+xml"] = self._marked(data["image/svg+xml"])
                    self._publish("update_display_data" if self._shown else "display_data", data)
                    self._shown = True

    def _marked(self, svg: str) -> str:
        return svg.replace("<svg ", f'<svg id="{self.mark}" ', 1)

    def _publish(self, kind: str, data: dict[str, str]) -> None:
        content: dict[str, Any] = {"data": data, "metadata": {}, "transient": {"display_id": self.mark}}
        self._outlet.publish(kind, content)


def leave_still(panel: Panel) -> None:
    """Have a picture beside a panel, kept up to date. Called while the cell runs that shows the panel."""
    from IPython.core.getipython import get_ipython

    if getattr(get_ipython(), "kernel", None) is not None:
        panel.picture = Still(panel)
