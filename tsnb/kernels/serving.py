"""Loaders served from background kernels of this notebook.

Starting waits until the first batch is there, so that whatever is wrong with a loader is said where it was
started: a start either ends with a stream that can be attached to, or with an error and no kernel.
"""

from __future__ import annotations

import re
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tsnb import errors, registry
from tsnb.config import check_name
from tsnb.errors import LoaderFailed, NameInUse
from tsnb.kernels import orders
from tsnb.kernels.capture import Captured, capture
from tsnb.kernels.child import Child, log_path
from tsnb.kernels.death import Death, KernelDied
from tsnb.kernels.hub import Hub, the_hub
from tsnb.kernels.outlets import Outlet, outlet_here
from tsnb.kernels.relay import Relay
from tsnb.kernels.shipping import ship

__all__ = ["ProducerKernel", "ServeOptions", "producer_kernels", "serve_from_cell", "serve_loader"]

STOP_GRACE_S = 5.0
"""How long a producer kernel may take to stop its stream in good order before it is killed."""


@dataclass(frozen=True)
class ServeOptions:
    """How a loader is served: `tsnb.serve`'s keywords, and one that only a background kernel knows."""

    window: int = 8
    """How many batches the fastest consumer may be ahead of the slowest."""
    rubber_band: float = 0.02
    """The share of an epoch that may have gone by for a newcomer to still get all of it."""
    patience_s: float = 30.0
    """Seconds that others wait for a consumer that stands still."""
    seed: int | None = None
    """Makes the order of samples a function of (seed, epoch)."""
    workers: int | None = None
    """The DataLoader's number of workers, where that is to be another."""
    detach: bool = False
    """Whether it outlives this notebook."""


class ProducerKernel:
    """A background kernel that serves a loader.

    Attributes:
        name: The stream's name.
        options: How it is served.
        started_s: Seconds since 1970.
    """

    def __init__(
        self, name: str, options: ServeOptions, hub: Hub, outlet: Outlet, loader: Any = None
    ) -> None:
        self.name = name
        self.options = options
        self.started_s = time.time()
        self._original = _weak(loader)
        self._hub = hub
        self._relay = Relay(hub.loop, outlet)
        self._stopping = False
        self._child: Child | None = None
        self._watch: Any = None

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._child is not None and self._child.alive

    @property
    def pid(self) -> int | None:
        """Its process, while it runs."""
        return self._child.pid if self._child is not None and self._child.alive else None

    def serves(self, obj: Any) -> bool:
        """Whether it serves a copy of this very object of the notebook, now."""
        return self.alive and obj is not None and self._original() is obj

    def logs(self) -> str:
        """Return what its kernel printed (the last million characters)."""
        return self._relay.record

    def stop(self) -> None:
        """Stop the stream and end its kernel; its consumers get `ProducerGone`."""
        self._stopping = True
        if self._child is not None:
            self._hub.call(self._child.kill())

    async def start(self, arrival: Mapping[str, Any], variable: str, source: str | None) -> None:
        """Bring up the kernel and the stream; on failure leave no kernel behind. On the hub's thread.

        Args:
            arrival: What the kernel needs to take in what was shipped (`orders.to_arrive`).
            variable: What the loader is called there.
            source: A cell that builds it there; None: it was shipped.

        Raises:
            TsnbError: Whatever went wrong, in the class it has in the kernel where it is one of ours.
        """
        log = log_path(self.name) if self.options.detach else None
        self._child = Child(self._hub, self.name, self._relay.feed, detached_log=log)
        self._child.grace_s = STOP_GRACE_S
        try:
            await self._child.start()
            await self._serve(self._child, arrival, variable, source)
        except BaseException:
            self._stopping = True
            self._child.grace_s = 0.0
            await self._child.kill()
            raise
        finally:
            self._relay.flush()
        self._watch = self._hub.loop.create_task(self._tell_end(self._child))

    async def _serve(
        self, child: Child, arrival: Mapping[str, Any], variable: str, source: str | None
    ) -> None:
        settings = {**arrival, "name": self.name}
        _require(await child.execute(orders.call("stream", "enter", settings), order=True))
        if source is not None:
            reply = await child.execute(source)
            _require(reply, "the cell that builds the loader raised")
        keywords = {**asdict(self.options), "name": self.name, "origin": registry.describe_origin()}
        del keywords["detach"]
        order = orders.call("stream", "serve_variable", variable, keywords)
        # what `tsnb.serve` itself refuses keeps its class: an error of the loader is LoaderFailed by then
        _require(await child.execute(order, order=True), ours=(TypeError, ValueError))

    async def _tell_end(self, child: Child) -> None:
        """Say under the cell that started it how it ended, if nobody here asked for it."""
        death: Death = await child.death
        if self._stopping or self._hub.closing:
            return
        if death.code:
            self._relay.say(f"producer {self.name!r} is gone: {death}\n", "stderr")
        else:
            self._relay.say(f"producer {self.name!r} was stopped\n")
        self._relay.flush()

    def __repr__(self) -> str:
        return f"<ProducerKernel {self.name!r} {f'pid {self.pid}' if self.alive else 'ended'}>"


