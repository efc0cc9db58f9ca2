"""The seam between a stream and what is built on it: metrics, live values, rounds, a balancer.

A stream carries an extension's words without reading them, as `Extended(name, payload)` each way. It knows
extensions by this class alone. `tsnb.serving` gives a producer those that it has, and `tsnb.attaching` a consumer.

    observer --Extended--> producer's half --Extended--> consumer's half --Extended--> producer's half

Who calls what:

| | in the producer's process | in the consumer's process |
|---|---|---|
| `met` | never | at each new connection: the first one, a successor's, a clone's |
| `hear` | the serving thread, without the producer's lock | the thread that iterates, ahead of batches sent before |
| `left` | the serving thread, when a consumer detaches, or its connection ends | never |
| `tick` | the serving thread, once a second, without the lock | between two batches; as a cell ends, in any thread |
| `step` | never | the thread that iterates, after each batch that it took |
| `parted` | never | when its producer has gone, and before the consumer goes |
| `reading` | any thread, under the lock | never |
| `reading_of` | any thread, under the lock: once for each consumer | never |
| `close` | once, in the thread that stops the stream, without the lock | once, before the consumer detaches |

A half has one object for each producer, or for each consumer. It stores its data about a connection
in `Remote.notes`. The data ends with the connection.
A payload is a `msgspec.Struct` of the extension's own: `foreign.pack` and `foreign.unpack` turn it into bytes and back.
Whatever comes from another process may be anything: `hear` refuses it by `RemoteProtocolError`, which ends that
connection alone. docs/write-an-extension.md writes one from beginning to end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Protocol

from tsnb.errors import RemoteProtocolError

__all__ = ["READINGS", "Extension", "ProducerRemote", "Remote", "Undoable", "by_name", "overriding"]

READINGS = "readings"
"""By this name a producer sends observers its readings: one `telemetry.StreamReading` each, as JSON."""


class Undoable(Exception):  # an answer to whoever asked, not an error of the stream
    """What was asked of an extension cannot be done: the connection goes on, and its other end is told why.

    Args:
        reason: Why; without the full stop.
        code: As `protocol.messages.Refused` has it.
    """

    def __init__(self, reason: str, code: str = "unknown") -> None:
        super().__init__(reason)
        self.code = code


class Remote(Protocol):
    """The other end of a connection, as an extension sees it."""

    key: int
    """Tells it from others that are there at the same time."""
    notes: dict[str, Any]
    """What extensions keep of it, each by its own name."""

    @property
    def name(self) -> str:
        """The consumer's name; of an observer free text; in a consumer the stream's name."""

    @property
    def role(self) -> str:
        """`consumer`, `observer`, or `leaving` for a consumer that has detached; in a consumer `producer`."""

    @property
    def pid(self) -> int:
        """Its process."""

    def tell(self, extension: str, payload: bytes) -> None:
        """Send it a payload. Called from any thread; in the producer under its lock."""


class ProducerRemote(Remote, Protocol):
    """The producer, as an extension of a consumer sees it."""

    batches: int
    """Loader batches that were taken over this connection."""
    ended: int
    """Epochs that were taken to their end."""
    length: int | None
    """Loader batches of an epoch; None: the loader has no length."""


class Extension:
    """One half of an extension: that of a producer, or of a consumer. Does nothing where a half says nothing else."""

    name: ClassVar[str]
    """What `Extended` calls it: the same for both halves."""
    bytes_a_point: ClassVar[int] = 4096
    """What a consumer may send it for one point of its allowance (`producer.guard`)."""

    def met(self, peer: ProducerRemote) -> None:
        """Hear that there is a new connection, which knows nothing of what the former one was told."""

    def hear(self, peer: Remote, payload: bytes) -> None:
        """Take a payload.

        Raises:
            RemoteProtocolError: Its peer would say no such thing.
            Undoable: It cannot be done. In the producer's process, where an observer asks.
        """
        raise RemoteProtocolError(f"{self.name!r} from a {peer.role}")

    def left(self, peer: Remote) -> None:
        """Hear that a consumer detaches, or that its connection has ended."""

    def tick(self, now_s: float) -> None:
        """Do what is due.

        Args:
            now_s: Monotonic seconds.
        """

    def step(self) -> None:
        """Do what only the thread that iterates may do."""

    def parted(self) -> None:
        """Undo everything that the producer has asked for. The producer itself can no longer undo it."""

    def reading(self, since: int) -> dict[str, Any]:
        """Return fields of `StreamReading`.

        Args:
            since: News that whoever reads has been told of (`Core.news`); 0: none.
        """
        return {}

    def reading_of(self, peer: Remote, since: int = 0) -> dict[str, Any]:
        """Return fields of a consumer's `ConsumerReading`.

        Args:
            peer: The consumer.
            since: As `reading`.
        """
        return {}

    def close(self) -> None:
        """Put back what was changed, and end own threads."""


def by_name(extensions: Iterable[Extension]) -> dict[str, Extension]:
    """Return extensions by what `Extended` calls them.

    Raises:
        ValueError: Two have one name: each would get the other's payloads.
    """
    found: dict[str, Extension] = {}
    for each in extensions:
        if each.name in found:
            raise ValueError(f"Two extensions are named {each.name!r}. Give one of them another name.")
        found[each.name] = each
    return found


def overriding(extensions: Iterable[Extension], hook: str) -> list[Callable[..., None]]:
    """Return a hook of those extensions that have one of their own: it is called for every batch."""
    return [getattr(e, hook) for e in extensions if getattr(type(e), hook) is not getattr(Extension, hook)]
