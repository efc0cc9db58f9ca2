"""A page that is loaded again drops what comes for cells that it has not started itself: those stay as they were.

JupyterLab knows which cell a message belongs to by the request that started the cell, and forgets its requests with the
page. A display's id does not help: saved notebooks have none. So whoever runs the next cell is told, once a page.
"""

from __future__ import annotations

from typing import Any

from tsnb.experiments.board import trials
from tsnb.experiments.trial import ENDED
from tsnb.kernels.output.outlets import client_here

__all__ = ["tell_of_still_cells"]

_told: set[tuple[str, str]] = set()
"""Pages, and the runs whose cells stand still there."""


def tell_of_still_cells(_result: Any = None) -> None:
    """Say which trials' cells do not change on this page any more. Called at the end of each cell."""
    here = client_here() if trials.own else None
    if here is None:
        return
    still = [
        trial
        for trial in trials.own
        if trial.state not in ENDED
        and trial.shown_in not in {None, here}
        and (here, f"{trial.name}-{trial.number}") not in _told
    ]
    if not still:
        return
    _told.update((here, f"{trial.name}-{trial.number}") for trial in still)
    names = ", ".join(trial.name for trial in still[:5]) + (", ..." if len(still) > 5 else "")
    print(  # noqa: T201 (shown under the cell, once)
        f"note: this page was loaded after the start of {names}, so what stands under the cells of these trials does "
        f"not change any more. They go on: %trials shows how far they are, %trials follow {still[0].name} their output"
    )
