"""Beside the notebook: a panel in a side panel of JupyterLab, through `sidecar` where that is installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tsnb.errors import ExtraMissing

if TYPE_CHECKING:
    from tsnb.panel import Panel

__all__ = ["show_beside"]

_shown: dict[str, Any] = {}
"""The side panel of each stream: asking again shows the same one, closed ones anew."""


def show_beside(panel: Panel) -> None:
    """Show a panel beside the notebook rather than in the cell.

    Raises:
        ExtraMissing: `sidecar` is not installed.
    """
    if find_spec("sidecar") is None:
        raise ExtraMissing(
            "a side panel needs the package sidecar, which is not installed: pip install 'tsnb[side]', then reload the "
            "page. Without it: %tensorsocket dashboard in a cell, and JupyterLab's 'Create New View for Cell Output'"
        )
    from IPython.display import display
    from sidecar import Sidecar

    name = panel.stream or "stream"
    former = _shown.pop(name, None)
    if former is not None:
        former.close()
    side = _shown[name] = Sidecar(title=f"tsnb {name}", anchor="split-right")
    with side:
        display(panel)  # type: ignore[no-untyped-call]
