"""A worker's way to samples that lie in the memory of other machines: it asks their shards by TCP (`shard_wire`).

Nothing here is an error. A machine that is gone, does not answer in time or says nonsense is not asked for a while, by
any worker; a sample that it does not have (any more), or that comes back as another one, is not asked for again. It is
prepared then, as without a cache.

What comes back is looked at by its digest, which this machine noted when it prepared the sample: it is unpickled only
where it is the same, whoever has sent it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import Any, Literal

import numpy as np

from tsnb.caching.encoding import digest
from tsnb.caching.memory import ASSIGNED, AWAY, GIVEN, SampleMemory
from tsnb.caching.shard_wire import (
    CLEAR,
    PROBE,
    PUT,
    TAKE,
    BadPeer,
    Request,
    prove,
    read_reply,
    write_request,
)

__all__ = ["ANSWER_S", "SILENT_S", "LentMemory", "ShardLink"]

ANSWER_S = 1.0
"""How long a worker waits for a sample, connecting included."""
SILENT_S = 10.0
"""How long a machine that did not answer is not asked again: it costs a tenth of one worker's time at most."""


class ShardLink:
    """A connection to a shard.

    Args:
        host: Its address.
        port: TCP.
        token: The stream's.
        deadline_s: Until when it may take to connect, on the monotonic clock.

    Raises:
        OSError: Nobody is there, or it took too long.
        BadPeer: It is no shard of this stream.
    """

    def __init__(self, host: str, port: int, token: bytes, deadline_s: float) -> None:
        self._sock = socket.create_connection((host, port), max(1e-3, deadline_s - time.monotonic()))
        try:
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            prove(self._sock, token, deadline_s)
        except BaseException:
            self._sock.close()
            raise

    def take(self, index: int, size: int, deadline_s: float) -> np.ndarray[Any, Any] | Literal[False]:
        """Return a sample's bytes, uint8; False if it is not there. Raises as `shard_wire.read_reply`."""
        return self._filled(Request(TAKE, index, 0, size), deadline_s)

    def put(self, index: int, place: int, record: bytes, deadline_s: float) -> bool:
        """Have a sample kept; return whether it is. Raises as `shard_wire.read_reply`."""
        write_request(self._sock, Request(PUT, index, place, len(record)), record, deadline_s)
        return read_reply(self._sock, bytearray(), deadline_s)

    def probe(self, size: int, deadline_s: float) -> np.ndarray[Any, Any] | Literal[False]:
        """Return so many bytes that mean nothing. Raises as `shard_wire.read_reply`."""
        return self._filled(Request(PROBE, 0, 0, size), deadline_s)

    def clear(self, deadline_s: float) -> None:
        """Have all samples forgotten. Raises as `shard_wire.read_reply`."""
        write_request(self._sock, Request(CLEAR, 0, 0, 0), b"", deadline_s)
        read_reply(self._sock, bytearray(), deadline_s)

    def _filled(self, request: Request, deadline_s: float) -> np.ndarray[Any, Any] | Literal[False]:
        write_request(self._sock, request, b"", deadline_s)
        made = np.empty(request.size, np.uint8)
        return read_reply(self._sock, made, deadline_s) and made

    def close(self) -> None:
        """End it."""
        self._sock.close()


class LentMemory:
    """One worker's hold on the memory of other machines.

    Args:
        memory: This machine's, which says what lies where.
    """

    def __init__(self, memory: SampleMemory) -> None:
        self._memory = memory
        self._links: dict[tuple[str, int], ShardLink] = {}  # by address: a row may become another machine's
        self._pid = os.getpid()

    def __getstate__(self) -> Any:
        return self._memory

    def __setstate__(self, memory: SampleMemory) -> None:
        self.__init__(memory)  # type: ignore[misc]  # one constructor for both ways in

    def read(self, index: int) -> np.ndarray[Any, Any] | None:
        """Return a private copy of a sample's bytes, uint8; None where it cannot be had."""
        memory = self._memory
        if memory.states[index] != AWAY or memory.forms[index] != memory.form:
            return None
        size = int(memory.sizes[index])
        made = self._asked(index, lambda link, deadline_s: link.take(index, size, deadline_s))
        if made is None:
            return None
        if made is False or not memory.same(index, digest(made.data)):
            memory.states[index] = GIVEN
            return None
        return made  # type: ignore[no-any-return]

    def write(self, index: int, record: bytes) -> None:
        """Keep an assigned sample, at its place; one whose machine does not answer stays assigned."""
        memory, place = self._memory, int(self._memory.offsets[index])
        kept = self._asked(index, lambda link, deadline_s: link.put(index, place, record, deadline_s))
        if memory.states[index] == ASSIGNED and kept is not None:
            memory.states[index] = AWAY if kept else GIVEN

    def waits_for(self, index: int) -> bool:
        """Return whether a sample has a place on another machine and has yet to be written there."""
        memory = self._memory
        return bool(
            memory.states[index] == ASSIGNED and memory.forms[index] == memory.form and self._listens(index)
        )

    def _listens(self, index: int) -> bool:
        """Return whether a sample's machine may be asked now."""
        lender = self._memory.lenders[int(self._memory.owners[index])]
        return bool(lender["lends"]) and time.monotonic() >= float(lender["silent_until_s"])

    def _asked(self, index: int, ask: Any) -> Any:
        """Ask a sample's machine; return what it said, None where it said nothing."""
        if not self._listens(index):
            return None
        lender = self._memory.lenders[int(self._memory.owners[index])]
        address = bytes(lender["host"]).decode(), int(lender["port"])
        deadline_s = time.monotonic() + ANSWER_S
        try:
            return ask(self._link(address, deadline_s), deadline_s)
        except (OSError, BadPeer):
            lender["silent_until_s"] = time.monotonic() + SILENT_S
            with contextlib.suppress(KeyError, OSError):
                self._links.pop(address).close()
            return None

    def _link(self, address: tuple[str, int], deadline_s: float) -> ShardLink:
        if self._pid != os.getpid():  # its parent's are its parent's
            self._links, self._pid = {}, os.getpid()
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = ShardLink(*address, self._memory.token, deadline_s)
        return link
