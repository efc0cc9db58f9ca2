"""One life of a stream: a background kernel that takes in a loader, serves it, and ends.

On the hub's thread, all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from tsnb.discovery import registry
from tsnb.errors import TsnbError
from tsnb.hosting.served import LEAVING_MESSAGE, RECONNECT_S, SERVED_MESSAGE, Shipment
from tsnb.hosting.stopping import end_for_now
from tsnb.kernels.cargo import orders
from tsnb.kernels.hub import Hub
from tsnb.kernels.processes.child import Child, log_path
from tsnb.options import StreamOptions

__all__ = ["STOP_GRACE_S", "ProducerLife"]

INSIDE = "tsnb.hosting.in_kernel"
"""The module with the steps that its kernel runs."""

STOP_GRACE_S = 5.0
"""How long a producer kernel may take to stop its stream in good order before it is killed."""


class ProducerLife:
    """A producer kernel.

    Attributes:
        child: Its process.
        seed: What its order is drawn from, once it serves: the option, or one that was chosen for it.
        order: Identity of that order; empty where it cannot be given again.
        leaving: Whether its stream is being stopped, by whomever.

    Args:
        hub: The hub on whose thread it lives.
        name: The stream's name.
        options: How it is served.
        shipment: The loader to serve.
        output: Takes what the kernel publishes for the user.
    """

    def __init__(
        self,
        hub: Hub,
        name: str,
        options: StreamOptions,
        shipment: Shipment,
        output: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self.seed = options.seed
        self.order = ""
        self.leaving = False
        self.shipment = shipment
        self._name = name
        self._options = options
        self._output = output
        log = log_path(name) if options.detach else None
        self.child = Child(hub, name, self._take, detached_log=log)
        self.child.grace_s = STOP_GRACE_S

    async def prepare(self, *, prove: bool = False) -> None:
        """Bring up the kernel with the loader in it; on failure leave none behind.

        Args:
            prove: Whether to try the loader as well, by taking one batch and dropping it.

        Raises:
            TsnbError: Whatever went wrong, in the class it has in the kernel where it is one of ours.
        """
        try:
            await self.child.start()
            kept = {} if self._options.cache is None else {"kept": self.shipment.kept.cargo()}
            settings = self.child.sent({**self.shipment.arrival, **kept, "name": self._name})
            await self._order("enter", settings)
            if self.shipment.source is not None:
                reply = await self.child.execute(self.shipment.source)
                orders.require(reply, "the cell that builds the loader failed")
            if prove:
                await self._order("prove", self.shipment.variable)
        except BaseException:
            await self.kill()
            raise

    async def serve(self, first_epoch: int, spare_seed: int | None) -> None:
        """Begin the stream; on failure leave no kernel behind.

        Args:
            first_epoch: The epoch to begin with.
            spare_seed: For a DataLoader that was given no seed; None: there is none.

        Raises:
            TsnbError: Whatever went wrong, in the class it has in the kernel where it is one of ours.
            TypeError: As `tsnb.serve` raises it.
            ValueError: As `tsnb.serve` raises it.
        """
        keywords = {**asdict(self._options), "name": self._name, "origin": registry.describe_origin()}
        del keywords["detach"], keywords["restart"]
        keywords["first_epoch"] = first_epoch
        keywords["reconnect_s"] = RECONNECT_S if self._options.restart else 0.0
        variable, outlive = self.shipment.variable, self._options.detach
        try:
            await self._order("serve_variable", variable, keywords, spare_seed, outlive)
        except BaseException:
            await self.kill()
            raise

    async def _order(self, function: str, *arguments: Any) -> None:
        reply = await self.child.execute(orders.call(INSIDE, function, *arguments), order=True)
        # what `tsnb.serve` itself refuses keeps its class: an error of the loader is LoaderFailed by then
        orders.require(reply, ours=(TypeError, ValueError) if function == "serve_variable" else ())

    async def end_for_now(self) -> bool:
        """End the kernel in good order; its consumers are told to wait for another one.

        Returns:
            Whether somebody else has asked for the stream's end meanwhile: then nobody waits.
        """
        stopped, asked = self.leaving, False
        with contextlib.suppress(TsnbError):  # died meanwhile, or its loader is in the middle of a long step
            waits = await asyncio.to_thread(end_for_now, self._name, STOP_GRACE_S, RECONNECT_S)
            stopped, asked = stopped or not waits, True
        ended, _ = await asyncio.wait({self.child.death}, timeout=STOP_GRACE_S)
        await self.kill()
        return stopped or (not asked and bool(ended) and self.child.death.result().code == 0)

    async def kill(self) -> None:
        """End the kernel at once."""
        self.child.grace_s = 0.0
        await self.child.kill()

    def _take(self, kind: str, content: dict[str, Any]) -> None:
        if kind == SERVED_MESSAGE:
            self.seed, self.order = content["seed"], content["order"]
        elif kind == LEAVING_MESSAGE:
            self.leaving = True
        else:
            self._output(kind, content)
