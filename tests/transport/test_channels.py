"""One suite over every channel: what a producer and a consumer may rely on."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transport.lines import Line, abstract_address, connect, file_address, framed, linked
from tsnb.errors import RemoteProtocolError
from tsnb.stream.transport import loopback
from tsnb.stream.transport.channel import Channel, ChannelClosed, Outbox
from tsnb.stream.transport.sockets import MAX_PACKET_BYTES

KINDS = ["seqpacket", "stream"]


@pytest.fixture(params=KINDS)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An address of each kind, at which nobody listens."""
    return abstract_address() if request.param == "seqpacket" else file_address(tmp_path)


@pytest.fixture
def lines(address: str) -> Iterator[tuple[Line, Line]]:
    """Two ends of each kind between processes."""
    one, two = linked(address)
    yield one, two
    one.close()
    two.close()


@pytest.fixture(params=[*KINDS, "loopback"])
def ends(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Channel, Channel]]:
    """Two ends of every kind."""
    one: Channel
    two: Channel
    if request.param == "loopback":
        one, two = loopback.pair()
    else:
        one, two = linked(abstract_address() if request.param == "seqpacket" else file_address(tmp_path))
    yield one, two
    one.close()
    two.close()


def test_packets_arrive_whole_and_in_order(ends: tuple[Channel, Channel]) -> None:
    """No framing of ours is needed."""
    one, two = ends
    for packet in (b"a", b"bc", b"x" * 100_000):
        assert one.send(packet)
        assert two.receive() == packet
    for number in range(50):
        one.send(bytes([number]))
    assert [two.receive() for _ in range(50)] == [bytes([n]) for n in range(50)]


def test_nothing_to_receive_is_none_and_wait_tells(ends: tuple[Channel, Channel]) -> None:
    """Neither side ever blocks by surprise."""
    one, two = ends
    assert two.receive() is None
    assert two.wait(0.01) is False
    one.send(b"a")
    assert two.wait(60.0) is True


def test_a_full_queue_is_false_and_the_outbox_keeps_the_order(ends: tuple[Channel, Channel]) -> None:
    """A peer that does not read costs memory, not a stall."""
    one, two = ends
    outbox = Outbox(one)
    sent = 2000
    for number in range(sent):
        outbox.post(number.to_bytes(4, "little"))
    assert len(outbox) > 0
    got: list[int] = []
    while len(got) < sent:
        packet = two.receive()
        if packet is None:
            outbox.flush()
        else:
            got.append(int.from_bytes(packet, "little"))
    assert got == list(range(sent))
    assert outbox.flush()


def post_many(outbox: Outbox, count: int) -> None:
    for _ in range(count):
        outbox.post(b"x" * 36)


def test_an_outbox_with_a_limit_gives_up_on_an_end_that_does_not_read(ends: tuple[Channel, Channel]) -> None:
    """A peer that never reads costs no more than that."""
    outbox = Outbox(ends[0])
    outbox.limit_bytes = 10_000
    with pytest.raises(ChannelClosed, match="does not read"):
        post_many(outbox, 5000)
    assert outbox.overflowed
    assert len(outbox) == 0


def test_what_was_sent_before_a_close_is_received_before_the_end(ends: tuple[Channel, Channel]) -> None:
    """Also when the closing side had packets of ours unread, which resets a real connection."""
    one, two = ends
    two.send(b"never read")
    one.send(b"last words")
    one.close()
    assert two.receive() == b"last words"
    with pytest.raises(ChannelClosed):
        two.receive()
    with pytest.raises(ChannelClosed):
        two.send(b"x")
    assert two.wait(60.0) is True, "the end is something to receive"


def test_closing_twice_is_harmless_and_a_closed_end_refuses(ends: tuple[Channel, Channel]) -> None:
    """Finalizers come late."""
    one, _ = ends
    one.close()
    one.close()
    with pytest.raises(ChannelClosed):
        one.send(b"x")
    with pytest.raises(ChannelClosed):
        one.receive()


