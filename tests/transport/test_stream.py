"""What a stream has to do for its packets that other channels get from the kernel: whole, however it is cut."""

from __future__ import annotations

import errno
import os
import random
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transport.lines import Line, file_address, linked
from tsnb.errors import RemoteProtocolError
from tsnb.stream.transport import local
from tsnb.stream.transport.channel import ChannelClosed, Outbox
from tsnb.stream.transport.sockets import connected, uid_of
from tsnb.stream.transport.stream import StreamChannel

LARGEST = 1 << 17


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[Line, Line]]:
    one, two = linked(file_address(tmp_path))
    yield one, two
    one.close()
    two.close()


def received(channel: Line, outbox: Outbox, count: int) -> list[bytes]:
    """Receive so many packets, while the other end sends what still waits there."""
    got: list[bytes] = []
    deadline = time.monotonic() + 60.0
    while len(got) < count:
        assert time.monotonic() < deadline, f"{len(got)} of {count} packets"
        if (packet := channel.receive()) is None:
            outbox.flush()
        else:
            got.append(packet)
    return got


def test_packets_of_all_sizes_pass_a_socket_that_takes_them_in_parts(ends: tuple[Line, Line]) -> None:
    """With a queue far smaller than one packet: parts are kept, and each packet comes whole, once, in order."""
    one, two = ends
    one._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    rng = random.Random(3)
    sent = [rng.randbytes(rng.choice([1, 4, 36, 5000, 70_000, LARGEST])) for _ in range(120)]
    outbox = Outbox(one)
    for packet in sent:
        outbox.post(packet)
    assert one.pending, "a packet is half way"
    assert received(two, outbox, len(sent)) == sent
    assert outbox.flush() and not one.pending


def test_a_part_that_is_left_counts_as_waiting_and_goes_without_another_packet(
    ends: tuple[Line, Line],
) -> None:
    """Whoever looks after outboxes must not overlook it: nothing may ever be sent after it."""
    one, two = ends
    one._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    outbox = Outbox(one)
    last = b"x" * LARGEST
    outbox.post(last)
    assert len(outbox) == 1
    assert received(two, outbox, 1) == [last]
    assert len(outbox) == 0


def test_a_packet_in_parts_does_not_wake_its_receiver_until_more_comes(ends: tuple[Line, Line]) -> None:
    """Else half a packet of somebody hostile would keep the producer busy for ever."""
    one, two = ends
    one._socket.send(struct.pack("<I", 10) + b"half")
    assert two.wait(60.0)
    assert two.receive() is None
    assert not two.wait(0.05)
    one._socket.send(b" more.")
    assert two.wait(60.0)
    assert two.receive() == b"half more."


def test_a_packet_that_its_sender_did_not_finish_is_no_packet(ends: tuple[Line, Line]) -> None:
    """Killed in the middle: what came before is whole, then it is the end."""
    one, two = ends
    one.send(b"whole")
    one._socket.send(struct.pack("<I", 100) + b"begun")
    one.close()
    assert two.receive() == b"whole"
    with pytest.raises(ChannelClosed):
        two.receive()


def test_an_empty_packet_is_a_breach(ends: tuple[Line, Line]) -> None:
    """None of ours is empty; elsewhere it stands for the end."""
    one, two = ends
    one._socket.send(struct.pack("<I", 0))
    with pytest.raises(RemoteProtocolError):
        two.receive()


def test_threads_that_send_at_once_do_not_mix_their_packets(ends: tuple[Line, Line]) -> None:
    """Finalizers release batches in any thread, while the loop posts."""
    one, two = ends
    count, senders = 400, 4
    outboxes = [Outbox(one) for _ in range(senders)]

    def post(number: int) -> None:
        rng = random.Random(number)
        for turn in range(count):
            outboxes[number].post(struct.pack("<BI", number, turn) + bytes(rng.choice([31, 900, 20_000])))

    threads = [threading.Thread(target=post, args=(number,)) for number in range(senders)]
    for thread in threads:
        thread.start()
    turns = [0] * senders
    deadline = time.monotonic() + 60.0
    while sum(turns) < count * senders:
        assert time.monotonic() < deadline, turns
        packet = two.receive()
        if packet is None:
            if not any(thread.is_alive() for thread in threads):
                for outbox in outboxes:
                    outbox.flush()
            continue
        number, turn = struct.unpack_from("<BI", packet)
        assert turn == turns[number], "in order, none missing, none twice"
        assert len(packet) - 5 in {31, 900, 20_000}
        turns[number] += 1
    for thread in threads:
        thread.join()


