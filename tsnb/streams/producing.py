"""One stream served from background kernels, through as many lives as it takes.

| what happens | what follows |
|---|---|
| `stop`, or `tsnb stop` in a terminal | it has ended |
| `restart` | the goodbye tells consumers to wait; a new kernel serves the same loader, or a new one |
| its process dies, with `restart="on-crash"` | a new kernel serves the same loader; see `crashes` |
| its process dies otherwise | it has ended |

The variables that a kernel was started from are kept in the hub's directory until the stream has ended: a new kernel
must begin with those of the first one, not with what the notebook's variables have become since.

Everything here except `stop`, `restart` and the properties runs on the hub's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from dataclasses import replace
from typing import Any

from tsnb.errors import ProducerGone, ProducerNotFound, TsnbError
from tsnb.kernels.hub import Hub
from tsnb.kernels.output.outlets import Outlet
from tsnb.kernels.output.relay import Relay
from tsnb.kernels.processes.death import KernelDied
from tsnb.native.endings import Bound
from tsnb.options import StreamOptions
from tsnb.registry import Promise
from tsnb.streams.crashes import Crashes, Following
from tsnb.streams.life import STOP_GRACE_S, ProducerLife
from tsnb.streams.served import RECONNECT_S, Shipment
from tsnb.telemetry import observer
from tsnb.telemetry.readings import StreamReading

__all__ = ["ProducerKernel"]

LOOK_S = 0.05
"""How often it is looked whether a stream is back."""

INSIDE = frozenset({"streaming", "waiting", "held back", "sets the pace", "skipping"})
"""States of a consumer that is in the middle of an epoch."""


class ProducerKernel(Bound):
    """A loader served from a background kernel.

    Attributes:
        name: The stream's name.
        options: How it is served.
        asked: How it was asked to be: its mode may have been changed since.
        started_s: Seconds since 1970.
        restarts: How often it was started again, asked for or not.
    """

    instead = "Send the stream's name: other processes attach by it."

    def __init__(self, name: str, options: StreamOptions, hub: Hub, outlet: Outlet) -> None:
        self.name = name
        self.options = options
        self.asked = options
        self.started_s = time.time()
        self.restarts = 0
        self._spare_seed = secrets.randbelow(2**31) if options.restart and options.seed is None else None
        self._hub = hub
        self._relay = Relay(hub.loop, outlet)
        self._shipment: Shipment | None = None
        self._life: ProducerLife | None = None
        self._next_life: ProducerLife | None = None
        self._stopping = False
        self._restarting = False
        self._one_at_a_time = asyncio.Lock()
        self._crashes = Crashes()
        self._following = Following(name)
        self._guards: set[asyncio.Task[None]] = set()
        self._promise: Promise | None = None  # that it will be served, should it not be just now

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._life is not None and self._life.child.alive

    @property
    def ended(self) -> bool:
        """Whether it is over for good: nothing serves it, and nothing will."""
        return self._shipment is None

    @property
    def pid(self) -> int | None:
        """Its process, while it runs."""
        return self._life.child.pid if self._life is not None and self._life.child.alive else None

    @property
    def seed(self) -> int | None:
        """What its order is drawn from: the option, or a seed that was chosen for it."""
        return self.options.seed if self._life is None else self._life.seed

    @property
    def order(self) -> str:
        """Identity of its order; empty where it cannot be given again."""
        return "" if self._life is None else self._life.order

    @property
    def crashes(self) -> int:
        """How often its process died without having been asked to."""
        return self._crashes.total

    @property
    def shipment(self) -> Shipment:
        """The loader that it serves, and how to build it.

        Raises:
            ProducerGone: It has ended.
        """
        if self._shipment is None:
            raise _gone(self.name)
        return self._shipment

    def settled(self) -> bool:
        """Wait while it is being started again after a crash; return whether it is served."""
        self._hub.call(self._settle())
        return self.alive

    async def _settle(self) -> None:
        while not (self.ended or self.alive):  # noqa: ASYNC110 (a process may die at any moment)
            await asyncio.sleep(LOOK_S)

    def serves(self, obj: Any) -> bool:
        """Whether it serves a copy of this very object of the notebook, now."""
        return self._shipment is not None and obj is not None and self._shipment.original() is obj

    def logs(self) -> str:
        """Return what its kernels printed (the last million characters)."""
        return self._relay.record

    def stop(self) -> None:
        """Stop the stream and end its kernel; its consumers get `ProducerGone`."""
        self._stopping = True
        self._hub.call(self._end())

    def restart(self, shipment: Shipment | None = None, options: StreamOptions | None = None) -> None:
        """Stop the stream in good order and serve it again, from the epoch it is in.

        An interrupt before the new loader has been tried changes nothing; after that the change goes on without it.
        Its consumers wait and reconnect automatically. Those in the middle of an epoch go on at their own
        position if the order is the same, else they get `ProducerGone`.

        Args:
            shipment: A new loader to serve in place of the old one. It is tried before anything is stopped, and if
                it cannot be served after all, the old one is served again.
            options: How to serve it; left out: as before.

        Raises:
            ProducerGone: It has ended.
            ValueError: The options cannot be changed while it is served.
            TsnbError: It does not answer; or a consumer is in the middle of an epoch whose order cannot be given
                again; or it cannot be started again (in the class that a start raises).
        """
        try:
            self._hub.call(self._exchange(shipment, options))
        finally:
            if shipment is not None and self._shipment is not shipment and not self._restarting:
                shipment.discard()

    async def start(self, shipment: Shipment) -> None:
        """Bring up the kernel and the stream; on failure leave no kernel behind.

        Raises:
            TsnbError: Whatever went wrong, in the class it has in the kernel where it is one of ours.
        """
        self._shipment = shipment
        notebooks = shipment.arrival["notebook_seed"]
        self._spare_seed = self._spare_seed if notebooks is None else notebooks
        try:
            if self.options.restart:
                self._promise = Promise(self.name)
            await self._begin(await self._prepare(shipment), 0)
        except BaseException:
            self._finish()
            raise

    async def _prepare(self, shipment: Shipment, *, prove: bool = False) -> ProducerLife:
        if self._stopping or self._hub.closing:
            raise KernelDied("it is being stopped")
        life = self._next_life = ProducerLife(self._hub, self.name, self.options, shipment, self._relay.feed)
        try:
            await life.prepare(prove=prove)
        finally:
            self._relay.flush()
        return life

    async def _begin(self, life: ProducerLife, first_epoch: int) -> None:
        try:
            await life.serve(first_epoch, self._spare_seed)
        finally:
            self._relay.flush()
        self._life, self._next_life = life, None
        if self.options.restart and self._following.open(life.child.pid):
            self._hub.loop.add_reader(self._following.fileno(), self._look)
        guard = self._hub.loop.create_task(self._guard(life))
        self._guards.add(guard)  # the loop itself would not keep it
        guard.add_done_callback(self._guards.discard)

    def _look(self) -> None:
        """Take in how far the stream is; at its end there is nothing more to look at."""
        descriptor = self._following.fileno()
        if descriptor >= 0 and not self._following.look():
            self._hub.loop.remove_reader(descriptor)

    async def _guard(self, life: ProducerLife) -> None:
        """See one life to its end, and to what follows."""
        death = await life.child.death
        self._look()
        if self._restarting or self._stopping or self._hub.closing:
            return
        if not death.code:
            self._tell(f"producer {self.name!r} was stopped")
        elif self.options.restart:
            async with self._one_at_a_time:
                if self._life is life and self._shipment is not None:
                    await self._recover(self._shipment, str(death))
            return
        else:
            self._tell(f"producer {self.name!r} is gone: {death}", "stderr")
        self._finish()

    async def _recover(self, shipment: Shipment, cause: str) -> None:
        """Start it again after a crash, unless it crashes in a row."""
        reached = self._following.position
        while self._crashes.allow_another(time.monotonic(), reached):
            self.options = replace(self.options, **self._following.options)  # divided as it was at the last
            epoch = self._crashes.position.epoch
            where = f"in epoch {epoch + 1}"
            self._tell(f"producer {self.name!r} has crashed: {cause}\nstarting it again, {where}", "stderr")
            try:
                await self._begin(await self._prepare(shipment), epoch)
            except KernelDied as error:
                if self._stopping or self._hub.closing:
                    return
                cause = str(error)
            except (TsnbError, TypeError, ValueError) as error:
                self._tell(f"producer {self.name!r} could not be started again: {error}", "stderr")
                self._finish()
                return
            else:
                self.restarts += 1
                self._tell(f"producer {self.name!r} is back (pid {self.pid}), {where}")
                return
        self._tell(
            f"producer {self.name!r} is gone: {cause}\nIt is not started again: {self._crashes.reason}. "
            f"%tensorsocket logs {self.name} shows what it printed.",
            "stderr",
        )
        self._finish()

    async def _exchange(self, wanted: Shipment | None, options: StreamOptions | None) -> None:
        """Do `_again`; once the stream was taken down, it is served again whatever happens to the caller."""
        if options is not None:
            _check_changes(self.name, self.asked, options)
        task = self._hub.loop.create_task(self._again_or_as_before(wanted, options))
        self._guards.add(task)
        task.add_done_callback(self._guards.discard)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._restarting and not task.done():
                task.add_done_callback(self._tell_how)
            else:
                task.cancel()
                await asyncio.wait({task})
            raise

    def _tell_how(self, task: asyncio.Task[None]) -> None:
        """Say how a change has ended that nobody waits for any more."""
        error = None if task.cancelled() else task.exception()
        if error is None:
            self._tell(f"producer {self.name!r} is served again (pid {self.pid})")
        else:
            self._tell(f"producer {self.name!r} could not be started again: {error}", "stderr")

    async def _again_or_as_before(self, wanted: Shipment | None, options: StreamOptions | None) -> None:
        try:
            await self._again(wanted, options)
        finally:
            if wanted is not None and self._shipment is not wanted:
                wanted.discard()

    async def _again(self, wanted: Shipment | None, options: StreamOptions | None = None) -> None:
        reading = await self._reading()
        async with self._one_at_a_time:
            former, former_options = self.shipment, self.options
            if wanted is None and not self.order:
                _spare_those_inside(reading)
            former_options = replace(former_options, mode=reading.mode, weights=reading.weights)
            self.options = options or former_options
            # a new loader is tried first; the same one is not, since two copies may be more than memory has
            try:
                new = None if wanted is None else await self._prepare(wanted, prove=True)
            except BaseException:
                self.options = former_options
                raise
            if self.ended:
                if new is not None:
                    await new.kill()
                raise _gone(self.name)
            self._restarting = True
            promise = None
            try:
                promise = Promise(self.name)
                await self._take_down()
                await self._begin_one_of(new, former, reading.epoch, former_options)
                self.restarts += 1
                self.asked = options or self.asked
            except BaseException:
                if not self.alive:
                    self._finish()
                raise
            finally:
                self._restarting = False
                if promise is not None:
                    promise.close()

    async def _reading(self) -> StreamReading:
        """Return how the stream is; one that has crashed is started again first.

        Raises:
            ProducerGone: It has ended.
            TsnbError: It does not answer.
        """
        while True:
            await self._settle()
            life = self._life
            if self.ended or life is None:
                raise _gone(self.name)
            try:
                return await asyncio.to_thread(observer.status, self.name)
            except (ProducerGone, ProducerNotFound):
                ended, _ = await asyncio.wait({life.child.death}, timeout=STOP_GRACE_S)
                if not ended:
                    raise

    async def _take_down(self) -> None:
        """End the kernel in good order; its consumers are told to wait for another."""
        life = self._life
        assert life is not None
        with contextlib.suppress(TsnbError):  # died meanwhile, or its loader is in the middle of a long step
            await asyncio.to_thread(observer.stop, self.name, STOP_GRACE_S, reconnect_s=RECONNECT_S)
            await asyncio.wait({life.child.death}, timeout=STOP_GRACE_S)
        await life.kill()

    async def _begin_one_of(
        self, new: ProducerLife | None, former: Shipment, epoch: int, former_options: StreamOptions
    ) -> None:
        if new is None:
            await self._begin(await self._prepare(former), epoch)
            return
        try:
            await self._begin(new, epoch)
        except (TsnbError, TypeError, ValueError) as error:
            self.options = former_options
            await self._begin(await self._prepare(former), epoch)
            raise type(error)(f"{error}\n\nThe loader that was served before is served again.") from None
        self._shipment = new.shipment
        former.discard()

    async def _end(self) -> None:
        for life in (self._life, self._next_life):
            if life is not None:
                await life.child.kill()
        self._finish()

    def _finish(self) -> None:
        """Note that it is over for good, and leave no file."""
        shipment, self._shipment = self._shipment, None
        promise, self._promise = self._promise, None
        if promise is not None:
            promise.close()
        if shipment is not None:
            shipment.discard()

    def _tell(self, text: str, stream: str = "stdout") -> None:
        """Say something under the cell that started it."""
        self._relay.say(f"{text}\n", stream)
        self._relay.flush()

    def __repr__(self) -> str:
        return f"<ProducerKernel {self.name!r} {f'pid {self.pid}' if self.alive else 'ended'}>"


def _check_changes(name: str, now: StreamOptions, wanted: StreamOptions) -> None:
    """Refuse to change options that need a new start.

    Raises:
        ValueError: Such an option differs from the current one.
    """
    for option in ("engine", "detach", "restart"):
        if getattr(now, option) != getattr(wanted, option):
            raise ValueError(
                f"{name!r} was started with {option}={getattr(now, option)!r}, which cannot be changed while it is "
                f"served: %tensorsocket stop {name}, and start it again."
            )


def _gone(name: str) -> ProducerGone:
    return ProducerGone(
        f"{name!r} has ended; serve its loader again: %tensorsocket start LOADER --name {name}"
    )


def _spare_those_inside(reading: StreamReading) -> None:
    """Refuse a restart that would end trials which may have run all day.

    Raises:
        TsnbError: Consumers are in the middle of an epoch; says which.
    """
    inside = [c.name for c in reading.consumers if c.state in INSIDE]
    if inside:
        raise TsnbError(
            f"{', '.join(inside)} would end: the order of {reading.name!r} cannot be given again, so nobody could go "
            "on in the middle of an epoch (--seed S at its start makes sure that it can). Stop them, or wait for the "
            f"end of their epoch; or end the stream with %tensorsocket stop {reading.name}."
        )
