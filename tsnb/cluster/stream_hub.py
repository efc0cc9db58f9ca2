"""The hub: a named actor that holds a stream's dispatch. It sees references to batches, never their bytes.

It belongs to the process that serves the loader, and ends with it, however that ends; relays belong to the hub, and
end with it. So nothing of a stream outlives its producer, and no lease on the producer is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
from typing import Any, NamedTuple

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tsnb.caching.owners import Lender
from tsnb.cluster.hub_dispatch import ClusterDispatch, SampleParts
from tsnb.cluster.stream_relay import StreamRelay
from tsnb.errors import JoinRefused
from tsnb.stream.protocol.messages import PROTOCOL

__all__ = ["FeedOrder", "StreamHub", "budget_bytes"]

STORE_SHARE = 0.3
"""What a stream may use of the smallest object store of the cluster, for batches that machines have yet to take."""
POLL_S = 1.0
"""How long a question waits for an answer before it is asked again."""
TICK_S = 1.0
STOP_S = 10.0
"""How long relays may take to tell their consumers that the stream has ended."""
AGAIN_S = 0.5
"""A relay that cannot be reached, and is not known to have died, is asked again."""


class FeedOrder(NamedTuple):
    """The hub's wishes, for the feed."""

    batch: tuple[int, int, int] | None
    """The run, epoch and first batch that it should give now; as `events.Wanted`."""
    run: int | None
    """The run that may want more later; batches of any other run are not wanted."""
    idle: bool
    """Whether no machine takes anything, or is expected back."""
    parts: SampleParts | None = None
    """Which samples it should take; None: as it was told before."""
    lenders: tuple[Lender, ...] = ()
    """The machines that lend memory for prepared samples now."""


