"""The panel in a notebook: in a cell, or beside the notebook (`show_beside`). Its buttons know the trials."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

from tsnb.errors import ExtraMissing
from tsnb.notebook.report_cells import report_here
from tsnb.notebook.runs import steer_shown
from tsnb.notebook.stills import leave_still
from tsnb.notebook.trial_logs import TrialLogs
from tsnb.panel import Panel
from tsnb.panel import dashboard as panel_of

__all__ = ["dashboard", "replay", "show_beside"]


def dashboard(stream: str | None = None, *more: str) -> Panel:
    """Show the live panel of one stream, or of several together.

    A cell that ends with the call shows the panel. Its stop buttons end trials of this notebook, and ask other
    consumers to end.

    Example:
        >>> tsnb.dashboard("digits")

    Args:
        stream: Name of the stream. It need not be served yet. Defaults to all streams of this notebook, else the only
            one there is.
        more: Names of further streams for the same panel. A trial on several streams is one row.
    """
    panel = panel_of(stream, *more)
    panel.steer = steer_shown(panel)
    panel.make_report = report_here(panel)
    panel.logs.source = TrialLogs()
    leave_still(panel)
    return panel


def replay(path: str | os.PathLike[str]) -> Panel:
    """Show the panel of a recording, with all of it at once.

    The panel is marked as a recording, and its buttons are off.

    Example:
        >>> tsnb.streams.replay("run.jsonl")

    Args:
        path: Path of a file that `tsnb.streams.record` or `%tensorsocket record` wrote.

    Raises:
        TsnbError: If the file cannot be read, or holds no reading.
        ValueError: If the file is not a recording.
    """
    from tsnb.reports.sources import recorded

    panel: Any = Panel.of_recording(recorded(path).readings)
    return panel  # type: ignore[no-any-return]


_shown: dict[str, Any] = {}
"""The side panel of each stream: asking again shows the same one, closed ones anew."""


def show_beside(*streams: str) -> None:
    """Show the panel of these streams beside the notebook rather than in the cell.

    Raises:
        ExtraMissing: `sidecar` is not installed.
    """
    if find_spec("sidecar") is None:
        raise ExtraMissing(
            "A side panel needs the package sidecar, which is not installed. Install it (pip install "
            "'tsnb[side]') and reload the page. Or run %tensorsocket dashboard in a cell and choose "
            "JupyterLab's 'Create New View for Cell Output'"
        )
    from IPython.display import display
    from sidecar import Sidecar

    panel = dashboard(*streams)
    name = panel.stream or "stream"
    former = _shown.pop(name, None)
    if former is not None:
        former.close()
    side = _shown[name] = Sidecar(title=f"tsnb {name}", anchor="split-right")
    with side:
        display(panel)  # type: ignore[no-untyped-call]
