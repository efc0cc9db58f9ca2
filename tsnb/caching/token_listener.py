"""A TCP port that speaks only with those who prove that they know a token (`shard_wire`).

Whoever does not know it gets no word out of the port but the challenge. Each connection has a thread of its own.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

from tsnb.caching.shard_wire import BadPeer, greet

__all__ = ["TokenListener"]

MOST_CONNECTIONS = 512
"""Open at once: one for each worker of the producer, or for each machine of the cluster."""
MOST_STRANGERS = 128
"""Of them, those that have not proven yet that they know the token; each has two seconds for it. Workers that all begin
an epoch at once are some, too."""
AGAIN_S = 0.5
"""After an error it waits so long before it takes the next connection."""


class TokenListener:
    """Takes connections until it is closed.

    Args:
        host: The address at which to listen, of this machine in its cluster.
        token: What the other side has to know.
        talk: Serves one connection that was proven, to its end. It is ended by an `OSError` or a `BadPeer`.
        name: Of the threads.

    Attributes:
        port: At which it listens.

    Raises:
        OSError: It cannot listen there.
    """

    def __init__(self, host: str, token: bytes, talk: Callable[[socket.socket], None], name: str) -> None:
        self._token, self._talk, self._name = token, talk, name
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._strangers = 0
        self._ended = threading.Event()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name=name, daemon=True).start()

    def close(self) -> None:
        """End all connections."""
        self._ended.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes who waits for the next connection
        self._listener.close()
        self.drop()

    def drop(self) -> None:
        """End the connections that are open now."""
        with self._lock:
            open_now = list(self._open)
        for sock in open_now:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                if not self._ended.wait(AGAIN_S):  # out of descriptors, or the other side has gone already
                    continue
                return
            with self._lock:
                full = len(self._open) >= MOST_CONNECTIONS or self._strangers >= MOST_STRANGERS
                if not full:
                    self._open.add(sock)
                    self._strangers += 1
            if full:
                sock.close()
            else:
                threading.Thread(target=self._serve, args=(sock,), name=self._name, daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        """Serve one connection to its end."""
        try:
            with contextlib.suppress(OSError, BadPeer):
                if self._proven(sock):
                    self._talk(sock)
        finally:
            with self._lock:
                self._open.discard(sock)
            sock.close()

    def _proven(self, sock: socket.socket) -> bool:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            greet(sock, self._token)
            return not self._ended.is_set()
        finally:
            with self._lock:
                self._strangers -= 1