def test_a_finalizer_in_the_middle_of_a_send_may_send(ends: tuple[Line, Line]) -> None:
    """Its packet comes before or after the other one, or waits: never inside it."""
    one, two = ends
    outbox = Outbox(one)
    began = time.monotonic()

    def release(number: int, frame: object) -> None:
        outbox.post(b"released")

    former = signal.signal(signal.SIGALRM, release)  # as a finalizer does, it runs between any two steps
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    got: list[bytes] = []
    try:
        while time.monotonic() - began < 1.0:
            outbox.post(b"taken" * 500)
            while (packet := two.receive()) is not None:
                got.append(packet)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    while len(outbox) or (packet := two.receive()) is not None:
        if not outbox.flush() or packet is None:
            packet = two.receive()
        if packet is not None:
            got.append(packet)
    assert set(got) == {b"released", b"taken" * 500}


def test_an_interrupt_while_receiving_loses_no_step(ends: tuple[Line, Line]) -> None:
    """Ctrl-C at any moment: a packet may be lost with it, as elsewhere; those behind it come whole."""
    one, two = ends
    stop = threading.Event()
    outbox = Outbox(one)

    def feed() -> None:
        number = 0
        while not stop.is_set():
            if len(outbox) < 100:
                outbox.post(struct.pack("<I", number) + b"n" * (number % 3000))
                number += 1
            else:
                outbox.flush()

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    feeder = threading.Thread(target=feed)
    former = signal.signal(signal.SIGALRM, interrupt)
    interrupts, last, began = 0, -1, time.monotonic()
    feeder.start()
    try:
        while time.monotonic() - began < 2.0 or interrupts < 20:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0003)
                while True:
                    packet = two.receive()
                    if packet is not None:
                        (number,) = struct.unpack_from("<I", packet)
                        assert packet[4:] == b"n" * (number % 3000)
                        assert number > last
                        last = number
            except KeyboardInterrupt:
                interrupts += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
        stop.set()
        feeder.join()
    assert last > 100


def test_what_a_closed_channel_still_had_reaches_no_other_file(
    ends: tuple[Line, Line], tmp_path: Path
) -> None:
    """Its descriptor's number is soon somebody else's."""
    one, _ = ends
    assert isinstance(one, StreamChannel)
    one._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    one.send(b"x" * LARGEST)
    assert one.pending
    number = one.fileno()
    one.close()
    first = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    other = os.dup2(first, number)
    os.close(first)
    with pytest.raises(ChannelClosed):
        one.flush()
    del one
    assert os.fstat(other).st_size == 0
    os.close(other)


def test_a_listener_removes_its_file_and_a_forked_child_of_it_does_not(tmp_path: Path) -> None:
    """A worker that ends must not cut its producer off."""
    address = file_address(tmp_path)
    listener = local.listen(address)
    child = os.fork()
    if child == 0:
        listener.close()
        os._exit(0)
    os.waitpid(child, 0)
    local.connect(address).close()
    listener.close()
    assert not os.path.exists(address)


def test_a_forked_child_is_not_held_up_by_a_thread_it_has_not(ends: tuple[Line, Line]) -> None:
    """Another thread was receiving at that moment: the lock it held is not held in the child."""
    _, two = ends
    assert isinstance(two, StreamChannel)
    held, done = threading.Event(), threading.Event()

    def receive() -> None:
        with two._reading:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=receive)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            two.receive()
        except ChannelClosed:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    done.set()
    thread.join()


def test_a_listener_that_goes_while_it_is_looked_at_is_a_refusal(tmp_path: Path) -> None:
    """The system tells no more who it was (macOS): nobody is there, as a moment later."""

    def gone(sock: socket.socket) -> StreamChannel:
        raise OSError(errno.ENOTCONN, "not connected")

    address = file_address(tmp_path)
    listener = local.listen(address)
    with pytest.raises(ConnectionRefusedError):
        connected(socket.socket(socket.AF_UNIX), address, address, gone)
    listener.close()


def test_the_words_of_macos_on_the_other_end_are_read() -> None:
    """`struct xucred` as sys/ucred.h has it; one of another version is refused rather than misread."""
    groups = [20, *range(15)]
    assert uid_of(struct.pack("@IIh16I", 0, 501, 16, *groups)) == 501
    for wrong in (struct.pack("@IIh16I", 1, 501, 16, *groups), b"", bytes(12)):
        with pytest.raises(OSError, match="does not know"):
            uid_of(wrong)
