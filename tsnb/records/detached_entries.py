"""Where detached trials are found by other notebooks: one small file each, in this user's private directory.

`trials/PROJECT/NAME.json` below the runtime directory, PROJECT being a word made of the project's path: two projects
may have a trial of the same name. The trial's own process writes it just before its code begins; it stays after
the end, so that `tsnb.trials["cnn"]` says how that was, until the next run of the name or a week has passed. How
far the trial is and how it ended stands in the project's records, not here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tsnb.config import private_directory, runtime_directory
from tsnb.errors import TsnbError
from tsnb.machine.owners import Owner, alive, has_gone, owner
from tsnb.private.files import read_private, write_private
from tsnb.records.run import Run

__all__ = ["DetachedEntry", "entries_of", "entry_of"]

KEPT_S = 7 * 24 * 3600.0
"""How long the file of a trial that has ended is kept."""


@dataclass(frozen=True)
class DetachedEntry:
    """One detached trial."""

    run: dict[str, Any]
    """The handle on its records (`records.Run.as_settings`)."""
    process: Owner
    """Its process."""
    connection_file: str
    """How a Jupyter client connects to its kernel."""
    log_path: str
    """Where it logs."""

    @property
    def name(self) -> str:
        """The trial's name."""
        return str(self.run["name"])

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether that process still runs, or may: one in another container cannot be seen."""
        return not has_gone(self.process)

    @property
    def runs_here(self) -> bool:
        """Whether it runs where its number means this very process, so that it can be signalled."""
        return alive(self.process) is True

    @classmethod
    def here(cls, run: dict[str, Any], connection_file: str, log_path: str) -> DetachedEntry:
        """Return the entry of this very process."""
        return cls(run, owner(os.getpid()), connection_file, log_path)

    def write(self) -> None:
        """Enter it, in place of an older one of the name.

        Raises:
            TsnbError: The runtime directory cannot be used.
            OSError: The file cannot be written.
        """
        place = _directory(Path(self.run["directory"]))
        private_directory(private_directory(place.parent) / place.name)
        path = place / f"{self.name}.json"
        write_private(path, json.dumps({**vars(self), "process": list(self.process)}))


def entry_of(project: Path, name: str) -> DetachedEntry | None:
    """Return the detached trial of that name, whether it runs or has ended; None if there is none.

    Args:
        project: The directory of the project's records.
        name: The trial's name.
    """
    with contextlib.suppress(TsnbError):
        return _read(_directory(project) / f"{name}.json")
    return None


def entries_of(project: Path) -> list[DetachedEntry]:
    """Return the detached trials of a project, by name; files go long after the end, or when its records do."""
    found = []
    with contextlib.suppress(TsnbError):
        for path in sorted(_directory(project).glob("*.json")):
            entry = _read(path)
            if entry is not None and (entry.alive or not (_old(path) or _is_forgotten(entry))):
                found.append(entry)
            else:
                path.unlink(missing_ok=True)
    return found


def _is_forgotten(entry: DetachedEntry) -> bool:
    """Return whether the records of a trial that has ended were deleted."""
    with contextlib.suppress(TsnbError):
        return bool(entry.run["id"]) and Run.of(entry.run).read() is None
    return False


def _old(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return time.time() - path.stat().st_mtime > KEPT_S
    return False


def _read(path: Path) -> DetachedEntry | None:
    try:
        kept = json.loads(read_private(path))
        return DetachedEntry(**{**kept, "process": Owner(*kept["process"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _directory(project: Path) -> Path:
    word = hashlib.sha256(os.fsencode(project.resolve())).hexdigest()[:12]
    return runtime_directory() / "trials" / word
