"""A shard: memory that another machine lends to a stream's cache, behind a TCP port of its own (`shard_wire`).

It lives in that machine's relay and ends with it. It decides nothing: the producer says which sample lies where, the
densest first, so memory that has to be given back is cut off the end here, too.
"""

from __future__ import annotations

import mmap
import socket
import threading
import time

from tsnb.caching.pressure import LOOK_S, wanted_back
from tsnb.caching.shard_wire import (
    CLEAR,
    DONE,
    GONE,
    PROBE,
    PUT,
    Request,
    read_into,
    read_request,
    write_reply,
)
from tsnb.caching.token_listener import TokenListener
from tsnb.machine.memory import Pressure
from tsnb.stream.memory.nameless import leave_out_of_dumps

__all__ = ["Shard"]

WHOLE_S = 10.0
"""How long a request may take from its first byte on, and a reply."""
_WASTE_BYTES = 1 << 16
"""A sample that is not kept is read in such pieces."""
_DONTNEED: int | None = getattr(mmap, "MADV_DONTNEED", None)


class Shard:
    """Keeps samples for the producer's workers until it is closed.

    Args:
        host: The address at which to listen, of this machine in its cluster.
        room_bytes: What it lends.
        token: The stream's.

    Attributes:
        port: At which it listens.
        room_bytes: What it lends.
        used_bytes: The end of the last sample.

    Raises:
        OSError: It cannot listen there, or there is not so much memory.
    """

    def __init__(self, host: str, room_bytes: int, token: bytes) -> None:
        self.room_bytes = room_bytes
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._map = mmap.mmap(-1, max(room_bytes, mmap.PAGESIZE), flags=flags)  # taken as it is written
        leave_out_of_dumps(self._map)
        self._memory = memoryview(self._map)
        self._samples: dict[int, tuple[int, int]] = {}  # place and size
        self._end = room_bytes  # less, once memory was given back
        self.used_bytes = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._listener = TokenListener(host, token, self._talk, "tsnb-shard")
        self.port = self._listener.port
        threading.Thread(target=self._watch_memory, name="tsnb-shard", daemon=True).start()

    def close(self) -> None:
        """End all connections; the memory goes with this object, or the process."""
        self._ended.set()
        self._listener.close()
        with self._lock:
            self._samples.clear()
        self._punch(0, self.room_bytes)

    # -- connections -----------------------------------------------------------------------------------------

    def _talk(self, sock: socket.socket) -> None:
        """Serve one connection to its end."""
        while (request := read_request(sock, self.room_bytes, WHOLE_S)) is not None:
            self._answer(sock, request, time.monotonic() + WHOLE_S)

    def _answer(self, sock: socket.socket, request: Request, deadline_s: float) -> None:
        if request.operation == PUT:
            status = DONE if self._put(sock, request, deadline_s) else GONE
            write_reply(sock, status, b"", deadline_s)
        elif request.operation == PROBE:
            write_reply(sock, DONE, bytes(request.size), deadline_s)
        elif request.operation == CLEAR:
            self._clear()
            write_reply(sock, DONE, b"", deadline_s)
        else:
            self._give(sock, request, deadline_s)

    def _put(self, sock: socket.socket, request: Request, deadline_s: float) -> bool:
        """Take a sample; return whether it is kept. Its bytes are read from the connection in any case."""
        _, index, place, size = request
        if place + size > self._end:
            waste = memoryview(bytearray(min(size, _WASTE_BYTES)))
            for start in range(0, size, _WASTE_BYTES):
                read_into(sock, waste[: size - start], deadline_s)
            return False
        with self._lock:
            self._samples.pop(index, None)  # until it is there as a whole
        read_into(sock, self._memory[place : place + size], deadline_s)
        with self._lock:
            fits = place + size <= self._end
            if fits:
                self._samples[index] = (place, size)
                self.used_bytes = max(self.used_bytes, place + size)
        if not fits:
            self._punch(self._end, self.room_bytes)
        return fits

    def _give(self, sock: socket.socket, request: Request, deadline_s: float) -> None:
        """Give a sample. Memory that is given back meanwhile reads as zeros, which the worker finds out."""
        with self._lock:
            place, size = self._samples.get(request.sample, (0, -1))
        if size == request.size:
            write_reply(sock, DONE, self._memory[place : place + size], deadline_s)
        else:
            write_reply(sock, GONE, b"", deadline_s)

    # -- memory ----------------------------------------------------------------------------------------------

    def _clear(self) -> None:
        with self._lock:
            self._samples.clear()
            self.used_bytes = 0
        self._punch(0, self.room_bytes)

    def give_back(self, size: int) -> None:
        """Give memory back to the system, what saves least first; it is not filled again."""
        used = self.used_bytes
        if size <= 0 or not used:
            return
        with self._lock:
            self._end = self.used_bytes = max(0, used - size)
            for index, (place, length) in list(self._samples.items()):
                if place + length > self._end:
                    del self._samples[index]
        self._punch(self._end, self.room_bytes)

    def _punch(self, start: int, end: int) -> None:
        start = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        end = min(len(self._map), -(-end // mmap.PAGESIZE) * mmap.PAGESIZE)
        if _DONTNEED is not None and start < end:
            self._map.madvise(_DONTNEED, start, end - start)

    def _watch_memory(self) -> None:
        pressure = Pressure()
        while not self._ended.wait(LOOK_S):
            stalled, used = pressure.share(), self.used_bytes
            if used:
                self.give_back(wanted_back(used, stalled))
