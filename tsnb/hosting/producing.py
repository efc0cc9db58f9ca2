"""One stream served from background kernels, through as many lives as it takes.

| what happens | what follows |
|---|---|
| `stop`, or `tsnb stop` in a terminal | it has ended, also in the middle of a start or a change |
| `restart` | the goodbye tells consumers to wait; a new kernel serves the same loader, or a new one |
| its process dies, with `restart="on-crash"` | a new kernel serves the same loader; see `crashes` |
| its process dies otherwise | it has ended |

The variables that a kernel was started from are kept in the hub's directory until the stream has ended: a new kernel
must begin with those of the first one, not with what the notebook's variables have become since.

A start, a change and a return after a crash come one at a time. A stop waits for none of them: it ends the kernels, and
what was under way clears away.

Everything here except `stop`, `restart` and the properties runs on the hub's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from typing import Any

from tsnb.discovery.promises import AGAIN, FIRST, STANDING, Promise
from tsnb.errors import ProducerGone, ProducerNotFound, TsnbError
from tsnb.hosting.crashes import Crashes, Following
from tsnb.hosting.life import STOP_GRACE_S, ProducerLife
from tsnb.hosting.refusals import check_changes, gone, spare_those_inside
from tsnb.hosting.served import Shipment
from tsnb.kernels.hub import Hub
from tsnb.kernels.output.outlets import Outlet
from tsnb.kernels.output.relay import Relay
from tsnb.kernels.processes.death import KernelDied
from tsnb.native.endings import Bound
from tsnb.options import StreamOptions
from tsnb.telemetry import observer
from tsnb.telemetry.readings import StreamReading

__all__ = ["ProducerKernel"]

LOOK_S = 0.05
"""How often it is looked whether a stream is back."""


class _JustDied(Exception):
    """The process has died meanwhile: its guard knows what follows."""


class ProducerKernel(Bound):
    """A loader served from a background kernel.

    Attributes:
        name: The stream's name.
        options: How it is served.
        asked: How it was asked to be: its pacing may have been changed since.
        started_s: Seconds since 1970.
        restarts: How often it was started again, asked for or not.
    """

    _instead = "Send the name of the stream instead: other processes attach by it."

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
        self._restarting: asyncio.Task[Any] | None = None  # the change that has begun to take the stream down
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
            raise gone(self.name)
        return self._shipment

    def settled(self) -> bool:
        """Wait while it is being started, changed or stopped; return whether it is served."""
        self._hub.call(self._settle())
        return self.alive

    async def _settle(self) -> None:
        while not self.ended and (self._leaving or not self.alive or self._one_at_a_time.locked()):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)  # a process may die at any moment

    @property
    def _leaving(self) -> bool:
        """Whether its end has begun, by whomever it was asked for."""
        return self._stopping or (self._life is not None and self._life.leaving and self._restarting is None)

    def serves(self, obj: Any) -> bool:
        """Whether it serves a copy of this very object of the notebook, now."""
        return self._shipment is not None and obj is not None and self._shipment.original() is obj

    def logs(self) -> str:
        """Return what its kernels printed (the last million characters)."""
        return self._relay.record

    def stop(self) -> None:
        """Stop the stream and end its kernel; its consumers get `ProducerGone`. An interrupt lets it go on."""
        self._hub.call(self._to_its_end(self._end()))

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
        self._hub.call(self._exchange(shipment, options))

    async def start(self, shipment: Shipment) -> None:
        """Bring up the kernel and the stream; on failure leave no kernel behind.

        Raises:
            ProducerGone: It was stopped meanwhile.
            TsnbError: Whatever went wrong, in the class it has in the kernel where it is one of ours.
        """
        self._shipment = shipment
        notebooks = shipment.arrival["notebook_seed"]
        self._spare_seed = self._spare_seed if notebooks is None else notebooks
        async with self._one_at_a_time:
            try:
                with self._unless_stopped("started"):
                    self._promise = Promise(self.name, FIRST)
                    await self._begin(await self._prepare(shipment), 0)
                self._withdraw(Promise(self.name, STANDING) if self.options.restart else None)
            except BaseException:
                self._finish()
                raise

    @contextlib.contextmanager
    def _unless_stopped(self, doing: str) -> Iterator[None]:
        """Say of whatever fails because the stream was stopped meanwhile that it was."""
        try:
            yield
        except TsnbError as error:
            if not self._stopping or isinstance(error, ProducerGone):
                raise
            raise ProducerGone(
                f"{self.name!r} was stopped while it was being {doing}, and is not served. Start it again: "
                f"%tensorsocket start LOADER --name {self.name}"
            ) from None

    def _withdraw(self, by: Promise | None = None) -> None:
        """Take back the word that it will be served, or put another one in its place."""
        former, self._promise = self._promise, by
        if former is not None:
            former.close()

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
        if life.leaving:  # another process has stopped it before its first batch
            self._stopping = True
            await asyncio.wait({life.child.death}, timeout=STOP_GRACE_S)
            await life.kill()
            raise KernelDied("it was stopped")
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
        if self._restarting is not None or self._stopping or self._hub.closing:
            return
        if not death.code:
            self._tell(f"Stream {self.name!r} was stopped.")
        elif self.options.restart:
            async with self._one_at_a_time:
                if self._life is life and self._shipment is not None:
                    await self._recover(self._shipment, str(death))
            return
        else:
            self._tell(f"Stream {self.name!r} has ended: {death}", "stderr")
        self._finish()

    async def _recover(self, shipment: Shipment, cause: str) -> None:
        """Start it again after a crash, unless it crashes in a row."""
        reached = self._following.position
        while self._crashes.allow_another(time.monotonic(), reached):
            self.options = replace(self.options, **self._following.options)  # divided as it was at the last
            epoch = self._crashes.position.epoch
            where = f"in pass {epoch + 1}"
            self._tell(f"Stream {self.name!r} crashed: {cause}\nIt is started again {where}.", "stderr")
            try:
                await self._begin(await self._prepare(shipment), epoch)
            except KernelDied as error:
                if self._stopping or self._hub.closing:
                    self._finish()
                    return
                cause = str(error)
            except (TsnbError, TypeError, ValueError) as error:
                self._tell(f"Stream {self.name!r} could not be started again: {error}", "stderr")
                self._finish()
                return
            else:
                self.restarts += 1
                self._tell(f"Stream {self.name!r} is running again (pid {self.pid}), {where}.")
                return
        self._tell(
            f"Stream {self.name!r} has ended: {cause}\n"
            f"It is not started again: {self._crashes.reason}. See its output with %tensorsocket logs "
            f"{self.name}.",
            "stderr",
        )
        self._finish()

    async def _exchange(self, wanted: Shipment | None, options: StreamOptions | None) -> None:
        """Do `_again`; once the stream was taken down, it is served again whatever happens to the caller."""
        task = self._hub.loop.create_task(self._again_or_as_before(wanted, options))
        self._guards.add(task)
        task.add_done_callback(self._guards.discard)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._restarting is task:
                task.add_done_callback(self._tell_how)
            else:
                task.cancel()
                await asyncio.wait({task})
            raise

    def _tell_how(self, task: asyncio.Task[None]) -> None:
        """Say how a change has ended that nobody waits for any more."""
        error = None if task.cancelled() else task.exception()
        if error is None:
            self._tell(f"Stream {self.name!r} is served again (pid {self.pid}).")
        elif not self._stopping:
            what = "is served as before" if self.alive else "could not be started again"
            self._tell(f"Stream {self.name!r} {what}: {error}", "stderr")

    async def _again_or_as_before(self, wanted: Shipment | None, options: StreamOptions | None) -> None:
        try:
            if options is not None:
                check_changes(self.name, self.asked, options)
            with self._unless_stopped("changed"):
                await self._again(wanted, options)
        finally:
            if wanted is not None and self._shipment is not wanted:
                wanted.discard()

    async def _again(self, wanted: Shipment | None, options: StreamOptions | None) -> None:
        """Wait until the stream is served and nobody else changes it; then change it."""
        while True:
            await self._settle()
            async with self._one_at_a_time:
                with contextlib.suppress(_JustDied):
                    return await self._change(wanted, options)

    async def _change(self, wanted: Shipment | None, options: StreamOptions | None) -> None:
        reading, new = await self._reading(), None
        former, former_options = self.shipment, self.options
        if wanted is None and not self.order:
            spare_those_inside(reading)
        former_options = replace(former_options, pacing=reading.pacing, weights=reading.weights)
        self.options = options or former_options
        # a new loader is tried first; the same one is not, since two copies may be more than memory has
        try:
            if wanted is not None:
                new = await self._prepare(wanted, prove=True)
                reading = await self._reading()  # it went on meanwhile, or was stopped
        except BaseException:
            self.options = former_options
            if new is not None:
                await new.kill()
            raise
        self._restarting = asyncio.current_task()
        promise = None
        try:
            promise = Promise(self.name, AGAIN)
            await self._take_down()
            await self._begin_one_of(new, former, reading.epoch, former_options)
            self.restarts += 1
            self.asked = options or self.asked
        except BaseException:
            if not self.alive:
                self._finish()
            raise
        finally:
            self._restarting = None
            if promise is not None:
                promise.close()

    async def _reading(self) -> StreamReading:
        """Return how the stream is.

        Raises:
            ProducerGone: It has ended.
            _JustDied: Its process has died.
            TsnbError: It does not answer.
        """
        life = self._life
        if self.ended or self._leaving or life is None:
            raise gone(self.name)
        try:
            return await asyncio.to_thread(observer.status, self.name)
        except (ProducerGone, ProducerNotFound):
            ended, _ = await asyncio.wait({life.child.death}, timeout=STOP_GRACE_S)
            if not ended:
                raise
            raise _JustDied from None

    async def _take_down(self) -> None:
        """End the kernel in good order; its consumers are told to wait for another.

        Raises:
            KernelDied: Somebody else has stopped the stream meanwhile.
        """
        assert self._life is not None
        if await self._life.end_for_now():
            self._stopping = True
            raise KernelDied("it was stopped")

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
            raise type(error)(f"{error}\n\nThe previous loader is served again.") from None
        self._shipment = new.shipment
        former.discard()

    async def _to_its_end(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what goes on though nobody waits for it any more."""
        task = self._hub.loop.create_task(work)
        self._guards.add(task)
        task.add_done_callback(self._guards.discard)
        await asyncio.shield(task)

    async def _end(self) -> None:
        self._stopping = True
        self._withdraw()  # who waits for it is told now
        await self._kill()
        async with self._one_at_a_time:  # what was under way has failed by then
            await self._kill()
            self._finish()

    async def _kill(self) -> None:
        lives = [life for life in (self._life, self._next_life) if life is not None]
        await asyncio.gather(*(life.child.kill() for life in lives))

    def _finish(self) -> None:
        """Note that it is over for good, and leave no file."""
        shipment, self._shipment = self._shipment, None
        self._withdraw()
        if shipment is not None:
            shipment.discard()

    def _tell(self, text: str, stream: str = "stdout") -> None:
        """Say something under the cell that started it."""
        self._relay.say(f"{text}\n", stream)
        self._relay.flush()

    def __repr__(self) -> str:
        return f"<ProducerKernel {self.name!r} {f'pid {self.pid}' if self.alive else 'ended'}>"
