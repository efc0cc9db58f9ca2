"""`%load_ext tsnb`: what it registers in a shell, and how it is removed again.

A page that is loaded again drops messages for cells that it has not started itself: those stay as they were.
JupyterLab knows which cell a message belongs to by the request that started the cell, and forgets its requests with the
page. A display's id does not help: saved notebooks have none. So the next cell that runs on the page says so, once.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import tsnb
from tsnb.errors import TsnbError
from tsnb.experiments.overview.board import trials
from tsnb.experiments.trial import ENDED
from tsnb.kernels.output.outlets import client_here
from tsnb.notebook import batch
from tsnb.notebook.completion import COMMANDS, complete_words, match_options
from tsnb.notebook.magics import TsnbMagics
from tsnb.records.project import stay_in

__all__ = ["load", "prepare", "tell_of_still_cells", "unload"]


def load(shell: Any) -> None:
    """Register magics, completion, and what happens when a cell has ended. Loading again changes nothing.

    `tsnb` becomes a variable too, unless the notebook has one of that name, as in every trial.
    """
    if match_options in shell.Completer.custom_matchers:
        return
    shell.register_magics(TsnbMagics)
    for command in COMMANDS:
        shell.set_hook("complete_command", complete_words, str_key=command)
    shell.Completer.custom_matchers.append(match_options)
    shell.events.register("post_run_cell", rest_consumers)
    shell.events.register("post_run_cell", batch.end_of_cell)
    shell.events.register("post_run_cell", tell_of_still_cells)
    with contextlib.suppress(FileNotFoundError):  # the directory was removed: a start will be told
        stay_in(Path.cwd())
    if "tsnb" not in shell.user_ns:
        shell.push({"tsnb": tsnb}, interactive=False)
    prepare()


def prepare() -> None:
    """Have the fork server import in the background what the first trial would wait for. Returns at once."""
    from tsnb.kernels.hub import the_hub
    from tsnb.kernels.processes.forking import warm_up

    with contextlib.suppress(TsnbError, OSError):  # the first trial that is started will say so
        hub = the_hub()
        hub.post(warm_up(hub))


def unload(shell: Any) -> None:
    """Take out what `load` registered. Trials and producers go on."""
    if match_options not in shell.Completer.custom_matchers:
        return
    shell.Completer.custom_matchers.remove(match_options)
    stay_in(None)
    shell.events.unregister("post_run_cell", rest_consumers)
    shell.events.unregister("post_run_cell", batch.end_of_cell)
    shell.events.unregister("post_run_cell", tell_of_still_cells)
    for command in COMMANDS:
        shell.strdispatchers["complete_command"].strs.pop(command, None)
    for kind, names in (("line", ("tensorsocket", "trials")), ("cell", ("tensorsocket", "trial"))):
        for name in names:
            shell.magics_manager.magics[kind].pop(name, None)


def rest_consumers(result: Any = None) -> None:
    """Stop others waiting for this notebook's own consumers once a cell has ended: the next may be far off.

    Args:
        result: IPython's ExecutionResult; a loop in a cell that was interrupted or raised is over.
    """
    # a thread of the notebook may be importing it just now: then there is no consumer yet
    rest_all = getattr(sys.modules.get("tsnb.stream.consumer"), "rest_all", None)
    if rest_all is not None:
        rest_all(failed=result is not None and not result.success)


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
        and trial.life.shown_in not in {None, here}
        and (here, f"{trial.name}-{trial.number}") not in _told
    ]
    if not still:
        return
    _told.update((here, f"{trial.name}-{trial.number}") for trial in still)
    names = ", ".join(trial.name for trial in still[:5]) + (", ..." if len(still) > 5 else "")
    print(  # noqa: T201 (shown under the cell, once)
        f"note: this page was loaded after {names} had started, so the output below their cells no longer "
        f"changes. The trials continue. %trials shows their progress, and %trials follow {still[0].name} "
        "shows the output"
    )