producer_kernels: dict[str, ProducerKernel] = {}
"""Those that this process has started, by name; the last one of each name."""


def serve_loader(
    loader: Any,
    name: str,
    options: ServeOptions | None = None,
    *,
    variable: str = "loader",
    outlet: Outlet | None = None,
) -> ProducerKernel:
    """Serve a copy of a loader from a background kernel; returns when its first batch is there.

    Args:
        loader: Anything that gives batches when iterated.
        name: The stream's name.
        options: How it is served.
        variable: What the notebook calls the loader, for messages.
        outlet: Where its output goes; left out: under the running cell, or to the terminal.

    Raises:
        TypeError: It cannot be iterated.
        ValueError: The name or an option is none.
        NameInUse: The name is served; says since when, by whom, and how to stop it.
        NotShippable: The loader cannot travel; names the attribute, and the fix.
        LoaderFailed: It raised, or it is empty; carries its traceback.
        TsnbError: Its kernel could not be started.
    """
    _check_free(name)
    kind = type(loader)
    if not (hasattr(kind, "__iter__") or hasattr(kind, "__getitem__") or callable(loader)):
        raise TypeError(
            f"{variable!r} is of type {kind.__name__}, which cannot be iterated. A loader gives batches, one "
            "after the other, when it is iterated: a torch DataLoader, for instance."
        )
    kernel = _new_kernel(name, options, outlet, loader)
    return _bring_up(kernel, Captured({variable: loader}), variable, None)


def serve_from_cell(
    source: str,
    namespace: Mapping[str, Any],
    name: str,
    options: ServeOptions | None = None,
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
        ValueError: The name or an option is none.
        NameInUse: The name is served; says since when, by whom, and how to stop it.
        UndefinedNames: The cell reads what nobody defines.
        NotShippable: A variable that it reads cannot travel.
        LoaderFailed: The cell raised, or built no `loader`, or the loader is broken or empty.
        SyntaxError: The cell is no Python.
        TsnbError: Its kernel could not be started.
    """
    _check_free(name)
    source = orders.as_written(f"%%tensorsocket start --name {name}", source)
    captured = capture(transform(source), namespace)
    return _bring_up(_new_kernel(name, options, outlet), captured, "loader", source)


def _new_kernel(
    name: str, options: ServeOptions | None, outlet: Outlet | None, loader: Any = None
) -> ProducerKernel:
    return ProducerKernel(name, options or ServeOptions(), the_hub(), outlet or outlet_here(name), loader)


def _bring_up(
    kernel: ProducerKernel, captured: Captured, variable: str, source: str | None
) -> ProducerKernel:
    hub = the_hub()
    path = hub.new_path("ship", ".pickle")
    ship(captured.variables, path, f"the producer kernel of {kernel.name!r}")
    try:
        hub.call(kernel.start(orders.to_arrive(path, captured), variable, source))
    except KernelDied as error:
        raise LoaderFailed(f"no producer was started: {error}") from None
    finally:
        path.unlink(missing_ok=True)
    producer_kernels[kernel.name] = kernel
    return kernel


def _check_free(name: str) -> None:
    """Refuse a name that is none, or that is served, before anything is started.

    Raises:
        ValueError: It is none.
        NameInUse: It is served.
    """
    check_name(name, "producer")
    for entry in registry.entries():
        if entry.name == name:
            raise NameInUse(
                f"{name!r} is served already, for {registry.age(entry.since_s)}, by {entry.origin} (pid "
                f"{entry.pid}). Stop it by %tensorsocket stop {name}, or choose another name."
            )


def _weak(obj: Any) -> Callable[[], Any]:
    """Return a reference that keeps nothing alive; to nothing where the object allows none."""
    try:
        return weakref.ref(obj)
    except TypeError:
        return lambda: None


def _require(reply: Mapping[str, Any], what: str = "", ours: tuple[type[Exception], ...] = ()) -> None:
    """Raise what went wrong in the kernel.

    Args:
        reply: Its reply.
        what: What was being done, where it was the user's own code.
        ours: Errors of Python's that our own code raises there on purpose.

    Raises:
        TsnbError: The reply tells of an error: of the same class where it is one of ours, else LoaderFailed.
    """
    if reply["status"] == "ok":
        return
    name, message = reply.get("ename", "Error"), reply.get("evalue", "")
    kind: Any = {error.__name__: error for error in ours}.get(name) or getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception) and not what:
        raise kind(message)
    traceback = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(reply.get("traceback", ())))
    said = f"{what or 'the loader could not be served'}: {name}: {message}"
    raise LoaderFailed(said, "" if what else traceback)  # the cell's own traceback stands under it already
