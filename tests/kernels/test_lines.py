"""Nonsense on the lines that a notebook and its kernels inherit: an error or a closed line; nothing leaks or hangs."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import random
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.session import DELIM

from tsnb.errors import TsnbError
from tsnb.kernels.cargo import lane
from tsnb.kernels.cargo.lane import FileLane
from tsnb.kernels.cargo.unnamed_file import Cargo
from tsnb.kernels.hub import the_hub
from tsnb.kernels.in_kernel import output_channel
from tsnb.kernels.processes import forking, forkserver
from tsnb.kernels.processes.forking import ForkServer, Unable
from tsnb.kernels.processes.process import Launch
from tsnb.native.ties import packet_pair

SEEDS = range(5)
NEVER_ENDS = "import time; time.sleep(60)"


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Count this process's descriptors before and after."""
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) == before


def junk(rng: random.Random) -> bytes:
    """Return bytes that may or may not look like something."""
    kind = rng.randrange(6)
    if kind == 0:
        return rng.randbytes(rng.randint(1, 64))
    if kind == 1:
        return struct.pack("=I", rng.choice([0, 1, 2, 7, 2**32 - 1])) * rng.randint(1, 3)
    if kind == 2:
        return b"[" * rng.choice([1, 100, 100_000])
    if kind == 3:
        return json.dumps(
            {
                rng.choice(["id", "pid", "ready", "ended", "refused", "x"]): rng.choice(
                    [None, True, -1, 1, 2**40, 10**30, 0.5, "x", [], {}, [[1]]]
                )
                for _ in range(rng.randint(1, 4))
            }
        ).encode()
    if kind == 4:
        return struct.pack("=3I", rng.choice([0, 2, 2**31, 2**32 - 1]), 2**32 - 1, 5) + b"xy"
    return rng.randbytes(rng.choice([4, 8, 60_000]))


def open_something(rng: random.Random, directory: Path) -> int:
    return os.open(rng.choice(["/dev/zero", "/dev/null", "/etc/hostname", str(directory)]), os.O_RDONLY)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_hubs_end_of_a_lane_takes_what_it_waits_for_and_nothing_else(
    seed: int, tmp_path: Path, descriptors: None
) -> None:
    """A trial's code can reach its end: short and long packets, other files, other numbers."""
    rng = random.Random(seed)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        raised: list[Any] = []
        loop.set_exception_handler(lambda _, context: raised.append(context))
        line = FileLane(loop)
        wanted = [line.expect() for _ in range(20)]
        line.theirs.settimeout(5.0)
        sound, files, none = wanted[:10], wanted[10:15], wanted[15:]
        for number in wanted[:15]:
            for _ in range(rng.randint(0, 5)):
                passed = [open_something(rng, tmp_path) for _ in range(rng.randint(0, 3))]
                made = junk(rng)[:1000]
                if not (len(made) == 4 and struct.unpack("=I", made)[0] in wanted):
                    socket.send_fds(line.theirs, [made], passed)
                for descriptor in passed:
                    os.close(descriptor)
                await asyncio.sleep(0)
            path = tmp_path / f"{number}"
            path.write_bytes(b"%d" % number)
            descriptor = os.open(path if number in sound else tmp_path, os.O_RDONLY)
            socket.send_fds(line.theirs, [struct.pack("=I", number)], [descriptor])
            os.close(descriptor)
        for number in sound:
            cargo = await line.receive(number)
            assert cargo.read(0, 10) == b"%d" % number
            cargo.close()
        for number in files:
            with pytest.raises(TsnbError, match="cannot be read"):
                await line.receive(number)
        line.theirs.close()
        with pytest.raises(TsnbError, match="its kernel has ended"):  # at once, not after a minute
            await line.receive(none[0])
        line.close()
        assert not raised

    asyncio.run(run())


def test_what_nobody_waits_for_is_not_reported_when_a_kernel_ends() -> None:
    """A cell that was started is not asked for what it kept; asyncio would print a traceback into the notebook."""

    async def ends() -> list[Any]:
        loop = asyncio.get_running_loop()
        raised: list[Any] = []
        loop.set_exception_handler(lambda _, context: raised.append(context))
        line = FileLane(loop)
        number = line.expect()
        line.handed_over()
        with pytest.raises(TsnbError, match="its kernel has ended"):
            await line.receive(number)
        line.expect()
        line.close()
        del line
        gc.collect()
        await asyncio.sleep(0)
        return raised

    assert asyncio.run(ends()) == []


