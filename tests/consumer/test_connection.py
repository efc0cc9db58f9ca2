"""A consumer's connection: how it begins, which messages are its own, and what each way of ending means."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.consumer.played import LONG_S, End, Played, played, until
from tsnb.discovery.registry import Entry
from tsnb.errors import (
    ConsumerReplaced,
    JoinRefused,
    NameInUse,
    ProducerGone,
    RemoteProtocolError,
    StopRequested,
)
from tsnb.stream.consumer.options import Options
from tsnb.stream.consumer.talking import connection as connections
from tsnb.stream.consumer.talking.connection import Connection
from tsnb.stream.consumer.talking.waits import connect_to_successor
from tsnb.stream.decisions import events as ev
from tsnb.stream.memory.scratch import ScratchPool
from tsnb.stream.producer.session import Session
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.codec import decode

GONE = ms.RankGone(1, 0, 2)


@pytest.fixture
def producer() -> Iterator[Played]:
    with played() as made:
        yield made


@pytest.fixture
def elsewhere() -> Iterator[subprocess.Popen[bytes]]:
    """A process in the producer's place, which can be killed."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def connect(entry: Entry, **options: Any) -> Connection:
    return Connection(entry, "c", Options(**options), ScratchPool())


def wait_for(connection: Connection) -> ms.Message:
    return connection.wait(lambda waited_s: None)


def nothing_of(connection: Connection, end: End) -> None:
    """Close both ends."""
    connection.retire()
    end.heard()
    assert end.closed


def test_it_says_who_it_is_and_is_told_the_stream(producer: Played) -> None:
    """The token is the entry's; a rank says its group's name, and where in the group it stands."""
    connection = connect(producer.entry, rank=1, world_size=2, on_lag="wait")
    end = producer.end()
    assert (end.hello.role, end.hello.name) == ("consumer", "c") and end.hello.token == "the token"
    assert (end.hello.rank, end.hello.world_size, end.hello.back) == (1, 2, False)
    assert connection.welcome == producer.welcome and connection.successor_s == 0.0
    nothing_of(connection, end)


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (ms.Refused("name-in-use", "held by pid 7"), NameInUse, r"^held by pid 7\.$"),
        (ms.Refused("full", "32 are attached"), JoinRefused, r"^32 are attached\.$"),
        (ms.Parked(0, 0, 1.0), RemoteProtocolError, "Parked instead of a welcome"),
    ],
)
def test_any_other_answer_is_an_error_and_leaves_nothing(
    producer: Played, answer: ms.Message, error: type[Exception], says: str
) -> None:
    """A refusal, or a message out of place."""
    before = len(os.listdir("/proc/self/fd"))
    producer.answers = [answer]
    with pytest.raises(error, match=says):
        connect(producer.entry)
    assert len(os.listdir("/proc/self/fd")) == before + 1, "the producer's own end"


