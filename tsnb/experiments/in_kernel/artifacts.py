"""The run that this process is, to which a training loop adds files: `tsnb.folder`, `tsnb.log_artifact`."""

from __future__ import annotations

import os
from pathlib import Path

from tsnb.errors import TsnbError
from tsnb.records.project import own_place
from tsnb.records.run import Run

__all__ = ["enter_run", "folder", "log_artifact"]

_current: Run | None = None


def enter_run(run: Run | None) -> None:
    """Say which run this process is: `log_artifact` adds to it. Called in the trial's process, before its cell."""
    global _current
    _current = run


def folder() -> Path:
    """Return the folder of this trial, for the files that its code writes.

    Trials that run side by side share the working directory. Files that each of them writes belong here:
    `.tsnb/artifacts/NAME-NUMBER`. Outside a trial it is the working directory. On a cluster it is on the machine of
    the trial.

    Example:
        >>> torch.save(model.state_dict(), tsnb.folder() / "best.pt")

    Returns:
        The folder, which exists.

    Raises:
        OSError: If the folder cannot be made.
    """
    if _current is None:
        return Path.cwd()
    return own_place(_current.directory, "artifacts", _current.label)


def log_artifact(path: str | os.PathLike[str], name: str | None = None) -> Path:
    """Copy a file or folder to the results of this trial.

    The copy is in `.tsnb/artifacts/NAME-NUMBER`. A second artifact of the same name replaces the first. A full disk
    is a warning, and training continues.

    Example:
        >>> def train():
        ...     tsnb.log_artifact("weights.pt")
        >>> tsnb.run(train).wait()

    Args:
        path: File or folder to copy, as it is now.
        name: Name of the copy, for example "nets/last.pt". Defaults to the file's own name.

    Returns:
        The path of the copy.

    Raises:
        TsnbError: If this is not a trial.
        FileNotFoundError: If the file or folder does not exist.
        ValueError: If the name leads out of the trial's folder.
    """
    if _current is None:
        raise TsnbError(
            "log_artifact works inside a trial only. "
            "Call it in a %%trial cell or in a function that tsnb.run started."
        )
    return _current.add_artifact(path, name)