class StreamHub:
    """One stream's hub. Methods are called by the feed and by the relays, from their processes.

    Args:
        name: The stream's name.
        window: As `ClusterDispatch`.
        band: As `ClusterDispatch`.
        stall_timeout_s: As `ClusterDispatch`.
        facts: What relays tell their consumers of the loader: batch_size, batches, samples, order,
            indices (as a tuple) and batch_bytes.
        relay_options: How relays serve: window, late_join, stall_timeout_s, max_batch_bytes, guard.
        lends: The memory that each other machine lends to the producer's cache, in bytes, and the token by which the
            producer's workers prove to be that; None: there is no cache.
    """

    def __init__(
        self,
        name: str,
        window: int,
        band: int,
        stall_timeout_s: float,
        facts: dict[str, Any],
        relay_options: dict[str, Any],
        lends: tuple[int, bytes] | None = None,
    ) -> None:
        self._name = name
        self._dispatch = ClusterDispatch(
            window,
            band,
            stall_timeout_s,
            budget_bytes(),
            time.monotonic(),
            repeatable=bool(facts["order"]),
            indexed=facts["indices"][0] is not None,
        )
        self._facts = facts
        self._relay_options = relay_options
        self._lends = lends
        self._lenders: dict[str, int] = {}  # numbers of the relays that lend, or will, by their machines
        self._lent: dict[int, Lender] = {}  # by the relay's number
        self._feed = asyncio.Event()
        self._news: dict[int, asyncio.Event] = {}
        self._opening: dict[tuple[str, str], asyncio.Task[Any]] = {}
        self._numbers = itertools.count()
        self._keys: dict[int, int] = {}  # by the relay's number
        self._ticking: asyncio.Task[None] | None = None
        self._watching: set[asyncio.Task[None]] = set()

    # -- for the feed --------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Let time pass. Called once."""
        self._ticking = asyncio.create_task(self._tick())

    async def wanted(self, known: int) -> FeedOrder:
        """Return what to load next; waits a moment for something to load, or for other parts.

        Args:
            known: The number of the parts that it was told last.
        """
        if self._dispatch.wanted is None and self._dispatch.parts(known) is None:
            self._feed.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._feed.wait(), POLL_S)
        return self._answer(known)

    async def loaded(self, run: int, refs: list[Any], size: int, rows: int, known: int) -> FeedOrder:
        """Take a batch; return as `wanted`, without waiting. `refs` has the one reference: it crosses unresolved."""
        self._dispatch.loaded(run, refs, size, rows, time.monotonic())
        self._wake()
        return self._answer(known)

    async def covered(self, run: int, cover: int | None) -> None:
        """As `ClusterDispatch.covered`."""
        self._dispatch.covered(run, cover, time.monotonic())
        self._wake()

    async def renumbered(self, run: int, epoch: int) -> None:
        """As `ClusterDispatch.renumbered`."""
        self._dispatch.renumbered(run, epoch, time.monotonic())
        self._wake()

    async def ended(self, run: int) -> None:
        """As `ClusterDispatch.ended`."""
        self._dispatch.ended(run, time.monotonic())
        self._wake()

    async def raised(self, run: int, message: str, traceback: str) -> None:
        """As `ClusterDispatch.raised`."""
        self._dispatch.raised(run, message, traceback, time.monotonic())
        self._wake()

    async def stop(self) -> None:
        """Have every relay end its stream in good order."""
        handles = [t.result() for t in self._opening.values() if t.done() and not t.exception()]
        ends = [asyncio.wait_for(h.close.remote(), STOP_S) for h in handles]
        await asyncio.gather(*ends, return_exceptions=True)

    def _answer(self, known: int) -> FeedOrder:
        if self._ticking is not None and self._ticking.done():
            self._ticking.result()  # without a clock no relay would be given up: the feed has to end it all
        wanted = self._dispatch.wanted
        batch = None if wanted is None else (wanted.run, wanted.epoch, wanted.first)
        return FeedOrder(
            batch,
            self._dispatch.loading,
            self._dispatch.idle,
            self._dispatch.parts(known),
            tuple(self._lent.values()),
        )

    # -- for processes that attach -------------------------------------------------------------------------

    async def relay_on(self, node: str, directory: str, protocol: int) -> None:
        """Have a relay on a machine; returns when it can be attached to.

        Args:
            node: Ray's id of the machine.
            directory: The runtime directory of the process that asks: the relay enters itself in its registry.
            protocol: The protocol version of the process that asks.

        Raises:
            JoinRefused: Another version of tsnb.
        """
        _require_same(protocol)
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
        self._dispatch.shrink(budget_bytes())  # the machine may have come since
        at = NodeAffinitySchedulingStrategy(node, soft=False)
        actor: Any = ray.remote(StreamRelay)
        me = ray.get_runtime_context().current_actor
        number = next(self._numbers)
        lends = self._lends if self._may_lend(node, number) else None
        handle: Any = actor.options(num_cpus=0, max_concurrency=4, scheduling_strategy=at).remote(
            me, number, self._name, directory, self._facts, self._relay_options, lends
        )
        watched = self._watch(handle, number, (node, directory), asyncio.current_task())
        watching = asyncio.create_task(watched)
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)
        try:
            lent = await handle.open.remote()
        except BaseException:
            watching.cancel()
            self._lends_no_more(number)
            ray.kill(handle)
            raise
        if lent is not None and number in self._lenders.values():  # else it has died meanwhile
            self._lent[number] = lent
        return handle

    def _may_lend(self, node: str, number: int) -> bool:
        """Return whether a relay is to lend memory: one on each machine but the producer's."""
        if node == ray.get_runtime_context().get_node_id():
            return False
        return self._lenders.setdefault(node, number) == number

    def _lends_no_more(self, number: int) -> None:
        self._lent.pop(number, None)
        self._lenders = {node: other for node, other in self._lenders.items() if other != number}

    async def _watch(self, handle: Any, number: int, where: tuple[str, str], opened: Any) -> None:
        """Notice a relay's end: it is asked again and again, which fails where it died."""
        lives = True
        while lives:
            try:
                lives = await handle.live.remote()
            except ActorUnavailableError:  # if that lasts, its silence ends its lease
                await asyncio.sleep(AGAIN_S)
            except RayError:
                lives = False
        self._forget(where, opened)
        self._lends_no_more(number)
        key = self._keys.pop(number, None)
        if key is not None:
            self._dispatch.left(key, time.monotonic())
            self._wake()
        ray.kill(handle)  # its stream has ended, its process has not

    # -- for relays ----------------------------------------------------------------------------------------

    async def join(self, number: int, node: str, protocol: int) -> int:
        """A relay begins, or begins again after it was given up.

        Args:
            number: The relay's.
            node: Ray's id of its machine.
            protocol: What it speaks.

        Returns:
            Its key.

        Raises:
            JoinRefused: Another version of tsnb.
        """
        _require_same(protocol)
        former = self._keys.pop(number, None)
        if former is not None:
            self._dispatch.left(former, time.monotonic())
        key = self._keys[number] = self._dispatch.join(node, time.monotonic())
        self._news[key] = asyncio.Event()
        self._wake()
        return key

    async def poll(
        self, key: int, ask: int, epoch: int, seq: int, exact: bool, parts: SampleParts | None
    ) -> list[Any] | None:
        """Return the messages for a relay on its ask, waiting a moment for them; None if the relay is no longer known.

        The ask comes along with each poll for it, so it cannot get lost or be overtaken; so do the samples that it
        takes, until a poll with them was answered.
        """
        if not self._dispatch.alive(key, time.monotonic()):
            return None
        self._dispatch.announce(key, parts, time.monotonic())
        self._dispatch.ask(key, ask, epoch, seq, exact, time.monotonic())
        told = self._dispatch.more(key, ask, time.monotonic())
        self._wake()
        if not told:
            news = self._news[key]
            news.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(news.wait(), POLL_S)
            told = self._dispatch.more(key, ask, time.monotonic())
        return [tuple(message) for message in told]

    async def took(self, key: int, ask: int, lease: int) -> None:
        """As `ClusterDispatch.took`."""
        self._dispatch.took(key, ask, lease, time.monotonic())
        self._wake()

    async def leave(self, key: int, ask: int, rest: bool) -> None:
        """As `ClusterDispatch.leave`."""
        self._dispatch.leave(key, ask, rest, time.monotonic())
        self._wake()

    async def beat(self, key: int | None, parts: SampleParts | None) -> bool:
        """A relay lives, and may take other samples than before; return whether it is known."""
        known = self._dispatch.alive(key, time.monotonic())
        if parts is not None:
            self._dispatch.announce(key, parts, time.monotonic())
            self._feed.set()
            self._wake()
        return known

    async def status(self) -> dict[str, Any]:
        """Return the stream's crossings by machine, how many samples are taken, what is kept, and the hub's process."""
        dispatch, wanted = self._dispatch, self._dispatch.decisions.admission.wanted()
        relays = {r.name: {"batches": r.batches, "bytes": r.size} for r in dispatch.relays.values()}
        states = {m.name: m.phase.value for m in dispatch.decisions.members.values()}
        return {
            "relays": relays,
            "states": states,
            "samples": None if wanted is None else wanted.bit_count(),
            "window": dispatch.decisions.window,
            "largest_bytes": dispatch.largest,
            "kept": dispatch.decisions.epochs.kept,
            "kept_bytes": dispatch.kept_bytes,
            "most_bytes": dispatch.most_bytes,
            "pid": os.getpid(),
        }

    # -- inside --------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._dispatch.tick(time.monotonic())
            self._wake()

    def _wake(self) -> None:
        """Wake all waiting calls that can be answered now."""
        if self._dispatch.wanted is not None or self._dispatch.idle:
            self._feed.set()
        for key in [key for key in self._news if key not in self._dispatch.relays]:
            self._news.pop(key).set()
        for key, news in self._news.items():
            if self._dispatch.relays[key].messages:
                news.set()


def budget_bytes() -> int:
    """Return what a stream may use of each of the cluster's object stores, as it is now."""
    nodes: Any = ray.nodes  # untyped
    stores = [n["Resources"].get("object_store_memory", 0) for n in nodes() if n["Alive"]]
    return max(1, int(STORE_SHARE * min(filter(None, stores), default=0)))


def _require_same(protocol: int) -> None:
    if protocol != PROTOCOL:
        raise JoinRefused(
            f"The stream speaks protocol {PROTOCOL} of tsnb and this machine protocol {protocol}. "
            "Install the same version of tsnb on every machine, and start both again"
        )
