"""Loaders served from background kernels of this notebook.

Starting waits until the first batch is there, so that whatever is wrong with a loader is said where it was
started: a start either ends with a stream that can be attached to, or with an error and no kernel. Serving a
changed loader (`reload_*`) either does that or goes on with the former one.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tsnb.config import check_name
from tsnb.discovery import registry
from tsnb.discovery.promises import require_unpromised
from tsnb.errors import LoaderFailed, NameInUse, ProducerNotFound
from tsnb.hosting.producing import ProducerKernel
from tsnb.hosting.served import Shipment
from tsnb.kernels.cargo import orders
from tsnb.kernels.cargo.capture import Captured, capture
from tsnb.kernels.cargo.imported import Change, changes_here, packed
from tsnb.kernels.cargo.pickling import fingerprint
from tsnb.kernels.cargo.shipping import LARGE_BYTES, ship
from tsnb.kernels.hub import the_hub
from tsnb.kernels.output.outlets import Outlet, outlet_here
from tsnb.kernels.processes.death import KernelDied
from tsnb.options import StreamOptions

__all__ = [
    "is_same_cell",
    "is_same_loader",
    "kernel_of",
    "producer_kernels",
    "reload_cell",
    "reload_loader",
    "replace_cell",
    "replace_loader",
    "restart_kernel",
    "serve_from_cell",
    "serve_loader",
]

COMPARING_S = 1.0
"""How long it may take to describe a loader, so that the same one is known again."""

producer_kernels: dict[str, ProducerKernel] = {}
"""Those that this process has started, by name; the last one of each name."""
os.register_at_fork(after_in_child=producer_kernels.clear)  # `native.forks`, 2


def serve_loader(
    loader: Any,
    name: str,
    options: StreamOptions | None = None,
    *,
    variable: str = "loader",
    then: Any = None,
    outlet: Outlet | None = None,
) -> ProducerKernel:
    """Serve a copy of a loader from a background kernel; returns when its first batch is there.

    Args:
        loader: Anything that gives batches when iterated.
        name: The stream's name.
        options: How it is served.
        variable: What the notebook calls the loader, for messages.
        then: The frozen part that `options.then` names.
        outlet: Where its output goes; left out: under the running cell, or to the terminal.

    Raises:
        TypeError: It cannot be iterated.
        ValueError: The name or an option is invalid.
        NameInUse: The name is served; says since when, by which process, and how to stop it.
        NotShippable: The loader cannot travel; names the attribute, and the fix.
        LoaderFailed: It raised, or it is empty; carries its traceback.
        TsnbError: Its kernel could not be started.
    """
    _check_free(name)
    _check_iterable(loader, variable)
    kernel = _new_kernel(name, options, outlet)
    return _bring_up(
        kernel, _shipment(name, _together(loader, variable, kernel.options, then), variable, None, loader)
    )


def serve_from_cell(
    source: str,
    namespace: Mapping[str, Any],
    name: str,
    options: StreamOptions | None = None,
    *,
    transform: Callable[[str], str] = str,
    outlet: Outlet | None = None,
) -> ProducerKernel:
    """Serve the `loader` that a cell builds in a background kernel; returns when its first batch is there.

    Nothing but the variables that the cell reads is copied, so this is the way for large data and for what
    cannot travel.

    Args:
        source: The cell; it assigns `loader`.
        namespace: The notebook's variables.
        name: The stream's name.
        options: How it is served.
        transform: IPython's `transform_cell`, where the cell may hold magics.
        outlet: Where its output goes; left out: under the running cell, or to the terminal.

    Raises:
        ValueError: The name or an option is invalid.
        NameInUse: The name is served; says since when, by which process, and how to stop it.
        UndefinedNames: The cell reads names that are not defined.
        NotShippable: A variable that it reads cannot travel.
        LoaderFailed: The cell raised, or built no `loader`, or the loader is broken or empty.
        SyntaxError: The cell is not valid Python.
        TsnbError: Its kernel could not be started.
    """
    _check_free(name)
    source = _as_written(name, source)
    captured = capture(transform(source), namespace)
    kernel = _new_kernel(name, options, outlet)
    return _bring_up(kernel, _shipment(name, captured, "loader", source))


def restart_kernel(kernel: ProducerKernel) -> None:
    """Serve a stream on from a new kernel, with what it was started from.

    Raises:
        Exception: As `ProducerKernel.restart` raises.
    """
    with _started():
        kernel.restart()


def reload_loader(kernel: ProducerKernel, loader: Any, then: Any = None) -> None:
    """Serve a stream on with the notebook's loader as it is now.

    Args:
        kernel: The kernel that serves it.
        loader: The current value of the notebook's variable of the same name.
        then: The current value of the variable that its frozen part was.

    Raises:
        TypeError: It cannot be iterated.
        NotShippable: It cannot travel; the stream goes on as it was.
        Exception: As `ProducerKernel.restart` raises.
    """
    variable = kernel.shipment.variable
    _check_iterable(loader, variable)
    with _started():
        captured = _together(loader, variable, kernel.options, then)
        kernel.restart(_shipment(kernel.name, captured, variable, None, loader))


def reload_cell(
    kernel: ProducerKernel, namespace: Mapping[str, Any], *, transform: Callable[[str], str] = str
) -> None:
    """Serve a stream on from the cell that it was started from, run again with the notebook's variables of now.

    Args:
        kernel: What serves it.
        namespace: The notebook's variables.
        transform: IPython's `transform_cell`, where the cell may hold magics.

    Raises:
        UndefinedNames: The cell reads names that are not defined any more; the stream goes on as it was.
        NotShippable: A variable that it reads cannot travel; the stream goes on as it was.
        Exception: As `ProducerKernel.restart` raises.
    """
    source = kernel.shipment.source or ""
    with _started():
        kernel.restart(_shipment(kernel.name, capture(transform(source), namespace), "loader", source))


def is_same_loader(
    kernel: ProducerKernel, loader: Any, variable: str, options: StreamOptions, then: Any = None
) -> bool:
    """Return whether a stream serves that very loader already, or one just like it, in that way.

    Args:
        kernel: What serves the stream.
        loader: The notebook's.
        variable: What the notebook calls it.
        options: How it is to be served.
        then: The frozen part that `options.then` names.
    """
    if kernel.asked != options or kernel.shipment.source is not None:
        return False
    same = options.then is None and kernel.serves(loader)  # the weights of a network may be others by now
    return same or _alike(kernel.shipment, _together(loader, variable, options, then))


def is_same_cell(
    kernel: ProducerKernel,
    source: str,
    namespace: Mapping[str, Any],
    options: StreamOptions,
    *,
    transform: Callable[[str], str] = str,
) -> bool:
    """Return whether a stream serves what that cell builds already, from variables like these, in that way."""
    source = _as_written(kernel.name, source)
    if kernel.asked != options or kernel.shipment.source != source:
        return False
    return _alike(kernel.shipment, capture(transform(source), namespace))


def _alike(shipment: Shipment, captured: Captured) -> bool:
    return bool(shipment.fingerprint) and shipment.fingerprint == _fingerprint(captured)


def replace_loader(
    kernel: ProducerKernel, loader: Any, variable: str, options: StreamOptions, then: Any = None
) -> None:
    """Serve another loader, in another way, under the name of one that is served; as `reload_loader`."""
    _check_iterable(loader, variable)
    with _started():
        captured = _together(loader, variable, options, then)
        kernel.restart(_shipment(kernel.name, captured, variable, None, loader), options)


def _together(loader: Any, variable: str, options: StreamOptions, then: Any) -> Captured:
    """Return the variables that a kernel needs: a loader, and the frozen part of a network if there is one."""
    return Captured({variable: loader, **({} if options.then is None else {options.then: then})})


def replace_cell(
    kernel: ProducerKernel,
    source: str,
    namespace: Mapping[str, Any],
    options: StreamOptions,
    *,
    transform: Callable[[str], str] = str,
) -> None:
    """Serve the loader that a cell builds in place of a stream's, with other options; as `reload_cell`."""
    source = _as_written(kernel.name, source)
    with _started():
        kernel.restart(
            _shipment(kernel.name, capture(transform(source), namespace), "loader", source), options
        )


