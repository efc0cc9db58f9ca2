"""The hub: a named actor by which a stream is found in its cluster. It starts relays, and watches them.

Batches do not pass through it: a relay has a connection to the process of the stream (`relay_port`). The hub belongs to
that process, and ends with it, however that ends; relays belong to the hub, and end with it. So nothing of a stream
outlives its producer.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from typing import Any

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tsnb.caching.owners import Lender
from tsnb.cluster.relay_wire import Address
from tsnb.cluster.stream_relay import StreamRelay
from tsnb.errors import JoinRefused
from tsnb.stream.protocol.messages import PROTOCOL

__all__ = ["StreamHub"]

POLL_S = 1.0
"""How long a question waits for an answer before it is asked again."""
STOP_S = 10.0
"""How long relays may take to tell their consumers that the stream has ended."""
AGAIN_S = 0.5
"""A relay that cannot be reached, and is not known to have died, is asked again."""


class StreamHub:
    """One stream's hub.

    Args:
        name: The stream's name.
        address: Where relays find its process.
        facts: What relays tell their consumers of the loader: batch_size, batches, samples, order,
            indices (as a tuple) and batch_bytes.
        relay_options: How relays serve: window, late_join, stall_timeout_s, max_batch_bytes, guard.
        lends: The memory that each other machine lends to the producer's cache, in bytes, and the token by which the
            producer's workers prove to be that; None: there is no cache.
    """

    def __init__(
        self,
        name: str,
        address: Address,
        facts: dict[str, Any],
        relay_options: dict[str, Any],
        lends: tuple[int, bytes] | None = None,
    ) -> None:
        self._name = name
        self._address = address
        self._facts = facts
        self._relay_options = relay_options
        self._lends = lends
        self._lenders: dict[str, int] = {}  # numbers of the relays that lend, or will, by their machines
        self._lent: dict[int, Lender] = {}  # by the relay's number
        self._changed = asyncio.Event()  # what is lent
        self._opening: dict[tuple[str, str], asyncio.Task[Any]] = {}
        self._numbers = itertools.count()
        self._watching: set[asyncio.Task[None]] = set()

    # -- for the process of the stream ---------------------------------------------------------------------

    async def lenders(self, known: tuple[Lender, ...] | None) -> tuple[Lender, ...]:
        """Return the machines that lend memory for prepared samples now; waits a moment for others than are known."""
        if known == tuple(self._lent.values()):
            self._changed.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), POLL_S)
        return tuple(self._lent.values())

    async def stop(self) -> None:
        """Have every relay end its stream in good order."""
        ends = [asyncio.wait_for(h.close.remote(), STOP_S) for h in self._open_now().values()]
        await asyncio.gather(*ends, return_exceptions=True)

    async def status(self) -> dict[str, Any]:
        """Return the machines that have a relay, and the hub's process."""
        return {"relays": [node for node, _ in self._open_now()], "pid": os.getpid()}

    def _open_now(self) -> dict[tuple[str, str], Any]:
        """Return the relays that serve, by their places."""
        return {at: t.result() for at, t in self._opening.items() if t.done() and not t.exception()}

    # -- for processes that attach -------------------------------------------------------------------------

    async def relay_on(self, node: str, directory: str, protocol: int) -> None:
        """Have a relay on a machine; returns when it can be attached to.

        Args:
            node: Ray's id of the machine.
            directory: The runtime directory of the process that asks: the relay enters itself in its registry.
            protocol: The protocol version of the process that asks.

        Raises:
            JoinRefused: Another version of tsnb, or the machine cannot reach the stream's process.
        """
        if protocol != PROTOCOL:
            raise JoinRefused(
                f"The stream speaks protocol {PROTOCOL} of tsnb and this machine protocol {protocol}. "
                "Install the same version of tsnb on every machine, and start both again"
            )
        where = (node, directory)
        task = self._relay(where)
        try:
            await (await asyncio.shield(task)).open.remote()
        except ActorDiedError:  # just now, and it was not heard of
            self._forget(where, task)
            await asyncio.shield(self._relay(where))

    def _relay(self, where: tuple[str, str]) -> asyncio.Task[Any]:
        """Return the task that gives, or will give, the relay of a place; start it if needed."""
        task = self._opening.get(where)
        if task is None or (task.done() and task.exception() is not None):
            task = self._opening[where] = asyncio.create_task(self._open(*where))
        return task

    def _forget(self, where: tuple[str, str], task: asyncio.Task[Any] | None) -> None:
        """The place's relay has ended, unless that is another's by now."""
        if self._opening.get(where) is task:
            self._opening.pop(where, None)

    async def _open(self, node: str, directory: str) -> Any:
        at = NodeAffinitySchedulingStrategy(node, soft=False)
        actor: Any = ray.remote(StreamRelay)
        number = next(self._numbers)
        lends = self._lends if self._may_lend(node, number) else None
        handle: Any = actor.options(num_cpus=0, max_concurrency=4, scheduling_strategy=at).remote(
            self._name, self._address, directory, self._facts, self._relay_options, lends
        )
        watched = self._watch(handle, number, (node, directory), asyncio.current_task())
        watching = asyncio.create_task(watched)
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)
        try:
            lent = await handle.open.remote()
            if isinstance(lent, str):
                raise JoinRefused(lent)
        except BaseException:
            watching.cancel()
            self._lends_no_more(number)
            ray.kill(handle)
            raise
        if lent is not None and number in self._lenders.values():  # else it has died meanwhile
            self._lent[number] = lent
            self._changed.set()
        return handle

    def _may_lend(self, node: str, number: int) -> bool:
        """Return whether a relay is to lend memory: one on each machine but the producer's."""
        if node == ray.get_runtime_context().get_node_id():
            return False
        return self._lenders.setdefault(node, number) == number

    def _lends_no_more(self, number: int) -> None:
        self._lent.pop(number, None)
        self._lenders = {node: other for node, other in self._lenders.items() if other != number}
        self._changed.set()

    async def _watch(self, handle: Any, number: int, where: tuple[str, str], opened: Any) -> None:
        """Notice a relay's end: it is asked again and again, which fails where it died."""
        lives = True
        while lives:
            try:
                lives = await handle.live.remote()
            except ActorUnavailableError:  # the stream's process gives up one that says nothing
                await asyncio.sleep(AGAIN_S)
            except RayError:
                lives = False
        self._forget(where, opened)
        self._lends_no_more(number)
        ray.kill(handle)  # its stream has ended, its process has not
