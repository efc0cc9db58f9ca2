"""This kernel's channels: messages of our own kinds to its notebook, requests from it, and what forked workers print.

A request is answered on the control channel's own thread, in the middle of the user's code. The rest is about workers:

ipykernel has them send it to a TCP port of its own on 127.0.0.1, whatever the kernel's transport is: any user of the
machine may connect there, and fill its memory. Here it goes through a pair of sockets that no other process can open:
a worker inherits its end. The pair holds a few hundred kilobytes; a worker that is faster than its kernel waits.

    packet: number of frames, their lengths, the frames        (4 bytes each number, in the machine's order)
            or nothing, and the descriptor of a nameless file with the same in it, where that is too long for a packet
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import stat
import struct
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import zmq
from ipykernel import kernelapp
from ipykernel.iostream import IOPubThread
from jupyter_client.session import DELIM
from tornado.ioloop import IOLoop

from tsnb.native.ties import CLOEXEC, packet_pair

__all__ = ["answer_requests", "keep_off_the_network", "lose_no_output", "publish", "send_printed"]

PACKET_BYTES = 1 << 16
"""The longest packet; a socket's buffer holds three of them or more, on every system."""
BUFFER_BYTES = 4 * PACKET_BYTES
"""The buffer size requested for the pair; the system may give less."""
WAIT_S = 30.0
"""How long a worker waits for a kernel that takes nothing, before its output is dropped."""
MOST_MESSAGES = 1_000_000
"""Messages that wait in a kernel for a notebook which stands still. ZeroMQ's own limit of 1,000 is that of a second in
which a trial prints line by line on a busy machine, and what comes after it is dropped without a word."""
AT_ONCE = 64
"""How many packets are taken before the kernel's own output has its turn."""


def keep_off_the_network() -> None:
    """Have the ipykernel that this process is about to become listen on no TCP port."""
    setattr(kernelapp, "IOPubThread", _OutputThread)  # noqa: B010 (ipykernel's own name for it, and not exported)


def lose_no_output() -> None:
    """Have the ipykernel that this process is about to become keep what its notebook does not take at once."""
    setattr(kernelapp.IPKernelApp, "init_iopub", _init_iopub)  # noqa: B010 (mypy lets nobody assign a method)


_ipykernels_own: Any = kernelapp.IPKernelApp.init_iopub


def _init_iopub(app: Any, context: zmq.Context[Any]) -> None:
    # for the sockets that the context makes from here on: a socket that is bound already keeps its limit
    context.setsockopt(zmq.SNDHWM, MOST_MESSAGES)
    _ipykernels_own(app, context)


class _OutputThread(IOPubThread):
    """ipykernel's thread for output, with another way in for forked workers."""

    def _setup_pipe_in(self) -> None:
        """Make the pair. Called once, in the kernel, before the thread starts."""
        self._pipe_uuid = b""  # it tells friend from foe, and no foe can come here
        self._mine, theirs = _pair()
        self._theirs = _Workers(theirs)
        self._mine.setblocking(False)
        self.io_loop.add_handler(self._mine, self._take, IOLoop.READ)

    def _take(self, mine: socket.socket, _events: int) -> None:
        """Take what has come. On the output thread."""
        for _ in range(AT_ONCE):
            try:
                packet, descriptors, _, _ = socket.recv_fds(mine, PACKET_BYTES, 1, CLOEXEC)
            except BlockingIOError:
                return
            try:
                self._hand_on(_frames(_read(descriptors[0]) if descriptors else packet))
            except (ValueError, OSError):
                logging.getLogger("tsnb").warning(
                    "a worker sent an invalid output message, which was ignored"
                )

    def _hand_on(self, frames: list[bytes]) -> None:
        publish: Any = self.send_multipart
        publish(frames)

    def _setup_pipe_out(self) -> tuple[_Workers, _Workers]:
        """Return the way out, as socket and as context. Called in a worker for each message."""
        return self._theirs, self._theirs


class _Workers:
    """The workers' end of the pair, as the zmq socket and context that ipykernel takes it for.

    Args:
        sock: The end.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(WAIT_S)
        self._sock = sock

    def send_multipart(self, frames: Sequence[Any], *_: Any, **__: Any) -> None:
        """Send a message; drop it if the kernel does not take it for long, or has gone."""
        packet = _packet(frames)
        with contextlib.suppress(OSError):
            if len(packet) <= PACKET_BYTES:
                self._sock.sendall(packet)
                return
            with tempfile.TemporaryFile() as file:
                file.write(packet)
                file.flush()
                socket.send_fds(self._sock, [b"\0"], [file.fileno()])

    def close(self) -> None:
        """Do nothing: the next message goes this way too."""

    term = close


def _pair() -> tuple[socket.socket, socket.socket]:
    pair = packet_pair()
    for end in pair:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    return pair


def _packet(frames: Sequence[Any]) -> bytes:
    parts = [frame.bytes if isinstance(frame, zmq.Frame) else bytes(frame) for frame in frames]
    return b"".join([struct.pack(f"={len(parts) + 1}I", len(parts), *map(len, parts)), *parts])


def _read(descriptor: int) -> bytes:
    """Return a file's content, and close it.

    Raises:
        OSError, ValueError: It is not a file: reading a device might never end.
    """
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("no file")
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    finally:
        os.close(descriptor)


def _frames(packet: bytes) -> list[bytes]:
    """Return the frames of a message.

    Raises:
        ValueError: It is not one.
    """
    sizes = memoryview(packet)[: len(packet) // 4 * 4].cast("I")
    count = sizes[0] if len(sizes) else 0
    if not 0 < count < len(sizes) or 4 * (count + 1) + sum(sizes[1 : count + 1]) != len(packet):
        raise ValueError("frames of other sizes than it says")
    frames, start = [], 4 * (count + 1)
    for length in sizes[1 : count + 1]:
        frames.append(packet[start : start + length])
        start += length
    if DELIM not in frames[:-4]:
        raise ValueError("no message")
    return frames[1:]


def publish(kind: str, content: dict[str, Any]) -> None:
    """Send one message on this kernel's output channel. From any thread."""
    from IPython.core.getipython import get_ipython

    kernel: Any = get_ipython().kernel  # type: ignore[union-attr]
    kernel.session.send(kernel.iopub_socket, kind, content, ident=f"kernel.{kind}".encode())


def send_printed() -> None:
    """Send what was printed and waits to be joined, so that it comes before the next message. From any thread."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the code may have put anything in their place
            stream.flush()


def answer_requests(handlers: Mapping[str, Callable[[dict[str, Any]], Any]]) -> None:
    """Answer requests that come on the control channel, while code runs. Paired with `Child.request`.

    Args:
        handlers: By the request's kind; each takes its content, on the control channel's thread, and returns what the
            answer is, or raises.
    """
    from IPython.core.getipython import get_ipython

    kernel: Any = get_ipython().kernel  # type: ignore[union-attr]

    def answer(stream: Any, ident: Any, request: dict[str, Any]) -> None:
        kind = request["header"]["msg_type"]
        try:
            reply = {"status": "ok", "answer": handlers[kind](request["content"])}
        except Exception as error:  # noqa: BLE001 (raised again where it was asked)
            reply = {"status": "error", "ename": type(error).__name__, "evalue": str(error)}
        kernel.session.send(stream, f"{kind}_reply", reply, request, ident)

    for kind in handlers:
        kernel.control_handlers[kind] = answer
