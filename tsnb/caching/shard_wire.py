"""What crosses between a worker of the producer's machine and the shard of another machine: bytes, no objects.

    connection  =  greeting | proof of the worker | proof of the shard | request, reply, request, reply, ...
    greeting    =  magic, 32 random bytes                         the shard's
    proof       =  (the worker's: 32 random bytes,) HMAC-SHA256 of both sides' random bytes under the stream's token
    request     =  operation, sample, place, size | a sample's bytes, with `PUT`
    reply       =  status, size | a sample's bytes, with `TAKE`

The token goes to the other machines through Ray and never crosses here. A side that proves nothing is told nothing.
Sizes are looked at before memory is taken for them. What a sample's bytes say is not looked at here: the worker
compares them with the digest that its own machine has noted.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = [
    "CLEAR",
    "DONE",
    "GONE",
    "HANDSHAKE_S",
    "MOST_PROBE_BYTES",
    "PROBE",
    "PUT",
    "TAKE",
    "TOKEN_BYTES",
    "BadPeer",
    "Request",
    "greet",
    "prove",
    "read",
    "read_into",
    "read_reply",
    "read_request",
    "send",
    "write_reply",
    "write_request",
]

TAKE, PUT, PROBE, CLEAR = range(1, 5)
"""Operations: give a sample; keep one; give so many bytes, to tell how long that takes; forget all samples."""
DONE, GONE = range(2)
"""What a reply says: done; the sample is not here, or there is no room for it."""
TOKEN_BYTES = 32
HANDSHAKE_S = 2.0
"""How long each side has for its proof."""
MOST_PROBE_BYTES = 1 << 20

_MAGIC = b"tsnb-l1\0"
_NONCE_BYTES = _MAC_BYTES = 32
_REQUEST = struct.Struct("<BQQQ")
_REPLY = struct.Struct("<BQ")


class BadPeer(Exception):
    """The other side does not know the token, or says what makes no sense."""


class Request(NamedTuple):
    """What a worker asks for."""

    operation: int
    """`TAKE`, `PUT`, `PROBE` or `CLEAR`."""
    sample: int
    """The sample's number."""
    place: int
    """Where it begins in the shard's memory, in bytes."""
    size: int
    """Bytes of the sample, or to give."""


# -- the two proofs ------------------------------------------------------------------------------------------


def greet(sock: socket.socket, token: bytes) -> None:
    """Have a worker prove that it knows the token, then prove the same to it. Called by the shard.

    Raises:
        BadPeer: It does not.
        OSError: The connection ended, or took longer than `HANDSHAKE_S`.
    """
    deadline_s = time.monotonic() + HANDSHAKE_S
    mine = secrets.token_bytes(_NONCE_BYTES)
    send(sock, [_MAGIC + mine], deadline_s)
    said = read(sock, _NONCE_BYTES + _MAC_BYTES, deadline_s)
    theirs, mac = said[:_NONCE_BYTES], said[_NONCE_BYTES:]
    if not hmac.compare_digest(mac, _mac(token, b"worker", mine, theirs)):
        raise BadPeer("it does not know the token")
    send(sock, [_mac(token, b"shard", mine, theirs)], deadline_s)


def prove(sock: socket.socket, token: bytes, deadline_s: float) -> None:
    """Prove to a shard that this process knows the token, and have it do the same. Called by a worker.

    Args:
        sock: Just connected.
        token: The stream's.
        deadline_s: On the monotonic clock.

    Raises:
        BadPeer: It is no shard of this stream.
        OSError: The connection ended, or it took too long.
    """
    said = read(sock, len(_MAGIC) + _NONCE_BYTES, deadline_s)
    if said[: len(_MAGIC)] != _MAGIC:
        raise BadPeer("it is not a shard, or one of another version")
    theirs, mine = said[len(_MAGIC) :], secrets.token_bytes(_NONCE_BYTES)
    send(sock, [mine + _mac(token, b"worker", theirs, mine)], deadline_s)
    if not hmac.compare_digest(read(sock, _MAC_BYTES, deadline_s), _mac(token, b"shard", theirs, mine)):
        raise BadPeer("it does not know the token")


