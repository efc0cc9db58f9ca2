"""A consumer's connection to one producer: messages in and out, the batches it brought, and what its end means.

Sends from any thread (finalizers release batches); receives in the thread that iterates. A producer that is
started again is another connection (`waits.connect_to_successor`). This one stays until the last batch that came over
it has been let go of.

A process that was stopped (SIGSTOP, Ctrl-Z, a debugger's breakpoint) is alive: its socket stays open and its
pidfd silent, so a consumer would wait for it in silence. That is not an error, since the process may be resumed; the
user is told, once for each standstill.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tsnb.discovery import registry
from tsnb.discovery.promises import STANDING, is_promised
from tsnb.errors import (
    ConsumerReplaced,
    JoinRefused,
    NameInUse,
    ProducerGone,
    RemoteProtocolError,
    StopRequested,
    StreamStopped,
)
from tsnb.machine.processes import has_gone, is_ending, is_stopped, watch
from tsnb.stream.consumer.batches.device import device_access
from tsnb.stream.consumer.batches.unpacking import Unpacker
from tsnb.stream.consumer.counts import TAKE_ALL
from tsnb.stream.consumer.options import Options
from tsnb.stream.consumer.talking.standstill import Standstill
from tsnb.stream.memory.arena import Arena
from tsnb.stream.memory.scratch import ScratchPool
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.codec import EARLY_KINDS, decode, encode, release_packet
from tsnb.stream.protocol.extension import Extension
from tsnb.stream.protocol.forms import narrowed
from tsnb.stream.protocol.layout import Layout
from tsnb.stream.protocol.table import LayoutReader
from tsnb.stream.transport.channel import ChannelClosed, LocalChannel, Outbox
from tsnb.stream.transport.local import connect, is_path
from tsnb.text.words import sentence

__all__ = ["Connection", "Standstill"]

WELCOME_S = 10.0
"""How long a producer that is stopped is waited for to answer a Hello."""
BUSY_S = 60.0
"""How long one that is not. It answers from a thread of its own; but if a DataLoader's loop raised in that process, the
collector of cycles waits 5 s for each of its workers (torch 2.13), in whichever thread it happens to run."""
ENDING_S = 0.5
"""How long to wait for the end of a process that has closed its socket, where the system does not announce it."""
RETRY_S = 0.5
"""While it waits, a consumer looks this often whether it was closed by another thread, and sends what found no room."""

_TAKE_ALL = encode(TAKE_ALL)


class Connection:
    """One consumer's line to one producer.

    Args:
        entry: The producer.
        name: The consumer's name, or its group's.
        options: How it wants its batches.
        scratch: Where batches are copied to that must be.
        reader: What reads the slots.
        back: Whether it comes from a producer that has gone.
        paused: Whether it was paused there, and still is.
        extensions: What hears payloads that come over it, by name.

    Attributes:
        batches, ended: Loader batches that were taken over it, and epochs that were taken to their end.
        length: Loader batches of an epoch; None: the loader has no length.
        on_device: Knows which batches lie there.
        successor_s: How long to wait for another producer of the name once this one has gone; 0: not at all.
        said_goodbye: Whether it has said so itself: it was stopped, and has not crashed.
        comes_back: Whether somebody starts it again after each crash, as of when this connection was made.
        unpacker: Reads what the slots hold.

    Raises:
        ProducerGone: It died before it answered.
        NameInUse: A live consumer of that name is attached.
        JoinRefused: The stream does not take this consumer.
    """

    def __init__(
        self,
        entry: registry.Entry,
        name: str,
        options: Options,
        scratch: ScratchPool,
        reader: type[Unpacker] = Unpacker,
        *,
        back: bool = False,
        paused: bool = False,
        extensions: Mapping[str, Extension] | None = None,
    ) -> None:
        self.entry = entry
        self.extensions = extensions or {}
        self.notes: dict[str, Any] = {}
        self.batches = self.ended = 0
        self.on_device = device_access().share(options.shared_device, 0 if entry.elsewhere else entry.pid)
        self._unread: deque[bytes] = deque()
        self._inputs = options.inputs
        # before anything is open: a process that is out of descriptors fails here, and leaves none
        self.said_goodbye, self.comes_back = False, is_promised(entry.name, STANDING)
        self.layouts = LayoutReader()
        self.drawn: ms.Drawn | None = None
        """Which samples the batch holds that comes next."""
        self._retired = False
        self.idle = False
        """Whether it only waits: an interrupt of that loses nothing."""
        try:
            self.channel: LocalChannel = registry.reached(entry, connect)
        except ProducerGone:
            raise
        except ConnectionError:
            raise self._gone("has just ended") from None
        self._outbox = Outbox(self.channel)
        self._pid = os.getpid()
        self._own = entry.pid == self._pid and not entry.elsewhere
        # in another container the entry's number means somebody else here; the kernel's is right, or 0
        self._served_by = self.channel.peer.pid if entry.elsewhere else entry.pid
        # a child of the producer's process may keep its socket open past its death
        self._pidfd = -1 if self._own or not self._served_by else watch(self._served_by)
        self._standstill = Standstill(entry.name, self._served_by)
        self._poll = select.poll()
        self._poll.register(self.channel.fileno(), select.POLLIN)
        if self._pidfd >= 0:
            self._poll.register(self._pidfd, select.POLLIN)
        try:
            rotation, rotate, at_once = options.rotation or ("", 0, 0)
            self.post(
                ms.Hello(
                    "consumer",
                    name,
                    registry.describe_origin(),
                    token=entry.token,
                    on_lag=options.on_lag,
                    device=self.on_device.wish,
                    rank=options.rank,
                    world_size=options.world_size,
                    cut=options.cut,
                    back=back,
                    paused=paused,
                    part=options.part.words if options.part is not None else "",
                    rotation=rotation,
                    rotate=rotate,
                    at_once=at_once,
                )
            )
            self.welcome, self._arena = self._receive_welcome()
        except BaseException:
            self._close()
            raise
        self.successor_s, self.length = self.welcome.reconnect_s, self.welcome.epoch_batches
        self.unpacker = reader(self._arena, self.welcome.hold, scratch, self.release, self.on_device)
        self.unpacker.foreign = not self._own

    def _receive_welcome(self) -> tuple[ms.Welcome, Arena]:
        began_s = time.monotonic()
        while (waited_s := time.monotonic() - began_s) < BUSY_S:
            if waited_s >= WELCOME_S and is_stopped(self._served_by):
                break
            self.channel.wait(min(WELCOME_S, BUSY_S - waited_s))
            try:
                packet, fd = self.channel.receive_with_fd()
            except ChannelClosed:
                raise self._gone("has just ended") from None
            if packet is None:
                continue
            arena = None if fd is None else Arena(fd, sealed=not is_path(self.entry.address))
            with contextlib.ExitStack() as unless_welcome:
                if arena is not None:
                    unless_welcome.callback(arena.close)
                message = decode(packet)
                if isinstance(message, ms.Welcome) and arena is not None:
                    unless_welcome.pop_all()
                    return message, arena
            if isinstance(message, ms.Refused):
                raise (NameInUse if message.code == "name-in-use" else JoinRefused)(f"{message.reason}.")
            if isinstance(message, ms.Stopping):  # it was asked to stop in the moment that this consumer came
                raise self._gone("is being stopped")
            raise RemoteProtocolError(f"received a {type(message).__name__} instead of a welcome")
        raise ProducerGone(
            f"Stream {self.entry} did not answer within {waited_s:.0f} s. "
            f"{sentence(registry.why_silent(self._served_by))} Check it with `tsnb status {self.entry.name}`."
        )

    def post(self, message: ms.Message) -> None:
        """Send a message, or keep it until there is room. Called from any thread.

        To a producer that has gone, nothing is sent: the next `poll` or `wait` says how it went.
        """
        try:
            self._outbox.post(_TAKE_ALL if message is TAKE_ALL else encode(message))
        except ChannelClosed:
            pass

    key, role = 0, "producer"

    @property
    def name(self) -> str:
        """The stream's name."""
        return self.entry.name

    @property
    def pid(self) -> int:
        """The producer's process; 0: it cannot be seen from here."""
        return self._served_by

    def tell(self, extension: str, payload: bytes) -> None:
        """Send the producer's half of an extension a payload. Called from any thread."""
        self.post(ms.Extended(extension, payload))

    def poll(self) -> ms.Message | None:
        """Return the next message for the consumer, None when none has come.

        Raises:
            ProducerGone: The producer died or was stopped; everything it had sent has been read.
            StopRequested: This consumer was asked to stop.
        """
        self.idle = False
        while True:
            try:
                packet = self._unread.popleft() if self._unread else self.channel.receive()
            except ChannelClosed:
                raise self._ended() from None
            if packet is None:
                return None
            message = decode(packet)
            if type(message) is ms.Batch:
                if message.place is not None:
                    self.on_device.lies(message.lease, message.place)
                return message
            if self._note(message):
                continue
            if isinstance(message, ms.Stopping):
                self.successor_s, self.said_goodbye = message.reconnect_s, True
                raise self._gone("was stopped", ProducerGone if message.reconnect_s else StreamStopped)
            if isinstance(message, ms.Steered) and message.to == "stop":
                raise StopRequested(
                    f"A user asked this trial to stop reading stream {self.entry.name!r}, in the panel "
                    "or from another process."
                )
            return message

    def _note(self, message: ms.Message) -> bool:
        """Keep what only this connection needs to know; return whether it was that."""
        if isinstance(message, ms.LayoutTold):
            layout = Layout.decode(message.layout)
            self.layouts.learn(message.number, layout if self._inputs else narrowed(layout))
        elif isinstance(message, ms.Drawn):
            first = self.drawn
            if first is not None and first.lease == message.lease:  # it came in two
                message = ms.Drawn(message.lease, first.indices, message.weights)
            self.drawn = message
        elif isinstance(message, ms.Welcome):
            self.welcome = message
        elif isinstance(message, ms.Device):
            self._hear_of_device(message)
        elif isinstance(message, ms.Extended):
            if (extension := self.extensions.get(message.name)) is not None:
                extension.hear(self, message.payload)
        else:
            return False
        return True

    def look_ahead(self, *, pauses: bool = False) -> Iterator[ms.Message]:
        """Give what has to be heard before the batches that were sent earlier.

        Args:
            pauses: Whether that goes for a pause, too; the ranks of a group pause after the same batch.
        """
        try:  # not contextlib.suppress: this runs for every batch, and that is several calls
            while (packet := self.channel.receive()) is not None:
                if packet[1:2] not in EARLY_KINDS:
                    self._unread.append(packet)
                    continue
                message = decode(packet)
                if pauses and isinstance(message, ms.Steered) and message.to != "stop":
                    yield message
                    continue
                if isinstance(message, ms.Extended):
                    self._note(message)
                    continue
                self._unread.append(packet)
                if isinstance(message, ms.RankGone):
                    yield message
        except ChannelClosed:
            pass  # `poll` says so, when all that came before has been taken

    def has_ended(self) -> bool:
        """Return whether nothing more will come, though what has come may not have been read."""
        try:
            while (packet := self.channel.receive()) is not None:
                self._unread.append(packet)
        except ChannelClosed:
            for message in map(decode, self._unread):
                if isinstance(message, ms.Stopping):
                    self.successor_s, self.said_goodbye = message.reconnect_s, True
            return True
        return False

    def has_been_told(self, message: ms.Message) -> bool:
        """Return whether this message has come, and has yet to be read."""
        with contextlib.suppress(ChannelClosed):  # `poll` says so, when all that came before has been taken
            while (packet := self.channel.receive()) is not None:
                self._unread.append(packet)
        return encode(message) in self._unread

    def has_been_parked(self) -> bool:
        """Return whether the stream has said that it waits no more for this consumer, and that has yet to be read."""
        self.has_been_told(ms.Waiting())  # takes in all that has come
        return any(isinstance(decode(packet), ms.Parked) for packet in self._unread)

    @property
    def arrived(self) -> bool:
        """Whether something was sent that has not been read."""
        return bool(self._unread) or self.channel.wait(0)

    def _hear_of_device(self, message: ms.Device) -> None:
        if message.refusal:
            self.on_device.refuse(message.refusal)
        elif not self.on_device.open(message.handles):
            self.post(ms.Device(refusal=self.on_device.refusal[:500]))

    def wait(self, look: Callable[[float], None], *, polled: bool = False) -> ms.Message:
        """Wait for the next message.

        Args:
            look: Called now and then with the seconds waited so far.
            polled: Whether `poll` has just found none.

        Raises:
            ProducerGone: As `poll`; within a second of the producer's death.
            StopRequested: As `poll`.
        """
        began = time.monotonic()
        while True:
            message = None if polled else self.poll()
            polled = False
            if message is not None:
                return message
            try:
                self._outbox.flush()
            except ChannelClosed:
                pass
            if self._retired:
                raise self._gone("was detached")
            self.idle = True
            ready = self._poll.poll(RETRY_S * 1000)
            self.idle = False
            if len(ready) == 1 and ready[0][0] != self._pidfd:  # something has come, and no death
                continue
            if not ready:
                self._standstill.look(time.monotonic() - began)
                look(time.monotonic() - began)
            if self._has_died([fd for fd, _ in ready]) and (message := self.poll()) is None:
                raise self._gone("died")
            if message is not None:
                return message

    def _has_died(self, ready: list[int]) -> bool:
        """Whether the producer's process has gone, though its socket may be open; looked for, where nothing tells."""
        if self._pidfd >= 0:
            return self._pidfd in ready
        return not ready and not self._own and self._served_by > 0 and has_gone(self._served_by)

    def _ended(self) -> ProducerGone | ConsumerReplaced:
        """Return what the end of the line means: its death, that it would have no more of us, or a fork on our side."""
        if os.getpid() != self._pid:
            return ConsumerReplaced(
                f"This process (pid {os.getpid()}) was forked from the one that attached to "
                f"{self.entry.name!r} (pid {self._pid}), and has no connection. Batches that it "
                "already holds stay valid. Attach in this process with another name: tsnb.attach(NAME, "
                f'stream="{self.entry.name}").'
            )
        if self._own or not self._served_by or is_ending(self._served_by, within_s=ENDING_S):
            return self._gone("died")
        self.successor_s = 0.0
        return self._gone(
            "is running but closed this connection, which happens when a message breaks the protocol"
        )

    def _gone(self, how: str, kind: type[ProducerGone] = ProducerGone) -> ProducerGone:
        name = self.entry.name
        served = f'%tensorsocket start LOADER --name {name}, or tsnb.serve(..., name="{name}")'
        again = f"start it again ({served}) and attach again"
        if self.entry.origin == registry.RELAY:
            again = (
                "attach again, which starts another relay. If the stream itself has ended, serve it again "
                "first"
            )
        return kind(
            f"Stream {name!r} ({self.entry.origin}, {self.entry.whose_pid}) {how}. Batches you hold "
            f"stay valid. To continue, {again}."
        )

    def release(self, lease: int) -> None:
        """Give a batch back. Runs in finalizers: must not raise, block, or take a lock."""
        try:  # not contextlib.suppress: this runs for every batch, and that is several calls
            self._outbox.post(release_packet(lease))
        except Exception:  # noqa: BLE001, S110  # the producer has gone, or the interpreter is going
            pass
        if self._retired:
            with contextlib.suppress(Exception):
                self._close_when_idle()

    def retire(self) -> None:
        """End it, and a `wait` in another thread; batches that are still held keep it open until they go."""
        self._retired = True
        self._close_when_idle()

    def _close_when_idle(self) -> None:
        """Close the line once nothing of the arena is held: until then its slots must stay ours."""
        if not self.unpacker.held:
            self.unpacker.pinned.close()
            self._close()
            self._arena.close()

    def _close(self) -> None:
        """Close the line. The arena's memory stays for views that are still held."""
        self.on_device.close()  # first: the producer takes the end of the line for the end of our kernels
        self.channel.close()
        # taken before it is closed: two finalizers may come here at once
        pidfd, self._pidfd = self._pidfd, -1
        if pidfd >= 0:
            os.close(pidfd)
