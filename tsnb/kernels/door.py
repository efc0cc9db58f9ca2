"""Where other processes of this user ask something of this one: the command line of a notebook that has trials.

A stream reaches what is attached to it. What concerns a trial that has left it, or needs the process that started the
trial, comes here: a socket in the hub's private directory, which goes with the process. Only this user's processes can
connect (the directory, and both ends look), and what comes is JSON.

| step | process | what it waits for |
|---|---|---|
| `call` connects to the door of each process that has one | the command | `CONNECT_S` each, as sockets do |
| it sends a request: one packet | the command | |
| the request is answered, on a thread of its own | the notebook | what it takes: a batch, for a clone |
| one packet comes back | the command | that, or the process's end |
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tsnb.errors import RemoteProtocolError, TsnbError
from tsnb.kernels.hub import Hub, short_parent
from tsnb.stream.transport.channel import ChannelClosed, LocalChannel
from tsnb.stream.transport.local import connect, listen
from tsnb.stream.transport.sockets import Listener, OutOfDescriptors

__all__ = ["Door", "Reply", "call", "doors"]

REQUEST_S = 5.0
"""How long a process that has connected may take to say what it wants."""
AT_ONCE = 16
"""Requests that are answered beside each other; one more is turned away."""

_NAME = "door"
_log = logging.getLogger("tsnb")

Answer = Callable[[dict[str, Any]], Mapping[str, Any]]
"""Answers a request, on a thread of its own; a TsnbError or ValueError is told."""


class Door:
    """Answers requests of this user's other processes.

    Args:
        hub: The hub in whose directory it is, and on whose thread connections are taken.
        answer: Answers a request.

    Raises:
        TsnbError: This process may not open more descriptors, or the socket cannot be made.
    """

    def __init__(self, hub: Hub, answer: Answer) -> None:
        self._answer = answer
        self._free = threading.BoundedSemaphore(AT_ONCE)
        self._listener: Listener = listen(str(hub.directory / _NAME))
        hub.loop.call_soon_threadsafe(hub.loop.add_reader, self._listener.fileno(), self._enter)

    def _enter(self) -> None:
        """Take a connection. On the hub's thread."""
        try:
            channel = self._listener.accept()
        except PermissionError:  # another user's; it is closed
            return
        except OutOfDescriptors:
            self._listener.turn_away(_packed({"error": "it has reached its limit of open files"}))
            return
        if channel is None:
            return
        if not self._free.acquire(blocking=False):
            with contextlib.suppress(ChannelClosed):
                channel.send(_packed({"error": f"it is already answering {AT_ONCE} requests. Ask again"}))
            channel.close()
            return
        threading.Thread(target=self._serve, args=(channel,), name="tsnb-door", daemon=True).start()

    def _serve(self, channel: LocalChannel) -> None:
        try:
            with contextlib.suppress(ChannelClosed, RemoteProtocolError, TimeoutError):
                request = _next(channel, REQUEST_S)
                _send(channel, _packed(self._answered(request)))
        finally:
            channel.close()
            self._free.release()

    def _answered(self, request: dict[str, Any]) -> Mapping[str, Any]:
        try:
            return self._answer(request)
        except (TsnbError, ValueError, TimeoutError) as error:
            return {"error": str(error)}
        except Exception as error:  # noqa: BLE001 (the process that asked is told, and this one goes on)
            _log.exception("a request from the command line failed: %r", request)
            return {"error": f"{type(error).__name__}: {error}"}


class Reply(NamedTuple):
    """What a process has answered."""

    door: Path
    """Where it was asked."""
    facts: dict[str, Any]
    """Its answer, as it gave it; with `error`, what is wrong."""


def doors() -> list[Path]:
    """Return the doors of this user's processes, those too that nobody answers at any more.

    Raises:
        TsnbError: The runtime directory cannot be used.
    """
    return sorted(short_parent().glob(f"hub-*/{_NAME}"))


def call(door: Path, request: Mapping[str, Any], timeout_s: float) -> Reply | None:
    """Ask something at a door; None: nobody is there any more.

    Args:
        door: One of `doors()`.
        request: What is asked: types that JSON has.
        timeout_s: Seconds to wait for the answer.

    Raises:
        TimeoutError: No answer came in time.
        TsnbError: The process stands still, or belongs to another user, or died over the request.
        RemoteProtocolError: The answer is not one.
    """
    try:
        channel = connect(str(door))
    except PermissionError:
        raise TsnbError(f"{door} belongs to another user.") from None
    except ConnectionError:
        return None
    try:
        _send(channel, _packed(request))
        return Reply(door, _next(channel, timeout_s))
    except ChannelClosed:
        raise TsnbError(
            "The notebook or script ended before it answered. It may have carried out the request."
        ) from None
    finally:
        channel.close()


def _packed(facts: Mapping[str, Any]) -> bytes:
    return json.dumps(facts, default=str).encode()


def _send(channel: LocalChannel, packet: bytes) -> None:
    """Send a packet; the other end reads at once, or it is not worth waiting for."""
    sent = channel.send(packet)
    until = time.monotonic() + REQUEST_S
    while not (sent and channel.flush()) and time.monotonic() < until:
        time.sleep(0.005)
        sent = sent or channel.send(packet)


def _next(channel: LocalChannel, timeout_s: float) -> dict[str, Any]:
    """Return the next packet, read.

    Raises:
        ChannelClosed: The other end has gone.
        TimeoutError: None came in time.
        RemoteProtocolError: It is not a JSON object.
    """
    deadline = time.monotonic() + (timeout_s if math.isfinite(timeout_s) else 1e9)
    while (left := deadline - time.monotonic()) > 0:
        packet = channel.receive()
        if packet is None:
            channel.wait(left)
            continue
        try:
            found = json.loads(packet)
        except (ValueError, RecursionError) as error:
            raise RemoteProtocolError(f"a packet that is not JSON: {packet[:80]!r}") from error
        if not isinstance(found, dict):
            raise RemoteProtocolError(f"a packet that is not a request: {packet[:80]!r}")
        return found
    raise TimeoutError(f"No answer came within {timeout_s:.0f} s.")
