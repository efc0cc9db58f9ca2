"""What the subcommands of `%tensorsocket` do, and which of the notebook's variables are loaders."""

from __future__ import annotations

import functools
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from tsnb.config import check_name
from tsnb.discovery import registry
from tsnb.discovery.registry import own_name
from tsnb.errors import NameInUse, ProducerNotFound, TsnbError
from tsnb.growing.selection import rounds_as_typed
from tsnb.hosting.producing import ProducerKernel
from tsnb.hosting.serving import (
    is_same_cell,
    is_same_loader,
    kernel_of,
    producer_kernels,
    reload_cell,
    reload_loader,
    replace_cell,
    replace_loader,
    restart_kernel,
    serve_from_cell,
    serve_loader,
)
from tsnb.hosting.stopping import stop as stop_named
from tsnb.kernels.processes.child import log_path
from tsnb.notebook.report_cells import Ending, begin
from tsnb.options import options_from
from tsnb.private.files import read_private
from tsnb.show.view_text import as_text
from tsnb.show.words import balanced, footnotes, growth_text, tuned
from tsnb.telemetry import observer
from tsnb.telemetry.following import look
from tsnb.telemetry.readings import StreamReading
from tsnb.telemetry.tuning import tune_as_typed
from tsnb.text.words import did_you_mean

if TYPE_CHECKING:
    from tsnb.reports import Report

__all__ = [
    "balance",
    "dashboard",
    "find_loader",
    "listing",
    "loader_names",
    "logs",
    "reload",
    "restart",
    "rounds",
    "start",
    "status",
    "stop",
    "tune",
]

SHOWN_CHARACTERS = 20_000
"""As much of a log as a cell shows: its end."""


def start(shell: Any, given: Namespace, cell: str | None) -> str:
    """Serve a loader of the notebook's, or the one that a cell builds. Returns the message to print.

    Raises:
        UsageError: No loader was named, or both a loader and a cell were given, or the variable does not exist.
        Exception: As `serve_loader` and `serve_from_cell` raise.
    """
    options = options_from(given)
    served = _served_here(given.name)
    if cell is None:
        loader = find_loader(given.loader, shell.user_ns)
        then = _find_then(options.then, shell.user_ns)
        what = f"a copy of {given.loader!r} (edits to it take effect after %tensorsocket reload {given.name})"
        if served is not None:
            same = is_same_loader(served, loader, given.loader, options, then)
            put = functools.partial(replace_loader, served, loader, given.loader, options, then)
            return _again(served, same, given, put)
        kernel = serve_loader(loader, given.name, options, variable=given.loader, then=then)
    elif given.loader is not None:
        raise UsageError(
            "%%tensorsocket start takes no variable, because the cell builds `loader`. Remove the variable"
        )
    else:
        transform, variables, what = shell.transform_cell, shell.user_ns, "the `loader` of this cell"
        if served is not None:
            same = is_same_cell(served, cell, variables, options, transform=transform)
            put = functools.partial(replace_cell, served, cell, variables, options, transform=transform)
            return _again(served, same, given, put)
        kernel = serve_from_cell(cell, variables, given.name, options, transform=transform)
    begin(kernel.name)
    frozen = "" if cell is not None or not (why := _why_frozen(loader)) else f"\nnote: {why}"
    end = "continues without this notebook" if given.detach else "ends with this notebook"
    return (
        f"serving {what} as {kernel.name!r} (pid {kernel.pid}; {end})\nattach in a %%trial with "
        "tsnb.attach(); stop it with %tensorsocket stop "
        f"{kernel.name}{_seed_note(kernel)}{_crash_note(kernel)}{frozen}"
    )


def _find_then(name: str | None, variables: Mapping[str, Any]) -> Any:
    """Return the notebook's variable that is to be a stream's frozen part; None: it has none.

    Raises:
        UsageError: There is no such variable.
    """
    if name is None or name in variables:
        return None if name is None else variables[name]
    raise UsageError(
        f"--then names the variable {name!r}, which does not exist. Run the cell that creates it first"
    )


def _why_frozen(loader: Any) -> str:
    from tsnb.stream.loader.facts import why_frozen  # needs torch, which its loader has brought

    return why_frozen(loader)


def _served_here(name: str) -> ProducerKernel | None:
    """Return this notebook's kernel that serves a stream now."""
    kernel = producer_kernels.get(name)
    return kernel if kernel is not None and not kernel.ended and kernel.settled() else None


