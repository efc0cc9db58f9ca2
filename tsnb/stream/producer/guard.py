"""The producer's door: what a connection may cost, and when it is shown out.

A process that connects is the same user's, but it may be broken, of another version, or hostile. Each connection
has an *allowance* of packets: it earns some with every packet it is sent and with time, and pays for those it sends.
One that keeps to the protocol never comes near the end of it. Used by the serving thread only.

`hear_consumer` and `hear_observer` turn a message into an event, once its connection has introduced itself.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import structs

from tsnb.config import MAX_CONSUMERS, check_name
from tsnb.errors import RemoteProtocolError
from tsnb.stream.decisions import events as ev
from tsnb.stream.decisions.pacing.contract import LOOKAHEAD
from tsnb.stream.producer.core import HOLD, Core
from tsnb.stream.producer.session import Session
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.codec import decode
from tsnb.stream.protocol.extension import Extension, Undoable
from tsnb.text.printable import one_line

__all__ = ["ACCEPTS", "OF_EACH_BATCH", "Guard", "hear_consumer", "hear_observer"]

ACCEPTS = 32
"""Connections taken before those that are there already have their turn."""
LOOK = 64
"""What one connection may spend in one turn: enough for all that a consumer sends in a few batches."""
BURST = 2000
"""What an allowance holds at most: a loop that is left and begun a hundred times at once stays far below."""
EARNED_A_PACKET = 8
"""Earned with each packet sent to it. A batch is answered by three: waiting, taken, released."""
EARNED_A_SECOND = 100
BYTES_A_POINT = 4096
"""A packet costs one, and one more for each of these: a few large ones are as much work as many small ones."""
HELLO_S = 5.0
"""Ours say Hello with the connect; a machine that swaps may take its time."""
MAX_STRANGERS = 64
MAX_OBSERVERS = 64
"""A panel has one for each stream that it shows."""
UNREAD_BYTES = 1 << 20
"""A consumer that does not read has been sent two batches, their layouts and perhaps a traceback of 100 kB."""
MAX_PINNED = 4 * (HOLD + LOOKAHEAD)
"""Our consumer copies past `HOLD` and releases at once. One that does not would use up slots of the others, too."""
MAX_LEASES = 4096
"""Each loop that is begun leases the same first batches once more, until the line has been read."""
MAX_POSITION = 1 << 31
"""Epochs are numbered on from the one asked for: past what a message can carry, no consumer could be served again. So
nobody asks for one past this but for the stream's next one, and there are as many again before a message is full."""
MAX_ORIGIN = 200


@dataclass
class _Visit:
    """The guard's notes on one connection, beside its session."""

    since_s: float
    settled_s: float
    """When its allowance was last reckoned up."""
    posted: int = 0
    """Packets it had been sent then."""
    left: float = BURST

    def spend(self, points: int, posted: int, now: float) -> bool:
        """Pay for a turn; return whether the allowance covers it."""
        earned = EARNED_A_PACKET * (posted - self.posted) + EARNED_A_SECOND * (now - self.settled_s)
        self.left = min(BURST, self.left + earned) - points
        self.posted, self.settled_s = posted, now
        return self.left >= 0


