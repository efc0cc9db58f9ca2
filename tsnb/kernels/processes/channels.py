"""How one kernel is spoken with: requests and their replies, and what it publishes.

Everything here runs on the hub's thread. A kernel may end at any moment: whatever waits for it then ends with
`KernelDied`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import zmq.asyncio
from jupyter_client.asynchronous.client import AsyncKernelClient

from tsnb.kernels.hub import Hub
from tsnb.kernels.processes.death import Death, KernelDied
from tsnb.kernels.thread_limit import OF_CHANNELS, require_threads

__all__ = ["Channels", "Output", "channels_context"]

REQUEST_S = 30.0
"""How long a request in the middle of code may stay out: milliseconds, unless C code holds the interpreter."""

ASK_AGAIN_S = 0.5
"""A kernel we are not subscribed to yet answers without our seeing its output: ask again."""

KNOCK_MS = 10
"""How often to look for a kernel that is not there yet, or a clone's. By default zmq waits for 100 to 200 ms."""

Output = Callable[[str, dict[str, Any]], None]
"""Takes a message's type and content, on the hub's thread."""


def channels_context(hub: Hub) -> zmq.asyncio.Context:
    """Return what all channels of a hub are made of; its threads run.

    Called before a kernel begins, which takes threads as well: zmq aborts the process where its own do not begin.

    Args:
        hub: On whose thread this is.

    Raises:
        RuntimeError: This user or container has no threads left.
    """
    if hub.channels is None:
        require_threads(OF_CHANNELS)
        hub.channels = zmq.asyncio.Context()
        hub.channels.setsockopt(zmq.RECONNECT_IVL, KNOCK_MS)
        hub.channels.socket(zmq.DEALER).close()  # the first one begins the threads
    context: zmq.asyncio.Context = hub.channels
    return context


