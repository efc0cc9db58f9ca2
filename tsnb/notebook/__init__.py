"""The notebook's side: magics, their completion, and the panel with stop buttons and a log pane that know the trials.

| module | what it owns |
|---|---|
| `extension` | `%load_ext tsnb`: registers everything, and takes it out again |
| `magics` | the three magics: parse, call, nothing else |
| `grammar` | one parser a subcommand, with did-you-mean |
| `streams`, `runs` | what the subcommands do: `%tensorsocket`; `%%trial` and `%trials` |
| `panel_logs` | the trials' logs, for the panel's log pane |
| `reporting` | reports in cells, recordings, panels of recordings |
| `siding` | the panel beside the notebook |
| `lookup` | loaders among the notebook's variables |
| `completion` | subcommands, variables, names and options at the Tab key |
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tsnb.panel import Panel

__all__ = ["dashboard", "replay"]


def dashboard(name: str | None = None) -> Panel:
    """Return the live panel of a stream; a cell that ends with it shows it.

    Its stop buttons stop the trial of that name where this notebook has it, and else ask the consumer to end; its
    interrupt buttons do what Ctrl-C does, for this notebook's trials. Its log pane shows what they print. Its report
    button leaves a report under this cell.

    Args:
        name: The stream; left out: this notebook's, or the only one. One that nobody serves yet is no error.
    """
    from tsnb.notebook.panel_logs import TrialLogs
    from tsnb.notebook.reporting import report_here
    from tsnb.notebook.runs import interrupt_consumer, stop_consumer
    from tsnb.notebook.still import leave_still
    from tsnb.panel import dashboard as panel_of

    panel = panel_of(name)
    panel.stop_consumer = stop_consumer(panel)
    panel.interrupt_consumer = interrupt_consumer(panel)
    panel.make_report = report_here(panel)
    panel.logs.source = TrialLogs()
    leave_still(panel)
    return panel


def replay(file: str | os.PathLike[str]) -> Panel:
    """Return a panel of a recording; a cell that ends with it shows all of it, marked as a recording, its buttons off.

    Args:
        file: What `tsnb.record` or `%tensorsocket record` wrote.

    Raises:
        TsnbError: It cannot be read, or there is no reading in it.
        ValueError: It is no recording.
    """
    from tsnb.notebook.reporting import replay as panel_of

    return panel_of(file)