class Guard:
    """Keeps one producer's door.

    Args:
        core: Counts the connections that are shown out.
        token: What each connection has to say first: it stands in the producer's entry, which only this user can read.
    """

    def __init__(self, core: Core, token: str) -> None:
        self._core = core
        self._token = token.encode()
        self._visits: dict[int, _Visit] = {}

    def enter(self, session: Session) -> None:
        """Begin to watch a new connection."""
        now = time.monotonic()
        session.outbox.limit_bytes = UNREAD_BYTES
        self._visits[session.key] = _Visit(now, now)

    def leave(self, session: Session) -> None:
        """Forget a connection that has ended, for whatever reason."""
        self._visits.pop(session.key, None)
        if session.outbox.overflowed:
            self.refuse()

    def refuse(self) -> None:
        """Count a connection that broke the protocol."""
        self._core.count_refused()

    def messages(self, session: Session) -> Iterator[ms.Message]:
        """Give the messages that a connection has sent, at most a turn's worth; the rest comes in its next turn.

        Raises:
            ChannelClosed: It has gone, and nothing of it is left.
            RemoteProtocolError: It sends more than the protocol can need, releases nothing, or means nonsense.
        """
        visit, spent = self._visits[session.key], 0
        while spent < LOOK and (packet := session.channel.receive()) is not None:
            message = decode(packet)
            a_point = BYTES_A_POINT
            if isinstance(message, ms.Extended) and message.name in self._core.extensions:
                a_point = self._core.extensions[message.name].bytes_a_point
            spent += 1 + len(packet) // a_point
            if isinstance(message, ms.Ask) and max(message.epoch, message.seq) > MAX_POSITION:
                self._require_next(message)
            yield message
        if spent and not visit.spend(spent, session.outbox.posted, time.monotonic()):
            raise RemoteProtocolError("far more packets than the protocol can need")
        if spent and self._hoards(session):
            raise RemoteProtocolError("batches are taken and never released")

    def _require_next(self, ask: ms.Ask) -> None:
        """Raise unless what is asked for, far on, is the epoch that comes next."""
        if ask.seq > MAX_POSITION or ask.epoch > self._core.dispatch.admission.next_epoch:
            raise RemoteProtocolError(f"an epoch or a batch that no stream reaches: {ask.epoch}, {ask.seq}")

    def _hoards(self, session: Session) -> bool:
        member = self._core.dispatch.members.get(session.key)
        if member is None or len(member.leases) <= MAX_PINNED:
            return False
        with self._core.lock:
            return len(member.leases) > MAX_LEASES or len(set(member.leases.values())) > MAX_PINNED

    def vetted(self, message: ms.Message) -> ms.Hello:
        """Return a connection's first message, made fit to be shown to others.

        Raises:
            RemoteProtocolError: It is not a Hello, or one that no version of tsnb would send.
        """
        if not isinstance(message, ms.Hello):
            raise RemoteProtocolError(f"{type(message).__name__} instead of a Hello")
        if message.protocol == ms.PROTOCOL:
            if message.role not in ("consumer", "observer"):
                raise RemoteProtocolError(f"a role {message.role!r:.80}")
            try:
                check_name(message.name, message.role)
            except ValueError as error:
                raise RemoteProtocolError(str(error)[:200]) from None
            if len(message.device) > MAX_ORIGIN:
                raise RemoteProtocolError(f"a device's name of {len(message.device)} letters")
            if not 0 <= message.rank < message.world_size or len(message.cut) > MAX_ORIGIN:
                raise RemoteProtocolError(f"rank {message.rank} of {message.world_size}: {message.cut!r:.80}")
            if len(message.part) > MAX_ORIGIN:
                raise RemoteProtocolError(f"a part in {len(message.part)} letters")
            turns = message.rotation and min(message.rotate, message.at_once) < 1
            if (
                turns
                or len(message.rotation) > MAX_ORIGIN
                or max(message.rotate, message.at_once) > MAX_POSITION
            ):
                raise RemoteProtocolError(f"{message.at_once} turns of {message.rotate} batches")
        return structs.replace(message, origin=one_line(message.origin, MAX_ORIGIN))

    def refusal(self, hello: ms.Hello) -> ms.Refused | None:
        """Return why this connection cannot be taken: its protocol, its token, or one observer too many."""
        if hello.protocol != ms.PROTOCOL:
            return ms.Refused(
                "protocol",
                f"The stream speaks protocol {ms.PROTOCOL} of tsnb and this process protocol "
                f"{hello.protocol}. Install the same version of tsnb in both, and start both again",
            )
        if not hmac.compare_digest(hello.token.encode(), self._token):
            self.refuse()
            return ms.Refused(
                "token",
                "This process did not show the token of the stream. Both processes need the same "
                "runtime directory. Compare TSNB_RUNTIME_DIR and XDG_RUNTIME_DIR in both, and share "
                "that directory if they run in two containers",
            )
        watching = sum(s.role == "observer" for s in self._core.sessions.values())
        if hello.role != "observer" or watching < MAX_OBSERVERS:
            return None
        return ms.Refused(
            "full",
            f"{watching} observers follow {self._core.settings.name!r} already, which is the most that "
            "a stream takes. Close some panels",
        )

    def full(self) -> ms.Refused | None:
        """Return why one more consumer cannot be taken, if so."""
        if len(self._core.dispatch.members) < MAX_CONSUMERS:
            return None
        return ms.Refused(
            "full",
            f"{MAX_CONSUMERS} trials are attached, which is the most that a stream takes. Serve a "
            "second stream",
        )

    def misfit(self, hello: ms.Hello) -> ms.Refused | None:
        """Return why a rank does not belong to the group that it names, or why there are no turns, if so."""
        if hello.rotation and (hello.world_size > 1 or hello.on_lag == "skip"):
            raise RemoteProtocolError("turns for a rank, or for a consumer that skips")
        if hello.rotation:
            with self._core.lock:
                why = self._core.why_no_turns(hello.rotate)
            stream = self._core.settings.name
            return ms.Refused("rotate", f"Trials cannot take turns on {stream!r}: {why}") if why else None
        if hello.world_size < 2:
            return None
        if hello.world_size > MAX_CONSUMERS:
            return ms.Refused(
                "full",
                f"A stream takes {MAX_CONSUMERS} trials at once, and this group has {hello.world_size} "
                "ranks. Use fewer ranks",
            )
        why = self._core.dispatch.groups.misfit(hello.name, hello.world_size, hello.cut)
        return ms.Refused("group", why) if why else None

    def overdue(self) -> list[Session]:
        """Return the connections that should be asked for their first message for the last time, oldest first."""
        now = time.monotonic()
        strangers = [s for s in self._core.sessions.values() if not s.role]
        surplus = max(0, len(strangers) - MAX_STRANGERS)
        late = (s for s in strangers[surplus:] if now - self._visits[s.key].since_s > HELLO_S)
        return [*strangers[:surplus], *late]


