"""What the command line asks that only this process can do, by a door (`kernels.door`) that opens with the first trial.

A clone of a trial, an extension of one that has left its stream, GPU memory that a paused one gives back.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from tsnb.discovery.registry import describe_origin
from tsnb.errors import TsnbError
from tsnb.experiments.pausing import consumers_in
from tsnb.experiments.trial import Trial
from tsnb.experiments.verbs import VERBS
from tsnb.kernels.door import Door
from tsnb.kernels.hub import Hub
from tsnb.native.forks import free_in_child

__all__ = ["open_door"]

STARTS_S = 30.0
"""How long the command line waits for a clone whose process is yet to start; after that it is told without it."""

_open: tuple[Hub, Door] | None = None
_opening = free_in_child(threading.Lock())


def open_door(hub: Hub, own: Callable[[], Sequence[Trial]]) -> None:
    """Let the command line ask for what only this process can do, from its first trial on.

    Args:
        hub: The hub on whose thread the door is.
        own: Returns the trials that this process has started.
    """
    global _open
    with _opening:
        if _open is not None and _open[0] is hub:
            return
        try:
            _open = hub, Door(hub, lambda request: _answered(request, own()))
        except (TsnbError, OSError) as error:  # trials run all the same
            logging.getLogger("tsnb").warning(
                "tsnb clone, tsnb extend and tsnb pause --release cannot reach this process: %s", error
            )


def _answered(request: dict[str, Any], own: Sequence[Trial]) -> dict[str, Any]:
    """Answer what the command line asks (`steering`). On a thread of its own.

    Raises:
        Exception: As the trial's method raises.
        TsnbError: There is no such trial, or it asks for something else.
    """
    verb, name, stream = (str(request.get(word, "")) for word in ("verb", "trial", "stream"))
    pid = request.get("pid")
    meant = [trial for trial in own if _is_meant(trial, name, stream, pid)]
    if verb == "find":
        found = [{"trial": trial.name, "state": trial.state} for trial in meant]
        return {"pid": os.getpid(), "origin": describe_origin(), "trials": found}
    if not meant:
        raise TsnbError(f"Trial {name!r} no longer exists")
    if verb not in VERBS or not VERBS[verb].by_door:
        raise TsnbError(f"this version of tsnb does not know {verb!r}")
    changes = request.get("changes", {})
    if not isinstance(changes, dict):
        raise TsnbError(f"A clone's changes are values by name, not {changes!r:.80}")
    made = VERBS[verb].do(meant[0], {**request, "changes": changes})
    if verb != "clone":
        return {"trial": meant[0].name, **({"epochs": request["epochs"]} if verb == "extend" else {})}
    deadline = time.monotonic() + STARTS_S
    while made.state in ("queued", "starting") and time.monotonic() < deadline:
        time.sleep(0.02)  # one that begins with a checkpoint does so in a new process
    facts = {**made.parent._asdict(), "trial": made.parent.name, "clone": made.name, "pid": made.pid}
    return {word: facts[word] for word in ("trial", "clone", "pid", "epoch", "batch", "samples")}


def _is_meant(trial: Trial, name: str, stream: str, pid: object) -> bool:
    """Return whether a trial is the one that takes, or has taken, a stream under that name.

    Args:
        trial: The trial.
        name: The consumer's name.
        stream: The stream's.
        pid: The consumer's process, of which the trial's is the first of its session; None: only the name counts.
    """
    if isinstance(pid, int) and pid > 0:
        with contextlib.suppress(OSError, OverflowError):  # it is no process, and may be no number of one
            return trial.pid is not None and trial.pid in (pid, os.getsid(pid))
        return False
    taken = trial.report.get("stream", "").split(", ")
    return trial.name == name and (stream in taken or stream in dict(consumers_in(trial.life)))