def _again(kernel: ProducerKernel, same: bool, given: Namespace, put: Callable[[], None]) -> str:
    """Start a stream that is served already: the same loader changes nothing. Returns the message to print.

    Raises:
        NameInUse: It differs from what is served, and `--replace` was not given.
        Exception: As `ProducerKernel.restart` raises.
    """
    name = kernel.name
    if same:
        return (
            f"{name!r} is already served (pid {kernel.pid}). Nothing was restarted. To apply later edits: "
            f"%tensorsocket reload {name}"
        )
    if given.replace:
        former = kernel.order
        put()
        return _back(kernel, "this loader", former)
    raise NameInUse(
        f"{name!r} is already served (pid {kernel.pid}), from another loader or with other options. To serve "
        "this one instead, add --replace: trials wait and then continue. To keep the options and serve the "
        f"edited loader: %tensorsocket reload {name}. To end the stream: %tensorsocket stop {name}."
    )


def _seed_note(kernel: ProducerKernel) -> str:
    """Say what its order is drawn from where the user has not said; empty elsewhere."""
    if kernel.options.seed is not None or kernel.seed is None:
        return ""
    whose = (
        "chosen now" if kernel.shipment.arrival["notebook_seed"] is None else "as this notebook's numbers are"
    )
    return f"\nits sample order is drawn from seed {kernel.seed}, {whose}"


def _crash_note(kernel: ProducerKernel) -> str:
    """Say what a stream promises that is started again after a crash; empty if it is not."""
    if not kernel.options.restart:
        return ""
    if kernel.order:
        return "\nafter a crash the stream restarts, and trials resume where they were"
    return (
        "\nafter a crash the stream restarts, but it cannot repeat the same order: trials in the middle of "
        "an epoch then raise ProducerGone, and the other trials continue"
    )


def restart(name: str | None) -> str:
    """Serve the same loader from a new kernel; without a name that of the only stream. Returns the message to print.

    Raises:
        ProducerNotFound: This notebook does not serve it.
        ProducerGone: It has ended.
        Exception: As `ProducerKernel.restart` raises.
    """
    kernel = kernel_of(name)
    former = kernel.order
    restart_kernel(kernel)
    return _back(kernel, "the same loader", former)


def reload(shell: Any, name: str | None) -> str:
    """Serve on with the notebook's loader as it is now. Returns the message to print.

    Raises:
        UsageError: The notebook has no such variable any more.
        ProducerNotFound: This notebook does not serve it.
        ProducerGone: It has ended.
        Exception: As `reload_loader` and `reload_cell` raise.
    """
    kernel = kernel_of(name)
    former, shipment = kernel.order, kernel.shipment
    if shipment.source is None:
        loader = find_loader(shipment.variable, shell.user_ns, "%tensorsocket reload")
        reload_loader(kernel, loader, _find_then(kernel.options.then, shell.user_ns))
        what = f"{shipment.variable!r} as it is now"
    else:
        reload_cell(kernel, shell.user_ns, transform=shell.transform_cell)
        what = "the `loader` of its cell, built with the current variables"
    return _back(kernel, what, former)


def _back(kernel: ProducerKernel, what: str, former: str) -> str:
    same = bool(former) and kernel.order == former
    middle = "resume at their position" if same else "raise ProducerGone, because the order has changed"
    return (
        f"serving {what} as {kernel.name!r} again (pid {kernel.pid})\ntrials in the middle of an epoch "
        f"{middle}; the other trials continue with their next epoch"
    )


def listing() -> str:
    """Return the streams that are served, one line each."""
    return (
        "\n".join(map(registry.line, registry.entries()))
        or "no stream is served. To start one: %tensorsocket start LOADER --name NAME"
    )


def status(name: str | None) -> str:
    """Return a stream's state, its consumers, and one sentence on which trial waits for which.

    Raises:
        ProducerNotFound: No producer has that name.
        ProducerGone: It ended meanwhile.
    """
    found, view = look(name)
    return "\n".join(
        [as_text(view, f"stream {found}"), *_incidents(view.latest, producer_kernels.get(found))]
    )


def _incidents(reading: StreamReading | None, kernel: ProducerKernel | None) -> list[str]:
    """Return a line for each thing that has happened to a stream and should be known, if it has."""
    lines = []
    if kernel is not None and kernel.alive and kernel.restarts:
        times = "once" if kernel.restarts == 1 else f"{kernel.restarts} times"
        crashes = f", {kernel.crashes} after a crash" if kernel.crashes else ""
        lines.append(f"started again {times}{crashes}")
    if reading is not None:
        lines += footnotes(reading)
    return lines


def balance(given: Namespace) -> str:
    """Change how a stream divides compute, from now on. Returns the message to print.

    Raises:
        ValueError: Unknown pacing, or weights that do not fit it.
        ProducerNotFound: No producer has that name.
        TsnbError: It does not answer.
    """
    return "\n".join(balanced(observer.balance(given.name or own_name(), given.pacing, dict(given.weight))))