OF_EACH_BATCH = frozenset((ms.Take, ms.Waiting, ms.Release))
"""What a consumer says of each batch: for the decisions alone."""
_DECIDED = (*OF_EACH_BATCH, ms.Leave, ms.Got, ms.Rest)
"""All messages for the decisions alone."""


def hear_observer(core: Core, session: Session, message: ms.Message) -> None:
    """Do what an observer asks for.

    Raises:
        RemoteProtocolError: Observers ask for no such thing.
    """
    if isinstance(message, ms.StopProducer):
        core.ask_to_stop(message.reconnect_s)
    elif isinstance(message, ms.Steer):
        if why := core.steer(message.consumers):
            with core.lock:
                session.send(ms.Refused("unknown", why))
    elif isinstance(message, ms.Extended):
        try:
            _extension(core, message.name).hear(session, message.payload)
        except Undoable as why:
            with core.lock:
                session.send(ms.Refused(why.code, str(why)))
    else:
        raise RemoteProtocolError(f"{type(message).__name__} from an observer")


def _extension(core: Core, name: str) -> Extension:
    """Return the extension that a payload is for.

    Raises:
        RemoteProtocolError: The stream has none of that name; both sides have the same version, so ours would know.
    """
    found = core.extensions.get(name)
    if found is None:
        raise RemoteProtocolError(f"an extension {name!r:.80}")
    return found


def hear_consumer(core: Core, session: Session, message: ms.Message) -> None:
    """Turn what a consumer says into an event, or note it.

    Raises:
        RemoteProtocolError: Consumers say no such thing.
    """
    if isinstance(message, _DECIDED):
        core.step(ev.Heard(session.key, message))
    elif isinstance(message, ms.Wants):
        samples = core.source.indices.samples if core.source else None
        if not session.part or samples is None or message.offset + len(message.mask) > (samples + 7) // 8:
            raise RemoteProtocolError("a part of samples that there are not")
        core.step(ev.Heard(session.key, message))
    elif isinstance(message, ms.Ask) and session.role == "leaving":
        pass  # of a thread that had not heard of the close in another
    elif isinstance(message, ms.Ask):
        with core.lock:
            session.forget_layouts()
        core.step(ev.Heard(session.key, message))
    elif isinstance(message, ms.Progress):
        with core.lock:
            session.note(message)
    elif isinstance(message, ms.Extended):
        _extension(core, message.name).hear(session, message.payload)
    elif isinstance(message, ms.Device):
        core.leave_device(session.key)
    elif isinstance(message, ms.Bye):
        # its name is free from now on; its slots come back as it lets go of them, or with the connection
        session.role = "leaving"
        core.note_left(session)
        core.step(ev.Heard(session.key, message))
    else:
        raise RemoteProtocolError(f"{type(message).__name__} from a consumer")