class Channels:
    """The channels to a kernel whose process runs.

    Args:
        connection_file: How it is reached.
        label: Its name, for what is logged.
        output: Takes everything that it publishes.
        death: Done when its process has gone.
        context: What `channels_context` has returned before the process began.
    """

    def __init__(
        self,
        connection_file: str,
        label: str,
        output: Output,
        death: asyncio.Future[Death],
        context: zmq.asyncio.Context,
    ) -> None:
        self._label = label
        self._output = output
        self._death = death
        self._replies: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._idle: dict[str, asyncio.Event] = {}
        self._orders: set[str] = set()
        self._requesting = asyncio.Lock()
        self._published = asyncio.Event()
        self._closed = False
        self._client = AsyncKernelClient(context=context)
        self._client.load_connection_file(connection_file)
        self._client.start_channels(stdin=False, hb=False)
        self._tasks = [asyncio.create_task(self._pump_output()), asyncio.create_task(self._pump_replies())]

    def fail(self, death: Death) -> None:
        """End what waits for replies: the process has gone."""
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(KernelDied(str(death)))

    def close(self) -> None:
        """Let go of the kernel, whether it runs or not."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        self._client.stop_channels()

    async def drain(self) -> None:
        """Let what the process published before its end arrive."""
        for _ in range(20):
            self._published.clear()
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(self._published.wait(), 0.02)
            if not self._published.is_set():
                return

    async def answer(self) -> None:
        """Ask until the kernel has answered and its output is seen to arrive."""
        while not self._death.done():
            request = self._client.kernel_info()
            reply = self._expect(request)
            both: set[asyncio.Future[Any]] = {reply, self._death}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(self._published.wait(), ASK_AGAIN_S)
                if reply.done():
                    reply.result()
                    return
        raise KernelDied(f"a background kernel did not start: {self._death.result()}")

    async def answer_meanwhile(self) -> None:
        """Ask a kernel that may be busy whether it is there: its control channel has a thread of its own."""
        request = self._client.session.msg("kernel_info_request", {})
        self._client.control_channel.send(request)
        reply = asyncio.ensure_future(self._client.get_control_msg())
        both: set[asyncio.Future[Any]] = {reply, self._death}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not reply.done():
            reply.cancel()
            raise KernelDied(str(self._death.result()))

    async def be_heard(self) -> None:
        """Ask a kernel that may be busy until its output is seen to arrive: what it says before that is lost."""
        while True:
            await self.answer_meanwhile()
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(self._published.wait(), ASK_AGAIN_S)
                return

    async def execute(self, code: str, *, order: bool = False) -> dict[str, Any]:
        """Run code in the kernel; return the reply's content once all its output was handed over.

        Args:
            code: What to run.
            order: It is ours, not the user's: it is not counted, and an error of it is in the reply only.

        Raises:
            KernelDied: The process ended meanwhile.
        """
        self._require_open()
        request = self._client.execute(
            code, silent=order, store_history=not order, allow_stdin=False, stop_on_error=False
        )
        if order:
            self._orders.add(request)
        try:
            reply = await self._expect(request)
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(self._idle[request].wait(), 5.0)
        finally:
            self._replies.pop(request, None)
            self._idle.pop(request, None)
            self._orders.discard(request)
        return reply

    async def request(self, kind: str, content: dict[str, Any]) -> dict[str, Any]:
        """Ask the kernel something in the middle of its code; return its answer (`in_kernel.output_channel`).

        Args:
            kind: The kind of request; the kernel answers those that it has handlers for.
            content: With which words.

        Raises:
            KernelDied: The process has ended.
            TimeoutError: It did not answer: its interpreter is held up, in C say.
        """
        async with self._requesting:
            self._require_open()  # it may have died while another request was under way
            message = self._client.session.msg(kind, content)
            self._client.control_channel.send(message)
            reply = asyncio.ensure_future(self._replied(message["header"]["msg_id"]))
            both: set[asyncio.Future[Any]] = {reply, self._death}
            try:
                await asyncio.wait(both, timeout=REQUEST_S, return_when=asyncio.FIRST_COMPLETED)
                if reply.done() and reply.exception() is not None:
                    self._require_open()  # closed sockets fail in ways of their own: its end is the reason
                if reply.done():
                    return reply.result()
            finally:
                reply.cancel()
        self._require_open()
        raise TimeoutError(
            f"the kernel did not answer within {REQUEST_S:.0f} s because its code blocks the "
            "interpreter. It may answer later"
        )

    def _require_open(self) -> None:
        """Refuse to talk to a kernel that has died, or was let go of: its sockets are closed.

        Raises:
            KernelDied: It has.
        """
        if self._death.done():
            raise KernelDied(str(self._death.result()))
        if self._closed:
            raise KernelDied("its kernel was ended")

    def _expect(self, request: str) -> asyncio.Future[dict[str, Any]]:
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # never "not retrieved"
        self._replies[request] = future
        self._idle[request] = asyncio.Event()
        return future

    async def _replied(self, request: str) -> dict[str, Any]:
        while True:
            message = await self._client.get_control_msg()
            if message["parent_header"].get("msg_id") == request:
                content: dict[str, Any] = message["content"]
                return content

    async def _pump_output(self) -> None:
        while True:
            message = await self._client.get_iopub_msg()
            self._published.set()
            request = message["parent_header"].get("msg_id")
            if message["msg_type"] == "status":
                if message["content"]["execution_state"] == "idle" and request in self._idle:
                    self._idle[request].set()
            elif message["msg_type"] != "error" or request not in self._orders:
                try:
                    self._output(message["msg_type"], message["content"])
                except Exception:  # a page that cannot be reached must not end the trial
                    logging.getLogger("tsnb").exception("output of %s could not be shown", self._label)

    async def _pump_replies(self) -> None:
        while True:
            message = await self._client.get_shell_msg()
            reply = self._replies.get(message["parent_header"].get("msg_id", ""))
            if reply is not None and not reply.done():
                reply.set_result(message["content"])
