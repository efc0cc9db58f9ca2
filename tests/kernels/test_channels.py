"""The channels to a kernel, as the notebook opens them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import zmq
from jupyter_client import write_connection_file

from tsnb.kernels.processes.channels import KNOCK_MS, Channels


def test_a_kernel_that_is_not_there_yet_is_looked_for_often(tmp_path: Path) -> None:
    """A clone opens its sockets after the notebook has: left to itself, zmq would wait for 100 to 200 ms."""

    async def intervals() -> set[int]:
        file, _ = write_connection_file(str(tmp_path / "k.json"), ip=str(tmp_path / "k"), transport="ipc")
        channels = Channels(file, "cnn", lambda *_: None, asyncio.get_running_loop().create_future())
        try:
            client = channels._client
            opened = (client.shell_channel, client.iopub_channel, client.control_channel)
            return {channel.socket.getsockopt(zmq.RECONNECT_IVL) for channel in opened}
        finally:
            channels.close()

    assert asyncio.run(intervals()) == {KNOCK_MS}