@pytest.mark.parametrize("packet", [b"x", b"12345", b"1234"], ids=["short", "long", "without a file"])
def test_the_kernels_end_of_a_lane_says_what_is_wrong(
    packet: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, descriptors: None
) -> None:
    """Two files of one number as well."""
    mine, theirs = packet_pair()
    with mine, theirs:
        monkeypatch.setattr(lane, "_here", theirs)
        monkeypatch.setattr(lane, "_arrived", {})
        passed = [] if packet == b"1234" else [os.open(tmp_path, os.O_RDONLY)]
        socket.send_fds(mine, [packet], passed)
        for number in (1, 2, 2):
            cargo_descriptor = os.open("/dev/null", os.O_RDONLY)
            socket.send_fds(mine, [struct.pack("=I", number)], [cargo_descriptor])
            os.close(cargo_descriptor)
        for descriptor in passed:
            os.close(descriptor)
        with pytest.raises(ConnectionError, match="a message that the notebook never sends"):
            lane.take(1)
        os.close(lane.take(1))
        with pytest.raises(ConnectionError, match="a message that the notebook never sends"):
            lane.take(3)
        os.close(lane.take(2))
        mine.close()
        with pytest.raises(ConnectionError, match="has ended"):
            lane.take(3)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_worker_prints_is_a_message_or_left_out(seed: int, tmp_path: Path, descriptors: None) -> None:
    """Counts and lengths of gigabytes, cut off and mixed up; a device that has no end."""
    rng = random.Random(seed)
    good = output_channel._packet([b"", b"stream.stdout", DELIM, b"s", b"{}", b"{}", b"{}", b"{}"])
    assert output_channel._frames(good)[0] == b"stream.stdout"
    for _ in range(300):
        made = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            made[rng.randrange(len(made))] = rng.randrange(256)
        for packet in (junk(rng), bytes(made), good[: rng.randrange(len(good))], good + junk(rng)):
            try:
                frames = output_channel._frames(packet)
            except ValueError:
                continue
            assert sum(map(len, frames)) <= len(packet) and DELIM in frames
    for what in ("/dev/zero", str(tmp_path)):
        with pytest.raises(ValueError, match="no file"):
            output_channel._read(os.open(what, os.O_RDONLY))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_fork_server_answers_every_request_that_makes_no_sense(seed: int, descriptors: None) -> None:
    """With a refusal, and closes what came along; nothing is forked."""
    rng = random.Random(seed)
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with mine, theirs:
        mine.settimeout(5.0)
        server = forkserver._Forker(theirs)
        for _ in range(60):
            packet = junk(rng)
            descriptor = os.open("/dev/null", os.O_RDONLY)
            socket.send_fds(mine, [packet], [descriptor] * rng.randint(0, 3))
            os.close(descriptor)
            assert server._answer() is None
            assert json.loads(mine.recv(1 << 20))["refused"]
        assert not server._requests


SAYS = """
import json, os, socket, sys, time
control = socket.socket(fileno=int(sys.argv[2]))
if {ready}: control.send(b'{{"ready": true}}')
if {asked}: request = json.loads(control.recv(1 << 20))
for packet in {packets}: control.send(packet)
time.sleep(60)
"""


@pytest.mark.parametrize("asked", [False, True], ids=["before it is ready", "in answer to a request"])
def test_a_fork_server_that_talks_nonsense_is_not_believed(
    asked: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Nobody waits for it, and no process is signalled because it says that it is a kernel's."""
    hub = the_hub()
    rng = random.Random(7)
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as bystander:
        for packet in (
            *(json.dumps({"id": number, "pid": bystander.pid}).encode() for number in (1, None)),
            *(
                b"\xff",
                b"[" * 100_000,
                b'{"id": 1, "ended": %d}' % 10**30,
                b'{"id": [], "refused": ""}',
                b"{}",
            ),
            junk(rng),
        ):
            code = SAYS.format(ready=asked, asked=asked, packets=[packet, junk(rng)])
            monkeypatch.setattr(forking, "entry", lambda _, code=code: code)
            raised: list[Any] = []
            monkeypatch.setattr(hub.loop, "call_exception_handler", raised.append)

            async def ask() -> ForkServer:
                server = ForkServer(hub)
                _mine, theirs = packet_pair()
                launch = Launch(["-f", "x"], server._environment, tmp_path / "log", theirs.fileno())
                with _mine, theirs, pytest.raises(Unable, match="broke its protocol"):
                    await server.fork(launch)
                await server.end()
                return server

            caplog.clear()
            with caplog.at_level(logging.WARNING, logger="tsnb"):
                server = hub.call(ask())
            assert "not part of its protocol" in caplog.text
            assert not server.usable and bystander.poll() is None
            assert not raised
            server._process.wait()
        bystander.kill()


def test_a_cargo_of_a_directory_is_an_error_and_closes_it(tmp_path: Path, descriptors: None) -> None:
    """A descriptor is of anything."""
    with pytest.raises(IsADirectoryError):
        Cargo.received(os.open(tmp_path, os.O_RDONLY))