def tune(given: Namespace) -> str:
    """Change the number of a stream's loader workers, from now on, or look at it. Returns the message to print.

    Raises:
        ValueError: A number is out of range, or memory was given with one.
        ProducerNotFound: No producer has that name.
        TsnbError: Its loader cannot change them, or it does not answer.
    """
    name = given.name
    if name is None:
        try:
            name = own_name()
        except ProducerNotFound:
            if given.workers is not None or given.memory is not None:
                raise  # others' streams are not changed without their name
    reading, changed = tune_as_typed(given, name)
    how = f"nothing was changed. To change it: %tensorsocket tune {reading.name} --workers auto, or a number"
    return "\n".join([*tuned(reading), *([] if changed else [how])])


def rounds(given: Namespace) -> str:
    """Give a stream over data that grows in rounds, or no longer. Returns the message to print.

    Raises:
        ValueError: The options do not go together, or a value is invalid.
        ProducerNotFound: No producer has that name.
        TsnbError: Its data set does not grow, or it does not answer.
    """
    reading = rounds_as_typed(given, given.name or own_name())
    return f"{reading.name}: {growth_text(reading) or 'no rounds, because the data set does not grow'}"


def logs(name: str) -> str:
    """Return the end of what a producer kernel printed.

    Raises:
        UsageError: It is neither this notebook's nor a detached one.
    """
    check_name(name, "stream")
    log = log_path(name)
    if name in producer_kernels:
        text = producer_kernels[name].logs()
    elif log.exists():
        text = read_private(log).decode(errors="replace")
    else:
        there = ", ".join(producer_kernels) or "none"
        raise UsageError(f"%tensorsocket logs: {name!r} was not started here. Started here: {there}")
    return text[-SHOWN_CHARACTERS:] or f"{name!r} has printed nothing"


def stop(given: Namespace) -> tuple[str, Report | None]:
    """Stop a stream; without a name the only one of this notebook. Returns the message, and what to show.

    Raises:
        ProducerNotFound: No producer has that name, or none was named and this notebook serves none.
        TsnbError: It does not stop; or another notebook or process has it served, and `--other` was not given.
    """
    name = given.name or own_name()
    kernel = producer_kernels.get(name)
    if kernel is not None and not kernel.ended:
        ending = Ending(name)
        kernel.stop()
        return f"stopped {name!r}", ending.report()
    try:
        entry = registry.find(name)
    except ProducerNotFound:
        if kernel is None:
            raise
        return f"{name!r} has already stopped. To see where its time went: %tensorsocket report {name}", None
    if not given.other and not registry.is_mine(entry) and registry.has_owner(entry):
        raise TsnbError(
            f"{name!r} belongs to another notebook or script: {entry.origin} ({entry.whose_pid}) serves it. "
            f"To stop it and its trials anyway: %tensorsocket stop {name} --other"
        )
    ending = Ending(name)
    stop_named(name)
    return f"stopped {name!r} (served by {entry.origin})", ending.report()


def dashboard(*names: str, side: bool = False) -> Any:
    """Return the live panel of these streams, for the cell to show; None where it is shown beside the notebook.

    Args:
        names: The streams; none: all of this notebook's.
        side: Show it beside the notebook.

    Raises:
        ExtraMissing: It cannot be shown beside the notebook.
    """
    from tsnb.notebook.panels import dashboard as panel
    from tsnb.notebook.panels import show_beside

    if not side:
        return panel(*names)
    show_beside(*names)
    return None


def loader_names(variables: Mapping[str, Any]) -> list[str]:
    """Return the variables that look like loaders: iterable, and with a dataset or a batch size."""
    return [
        name
        for name, value in variables.items()
        if not name.startswith("_")
        and not isinstance(value, type)
        and hasattr(type(value), "__iter__")
        and (hasattr(value, "dataset") or hasattr(value, "batch_size"))
    ]


def find_loader(name: str | None, variables: Mapping[str, Any], magic: str = "%tensorsocket start") -> Any:
    """Return the variable that `%tensorsocket start` names.

    Args:
        name: As it was given.
        variables: The notebook's.
        magic: The magic's name, for messages.

    Raises:
        UsageError: No variable has that name; lists the loaders of the notebook.
    """
    loaders = loader_names(variables)
    there = f"Loaders in this notebook: {', '.join(loaders) or 'none yet'}."
    if name is None:
        raise UsageError(f"{magic} needs a loader. {there}")
    if name in variables:
        return variables[name]
    if not name.isidentifier():
        raise UsageError(
            f"{magic}: {name!r} is not a variable's name. Assign the loader to one first. {there}"
        )
    hint = did_you_mean(name, loaders)
    raise UsageError(f"{magic}: this notebook has no variable {name!r}.{hint} {there}")
