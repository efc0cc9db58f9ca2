"""One suite over every channel: what a producer and a consumer may rely on."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tsnb.errors import RemoteProtocolError
from tsnb.transport import loopback
from tsnb.transport.channel import Channel, ChannelClosed, Outbox
from tsnb.transport.seqpacket import Listener, SeqpacketChannel, connect

Pair = tuple[Channel, Channel]


def _seqpacket() -> Pair:
    listener = Listener(address := f"tsnb-{os.getuid()}-test-{secrets.token_hex(4)}")
    ours = connect(address)
    theirs = listener.accept()
    listener.close()
    assert theirs is not None
    return ours, theirs


@pytest.fixture(params=[_seqpacket, loopback.pair], ids=["seqpacket", "loopback"])
def ends(request: pytest.FixtureRequest) -> Iterator[Pair]:
    make: Callable[[], Pair] = request.param
    one, two = make()
    yield one, two
    one.close()
    two.close()


def test_packets_arrive_whole_and_in_order(ends: Pair) -> None:
    """No framing of ours is needed."""
    one, two = ends
    for packet in (b"a", b"bc", b"x" * 100_000):
        assert one.send(packet)
        assert two.receive() == packet
    for number in range(50):
        one.send(bytes([number]))
    assert [two.receive() for _ in range(50)] == [bytes([n]) for n in range(50)]


def test_nothing_to_receive_is_none_and_wait_tells(ends: Pair) -> None:
    """Neither side ever blocks by surprise."""
    one, two = ends
    assert two.receive() is None
    assert two.wait(0.01) is False
    one.send(b"a")
    assert two.wait(1.0) is True


def test_a_full_queue_is_false_and_the_outbox_keeps_the_order(ends: Pair) -> None:
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


def test_an_outbox_with_a_limit_gives_up_on_an_end_that_does_not_read(ends: Pair) -> None:
    """A peer that never reads costs no more than that."""
    outbox = Outbox(ends[0])
    outbox.limit_bytes = 10_000
    with pytest.raises(ChannelClosed, match="does not read"):
        post_many(outbox, 5000)
    assert outbox.overflowed
    assert len(outbox) == 0


def test_what_was_sent_before_a_close_is_received_before_the_end(ends: Pair) -> None:
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
    assert two.wait(1.0) is True, "the end is something to receive"


def test_closing_twice_is_harmless_and_a_closed_end_refuses(ends: Pair) -> None:
    """Finalizers come late."""
    one, _ = ends
    one.close()
    one.close()
    with pytest.raises(ChannelClosed):
        one.send(b"x")
    with pytest.raises(ChannelClosed):
        one.receive()


def test_a_descriptor_travels(tmp_path: object) -> None:
    """The arena is passed, not named."""
    one, two = _seqpacket()
    read, write = os.pipe()
    one.send(b"here", write)
    os.close(write)
    assert isinstance(two, SeqpacketChannel)
    packet, fd = two.receive_with_fd()
    assert packet == b"here"
    assert fd is not None
    os.write(fd, b"through")
    os.close(fd)
    assert os.read(read, 10) == b"through"
    os.close(read)
    one.close()
    two.close()


def test_the_peer_is_who_the_kernel_says() -> None:
    """Uid and pid are not what the other side claims."""
    one, two = _seqpacket()
    assert one.peer == two.peer == (os.getpid(), os.getuid())
    one.close()
    two.close()


def test_a_forked_child_keeps_no_channel_open() -> None:
    """Else a loader's worker would hide its producer's death."""
    one, two = _seqpacket()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(read, 1)  # stays alive, with whatever it inherited
        os._exit(0)
    try:
        one.close()
        assert two.wait(1.0), "the end of file comes though the child lives"
        with pytest.raises(ChannelClosed):
            two.receive()
    finally:
        os.write(write, b"x")
        os.waitpid(child, 0)
        for fd in (read, write):
            os.close(fd)
        two.close()


def test_packets_larger_than_ours_and_descriptors_nobody_asked_for_are_not_kept() -> None:
    """Neither cut short and taken for whole, nor left open."""
    one, two = _seqpacket()
    assert isinstance(one, SeqpacketChannel)
    one._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    one.send(b"x" * ((1 << 17) + 1))
    with pytest.raises(RemoteProtocolError):
        two.receive()
    before = len(os.listdir("/proc/self/fd"))
    socket.send_fds(one._socket, [b"three"], [0, 1, 2])
    assert two.receive() == b"three"
    socket.send_fds(one._socket, [b"many"], [0] * 20)
    assert isinstance(two, SeqpacketChannel)
    packet, fd = two.receive_with_fd()
    assert packet == b"many" and fd is not None
    os.close(fd)
    assert len(os.listdir("/proc/self/fd")) == before
    one.close()
    two.close()


FULL = """
import contextlib, os, resource, secrets
from tsnb.transport.seqpacket import Listener, OutOfDescriptors, connect

def refused():
    try:
        listener.accept()
    except OutOfDescriptors:
        return True

listener = Listener(address := f"tsnb-{os.getuid()}-test-{secrets.token_hex(4)}")
first, second = connect(address), connect(address)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), hard))
with contextlib.suppress(OSError):
    while True:
        os.dup(0)
assert refused()
assert listener.turn_away(b"no room")
assert refused()
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
assert first.receive() == b"no room"
assert listener.accept() is not None
"""


def test_a_listener_without_descriptors_turns_the_next_one_away_with_a_word() -> None:
    """And takes the one after that, once there are some. In a process of its own: no other thread closes any there."""
    subprocess.run([sys.executable, "-c", FULL], check=True, timeout=60)


def test_nobody_listening_is_refused_at_once() -> None:
    """A dead producer's address is not waited for."""
    with pytest.raises(ConnectionRefusedError):
        connect("tsnb-nobody-is-here")
