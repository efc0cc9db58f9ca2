"""The channels to a kernel, as the notebook opens them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import zmq
from jupyter_client import write_connection_file

from tsnb.kernels.hub import the_hub
from tsnb.kernels.processes.channels import KNOCK_MS, Channels, channels_context
from tsnb.kernels.processes.death import Death, KernelDied


def test_a_kernel_that_is_not_there_yet_is_looked_for_often(tmp_path: Path) -> None:
    """A clone opens its sockets after the notebook has: left to itself, zmq would wait for 100 to 200 ms."""

    async def intervals() -> set[int]:
        file, _ = write_connection_file(str(tmp_path / "k.json"), ip=str(tmp_path / "k"), transport="ipc")
        context = channels_context(the_hub())
        channels = Channels(file, "cnn", lambda *_: None, asyncio.get_running_loop().create_future(), context)
        try:
            client = channels._client
            opened = (client.shell_channel, client.iopub_channel, client.control_channel)
            return {channel.socket.getsockopt(zmq.RECONNECT_IVL) for channel in opened}
        finally:
            channels.close()

    assert asyncio.run(intervals()) == {KNOCK_MS}


def test_a_request_that_waited_for_another_is_told_that_the_kernel_has_died(tmp_path: Path) -> None:
    """Its channels are closed by then: a wish to clone got an AssertionError of the sockets', and not the reason."""

    async def said() -> list[str]:
        file, _ = write_connection_file(str(tmp_path / "k.json"), ip=str(tmp_path / "k"), transport="ipc")
        death: asyncio.Future[Death] = asyncio.get_running_loop().create_future()
        channels = Channels(file, "cnn", lambda *_: None, death, channels_context(the_hub()))
        asked = [asyncio.ensure_future(channels.request("tsnb_branch", {})) for _ in range(2)]
        await asyncio.sleep(0)
        death.set_result(Death(-9, "", "its process was killed by SIGKILL"))
        channels.close()
        asked.append(asyncio.ensure_future(channels.execute("1")))
        return [str(error) for error in await asyncio.gather(*asked, return_exceptions=True)]

    assert ["SIGKILL" in text for text in asyncio.run(said())] == [True] * 3


def test_a_kernel_that_was_let_go_of_is_asked_nothing(tmp_path: Path) -> None:
    """Whether its process has gone or not."""

    async def said() -> str:
        file, _ = write_connection_file(str(tmp_path / "k.json"), ip=str(tmp_path / "k"), transport="ipc")
        context = channels_context(the_hub())
        channels = Channels(file, "cnn", lambda *_: None, asyncio.get_running_loop().create_future(), context)
        channels.close()
        with pytest.raises(KernelDied) as caught:
            await channels.request("tsnb_branch", {})
        return str(caught.value)

    assert asyncio.run(said()) == "its kernel was ended"
