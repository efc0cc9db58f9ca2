"""Which process is which of ours: loaders from the registry, trials from live streams and the project's records."""

from __future__ import annotations

import contextlib

import psutil

from tsnb import registry
from tsnb.errors import TsnbError
from tsnb.native.owners import alive
from tsnb.records.project import project_directory
from tsnb.records.reading import ENDED, read_runs
from tsnb.telemetry.observer import Observer

__all__ = ["name_of_process", "our_processes"]

ANSWER_S = 1.0
"""How long a stream may take to say who is attached to it."""


def our_processes() -> dict[int, str]:
    """Return what is known of our own processes, by process number: "loader of digits", "small-cnn"."""
    found: dict[int, str] = {}
    with contextlib.suppress(TsnbError, OSError):
        for run in read_runs(project_directory(make=False)):
            # of one on a cluster the owner is the process that started it (`experiments.on_cluster`)
            if run.state not in ENDED and "engine" not in run.options and alive(run.owner):
                found[run.owner.pid] = run.name
    with contextlib.suppress(TsnbError):
        for entry in registry.entries():
            if entry.elsewhere:  # its number is somebody else's here
                continue
            found.update(_attached(entry.name))
            found[entry.pid] = f"loader of {entry.name}"
    return found


def _attached(stream: str) -> dict[int, str]:
    """Return who is attached to a stream; nobody where it does not answer."""
    try:
        observer = Observer(stream)
    except TsnbError:
        return {}
    try:
        reading = observer.read(ANSWER_S)
    except TsnbError:
        return {}
    finally:
        observer.close()
    return {c.pid: c.name for c in reading.consumers} if reading is not None else {}


def name_of_process(pid: int, ours: dict[int, str]) -> str:
    """Return what a process is called: one of ours, one below it (a loader's worker), else its program's name."""
    try:
        process = psutil.Process(pid)
        for one in (process, *process.parents()):
            if one.pid in ours:
                return ours[one.pid]
        return process.name()
    except psutil.Error:
        return ours.get(pid, "")