def _mac(token: bytes, side: bytes, shards: bytes, workers: bytes) -> bytes:
    return hmac.digest(token, _MAGIC + side + shards + workers, "sha256")


# -- requests and replies ------------------------------------------------------------------------------------


def write_request(sock: socket.socket, request: Request, sample: Any, deadline_s: float) -> None:
    """Ask a shard for something; `sample` is what to keep, b"" where nothing is."""
    send(sock, [_REQUEST.pack(*request), sample], deadline_s)


def read_request(sock: socket.socket, most_bytes: int, within_s: float) -> Request | None:
    """Return a worker's next request, whenever it comes; None if the connection has ended in good order.

    Args:
        sock: A connection that was proven.
        most_bytes: The shard's memory: nothing in it can be larger, or lie behind it.
        within_s: How long the request may take from its first byte on.

    Raises:
        BadPeer: It makes no sense.
        OSError: The connection broke, or the request took too long.
    """
    sock.settimeout(None)
    first = sock.recv(1)
    if not first:
        return None
    request = Request(*_REQUEST.unpack(first + read(sock, _REQUEST.size - 1, time.monotonic() + within_s)))
    if request.operation not in (TAKE, PUT, PROBE, CLEAR):
        raise BadPeer("an unknown operation")
    most = MOST_PROBE_BYTES if request.operation == PROBE else most_bytes
    if request.size > most or request.place > most:
        raise BadPeer("an invalid size")
    return request


def write_reply(sock: socket.socket, status: int, sample: Any, deadline_s: float) -> None:
    """Answer a worker."""
    send(sock, [_REPLY.pack(status, memoryview(sample).nbytes), sample], deadline_s)


def read_reply(sock: socket.socket, sample: Any, deadline_s: float) -> bool:
    """Read a shard's answer, with what it gives.

    Args:
        sock: The connection.
        sample: Writable memory of the size that was asked for.
        deadline_s: On the monotonic clock.

    Returns:
        Whether it was done; `sample` is filled then.

    Raises:
        BadPeer: It is another answer than one to that question.
        OSError: The connection broke, or it took too long.
    """
    status, size = _REPLY.unpack(read(sock, _REPLY.size, deadline_s))
    if status == GONE and not size:
        return False
    if status != DONE or size != memoryview(sample).nbytes:
        raise BadPeer("an answer to another request")
    read_into(sock, sample, deadline_s)
    return True


# -- bytes ---------------------------------------------------------------------------------------------------


def send(sock: socket.socket, pieces: Sequence[Any], deadline_s: float) -> None:
    """Send some bytes.

    Raises:
        OSError: The connection broke, or it took too long.
    """
    for piece in pieces:
        if memoryview(piece).nbytes:
            sock.settimeout(_left(deadline_s))
            sock.sendall(piece)


def read(sock: socket.socket, size: int, deadline_s: float) -> bytes:
    """Return exactly so many bytes.

    Raises:
        OSError: The connection ended, or it took too long.
    """
    made = bytearray(size)
    read_into(sock, made, deadline_s)
    return bytes(made)


def read_into(sock: socket.socket, target: Any, deadline_s: float) -> None:
    """Fill memory with what comes.

    Raises:
        OSError: The connection ended, or it took too long.
    """
    view = memoryview(target).cast("B") if memoryview(target).nbytes else memoryview(b"")
    while len(view):
        sock.settimeout(_left(deadline_s))
        got = sock.recv_into(view)
        if not got:
            raise ConnectionResetError("the other side has closed the connection")
        view = view[got:]


def _left(deadline_s: float) -> float:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("it took too long")
    return left_s