def kernel_of(name: str | None) -> ProducerKernel:
    """Return this notebook's kernel that serves a stream, or did; without a name the only one that is served.

    Raises:
        ProducerNotFound: It is not served, or not by this notebook; says by which.
    """
    name = name or registry.find().name
    kernel = producer_kernels.get(name)
    if kernel is not None and (not kernel.ended or name not in {e.name for e in registry.entries()}):
        return kernel
    entry = registry.find(name)
    raise ProducerNotFound(
        f"{name!r} is served by {entry.origin} ({entry.whose_pid}), not by this notebook. Start it "
        "again there."
    )


def _as_written(name: str, cell: str) -> str:
    return orders.as_written(f"%%tensorsocket start --name {name}", cell)


def _new_kernel(name: str, options: StreamOptions | None, outlet: Outlet | None) -> ProducerKernel:
    return ProducerKernel(name, options or StreamOptions(), the_hub(), outlet or outlet_here(name))


def _bring_up(kernel: ProducerKernel, shipment: Shipment) -> ProducerKernel:
    name, former = kernel.name, producer_kernels.get(kernel.name)
    producer_kernels[name] = kernel  # it can be stopped, and waited for, from now on
    try:
        with _started():
            the_hub().call(kernel.start(shipment))
    except BaseException:
        try:
            kernel.stop()  # after an interrupt too: the cell may be run again at once
        finally:
            if producer_kernels.get(name) is kernel:
                del producer_kernels[name]
                if former is not None:
                    producer_kernels[name] = former
        raise
    return kernel