def test_a_descriptor_travels(lines: tuple[Line, Line]) -> None:
    """The arena is passed, not named."""
    one, two = lines
    read, write = os.pipe()
    one.send(b"here", write)
    os.close(write)
    one.send(b"there")
    packet, fd = two.receive_with_fd()
    assert packet == b"here"
    assert fd is not None
    os.write(fd, b"through")
    os.close(fd)
    assert os.read(read, 10) == b"through"
    os.close(read)
    assert two.receive_with_fd() == (b"there", None)


def test_the_peer_is_who_the_kernel_says(lines: tuple[Line, Line]) -> None:
    """Uid and pid are not what the other side claims."""
    one, two = lines
    assert one.peer == two.peer == (os.getpid(), os.getuid())


def test_a_forked_child_keeps_no_channel_open(lines: tuple[Line, Line]) -> None:
    """Else a loader's worker would hide its producer's death."""
    one, two = lines
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(read, 1)  # stays alive, with whatever it inherited
        os._exit(0)
    try:
        one.close()
        assert two.wait(60.0), "the end of file comes though the child lives"
        with pytest.raises(ChannelClosed):
            two.receive()
    finally:
        os.write(write, b"x")
        os.waitpid(child, 0)
        for fd in (read, write):
            os.close(fd)


def test_a_packet_larger_than_ours_is_not_cut_short_and_taken_for_whole(lines: tuple[Line, Line]) -> None:
    """It is an error, whatever comes after it."""
    one, two = lines
    one._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    one.send(b"x" * ((1 << 17) + 1))
    with pytest.raises(RemoteProtocolError):
        two.receive()


def test_a_small_packet_takes_little_memory_to_receive(lines: tuple[Line, Line]) -> None:
    """Not as much as the largest would need, each time; and it stays as it is when the next one comes."""
    one, two = lines
    sent = [bytes((number,)) * 40 for number in range(100)]
    one.send(b"first")
    two.wait(1.0)
    assert two.receive() == b"first"
    received = []
    tracemalloc.start()
    try:
        for packet in sent:
            one.send(packet)
            two.wait(1.0)
            received.append(two.receive())
        assert tracemalloc.get_traced_memory()[1] < MAX_PACKET_BYTES // 2
    finally:
        tracemalloc.stop()
    assert received == sent


def test_descriptors_nobody_asked_for_are_not_kept(lines: tuple[Line, Line]) -> None:
    """Not one stays open, however many come along; of those that are asked for, one does."""
    one, two = lines
    before = len(os.listdir("/proc/self/fd"))
    socket.send_fds(one._socket, [framed(one, b"three")], [0, 1, 2])
    assert two.receive() == b"three"
    socket.send_fds(one._socket, [framed(one, b"many")], [0] * 20)
    packet, fd = two.receive_with_fd()
    assert packet == b"many" and fd is not None
    os.close(fd)
    assert len(os.listdir("/proc/self/fd")) == before


FULL = """
import contextlib, os, resource, sys
from tsnb.errors import TsnbError
from tsnb.stream.transport.local import connect, listen
from tsnb.stream.transport.sockets import OutOfDescriptors

def refused():
    try:
        listener.accept()
    except OutOfDescriptors:
        return True

listener = listen(sys.argv[1])
first, second = connect(sys.argv[1]), connect(sys.argv[1])
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
few = max(map(int, os.listdir("/proc/self/fd")))
resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
with contextlib.suppress(OSError):
    while True:
        os.dup(0)
assert refused()
assert listener.turn_away(b"no room")
assert refused()
resource.setrlimit(resource.RLIMIT_NOFILE, (few + 1, hard))
with contextlib.suppress(TsnbError):  # one descriptor is not enough to listen
    listen(sys.argv[1] + "-more")
    raise AssertionError
assert not os.path.exists(sys.argv[1] + "-more")
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
assert first.receive() == b"no room"
assert listener.accept() is not None
listener.close()
"""


def test_a_listener_without_descriptors_turns_the_next_one_away_with_a_word(address: str) -> None:
    """And takes the one after that, once there are some. In a process of its own: no other thread closes any there."""
    subprocess.run([sys.executable, "-c", FULL, address], check=True, timeout=240)


def test_nobody_listening_is_refused_at_once(address: str) -> None:
    """A dead producer's address is not waited for."""
    with pytest.raises(ConnectionRefusedError):
        connect(address)