def test_a_producer_that_does_not_answer_is_an_error_not_a_hang(
    producer: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be stopped; the message says where to look."""
    monkeypatch.setattr(connections, "BUSY_S", 0.1)
    producer.answers = [None]
    with pytest.raises(ProducerGone, match=r"did not answer within.*`tsnb status s`"):
        connect(producer.entry)


def test_a_producer_that_is_busy_is_waited_for_and_one_that_is_stopped_is_not(
    producer: Played, elsewhere: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Busy with garbage, say: torch lets each worker of a loop that raised keep the collector for five seconds."""
    monkeypatch.setattr(connections, "WELCOME_S", 0.1)
    producer.answer_s = 0.5
    entry = replace(producer.entry, pid=elsewhere.pid)
    nothing_of(connect(entry), producer.end())
    producer.answers = [None]
    elsewhere.send_signal(signal.SIGSTOP)
    with pytest.raises(ProducerGone, match=r"did not answer within.*debugger"):
        connect(entry)


def test_a_producer_that_nobody_listens_for_any_more_has_just_gone(producer: Played) -> None:
    """Between the look into the registry and the connecting."""
    with pytest.raises(ProducerGone, match=r"has just ended.*To continue, start it again"):
        connect(replace(producer.entry, address=producer.entry.address + "x"))


def test_messages_for_the_connection_itself_reach_nobody_else(producer: Played) -> None:
    """Layouts and places on a device are kept; the consumer sees the first message of its own."""
    connection = connect(producer.entry)
    end = producer.end()
    end.give(0)
    end.tell(ms.Extended("nobody", b"\0"), ms.EpochEnded(0, 1))
    batch = connection.poll()
    assert isinstance(batch, ms.Batch) and connection.layouts.lookup(batch.layout) is not None
    assert connection.poll() == ms.EpochEnded(0, 1)
    assert connection.poll() is None
    nothing_of(connection, end)


def test_a_rank_that_has_gone_is_heard_of_before_the_batches_sent_earlier(producer: Played) -> None:
    """And once more in its turn."""
    connection = connect(producer.entry, world_size=2)
    end = producer.end()
    end.give(0)
    end.tell(GONE)
    assert list(connection.look_ahead()) == [GONE] and connection.arrived
    assert isinstance(connection.poll(), ms.Batch)
    assert connection.poll() == GONE and not connection.arrived
    nothing_of(connection, end)


def test_asked_to_stop_it_says_so(producer: Played) -> None:
    """What comes after that is still there."""
    connection = connect(producer.entry)
    end = producer.end()
    end.tell(ms.Steered("stop"), ms.EpochEnded(0, 3))
    with pytest.raises(StopRequested, match="to stop reading stream 's'"):
        wait_for(connection)
    assert wait_for(connection) == ms.EpochEnded(0, 3)
    nothing_of(connection, end)


def test_all_that_was_sent_is_read_before_the_end(producer: Played) -> None:
    """The line of a producer in this process has ended: it died. What is posted then goes nowhere."""
    connection = connect(producer.entry)
    end = producer.end()
    end.tell(ms.EpochEnded(0, 3))
    end.channel.close()
    assert connection.poll() == ms.EpochEnded(0, 3)
    connection.post(ms.Waiting())
    with pytest.raises(ProducerGone, match="died"):
        connection.poll()
    assert list(connection.look_ahead()) == []
    connection.retire()


def test_a_goodbye_says_how_long_to_wait_for_a_successor(producer: Played) -> None:
    """As with a restart on purpose, though nobody had said so before."""
    connection = connect(producer.entry)
    end = producer.end()
    end.tell(ms.Stopping("restart", 30.0))
    with pytest.raises(ProducerGone, match="was stopped"):
        wait_for(connection)
    assert connection.successor_s == 30.0
    nothing_of(connection, end)


def test_a_live_producer_that_closes_the_line_would_have_no_more_of_us(
    monkeypatch: pytest.MonkeyPatch, elsewhere: subprocess.Popen[bytes]
) -> None:
    """No successor is waited for, whatever it had said."""
    monkeypatch.setattr(connections, "ENDING_S", 0.05)
    with played(reconnect_s=60.0) as producer:
        connection = connect(replace(producer.entry, pid=elsewhere.pid))
        assert connection.successor_s == 60.0
        producer.end().channel.close()
        with pytest.raises(ProducerGone, match="is running but closed this connection"):
            connection.poll()
        assert connection.successor_s == 0.0
        connection.retire()


def test_a_process_that_dies_is_noticed_though_its_socket_stays_open(
    producer: Played, elsewhere: subprocess.Popen[bytes]
) -> None:
    """Its loader's workers may keep that; what it had sent before comes first."""
    connection = connect(replace(producer.entry, pid=elsewhere.pid))
    end = producer.end()
    elsewhere.kill()
    elsewhere.wait()
    end.tell(ms.EpochEnded(0, 3))
    assert wait_for(connection) == ms.EpochEnded(0, 3)
    with pytest.raises(ProducerGone, match="died"):
        wait_for(connection)
    nothing_of(connection, end)


def test_a_wait_ends_when_another_thread_closes_the_connection(producer: Played) -> None:
    """An interrupt of it would lose nothing: it says that it only waits."""
    connection = connect(producer.entry)
    end = producer.end()
    ended: list[str] = []

    def wait() -> None:
        try:
            wait_for(connection)
        except ProducerGone as error:
            ended.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: connection.idle)
    connection.retire()
    thread.join(LONG_S)
    assert not thread.is_alive() and ended
    end.heard()
    assert end.closed


