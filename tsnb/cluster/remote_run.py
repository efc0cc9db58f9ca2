"""The differences in a trial's kernel on a machine of a cluster: the project's files are on another machine.

Its logs and reports are published as ever, and written down by the process that started it. Artifacts wait in a
folder here until that process has fetched them. The kernel has not joined the cluster: the actor that started it has,
and is asked for streams.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from tsnb import errors
from tsnb.cluster.backlog import WANTED
from tsnb.cluster.membership import OPEN_S
from tsnb.config import way_out
from tsnb.errors import TsnbError
from tsnb.experiments.in_kernel import steps
from tsnb.experiments.in_kernel.reporter import tell
from tsnb.experiments.news import Artifact
from tsnb.kernels.in_kernel.output_channel import publish
from tsnb.private.files import copy_whole, place_in
from tsnb.records.run import Run
from tsnb.stream.this_process import this_process

__all__ = ["FarRun", "enter"]

LOOK_S = 0.02
"""How often to look for an answer."""
ANSWER_S = OPEN_S + 30.0
"""How long one may stay out: the actor's own limit, and some seconds of a busy machine."""


def enter(settings: dict[str, Any]) -> None:
    """Get ready for a trial's code on this machine; as `trial.enter`, and called once before it in its place.

    Modules are looked for where this machine has them first, then in the notebook's places.

    Args:
        settings: What that takes, and `outbox`, the folder on this machine where artifacts wait.
    """
    this_process.ask_cluster = lambda stream: _ask_cluster(stream, Path(settings["outbox"]))
    sys.path.extend(path for path in settings["sys_path"] if path not in sys.path)
    steps.enter({**settings, "sys_path": []}, FarRun(settings))


class FarRun(Run):
    """A handle on a run with records on another machine: nothing is written from here.

    Args:
        settings: What `trial.enter` takes.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        run = settings["run"]
        super().__init__(Path(run["directory"]), run["key"], 0, run["name"], run["number"], run["params"])
        self._outbox = Path(settings["outbox"])
        self._count = itertools.count()

    def add_artifact(self, path: str | os.PathLike[str], name: str | None = None) -> Path:
        """Have a copy of a file or folder brought to the project's artifacts; as `Run.add_artifact`.

        Returns:
            Its future path, on the machine where the trial was started.

        Raises:
            FileNotFoundError: The file or folder does not exist.
            ValueError: The name leads out of the run's folder.
            TsnbError: The disk here has no room for a copy of it.
        """
        source = Path(path)
        if not source.exists():
            raise FileNotFoundError(
                f"{str(source)!r} does not exist. Write the file before calling log_artifact."
            )
        chosen = source.absolute().name if name is None else name
        target = place_in(self.artifacts_path, chosen)
        waiting = self._outbox / str(next(self._count))
        try:
            copy_whole(source, waiting, self._outbox.parent)
        except OSError as error:
            raise TsnbError(
                f"{source} cannot be copied to {self._outbox}: {error}. {way_out(error)}"
            ) from None
        tell(Artifact(str(waiting), chosen))
        return target


def _ask_cluster(stream: str | None, outbox: Path) -> str | None:
    """Have a stream of the cluster served on this machine, or learn which is the only one, by asking the actor.

    Raises:
        TsnbError: The stream is not available, or no answer came.
    """
    answer = outbox / f"answer-{uuid.uuid4().hex}"
    answer.parent.mkdir(mode=0o700, exist_ok=True)
    publish(WANTED, {"stream": stream, "answer": str(answer)})
    deadline = time.monotonic() + ANSWER_S
    while not answer.exists():
        if time.monotonic() > deadline:
            raise TsnbError(
                f"The cluster did not answer within {ANSWER_S:.0f} s whether it has stream "
                f"{stream or ''!r}. Check `ray status`, and try again."
            )
        time.sleep(LOOK_S)
    said = json.loads(answer.read_text(encoding="utf-8"))
    answer.unlink()
    if "error" in said:
        kind: Any = getattr(errors, said["error"], TsnbError)
        raise kind(said["text"])
    name: str | None = said["name"]
    return name
