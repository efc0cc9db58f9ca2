"""The serving thread: takes connections and messages, and turns them into events.

It sleeps while nothing happens, except for a check every two seconds that the producer can still be found; with
consumers it looks at the clock once a second (stall timeout), with observers four times a second (readings).
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import select
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from tsnb.config import explained, private_directory
from tsnb.errors import RemoteProtocolError, TsnbError
from tsnb.machine.processes import has_gone, has_told, watch
from tsnb.stream.decisions import events as ev
from tsnb.stream.producer.core import Core
from tsnb.stream.producer.guard import ACCEPTS, OF_EACH_BATCH, Guard, hear_consumer, hear_observer
from tsnb.stream.producer.session import Session
from tsnb.stream.producer.steering import Contention
from tsnb.stream.producer.welcoming import welcome
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.codec import encode
from tsnb.stream.protocol.extension import READINGS
from tsnb.stream.transport.channel import Channel, ChannelClosed
from tsnb.stream.transport.local import is_path, listen
from tsnb.stream.transport.sockets import OutOfDescriptors

__all__ = ["Server"]

READING_S = 0.25
TICK_S = 1.0
ENTRY_S = 2.0
"""How often it looks whether its entry is there: one system call."""
LATE_S = 2.0
"""A tick that comes so much too late means that the whole process stood still."""
GOODBYE_S = 1.0
"""How long a stopping producer waits for its last messages to be taken."""

_NO_DESCRIPTOR = ms.Refused(
    "full",
    "The process of the stream has reached its limit of open files. Raise the limit (`ulimit -n`) and "
    "start it again, or detach other trials first",
)

_log = logging.getLogger("tsnb")


def _nothing() -> None:
    """Stands in where there is no entry to look for."""


class Server(threading.Thread):
    """Serves one producer's connections until the core stops.

    Args:
        core: The producer's shared state.
        address: Socket address to listen at; taken before the thread starts.
        token: What each connection has to say first.

    Attributes:
        look_for_entry: Called every two seconds: sees to it that the producer can be found.
    """

    def __init__(self, core: Core, address: str, token: str) -> None:
        super().__init__(name=f"tsnb-serve-{core.settings.name}", daemon=True)
        self._core = core
        self._guard = Guard(core, token)
        self._address = address
        self.look_for_entry: Callable[[], object] = _nothing
        self._next_entry_s = 0.0
        self._resting = False  # the listener, while no descriptor is left for another connection
        self._listener = listen(address)
        self._poll = select.poll()
        try:
            with explained("wait for trials"):
                self._wake, self._waking = os.pipe()
        except BaseException:
            self._listener.close()
            raise
        self._pidfds: dict[int, int] = {}  # descriptor of a consumer's process -> its session's key
        self._unwatched: dict[int, int] = {}  # session's key -> a consumer's process, without a pidfd
        self._full: set[int] = set()  # sessions that wait for room to send
        self._late: set[int] = set()  # those, and sessions whose other end has gone
        self._observers: dict[int, Session] = {}
        self._next_reading_s = 0.0
        self._next_tick_s = 0.0
        self._due_s = 0.0  # when something was due last
        self._told_news = 0  # how many observers were told of
        self._contention = Contention()
        core.alarm = self.wake
        for fd in (self._wake, self._waking):
            os.set_blocking(fd, False)
        for fd in (self._listener.fileno(), self._wake):
            self._poll.register(fd, select.POLLIN)

    def wake(self) -> None:
        """Let the thread look around now. Called from any thread."""
        try:  # not contextlib.suppress: this may run for every batch, and that is several calls
            os.write(self._waking, b"!")
        except OSError:  # full: it is awake; or closed
            pass

    def run(self) -> None:
        """Serve until the core stops, then say goodbye and close everything."""
        try:
            while not self._core.stopping:
                stall_timeout_s = self._stall_timeout_s()
                ready = self._poll.poll(math.ceil(stall_timeout_s * 1000))
                self._core.looks_s = -math.inf
                for fd, _ in ready:
                    self._look_at(fd)
                self._on_time()
            self._say_goodbye()
        except Exception:
            self._core.crashed(traceback.format_exc())
            raise
        finally:
            self.close()

    def _stall_timeout_s(self) -> float:
        """Return how long nothing needs to be looked at; what becomes due before that wakes this thread.

        While the window is full, when to look at the slowest consumer changes with each batch. So this thread sleeps no
        longer than until it was due before: then it need not be woken for each of them.
        """
        core, now = self._core, time.monotonic()
        core.looks_s = math.inf  # first: what another thread makes due after the look below wakes this one
        until_s = now + (TICK_S if core.sessions or self._resting or core.cooling else ENTRY_S)
        if self._observers:
            until_s = min(until_s, self._next_reading_s)
        if (due_s := core.dispatch.due_s) is not None:
            self._due_s = due_s
        if due_s is not None or self._due_s > now:
            until_s = min(until_s, self._due_s)
        core.looks_s = until_s
        return max(0.0, until_s - now)

    def _look_at(self, fd: int) -> None:
        if (session := self._core.sessions.get(fd)) is not None:
            self._pump(session)
        elif fd == self._wake:
            os.read(fd, 4096)
        elif fd == self._listener.fileno():
            self._accept()
        elif fd in self._pidfds:
            if not has_told(fd):
                return  # told of one that had this number before, and was closed on the way here
            session = self._core.sessions.get(self._pidfds[fd])
            self._poll.unregister(fd)
            if session is not None and self._pump(session):
                self._drop(session)  # its process has gone, though a child of it keeps the socket open

    def _accept(self) -> None:
        """Take the connections that wait, a few at a time."""
        for _ in range(ACCEPTS):
            try:
                channel = self._listener.accept()
            except PermissionError:
                self._guard.refuse()
            except OutOfDescriptors:
                if not self._listener.turn_away(encode(_NO_DESCRIPTOR)):
                    self._rest_listener(True)
                    break
            else:
                if channel is None:
                    break
                self._welcome(channel)
        self._show_out()

    def _rest_listener(self, rest: bool) -> None:
        """Stop looking at the listener for a moment: what waits there would wake this thread for nothing."""
        self._resting = rest
        self._poll.modify(self._listener.fileno(), 0 if rest else select.POLLIN)

    def _show_out(self) -> None:
        """Drop connections that do not introduce themselves."""
        for session in self._guard.overdue():
            if self._pump(session) and not session.role:
                self._guard.refuse()
                self._drop(session)

    def _welcome(self, channel: Channel) -> None:
        """Keep a new connection; it has no role until its Hello came."""
        key = channel.fileno()
        with self._core.lock:
            session = self._core.sessions[key] = Session(key, channel, late=self._late)
        self._guard.enter(session)
        self._poll.register(key, select.POLLIN)

    def _pump(self, session: Session) -> bool:
        """Take in a connection's messages; return whether it is still there."""
        try:
            if session.key in self._late and len(session.outbox):
                with self._core.lock:
                    session.flush()  # should it have gone, there may be a goodbye to read
            for message in self._guard.messages(session):
                if not self._take(session, message):
                    self._drop(session)
                    return False
        except ChannelClosed:
            self._drop(session)
            return False
        except RemoteProtocolError:
            # a peer that does not keep to the protocol is dropped: it cannot hold or harm the others
            return self._show_the_door(session)
        except Exception:  # noqa: BLE001  # what it said got further than it should have: a fault of ours, and its end alone
            _log.exception("a connection to %r was closed because of a message", self._core.settings.name)
            return self._show_the_door(session)
        return True

    def _show_the_door(self, session: Session) -> bool:
        self._guard.refuse()
        self._drop(session)
        return False

    def _take(self, session: Session, message: ms.Message) -> bool:
        """Act on one message; return whether the connection goes on."""
        if type(message) in OF_EACH_BATCH and session.role in ("consumer", "leaving"):
            self._core.step(ev.Heard(session.key, message))
        elif session.role in ("consumer", "leaving"):
            if isinstance(message, ms.Bye):
                self._show_last(session)
            hear_consumer(self._core, session, message)
        elif session.role:
            hear_observer(self._core, session, message)
        else:
            return self._greet(session, self._guard.vetted(message))
        return True

    # -- coming and going --------------------------------------------------------------------------------

    def _greet(self, session: Session, hello: ms.Hello) -> bool:
        refusal = self._refusal(hello)
        with self._core.lock:
            if refusal is not None:
                session.send(refusal)
                return False
            session.role, session.name, session.origin = hello.role, hello.shown_name, hello.origin
            session.part = hello.part
            session.tells_rows = bool(hello.part) or self._core.growth is not None
            if hello.role == "observer":
                self._observers[session.key] = session
                session.send(welcome(self._core))
                self._next_reading_s = 0.0
                return True
            session.channel.send(encode(welcome(self._core)), self._core.arena.fd)
            if session.channel.pending:
                self._late.add(session.key)
            self._core.step(ev.Heard(session.key, hello))
            self._core.devices.wish(session.key, hello.device)
        self._watch_process(session)
        return True

    def _refusal(self, hello: ms.Hello) -> ms.Refused | None:
        refusal = self._guard.refusal(hello)
        if refusal is not None or hello.role == "observer":
            return refusal
        name = hello.shown_name
        holder = self._holder(name)
        if holder is not None:
            ranks = (
                ""
                if hello.world_size < 2
                else "Ranks of one job need different numbers: check rank=. For another job: "
            )
            return ms.Refused(
                "name-in-use",
                f"A trial named {name!r} is already attached to {self._core.settings.name!r}: "
                f"{holder.origin}, pid {holder.channel.peer.pid}. {ranks}Attach with another name, or "
                "stop that trial",
            )
        return self._guard.full() or self._guard.misfit(hello)

    def _holder(self, name: str) -> Session | None:
        """Return the live consumer of that name; drop one whose process has just gone."""
        for session in list(self._core.sessions.values()):
            if session.role == "consumer" and session.name == name and self._pump(session):
                return session
        return None

    def _watch_process(self, session: Session) -> None:
        """Notice the consumer's death even if a child of it keeps its socket open."""
        pid = session.channel.peer.pid
        if pid in (os.getpid(), 0):
            return
        pidfd = watch(pid)
        if pidfd < 0:
            self._unwatched[session.key] = pid
            return
        self._pidfds[pidfd] = session.key
        self._poll.register(pidfd, select.POLLIN)

    def _look_for_processes(self) -> None:
        """Drop the consumers whose process has gone, where the system does not report that."""
        for key, pid in list(self._unwatched.items()):
            session = self._core.sessions.get(key)
            if has_gone(pid) and session is not None and self._pump(session):
                self._drop(session)

    def _show_last(self, session: Session) -> None:
        """Let observers have the counters and numbers of a consumer that is about to go: the last that it comes to."""
        if session.role == "consumer":
            with self._core.lock:
                self._send_readings([o for o in self._observers.values() if not len(o.outbox)])

    def _drop(self, session: Session) -> None:
        self._show_last(session)
        if session.role == "consumer" and session.key in self._core.dispatch.members:
            self._core.note_left(session)  # it was killed, or does not keep to the protocol
        with self._core.lock:
            if session.key not in self._core.sessions:
                return
            if session.role in ("consumer", "leaving"):
                self._core.step(ev.Left(session.key))
            del self._core.sessions[session.key]
            self._observers.pop(session.key, None)
            self._late.discard(session.key)
        self._guard.leave(session)
        for pidfd in [fd for fd, key in self._pidfds.items() if key == session.key]:
            del self._pidfds[pidfd]
            self._forget(pidfd)
            os.close(pidfd)
        self._unwatched.pop(session.key, None)
        self._full.discard(session.key)
        self._forget(session.key)
        session.channel.close()

    def _forget(self, fd: int) -> None:
        """Poll a descriptor no more that is about to be closed: another one may have its number soon."""
        with contextlib.suppress(KeyError):  # where it was the one that told, it is out already
            self._poll.unregister(fd)

    # -- on time -----------------------------------------------------------------------------------------

    def _on_time(self) -> None:
        now, core = time.monotonic(), self._core
        if now >= self._next_tick_s:
            # `_stall_timeout_s` lets no second pass without a tick while somebody is attached
            late_s = now - self._next_tick_s if self._next_tick_s and core.sessions else 0.0
            self._next_tick_s = now + TICK_S
            core.step(ev.Tick(late_s if late_s > LATE_S else 0.0))
            self._contention.watch(core)
            for extension in core.extensions.values():
                extension.tick(now)
            core.look_at_lag()
            core.cool()
            self._show_out()
            self._look_for_processes()
            if self._resting:
                self._rest_listener(False)
        elif (due_s := core.dispatch.due_s) is not None and now >= due_s:
            core.step(ev.Tick())
        if now >= self._next_entry_s:
            self._next_entry_s = now + ENTRY_S
            self._stay_to_be_found()
        if self._late or self._full or self._observers:
            self._send_late(now)

    def _stay_to_be_found(self) -> None:
        """Put the registry's entry back, and the socket where that is a file: cleaners and logouts remove both."""
        try:
            self.look_for_entry()
            if is_path(self._address) and not os.path.lexists(self._address):
                private_directory(Path(self._address).parent)
                self._poll.unregister(self._listener.fileno())
                self._listener.close()
                self._listener = listen(self._address)
                self._poll.register(self._listener.fileno(), select.POLLIN)
        except (OSError, TsnbError) as error:  # the next look may find room, or the directory above
            _log.debug("%s cannot be entered again: %s", self._core.settings.name, error)

    def _send_late(self, now: float) -> None:
        """Send what waited for room, and the readings that are due."""
        core = self._core
        if self._late or self._full:
            self._send_waiting()
        # an end is told at once: its stream may be the next to end
        if not self._observers or (now < self._next_reading_s and core.news == self._told_news):
            return
        with core.lock:
            self._next_reading_s = now + READING_S
            self._send_readings([o for o in self._observers.values() if not len(o.outbox)])
            self._told_news = core.news

    def _send_waiting(self) -> None:
        """Send what waited for room; drop the connections whose other end has gone."""
        core = self._core
        with core.lock:  # the loading thread adds to them
            stuck = [session for key in self._late if (session := core.sessions.get(key)) is not None]
        for session in stuck:
            if session.broken and self._pump(session):
                self._drop(session)
        with core.lock:
            for session in stuck:
                session.flush()
                if not (session.broken or len(session.outbox)):
                    self._late.discard(session.key)
            full = [s.key for s in stuck if s.key in core.sessions and len(s.outbox)]
        self._wait_for_room(full)

    def _send_readings(self, observers: list[Session]) -> None:
        """Send a reading to observers that keep up: others miss readings, but not the newest. Called under the lock."""
        texts: dict[int, tuple[str, int]] = {}
        for since in {observer.knows_news for observer in observers}:
            texts[since] = self._core.read(since), self._core.news  # to read may make news
        for observer in observers:
            text, observer.knows_news = texts[observer.knows_news]
            observer.tell(READINGS, text.encode("utf-8", "replace"))

    def _wait_for_room(self, keys: list[int]) -> None:
        """Be woken when these connections have room, and no others: a stream takes a large packet in many parts."""
        for key in self._full.symmetric_difference(keys):
            self._poll.modify(key, select.POLLIN if key in self._full else select.POLLIN | select.POLLOUT)
        self._full = set(keys)

    def _say_goodbye(self) -> None:
        core, deadline = self._core, time.monotonic() + GOODBYE_S
        with core.lock:
            # what has come since the last one: trials often end just before their stream
            self._send_readings(list(self._observers.values()))
            for session in core.sessions.values():
                session.send(ms.Stopping(core.farewell, core.successor_s))
        while time.monotonic() < deadline:
            with core.lock:
                if all(s.broken or s.flush() for s in core.sessions.values()):
                    return
            time.sleep(0.01)

    def close(self) -> None:
        """Close every connection. Called by the thread at its end, or instead of starting it."""
        self._listener.close()
        for session in list(self._core.sessions.values()):
            self._drop(session)
        wake, waking, self._wake, self._waking = self._wake, self._waking, -1, -1
        for fd in (waking, wake):
            if fd >= 0:
                os.close(fd)