def test_it_stays_open_until_the_last_batch_goes(producer: Played) -> None:
    """Its slot must not be given to another batch before; a finalizer closes it."""
    connection = connect(producer.entry)
    end = producer.end()
    end.give(0)
    batch = connection.poll()
    assert isinstance(batch, ms.Batch)
    delivered = connection.unpacker.read(batch, connection.layouts.lookup(batch.layout), private=False)
    rows = delivered.tree()["row"]
    del delivered
    connection.retire()
    assert end.heard() == [] and not end.closed and rows.tolist() == [0, 1, 2, 3]
    del rows
    assert end.heard() == [ms.Release(batch.lease)] and end.closed


def test_a_forked_child_has_no_connection(producer: Played) -> None:
    """It is told so with both process numbers; its parent goes on."""
    connection = connect(producer.entry)
    end = producer.end()
    child = os.fork()
    if child == 0:
        try:
            connection.poll()
        except ConsumerReplaced as error:
            said = str(error)
            os._exit(0 if f"(pid {os.getppid()})" in said and f"(pid {os.getpid()})" in said else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    end.tell(ms.EpochEnded(0, 3))
    assert wait_for(connection) == ms.EpochEnded(0, 3)
    nothing_of(connection, end)


def test_a_successor_is_another_producer_of_the_name(producer: Played) -> None:
    """The entry of the one that has gone does not count; one that refuses is asked again."""
    former = connect(producer.entry)
    asked: list[bool] = []

    def given_up() -> bool:
        asked.append(True)
        return len(asked) > 2

    found = connect_to_successor(former, "c", Options(), ScratchPool(), LONG_S, given_up)
    assert found is None and len(asked) == 3, "the old one is no successor"
    producer.leave()
    with played() as successor:
        successor.answers = [ms.Refused("name-in-use", "just dying")]
        found = connect_to_successor(former, "c", Options(), ScratchPool(), LONG_S, lambda: False)
        assert found is not None and found.entry == successor.entry
        end = successor.end()
        assert end.hello.back
        nothing_of(found, end)
    nothing_of(former, producer.end())


def test_a_successor_that_does_not_come_is_waited_for_no_longer_than_was_said(producer: Played) -> None:
    """Nor at all with no stall timeout."""
    former = connect(producer.entry)
    for stall_timeout_s in (0.0, 0.15):
        assert (
            connect_to_successor(former, "c", Options(), ScratchPool(), stall_timeout_s, lambda: False)
            is None
        )
    nothing_of(former, producer.end())


def test_an_interrupt_of_a_wait_finds_it_idle(producer: Played) -> None:
    """So the loop knows that nothing was lost."""
    connection = connect(producer.entry)
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        until(lambda: connection.idle)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        wait_for(connection)
    thread.join()
    assert connection.idle
    connection.poll()
    assert not connection.idle
    nothing_of(connection, producer.end())


def test_indices_and_weights_that_need_a_packet_each_are_told_of_one_batch(producer: Played) -> None:
    """Both together come in one, which is what nearly all batches have."""
    connection = connect(producer.entry)
    end = producer.end()
    heard: list[bytes] = []
    for lease, rows in ((1, 4), (2, 20_000)):
        session = Session(lease, SentTo(heard), tells_rows=True)  # type: ignore[arg-type]
        weights = np.full(rows, 0.5, "<f4").tobytes()
        session.grant(ev.Granted(0, lease, 0, 0, ev.Placed(0, b"", rows, 0, 0, range(rows), weights)))
        told = [message for message in map(decode, heard) if isinstance(message, ms.Drawn)]
        heard.clear()
        assert len(told) == (1 if rows == 4 else 2)
        for message in told:
            end.tell(message)
            connection.channel.wait(LONG_S)
            assert connection.poll() is None
        assert connection.drawn == ms.Drawn(lease, np.arange(rows, dtype="<u4").tobytes(), weights)
    nothing_of(connection, end)


class SentTo:
    """A channel's sending half: keeps what is sent."""

    pending = False

    def __init__(self, heard: list[bytes]) -> None:
        self.heard = heard

    def send(self, packet: bytes) -> bool:
        """Keep a packet."""
        self.heard.append(packet)
        return True