@contextlib.contextmanager
def _started() -> Iterator[None]:
    """Turn a kernel's death at its start into an error that says no producer was started."""
    try:
        yield
    except KernelDied as error:
        raise LoaderFailed(f"No stream was started: {error}") from None


def _shipment(
    name: str, captured: Captured, variable: str, source: str | None, loader: Any = None
) -> Shipment:
    """Write the variables that a producer kernel is started from.

    Raises:
        NotShippable: Something cannot travel.
    """
    purpose = f"stream {name!r}"
    cargo = ship({**captured.variables, **packed(_changes(), purpose)}, purpose)
    arrival = orders.to_arrive(cargo, captured)
    return Shipment(arrival, variable, source, _weak(loader), _fingerprint(captured))


def _changes() -> list[Change]:
    return changes_here(vars(sys.modules["__main__"]))


def _fingerprint(captured: Captured) -> str:
    made_of = (captured.variables, _changes())
    return fingerprint(made_of, LARGE_BYTES, time.monotonic() + COMPARING_S)


def _check_iterable(loader: Any, variable: str) -> None:
    kind = type(loader)
    if not (hasattr(kind, "__iter__") or hasattr(kind, "__getitem__") or callable(loader)):
        raise TypeError(
            f"{variable!r} has the type {kind.__name__}, which cannot be iterated. Serve an iterable "
            "of batches, for example a torch DataLoader."
        )


def _check_free(name: str) -> None:
    """Refuse a name that is invalid, or that is served, before anything is started.

    Raises:
        ValueError: It is invalid.
        NameInUse: It is served.
    """
    check_name(name, "stream")
    former = producer_kernels.get(name)
    if former is not None and not former.ended:
        former.settled()
    for entry in registry.entries():
        if entry.name == name:
            raise NameInUse(
                f"{name!r} has been served for {registry.age(entry.since_s)} by {entry.origin} "
                f"({entry.whose_pid}). Stop it with %tensorsocket stop {name}, or choose another name."
            )
    require_unpromised(name)


def _weak(obj: Any) -> Callable[[], Any]:
    """Return a reference that keeps nothing alive; to nothing where the object allows none."""
    try:
        return weakref.ref(obj)
    except TypeError:
        return lambda: None
