"""The run that this process is, to which a training loop adds files: `tsnb.folder`, `tsnb.log_artifact`."""

from __future__ import annotations

import os
from pathlib import Path

from tsnb.errors import TsnbError
from tsnb.records.run import Run

__all__ = ["current_run", "enter_run", "folder", "log_artifact"]

_current: Run | None = None


def enter_run(run: Run | None) -> None:
    """Say which run this process is: `log_artifact` adds to it. Called in the trial's process, before its cell."""
    global _current
    _current = run


def current_run() -> Run | None:
    """Return the run that this process is; None outside trials."""
    return _current


def folder() -> Path:
    """Return a folder of this trial's own, for what its code writes.

    Trials that run side by side share the working directory, so that they can read its data. A file that each of them
    writes belongs here: `torch.save(net.state_dict(), tsnb.folder() / "best.pt")`, or as a trainer's directory. It is
    the folder of the run's artifacts, `.tsnb/artifacts/NAME-NUMBER`. Outside a trial it is the working directory, so
    that the same code runs in a cell of the notebook. In a trial on a cluster it lies on the machine of the trial.

    Returns:
        The folder, which is there.

    Raises:
        OSError: It cannot be made.
    """
    if _current is None:
        return Path.cwd()
    path = _current.artifacts_path
    path.mkdir(parents=True, exist_ok=True)
    return path


def log_artifact(path: str | os.PathLike[str], name: str | None = None) -> Path:
    """Keep a copy of a file or folder with this trial's results, in `.tsnb/artifacts/NAME-NUMBER`.

    A second one of the same name replaces the first. A full disk is a warning: training goes on.

    Args:
        path: The file or folder, as it is now.
        name: Its name there ("nets/last.pt"); left out: its own.

    Returns:
        The path of the copy.

    Raises:
        TsnbError: This is not a trial.
        FileNotFoundError: There is no such file or folder.
        ValueError: The name leads out of the trial's folder.
    """
    if _current is None:
        raise TsnbError(
            "log_artifact works inside a trial only. "
            "Call it in a %%trial cell or in a function that tsnb.run started."
        )
    return _current.add_artifact(path, name)
