"""What the subcommands of `%tensorsocket` do."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import Any

from IPython.core.error import UsageError

from tsnb import registry
from tsnb.config import check_name
from tsnb.errors import ProducerNotFound
from tsnb.kernels.child import log_path
from tsnb.kernels.serving import ServeOptions, producer_kernels, serve_from_cell, serve_loader
from tsnb.notebook.lookup import find_loader
from tsnb.telemetry import observer

__all__ = ["dashboard", "listing", "logs", "start", "status", "stop"]

LOOK_S = 1.0
"""How long `status` watches: rates and the sentence are differences of readings."""

SHOWN_CHARACTERS = 20_000
"""As much of a log as a cell shows: its end."""


def start(shell: Any, given: Namespace, cell: str | None) -> str:
    """Serve a loader of the notebook's, or the one that a cell builds. Returns what to tell.

    Raises:
        UsageError: No loader was named, or both a loader and a cell were given, or there is no such variable.
        Exception: As `serve_loader` and `serve_from_cell` raise.
    """
    options = ServeOptions(
        given.window, given.rubber_band, given.patience, given.seed, given.workers, given.detach
    )
    if cell is None:
        loader = find_loader(given.loader, shell.user_ns)
        kernel = serve_loader(loader, given.name, options, variable=given.loader)
        what = f"a copy of {given.loader!r} (later changes to it need a new start)"
    elif given.loader is not None:
        raise UsageError("%%tensorsocket start: the cell builds `loader`, so no variable may be named")
    else:
        transform = shell.transform_cell
        kernel = serve_from_cell(cell, shell.user_ns, given.name, options, transform=transform)
        what = "the `loader` of this cell"
    end = "goes on without this notebook" if given.detach else "ends with this notebook"
    return (
        f"serving {what} as {kernel.name!r} (pid {kernel.pid}; {end})\n"
        f"attach in a %%trial by tsnb.attach(); stop it by %tensorsocket stop {kernel.name}"
    )


def listing() -> str:
    """Return what is served, one line each."""
    return (
        "\n".join(map(str, registry.entries())) or "nothing is served: %tensorsocket start LOADER --name NAME"
    )


def status(name: str | None) -> str:
    """Return a stream's state, its consumers, and one sentence on who waits for whom.

    Raises:
        ProducerNotFound: There is no such producer.
        ProducerGone: It ended meanwhile.
    """
    from tsnb.dashboard.summary import summary
    from tsnb.dashboard.tape import Tape

    follower, tape = observer.Observer(name), Tape(name or "")
    deadline = time.monotonic() + LOOK_S
    try:
        while (left := deadline - time.monotonic()) > 0:
            reading = follower.read(left)
            if reading is not None:
                tape.feed(reading)
    finally:
        follower.close()
    return summary(tape)


def logs(name: str) -> str:
    """Return the end of what a producer kernel printed.

    Raises:
        UsageError: It is neither this notebook's nor a detached one.
    """
    check_name(name, "producer")
    log = log_path(name)
    if name in producer_kernels:
        text = producer_kernels[name].logs()
    elif log.exists():
        text = log.read_text(errors="replace")
    else:
        there = ", ".join(producer_kernels) or "none"
        raise UsageError(f"%tensorsocket logs: {name!r} was not started here. Started here: {there}")
    return text[-SHOWN_CHARACTERS:] or f"{name!r} has printed nothing"


def stop(name: str | None) -> str:
    """Stop a stream, whoever serves it; without a name the only one. Returns what to tell.

    Raises:
        ProducerNotFound: There is no such producer.
        TsnbError: It does not stop.
    """
    name = name or registry.find().name
    kernel = producer_kernels.get(name)
    if kernel is not None and kernel.alive:
        kernel.stop()
        return f"stopped {name!r}"
    try:
        entry = registry.find(name)
    except ProducerNotFound:
        if kernel is None:
            raise
        return f"{name!r} has stopped already"
    observer.stop(name)
    return f"stopped {name!r} (served by {entry.origin})"


def dashboard(name: str | None) -> Any:
    """Return the live panel, for the cell to show."""
    from tsnb.notebook import dashboard as panel

    return panel(name)
